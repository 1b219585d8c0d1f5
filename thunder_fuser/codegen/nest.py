"""Bundles of nests as C++: unit numbers to indices, loads, arithmetic, stores. Used by `kernel`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from thunder_fuser.codegen.indexing import IndexPrinter, row_major, tiled, unravel
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
            unit = f"{block} * {32 * warps}u + threadIdx.x" + (f" - {first}u" if first else "")
            _Walk(w, names, nest, bundle.tile, index_type).emit(unit, bundle.blocks * 32 * warps)
        first = last


class _Walk:
    """One unit of one nest in one thread."""

    def __init__(self, w: SourceWriter, names: Names, nest: NestPlan, tile: tuple[int, int] | None, index_type: str) -> None:
        self.w, self.names, self.nest, self.tile, self.index_type = w, names, nest, tile, index_type
        self.loops = {loop: names.fresh("i") for loop in (*nest.loops, *nest.repeats)}
        self.lane = nest.loops[-1] if nest.loops else None

    def emit(self, unit: str, units: int) -> None:
        """`unit` is the C++ text of the unit's number, less than `units`: the nest has as many units or fewer."""
        wide = self.nest.units >= 2**31
        name, unit_type = self.names.fresh("unit"), "unsigned long long" if wide else "unsigned"
        self.w.line(f"const {unit_type} {name} = {f'({unit_type})' if wide else ''}{unit};")
        inside = f"if ({name} < {self.nest.units}u{'ll' if wide else ''})"
        with self.w.block(inside) if units > self.nest.units else nullcontext():
            digits = row_major(self.nest.loops, self.nest.lanes, lane_last=True)
            unravel(self.w.line, tiled(digits, self.tile) if self.tile else digits, self.loops, name, self.index_type)
            if self.nest.tail:
                self._with_tail()
            else:
                self._all(self.nest.lanes)

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
        printer = IndexPrinter(self.loops, self.lane if lanes > 1 else None)
        results = Results(Scope(self.w, self.names, printer, lanes, self.nest.access, self.index_type), self.nest.nest.stores)
        results.load()
        results.evaluate()
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
