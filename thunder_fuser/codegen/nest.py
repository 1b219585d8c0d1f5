"""Bundles of nests as C++: loads, then arithmetic, then stores. Used by `kernel`."""

from __future__ import annotations

from collections.abc import Sequence

from thunder_fuser.codegen.indexing import IndexPrinter, unravel
from thunder_fuser.codegen.scope import Names, Scope
from thunder_fuser.codegen.stores import Results
from thunder_fuser.codegen.writer import SourceWriter
from thunder_fuser.schedule.plan import Bundle, Loop, NestPlan


def emit_bundle(w: SourceWriter, names: Names, bundle: Bundle, block: str, *, wide_index: bool) -> None:
    """All nests of a bundle, for the block whose number within the bundle is the C++ text `block`."""
    index_type = "long long" if wide_index else "int"
    first = 0
    for k, (nest, warps) in enumerate(zip(bundle.nests, bundle.warps)):
        last = first + 32 * warps
        head = "" if len(bundle.nests) == 1 else f"{'else ' if k else ''}if (threadIdx.x < {last}u)"
        with w.block(head):
            thread = f"threadIdx.x - {first}u" if first else "threadIdx.x"
            walks = [_Walk(w, names, bundle, nest, thread, j * 32 * warps, block, index_type) for j in range(bundle.unroll)]
            for walk in walks:
                walk.start()
            for walk in walks:
                walk.finish()
        first = last


class _Walk:
    """One unit of one nest in one thread: `start` finds it and loads, `finish` computes and stores."""

    def __init__(self, w: SourceWriter, names: Names, bundle: Bundle, nest: NestPlan, thread: str, ahead: int, block: str, index_type: str) -> None:
        self.w, self.names, self.nest, self.index_type = w, names, nest, index_type
        per_block = bundle.units_per_block(nest)
        self.wide = nest.units >= 2**31
        self.unit_text = f"{'(unsigned long long)' if self.wide else ''}{block} * {per_block}u + {thread}" + (f" + {ahead}u" if ahead else "")
        self.unit = names.fresh("unit")
        self.limits = f"{self.unit} < {nest.units}u{'ll' if self.wide else ''}" if bundle.blocks * per_block > nest.units else ""
        self.loops = {loop: names.fresh("i") for loop in (*nest.loops, *nest.repeats)}
        self.lane = nest.loops[-1] if nest.loops else None

    def start(self) -> None:
        """Unit, indices, loads. A thread past the end does the first unit again, and stores nothing."""
        unit_type = "unsigned long long" if self.wide else "unsigned"
        if self.limits:
            at = self.names.fresh("at")
            self.w.line(f"const {unit_type} {at} = {self.unit_text};")
            self.inside = self.names.fresh("inside")
            self.w.line(f"const bool {self.inside} = {self.limits.replace(self.unit, at)};")
            self.w.line(f"const {unit_type} {self.unit} = {self.inside} ? {at} : 0u;")
        else:
            self.w.line(f"const {unit_type} {self.unit} = {self.unit_text};")
        unravel(self.w.line, self.nest.loops, self.loops, self.unit, self.nest.lanes, self.index_type, lane_last=True)
        if not self.nest.tail:
            self.results = self._results(self.nest.lanes)
            self.results.load()

    def finish(self) -> None:
        if not self.nest.tail:
            self.results.evaluate()
            if self.limits:
                with self.w.block(f"if ({self.inside})"):
                    self._store(self.results)
            else:
                self._store(self.results)
        elif self.limits:
            with self.w.block(f"if ({self.inside})"):
                self._with_tail()
        else:
            self._with_tail()

    def _with_tail(self) -> None:
        """Whole vectors, or the last few elements one by one."""
        name, extent = self.loops[self.lane], self.lane.extent
        with self.w.block(f"if ({name} + {self.nest.lanes} <= {extent})"):
            self._all(self.nest.lanes)
        with self.w.block("else"):
            self.w.line(f"const {self.index_type} first = {name};")
            with self.w.block(f"for ({self.index_type} {name} = first; {name} < {extent}; ++{name})"):
                self._all(1)

    def _all(self, lanes: int) -> None:
        results = self._results(lanes)
        results.load()
        results.evaluate()
        self._store(results)

    def _results(self, lanes: int) -> Results:
        printer = IndexPrinter(self.loops, self.lane if lanes > 1 else None)
        return Results(Scope(self.w, self.names, printer, lanes, self.nest.access, self.index_type), self.nest.nest.stores)

    def _store(self, results: Results) -> None:
        results.pack()
        _repeat(self.w, self.nest.repeats, self.loops, self.index_type, results)


def _repeat(w: SourceWriter, repeats: Sequence[Loop], loop_names: dict[Loop, str], index_type: str, results: Results) -> None:
    """The stores, inside the loops over which they repeat."""
    if not repeats:
        results.write()
        return
    loop, *rest = repeats
    name = loop_names[loop]
    w.line("#pragma unroll" if loop.extent <= 8 else "#pragma unroll 4")
    with w.block(f"for ({index_type} {name} = 0; {name} < {loop.extent}; ++{name})"):
        _repeat(w, rest, loop_names, index_type, results)
