"""Index expressions by brute force: what an `Affine` or a `Condition` is at a point, and all points of some axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from thunder_fuser.maps.affine import Affine, Axis, Condition, Derived, Within

Point = Mapping[Axis, int]


def points(axes: Sequence[Axis]) -> Iterator[dict[Axis, int]]:
    """Every value of `axes`, the last one fastest."""
    for values in itertools.product(*(range(a.extent) for a in axes)):
        yield dict(zip(axes, values))


def at(index: Affine, point: Point) -> int:
    return index.const + sum(c * _axis_at(a, point) for a, c in index.terms)


def _axis_at(axis: Axis, point: Point) -> int:
    if not isinstance(axis, Derived):
        return point[axis]
    source = at(axis.source, point)
    return source // axis.divisor if axis.kind == "div" else source % axis.divisor


def holds(condition: Condition, point: Point) -> bool:
    value = at(condition.index, point)
    return condition.lo <= value < condition.hi if isinstance(condition, Within) else value % condition.divisor == 0
