"""Index expressions and conditions as C++ text. Used by the nest and reduction emitters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from thunder_fuser.maps.affine import Affine, Axis, Condition, Derived, Fetched, Opaque, Within
from thunder_fuser.schedule.plan import Loop


class IndexPrinter:
    """Prints affine indices over loop variables. A loop's variable stands for its innermost axis' multiples; the lane loop
    may carry the lane number `l` on top."""

    def __init__(self, names: Mapping[Loop, str], lane: Loop | None) -> None:
        self._by_inner = {loop.inner: name for loop, name in names.items()}
        self._merged = {axis for loop in names for axis in loop.axes[:-1]}
        self._lane = lane.inner if lane is not None else None
        self._lane_axes = frozenset(lane.axes if lane is not None else ())
        self.fetched: dict[Fetched, str] = {}  # filled by the scope that declares them

    def nested(self, names: Mapping[Loop, str]) -> IndexPrinter:
        """A printer that also knows the loops of a reduction inside."""
        inner = IndexPrinter({}, None)
        inner._by_inner = {**self._by_inner, **{loop.inner: name for loop, name in names.items()}}
        inner._merged = self._merged | {axis for loop in names for axis in loop.axes[:-1]}
        inner._lane, inner._lane_axes = self._lane, self._lane_axes
        inner.fetched = dict(self.fetched)
        return inner

    def is_lane_run(self, index: Affine, multiple: int) -> bool:
        """Whether lanes are at neighbouring indices, the first at a multiple of `multiple` (which divides their number)."""
        if self._lane is None or index.coef(self._lane) != 1 or index.const % multiple:
            return False
        for axis, coef in index.terms:
            if isinstance(axis, Opaque) and not self._lane_axes.isdisjoint(axis.axes()):
                return False
            if axis is not self._lane and axis not in self._merged and coef % multiple:
                return False
        return True

    def varies(self, axis: Fetched) -> bool:
        """Whether lanes may have different values of it."""
        return not self._lane_axes.isdisjoint(axis.axes())

    def text(self, index: Affine, *, per_lane: bool = False) -> str:
        """`index` at the first lane, or at lane `l`."""
        parts = []
        for axis, coef in index.terms:
            if axis in self._merged:
                continue
            term = self._axis(axis, per_lane)
            parts.append(term if coef == 1 else f"{term} * {coef}")
        if index.const or not parts:
            parts.append(str(index.const))
        return " + ".join(parts).replace("+ -", "- ")

    def _axis(self, axis: Axis, per_lane: bool) -> str:
        if isinstance(axis, Derived):
            return f"(({self.text(axis.source, per_lane=per_lane)}) {'/' if axis.kind == 'div' else '%'} {axis.divisor})"
        if isinstance(axis, Fetched):
            return self.fetched[axis]
        name = self._by_inner[axis]
        return f"({name} + l)" if per_lane and axis is self._lane else name

    def condition(self, guards: Sequence[Condition], *, per_lane: bool = False) -> str:
        """All guards, as one C++ condition."""
        parts = []
        for guard in guards:
            index = f"({self.text(guard.index, per_lane=per_lane)})"
            if isinstance(guard, Within):
                if guard.index.lo < guard.lo:
                    parts.append(f"{index} >= {guard.lo}")
                if guard.index.hi >= guard.hi:
                    parts.append(f"{index} < {guard.hi}")
            else:
                parts.append(f"{index} % {guard.divisor} == 0")
        return " && ".join(parts) or "true"


Digit = tuple[Loop, int, int]
"""A loop, a step and an extent: `step` times a number below `extent` is a part of the loop's variable."""


def row_major(loops: Sequence[Loop], lanes: int, *, lane_last: bool) -> list[Digit]:
    """Each loop as one digit, outermost first; the last in steps of `lanes`, if the lanes lie along it."""
    digits = [(loop, 1, loop.extent) for loop in loops]
    if lane_last and digits:
        digits[-1] = (loops[-1], lanes, -(-loops[-1].extent // lanes))
    return digits


def tiled(digits: Sequence[Digit], tile: tuple[int, int]) -> list[Digit]:
    """`digits` with the two loops before the lanes walked in tiles of x by y."""
    *outer, (across, _, n), (along, _, m), lane = digits
    x, y = tile
    return [*outer, (across, x, n // x), (along, y, m // y), (across, 1, x), (along, 1, y), lane]


def unravel(writer_line, digits: Sequence[Digit], names: Mapping[Loop, str], unit: str, index_type: str) -> None:
    """Declares each loop's variable from a linear unit number, the last digit fastest."""
    parts: dict[Loop, list[str]] = {}
    below = 1
    for k, (loop, step, extent) in reversed(list(enumerate(digits))):
        left = f"{unit} / {below}u" if below > 1 else unit
        digit = f"({index_type})({left if k == 0 else f'{left} % {extent}u'})"
        parts.setdefault(loop, []).append(f"{digit} * {step}" if step > 1 else digit)
        below *= extent
    for loop, terms in parts.items():
        writer_line(f"const {index_type} {names[loop]} = {' + '.join(reversed(terms))};")
