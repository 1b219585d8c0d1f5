"""In which order loops are walked and how wide each access is, for every cause that decides it."""

from __future__ import annotations

import math

import pytest

from thunder_fuser.compiler import Stages, lower
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, DTYPES, F32, I8, DType
from thunder_fuser.ir.nodes import TensorType, Value
from thunder_fuser.maps.affine import Affine, Axis, AxisPool, Within, affine
from thunder_fuser.maps.exprs import Load
from thunder_fuser.maps.nests import Nest, Store
from thunder_fuser.schedule.order import coalesced, ordered, vector_axis, vector_of
from thunder_fuser.schedule.plan import Loop, NestPlan, Vector

I, J, K = (Axis(("i", k), n) for k, n in enumerate((32, 64, 128)))


def index(const: int = 0, **coefs: int) -> Affine:
    return affine(const, [({"i": I, "j": J, "k": K}[name], c) for name, c in coefs.items()])


def load(address: Affine, dtype: DType = F32, guards: tuple = (), name: str = "x") -> Load:
    return Load(Value(name, TensorType(dtype, (1 << 20,))), address, guards, dtype)


def nest(stored: Affine, *loaded: Affine, dtype: DType = F32) -> Nest:
    """A nest over i, j, k that reads `loaded` (of one buffer each) and stores a load."""
    loads = [load(a, dtype, name=f"x{n}") for n, a in enumerate(loaded)]
    from thunder_fuser.maps.exprs import Apply

    expr = loads[0]
    for other in loads[1:]:
        expr = Apply("add", (expr, other), dtype, dtype)
    return Nest((I, J, K), (Store(Value("y", TensorType(dtype, (1 << 20,))), stored, expr),))


# the width of an access

LANE = Loop((K,))
POOL = AxisPool()
WIDTHS = [
    (index(k=1, i=128), 16, 4, ""),
    (index(k=1, i=128), 8, 2, "pointer alignment"),
    (index(k=1, i=128), 4, 1, "pointer alignment"),
    (index(k=1, i=128), 1, 1, "pointer alignment"),
    (index(2, k=1, i=128), 16, 2, "offset"),
    (index(1, k=1, i=128), 16, 1, "offset"),
    (index(-4, k=1, i=128), 16, 4, ""),
    (index(-3, k=1, i=128), 16, 1, "offset"),
    (index(k=1, i=130), 16, 2, "stride of i0"),
    (index(k=1, i=128, j=129), 16, 1, "stride of i1"),
    (index(k=2), 16, 1, "stride 2 along the vector"),
    (index(k=-1), 16, 1, "stride -1 along the vector"),
    (index(i=5), 16, 0, ""),
    (index(), 16, 0, ""),
    (index(k=1) + Affine.of(POOL.derived("mod", index(j=1), 7), 4), 16, 4, ""),
    (index(k=1) + Affine.of(POOL.derived("mod", index(j=1), 7), 2), 16, 2, "stride of (i1 % 7)"),
    (Affine.of(POOL.derived("div", index(k=1), 3)), 16, 1, "index is not affine along the vector"),
]


@pytest.mark.parametrize("address,alignment,width,limit", WIDTHS, ids=[f"{a}@{p}" for a, p, _, _ in WIDTHS])
def test_width_of_an_access(address: Affine, alignment: int, width: int, limit: str) -> None:
    assert vector_of(load(address), LANE, 4, alignment) == Vector(width, limit)


def test_width_under_a_guard() -> None:
    assert vector_of(load(index(k=1), guards=(Within(index(i=1), 0, 5),)), LANE, 4, 16) == Vector(4)
    assert vector_of(load(index(k=1), guards=(Within(index(k=1), 0, 5),)), LANE, 4, 16) == Vector(1, "guarded along the vector")
    assert vector_of(load(index(i=1), guards=(Within(index(k=1), 0, 5),)), LANE, 4, 16) == Vector(1, "guarded along the vector")


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_no_access_is_wider_than_16_bytes(dtype: DType) -> None:
    for lanes in (1, 2, 4, 8, 16):
        assert vector_of(load(index(k=1), dtype), LANE, lanes, 16).width == min(lanes, 16 // dtype.size)


def test_no_lane_no_vector() -> None:
    assert vector_of(load(index(k=1)), None, 1, 16) == Vector(0)


# the axis of the lanes

def test_lanes_lie_along_most_bytes() -> None:
    assert vector_axis(nest(index(i=8192, j=128, k=1), index(i=8192, j=128, k=1)), (I, J, K)) is K
    assert vector_axis(nest(index(i=8192, j=1, k=64), index(i=8192, j=128, k=1)), (I, J, K)) is J, "a store counts twice"
    loads = [index(i=8192, j=128, k=1)] * 3
    assert vector_axis(nest(index(i=8192, j=1, k=64), *loads), (I, J, K)) is K, "but not thrice"
    assert vector_axis(nest(index(i=2, j=64, k=4096), index(i=2)), (I, J, K)) is None


# the order of the loops

def test_order_of_the_store_on_ties() -> None:
    """Rows of 256 bytes, forward: tokens before heads in memory that is read, after them in what is written."""
    written, read = index(i=64 * 128, j=128, k=1), index(i=128, j=32 * 128, k=1)
    assert ordered([nest(written, read, dtype=BF16)], (I, J)) == [I, J]
    assert ordered([nest(read, written, dtype=BF16)], (I, J)) == [J, I], "backward it is the other way round"


def test_waste_of_granules_decides_for_short_rows() -> None:
    """Rows of 160 bytes: an order in which reads are runs wastes granules of the writes, and the other way round; whichever
    moves more bytes in runs is walked."""
    k = Axis(("i", 2), 80)
    y, x = Value("y", TensorType(BF16, (1 << 20,))), Value("x", TensorType(BF16, (1 << 20,)))

    def made(stored: dict[Axis, int], loaded: dict[Axis, int]) -> Nest:
        return Nest((I, J, k), (Store(y, affine(0, stored.items()), Load(x, affine(0, loaded.items()), (), BF16)),))

    runs = made({I: 64 * 80, J: 80, k: 1}, {I: 3 * 80, J: 3 * 80 * 32, k: 1})  # reads are apart in any order
    assert ordered([runs], (I, J)) == [I, J]
    runs = made({I: 3 * 80, J: 3 * 80 * 32, k: 1}, {I: 64 * 80, J: 80, k: 1})  # writes are: now the reads decide
    assert ordered([runs], (I, J)) == [I, J]


def test_axes_over_which_inputs_repeat_stay_outside() -> None:
    written, table = index(i=64 * 128, j=128, k=1), index(j=128, k=1)
    assert ordered([nest(written, table)], (I, J)) == [I, J]


@pytest.mark.parametrize("order", [(I, J, K), (K, J, I), (J, I, K)], ids=str)
def test_any_order_of_the_axes_gives_the_same(order: tuple[Axis, ...]) -> None:
    written = index(i=64 * 128, j=128, k=1)
    assert ordered([nest(written, written)], order) == [I, J, K]


# loops

def test_neighbours_become_one_loop() -> None:
    dense, padded = index(i=64 * 128, j=128, k=1), index(i=64 * 130, j=130, k=1)
    assert [lp.axes for lp in coalesced((I, J, K), [dense])] == [(I, J, K)]
    assert [lp.axes for lp in coalesced((I, J, K), [dense, padded])] == [(I, J), (K,)]
    assert [lp.axes for lp in coalesced((I, J, K), [dense, index(k=1)])] == [(I, J), (K,)]
    assert [lp.axes for lp in coalesced((I, J, K), [dense, index(j=1)])] == [(I,), (J,), (K,)]
    assert [lp.extent for lp in coalesced((I, J, K), [dense])] == [32 * 64 * 128]


# what it comes to, for a whole program

def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[d + 1:]) for d in range(len(shape)))


def scaled(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], alignment: int = 16) -> NestPlan:
    b = FusionBuilder()
    b.output(b.neg(b.tensor(dtype, shape)))
    stages: Stages = lower(b.build(), [strides], [alignment])[0]
    return stages.kernels[0].bundles[0].nests[0]


@pytest.mark.parametrize("dtype,lanes", [(F32, 4), (BF16, 8), (I8, 16)], ids=str)
@pytest.mark.parametrize("alignment", [16, 8, 4, 2, 1])
def test_contiguous_tensors_move_16_bytes_where_pointers_allow(dtype: DType, lanes: int, alignment: int) -> None:
    plan = scaled(dtype, (4096, 4096), (4096, 1), alignment)
    (read,), (written,) = plan.nest.loads(), plan.nest.stores
    assert plan.lanes == lanes and plan.access[written] == Vector(lanes)
    assert plan.access[read].width == max(1, min(16, alignment) // dtype.size)
    assert plan.access[read].limit == ("" if alignment == 16 else "pointer alignment")


def test_transposed_input_is_walked_as_it_lies() -> None:
    """torch keeps the order of the input's dims, so both sides are one run."""
    plan = scaled(F32, (4096, 1024), (1, 4096))
    assert len(plan.loops) == 1 and {v.width for v in plan.access.values()} == {4}
