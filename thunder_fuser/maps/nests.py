"""Loop nests: boxes of equal extents that read the same memory, walked together by one thread. Made for `schedule`.

A nest is what a thread does at each point of its axes: evaluate some expressions, store them. Rope's two halves are one
nest of half a head: both need both halves of the input, and the shared loads are one object each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thunder_fuser.ir import nodes as ir
from thunder_fuser.maps.affine import Affine, Axis, dot
from thunder_fuser.maps.exprs import Expr, Load, axes_of, fetched_in, topological
from thunder_fuser.maps.pullback import BoxExpr, Pullback

MAX_STORES = 8  # of one nest: more would cost registers, not save loads
MAX_LOADS = 24
BUSY_POINTS = 1 << 20  # of a box: fewer do not fill a large card, and more threads are worth more than fewer loads


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """buffer[address] = expr, or += with `accumulate`, where other threads may add to the same element."""

    buffer: ir.Value
    address: Affine
    expr: Expr
    accumulate: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """For every point of `axes` (outermost first): all the stores."""

    axes: tuple[Axis, ...]
    stores: tuple[Store, ...]

    @property
    def points(self) -> int:
        return math.prod(a.extent for a in self.axes)

    def exprs(self) -> list[Expr]:
        """All expressions, operands first, those of computed addresses included."""
        return topological([*(s.expr for s in self.stores), *(f.value for f in fetched_in(s.address for s in self.stores))])

    def loads(self) -> list[Load]:
        return [e for e in self.exprs() if isinstance(e, Load)]

    def __str__(self) -> str:
        lines = [f"nest {' '.join(f'{a}:{a.extent}' for a in self.axes) or 'one point'}"]
        lines += [f"  load  {ld.buffer}[{ld.address}]" + "".join(f" if {g}" for g in ld.guards) for ld in self.loads()]
        lines += [f"  {'add to' if s.accumulate else 'store'} {s.buffer}[{s.address}]" for s in self.stores]
        return "\n".join(lines)


def build(pullback: Pullback, buffers: Sequence[tuple[ir.Value, tuple[int, ...]]]) -> list[Nest]:
    """The nests that write all of `buffers`, given with their strides."""
    strides = dict(buffers)
    boxes = [box for value, _ in buffers for box in pullback.boxes(value)]
    return [_nest(group, strides) for group in _walked_together(boxes)]


def build_scatter(pullback: Pullback, node: ir.Scatter, strides: tuple[int, ...]) -> list[Nest]:
    """The nests that put the updates of a scatter into its result, whose strides are given and whose base is written."""
    nests = []
    for axes, index, (update, *numbers) in pullback.together((node.updates, *node.indices)):
        place = list(index)
        for dim, value, number in zip(node.dims, node.indices, numbers):
            place[dim] = pullback.place(number, (), node.out.shape[dim], f"{value}[{', '.join(map(str, index))}]")
        nests.append(Nest(axes, (Store(node.out, dot(place, strides), update, node.accumulate),)))
    return nests


def elements(load: Load) -> int:
    """How many distinct addresses a load touches, as far as its axes tell."""
    return math.prod(a.extent for a in axes_of(load))


def _nest(group: list[BoxExpr], strides: Mapping[ir.Value, tuple[int, ...]]) -> Nest:
    return Nest(group[0].axes, tuple(Store(b.buffer, dot(b.index, strides[b.buffer]), b.expr) for b in group))


def _walked_together(boxes: list[BoxExpr]) -> list[list[BoxExpr]]:
    """Boxes grouped by the large loads that they share, in order of first appearance; near linear in their loads."""
    groups: list[list[BoxExpr]] = []
    loads: list[dict[Load, int]] = []
    owner: dict[tuple[tuple[Axis, ...], Load], int] = {}
    for box in boxes:
        mine = {ld: elements(ld) * ld.dtype.size for ld in topological([box.expr]) if isinstance(ld, Load)}
        shared: dict[int, int] = {}
        for load, size in mine.items():
            found = owner.get((box.axes, load))
            if found is not None:
                shared[found] = shared.get(found, 0) + size
        best = max(shared, key=lambda g: shared[g], default=None)
        large = math.prod(a.extent for a in box.axes) >= BUSY_POINTS
        if best is not None and large and _worth(shared[best], mine, groups[best], loads[best]):
            groups[best].append(box)
            loads[best].update(mine)
        else:
            best = len(groups)
            groups.append([box])
            loads.append(dict(mine))
        for load in mine:
            if len(groups[owner.setdefault((box.axes, load), best)]) >= MAX_STORES:
                owner[(box.axes, load)] = best  # that one is full: the next box may join this one
    return groups


def _worth(shared: int, mine: dict[Load, int], group: list[BoxExpr], loads: dict[Load, int]) -> bool:
    """Sharing must save a quarter of what the box reads, and the thread must be able to hold it all."""
    small_enough = len(group) < MAX_STORES and len(loads.keys() | mine.keys()) <= MAX_LOADS
    return small_enough and 4 * shared >= sum(mine.values())
