"""Bundles of nests as C++: unit numbers to indices, then a scope, then the stores. Used by `kernel`."""

from __future__ import annotations

from thunder_fuser.codegen.indexing import IndexPrinter, unravel
from thunder_fuser.codegen.scope import Names, Scope
from thunder_fuser.codegen.writer import SourceWriter
from thunder_fuser.schedule.plan import Bundle, Loop, NestPlan


def emit_bundle(w: SourceWriter, names: Names, bundle: Bundle, threads: int, block: str, *, wide_index: bool) -> None:
    """All nests of a bundle, for the block whose number within the bundle is the C++ text `block`."""
    for nest in bundle.nests:
        per_block = bundle.units_per_block(nest)
        iterations = -(-per_block // threads)
        with w.block():
            if iterations > 1:
                w.line("#pragma unroll")
                with w.block(f"for (int j = 0; j < {iterations}; ++j)"):
                    _emit_unit(w, names, nest, per_block, threads, block, bundle, wide_index=wide_index, iterations=iterations)
            else:
                _emit_unit(w, names, nest, per_block, threads, block, bundle, wide_index=wide_index, iterations=1)


def _emit_unit(w: SourceWriter, names: Names, nest: NestPlan, per_block: int, threads: int, block: str, bundle: Bundle, *,
               wide_index: bool, iterations: int) -> None:
    wide_units = nest.units >= 2**31
    unit_type = "unsigned long long" if wide_units else "unsigned"
    local = f"threadIdx.x + j * {threads}u" if iterations > 1 else "threadIdx.x"
    w.line(f"const {unit_type} unit = {f'({unit_type})' if wide_units else ''}{block} * {per_block}u + {local};")
    limits = []
    if per_block % threads:
        limits.append(f"{local} < {per_block}u")
    if bundle.blocks * per_block > nest.units:
        limits.append(f"unit < {nest.units}u{'ll' if wide_units else ''}")
    if limits:
        with w.block(f"if ({' && '.join(limits)})"):
            _emit_point(w, names, nest, wide_index=wide_index)
    else:
        _emit_point(w, names, nest, wide_index=wide_index)


def _emit_point(w: SourceWriter, names: Names, nest: NestPlan, *, wide_index: bool) -> None:
    index_type = "long long" if wide_index else "int"
    loop_names = {loop: f"i{k}" for k, loop in enumerate((*nest.loops, *nest.repeats))}
    lane = nest.loops[-1] if nest.loops else None
    unravel(w.line, nest.loops, loop_names, "unit", nest.lanes, index_type, lane_last=True)
    if not nest.tail:
        _emit_body(w, names, nest, loop_names, lane, nest.lanes, index_type)
        return
    with w.block(f"if ({loop_names[lane]} + {nest.lanes} <= {lane.extent})"):
        _emit_body(w, names, nest, loop_names, lane, nest.lanes, index_type)
    with w.block("else"):
        w.line(f"const {index_type} first = {loop_names[lane]};")
        with w.block(f"for ({index_type} {loop_names[lane]} = first; {loop_names[lane]} < {lane.extent}; ++{loop_names[lane]})"):
            _emit_body(w, names, nest, loop_names, lane, 1, index_type)


def _emit_body(w: SourceWriter, names: Names, nest: NestPlan, loop_names: dict[Loop, str], lane: Loop | None, lanes: int, index_type: str) -> None:
    printer = IndexPrinter(loop_names, lane if lanes > 1 else None)
    scope = Scope(w, names, printer, lanes, nest.access, nest.streamed, index_type)
    stores = nest.nest.stores
    roots = [s.expr for s in stores]
    scope.prepare(roots)
    results = [names.fresh("s") for _ in stores]
    for store, result in zip(stores, results):
        ctype = store.buffer.dtype.storage
        w.line(f"tf::Vec<{ctype}, {lanes}> {result};" if lanes > 1 else f"{ctype} {result};")

    def keep(texts: dict) -> None:
        for store, result in zip(stores, results):
            w.line(f"{result}{'.x[l]' if lanes > 1 else ''} = {texts[store.expr]};")

    scope.for_each_lane(roots, keep)
    _emit_stores(w, names, nest, printer, loop_names, results, lanes, index_type)


def _emit_stores(w: SourceWriter, names: Names, nest: NestPlan, printer: IndexPrinter, loop_names: dict[Loop, str],
                 results: list[str], lanes: int, index_type: str, depth: int = 0) -> None:
    if depth < len(nest.repeats):
        name = loop_names[nest.repeats[depth]]
        w.line("#pragma unroll" if nest.repeats[depth].extent <= 8 else "#pragma unroll 4")
        with w.block(f"for ({index_type} {name} = 0; {name} < {nest.repeats[depth].extent}; ++{name})"):
            _emit_stores(w, names, nest, printer, loop_names, results, lanes, index_type, depth + 1)
        return
    for store, result in zip(nest.nest.stores, results):
        width = nest.access[store].width
        base = names.buffers[store.buffer]
        if lanes == 1:
            w.line(f"{base}[{printer.text(store.address)}] = {result};")
        elif width <= 1:
            w.line("#pragma unroll")
            w.line(f"for (int l = 0; l < {lanes}; ++l) {base}[{printer.text(store.address, per_lane=True)}] = {result}.x[l];")
        else:
            w.line(f"tf::store_stream<{lanes}, {width}>({base} + ({printer.text(store.address)}), {result});")
