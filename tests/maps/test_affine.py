"""Affine arithmetic and ranges against every point of the axes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.points import at, holds, points
from thunder_fuser.maps.affine import ZERO, Affine, Axis, AxisPool, Divisible, Within, affine, all_of, dot

AXES = (Axis(("i", 0), 3), Axis(("i", 1), 4), Axis(("r", "sum", 0, 0), 2))
POOL = AxisPool()


@st.composite
def indices(draw: st.DrawFn, derived: bool = True) -> Affine:
    index = affine(draw(st.integers(-20, 20)), ((a, draw(st.integers(-5, 5))) for a in AXES))
    if derived and draw(st.booleans()):
        axis = POOL.derived(draw(st.sampled_from(("div", "mod"))), index, draw(st.integers(1, 6)))
        return affine(draw(st.integers(-3, 3)), ((AXES[0], draw(st.integers(-2, 2))), (axis, draw(st.integers(-3, 3)))))
    return index


@given(indices(), indices(), st.integers(-4, 4))
def test_arithmetic_is_that_of_the_values(a: Affine, b: Affine, factor: int) -> None:
    for point in points(AXES):
        assert at(a + b, point) == at(a, point) + at(b, point)
        assert at(a + factor, point) == at(a, point) + factor
        assert at(a * factor, point) == at(a, point) * factor


@given(indices(derived=False))
def test_range_of_an_affine_index_is_exact(a: Affine) -> None:
    values = [at(a, point) for point in points(AXES)]
    assert (a.lo, a.hi) == (min(values), max(values))


@given(indices())
def test_range_of_a_derived_index_holds_every_value(a: Affine) -> None:
    assert all(a.lo <= at(a, point) <= a.hi for point in points(AXES))


@given(indices(), indices())
def test_equal_where_the_terms_are_equal(a: Affine, b: Affine) -> None:
    assert a + b == b + a and hash(a + b) == hash(b + a)
    assert (a + b) + (b * -1) == a and a * 0 == ZERO
    assert all(c for _, c in (a + b).terms)


@given(st.lists(st.tuples(indices(), st.integers(-7, 7)), max_size=4))
def test_dot(pairs: list[tuple[Affine, int]]) -> None:
    total = dot([i for i, _ in pairs], [s for _, s in pairs])
    for point in points(AXES):
        assert at(total, point) == sum(at(i, point) * s for i, s in pairs)


@given(indices())
def test_axes_are_those_that_the_value_depends_on(a: Affine) -> None:
    depends = set(a.axes())
    for axis in set(AXES) - depends:
        assert all(at(a, point) == at(a, {**point, axis: 0}) for point in points(AXES))


def test_pool_makes_one_axis_for_equal_keys() -> None:
    pool = AxisPool()
    assert pool.axis(("i", 0), 5) is pool.axis(("i", 0), 5)
    assert pool.axis(("i", 0), 5) is not pool.axis(("i", 0), 6)
    source = Affine.of(pool.axis(("i", 0), 5), 3, 1)
    assert pool.derived("div", source, 2) is pool.derived("div", Affine.of(pool.axis(("i", 0), 5), 3, 1), 2)
    assert pool.derived("div", source, 2) is not pool.derived("mod", source, 2)


@given(st.lists(st.tuples(st.sampled_from(("within", "divisible")), indices(), st.integers(-9, 9), st.integers(0, 12)), min_size=1, max_size=5))
def test_all_of_is_the_conjunction(drawn: list[tuple[str, Affine, int, int]]) -> None:
    conditions = [Within(i, lo, lo + n) if kind == "within" else Divisible(i, n + 1) for kind, i, lo, n in drawn]
    shifted = [Within(c.index + 3, c.lo + 2, c.hi + 4) for c in conditions if isinstance(c, Within)]
    merged = all_of(all_of((), conditions), shifted)
    assert len(merged) <= len(conditions)
    for point in points(AXES):
        assert all(holds(c, point) for c in merged) == all(holds(c, point) for c in (*conditions, *shifted))
