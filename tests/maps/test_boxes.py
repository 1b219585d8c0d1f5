"""Refined boxes cover every index of a buffer exactly once."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.support.points import at, points
from thunder_fuser.maps.affine import AxisPool
from thunder_fuser.maps.boxes import Box, Cut, Digit, Split

SHAPES = st.lists(st.integers(1, 13), min_size=1, max_size=3).map(tuple)


def covered(boxes: list[Box], pool: AxisPool) -> Counter:
    found: Counter = Counter()
    for box in boxes:
        index, axes = box.index(pool)
        assert [a.key for a in axes] == [("i", k) for k in range(len(axes))] and all(a.extent > 1 for a in axes)
        found.update(tuple(at(i, point) for i in index) for point in points(axes))
    return found


@given(SHAPES, st.data())
def test_every_index_is_in_exactly_one_box(shape: tuple[int, ...], data: st.DataObject) -> None:
    pool = AxisPool()
    boxes = [Box.whole(shape)]
    for _ in range(data.draw(st.integers(0, 6))):
        box = boxes.pop(data.draw(st.integers(0, len(boxes) - 1)))
        axes = box.index(pool)[1]
        if not axes:
            boxes.append(box)
            continue
        axis = data.draw(st.sampled_from(axes))
        if data.draw(st.booleans()):
            refine = Cut(axis, data.draw(st.integers(1, axis.extent - 1)))
        else:
            refine = Split(axis, data.draw(st.integers(1, axis.extent - 1)))
        finer = refine.apply(box)
        assert finer != [box]
        boxes += finer
    assert covered(boxes, pool) == Counter(itertools.product(*map(range, shape)))


def test_split_leaves_odd_borders_as_boxes_of_their_own() -> None:
    box = Box(((Digit(1, 3, 10),),))  # 3 .. 12 in fours: 3 | 4..7, 8..11 | 12
    axis = box.index(AxisPool())[1][0]
    assert [b.dims for b in box.split(axis, 4)] == [
        ((Digit(1, 3, 1),),), ((Digit(4, 1, 2), Digit(1, 0, 4)),), ((Digit(1, 12, 1),),)]


def test_equal_extents_have_equal_axes() -> None:
    """So that boxes of different places, and of different outputs, can be walked by one thread."""
    pool = AxisPool()
    low, high = Box.whole((2, 8)).cut(Box.whole((2, 8)).index(pool)[1][1], 4)
    assert low.index(pool)[1] == high.index(pool)[1]
    assert low.index(pool)[0][1].const == 0 and high.index(pool)[0][1].const == 4


@given(st.lists(st.integers(2, 4), min_size=1, max_size=4), st.data())
def test_reduced_axes_split_in_place(factors: list[int], data: st.DataObject) -> None:
    size, pool = 1, AxisPool()
    for f in factors:
        size *= f
    box = Box.whole((2,))
    for inner in factors[:-1]:
        _, axes = box.reduction_index(pool, "s", 1, size)
        axis = data.draw(st.sampled_from(axes))
        if axis.extent % inner == 0 and axis.extent > inner:
            (box,) = box.split(axis, inner)
    index, axes = box.reduction_index(pool, "s", 1, size)
    assert Counter(at(index, p) for p in points(axes)) == Counter(range(size))
