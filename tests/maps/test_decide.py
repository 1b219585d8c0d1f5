"""Decisions about indices against every point: True and False are right, refinements end, divisions are exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.points import at, points
from thunder_fuser.maps.affine import Affine, Axis, AxisPool, Derived, affine
from thunder_fuser.maps.boxes import Box, Cut, Refine, Split
from thunder_fuser.maps.decide import divisible, divmod_index, within

SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)


def settle(shape: tuple[int, ...], coefs: list[int], const: int, decide: Callable[[Affine, AxisPool], object]) -> list:
    """(index, axes, answer) for each box, after all the refinements that `decide` asked for."""
    pool, work, done = AxisPool(), [Box.whole(shape)], []
    while work:
        assert len(done) < 500, "refinements do not end"
        box = work.pop()
        dims, axes = box.index(pool)
        index = affine(const, ())
        for d, c in zip(dims, coefs):
            index = index + d * c
        try:
            done.append((index, axes, decide(index, pool)))
        except Refine as refine:
            finer = refine.apply(box)
            assert finer and all(f != box for f in finer)
            work += finer
    return done


coefficients = st.lists(st.integers(-6, 6), min_size=3, max_size=3)


@given(SHAPES, coefficients, st.integers(-10, 10), st.integers(-10, 20), st.integers(0, 15), st.booleans())
def test_within(shape: tuple[int, ...], coefs: list[int], const: int, lo: int, size: int, may_cut: bool) -> None:
    for index, axes, answer in settle(shape, coefs, const, lambda i, _: within(i, lo, lo + size, may_cut=may_cut)):
        values = [lo <= at(index, p) < lo + size for p in points(axes)]
        if answer is not None:
            assert all(v is answer for v in values)
        else:
            assert not may_cut or size == 0 or len({*values}) <= 2


@given(SHAPES, st.integers(0, 2), st.integers(-3, 3), st.integers(-5, 20), st.integers(1, 20))
def test_within_one_dim_is_always_decided(shape: tuple[int, ...], dim: int, coef: int, lo: int, size: int) -> None:
    coefs = [coef if d == dim else 0 for d in range(3)]
    assert all(a is not None for _, _, a in settle(shape, coefs, 0, lambda i, _: within(i, lo, lo + size, may_cut=True)))


@given(SHAPES, coefficients, st.integers(-10, 10), st.integers(1, 7), st.booleans())
def test_divisible(shape: tuple[int, ...], coefs: list[int], const: int, divisor: int, may_cut: bool) -> None:
    for index, axes, answer in settle(shape, coefs, const, lambda i, _: divisible(i, divisor, may_cut=may_cut)):
        if answer is not None:
            assert all((at(index, p) % divisor == 0) is answer for p in points(axes))


@given(SHAPES, coefficients, st.integers(-10, 10), st.integers(1, 12), st.booleans())
def test_divmod(shape: tuple[int, ...], coefs: list[int], const: int, divisor: int, may_cut: bool) -> None:
    for index, axes, (quotient, rest) in settle(shape, coefs, const, lambda i, pool: divmod_index(i, divisor, pool, may_cut=may_cut)):
        for p in points(axes):
            assert (at(quotient, p), at(rest, p)) == divmod(at(index, p), divisor)
        for derived in (a for i in (quotient, rest) for a, _ in i.terms if isinstance(a, Derived)):
            assert derived.source.lo >= 0, "C++ divides towards zero, floor is meant"


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
def test_a_common_factoring_needs_no_division(a: int, b: int, c: int) -> None:
    """A row of a * b * c, read as rows of c and as rows of b * c, is affine: grouped heads cost nothing."""
    for _, _, (quotient, rest) in settle((a * b * c,), [1, 0, 0], 0, lambda i, pool: _twice(i, c, b, pool)):
        assert not any(isinstance(t, Derived) for i in (quotient, rest) for t, _ in i.terms)


def _twice(index: Affine, inner: int, outer: int, pool: AxisPool) -> tuple[Affine, Affine]:
    quotient, _ = divmod_index(index, inner, pool, may_cut=True)
    return divmod_index(quotient, outer, pool, may_cut=True)


def test_a_reduced_axis_is_split_but_never_cut() -> None:
    reduced = Affine.of(Axis(("r", "s", 0, 0), 12))
    assert within(reduced, 3, 7, may_cut=True) is None
    assert divisible(reduced, 5, may_cut=True) is None
    with pytest.raises(Split):
        divmod_index(reduced, 4, AxisPool(), may_cut=False)
    quotient, rest = divmod_index(reduced, 5, AxisPool(), may_cut=False)
    assert all(isinstance(t, Derived) for i in (quotient, rest) for t, _ in i.terms)


def test_what_a_border_asks_for() -> None:
    axis = Axis(("i", 0), 10)
    with pytest.raises(Cut) as cut:
        within(Affine.of(axis, 1, -3), 0, 100, may_cut=True)
    assert (cut.value.axis, cut.value.at) == (axis, 3)
    assert within(Affine.of(axis, 1, -3), 0, 100, may_cut=False) is None
