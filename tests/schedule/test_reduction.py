"""Sums and other reductions against torch in float64 and to the bit on integers: inner, outer, mixed, long and short."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from thunder_fuser.compiler import compile_fusion, lower
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, BOOL, F32, F64, I8, I32, I64, DType
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.nodes import Fusion
from thunder_fuser.runtime.compile_pool import POOL
from thunder_fuser.schedule.plan import KernelPlan


def agrees(fusion: Fusion, *inputs: torch.Tensor) -> list[KernelPlan]:
    exe = compile_fusion(fusion, "host")
    for got, want in zip(exe(*inputs), evaluate(fusion, *inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    return list(lower(exe.fusion, [t.stride() for t in inputs], [16] * len(inputs))[0].kernels)


def integers(dtype: DType, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(0 if dtype is BOOL else -2, 2 if dtype is BOOL else 3, shape, generator=generator).to(dtype.torch)


LENGTHS = (1, 2, 31, 32, 33, 257, 1000, 4097)


@pytest.mark.parametrize("length", LENGTHS)
def test_inner_and_outer_of_every_length(length: int) -> None:
    b = FusionBuilder()
    x, y = b.tensor(F32, (5, length)), b.tensor(F32, (length, 7))
    b.output(b.sum(x, [1]))
    b.output(b.sum(y, [0]))
    b.output(b.amax(y, [0]))
    b.output(b.amin(x, [0, 1]))
    plans = agrees(b.build(), integers(F32, 5, length), integers(F32, length, 7))
    if length > 32:
        inside = [p.rows.lane_is_reduced for p in plans if p.rows is not None]
        assert True in inside and False in inside
    else:
        assert all(p.rows is None or math.prod(a.extent for lp in p.rows.reduced for a in lp.axes) > 32 for p in plans)


@pytest.mark.parametrize("dims", [d for r in (1, 2, 3) for d in itertools.combinations(range(4), r)], ids=str)
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)], ids=str)
def test_every_choice_of_dims(dims: tuple[int, ...], order: tuple[int, ...]) -> None:
    shape = (3, 16, 5, 9)
    b = FusionBuilder()
    x = b.tensor(F64, shape)
    b.output(b.sum(x, dims))
    b.output(b.amax(x, dims, keepdim=True))
    given = integers(F64, *(shape[d] for d in order)).permute([order.index(d) for d in range(4)])
    agrees(b.build(), given)


@pytest.mark.parametrize("op,dtype", [("sum", I64), ("sum", I32), ("sum", I8), ("prod", I64), ("prod", F64), ("amax", I8), ("amin", BF16), ("amax", BOOL),
                                      ("any", BOOL), ("all", BOOL), ("sum", BF16)], ids=str)
@pytest.mark.parametrize("dims", [[0], [1], [0, 1]], ids=str)
def test_every_row_of_the_table(op: str, dtype: DType, dims: list[int]) -> None:
    b = FusionBuilder()
    b.output(b.reduce(op, b.tensor(dtype, (70, 48)), dims))
    given = integers(dtype, 70, 48)
    if op == "prod":
        given = torch.where(given == 0, 1, given.clamp(-1, 1)).to(dtype.torch)
    if op == "sum" and dtype is BF16:
        given = (given * (torch.arange(70)[:, None] % 16 == 0)).to(dtype.torch)  # no sum past 256
    agrees(b.build(), given)


def test_several_in_one_kernel_share_memory() -> None:
    """Doubles of sixteen lanes, three times: one array of shared memory, in turns, or they would not fit."""
    b = FusionBuilder()
    wide = b.cast(b.tensor(I8, (300, 64)), F64)
    total, squares, least = b.sum(wide, [0]), b.sum(b.mul(wide, wide), [0]), b.amax(b.neg(wide), [0])
    b.output(b.add(b.add(total, squares), least))
    fusion = b.build()
    assert all(plan.rows is not None for plan in agrees(fusion, integers(I8, 300, 64)))
    for source in lower(fusion, [(64, 1)], [16])[0].sources:
        assert POOL.cubin(source, "sm_90").result()


def test_elementwise_work_around_a_reduction_stays_in_its_kernel() -> None:
    b = FusionBuilder()
    x = b.tensor(F64, (40, 100))
    b.output(b.add(b.mul(b.sum(b.mul(x, 2.0), [1]), 0.5), 1.0))
    assert len(agrees(b.build(), integers(F64, 40, 100))) == 1


def test_what_reads_a_long_reduction_at_its_own_rows_shares_its_kernel() -> None:
    b = FusionBuilder()
    x = b.tensor(F64, (40, 100))
    total = b.sum(x, [1], keepdim=True)
    b.output(b.sub(x, b.expand(total, (40, 100))))
    assert len(agrees(b.build(), integers(F64, 40, 100))) == 1


def test_what_reads_a_long_reduction_at_other_points_finds_it_written() -> None:
    b = FusionBuilder()
    x = b.tensor(F64, (40, 100))
    b.output(b.neg(b.broadcast(b.sum(x, [1]), (40, 3, 100), [0])))
    assert len(agrees(b.build(), integers(F64, 40, 100))) == 2


def test_short_reductions_that_are_spread_and_reduced_again_are_written() -> None:
    """Left inside each other, twelve sums of eight would be 8 ** 12 steps a thread."""
    b = FusionBuilder()
    x = y = b.tensor(F64, (8,))
    for _ in range(12):
        y = b.mul(b.sum(b.add(b.broadcast(y, (8, 8), [0]), b.broadcast(x, (8, 8), [1])), [1]), 0.125)
    b.output(y)
    fusion = b.build()
    steps = [math.prod(a.extent for e in n.nest.exprs() for a in getattr(e, "axes", ())) for p in lower(fusion, [(1,)], [16])[0].kernels
             for bundle in p.bundles for n in bundle.nests]
    assert max(steps) <= 32
    given = torch.full((8,), 2.0, dtype=torch.float64)
    torch.testing.assert_close(compile_fusion(fusion, "host")(given), evaluate(fusion, given))


def test_short_reductions_next_to_each_other_stay_in_one_kernel() -> None:
    b = FusionBuilder()
    x = b.tensor(F64, (50, 4, 4))
    b.output(b.sum(b.mul(b.sum(x, [2]), 2.0), [1]))
    assert len(agrees(b.build(), integers(F64, 50, 4, 4))) == 1


def test_very_many_outputs_and_very_long_ones() -> None:
    b = FusionBuilder()
    b.output(b.sum(b.tensor(I32, (70_000, 3)), [1]))
    b.output(b.sum(b.tensor(I32, (3, 70_000)), [0]))
    b.output(b.sum(b.tensor(I32, (200_000,)), [0]))
    agrees(b.build(), integers(I32, 70_000, 3), integers(I32, 3, 70_000), integers(I32, 200_000))


@pytest.mark.parametrize("dtype,tolerance", [(F32, 1e-5), (BF16, 8e-3)], ids=str)
def test_accuracy_of_long_sums(dtype: DType, tolerance: float) -> None:
    """16-bit sums are kept in float32 until the end."""
    b = FusionBuilder()
    b.output(b.sum(b.tensor(dtype, (6, 4097)), [1]))
    given = torch.rand(6, 4097, generator=torch.Generator().manual_seed(0)).to(dtype.torch)
    (got,) = compile_fusion(b.build(), "host")(given)
    torch.testing.assert_close(got.double(), given.double().sum(1), rtol=tolerance, atol=0)


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_nan_and_infinities(special: float) -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (3, 100))
    for op in ("sum", "amax", "amin"):
        b.output(b.reduce(op, x, [1]))
    given = torch.zeros(3, 100)
    given[1, 57] = special
    agrees(b.build(), given)


@pytest.mark.parametrize("dtype", [I8, I32, I64], ids=str)
@pytest.mark.parametrize("length", [7, 300])
def test_integers_wrap_around(dtype: DType, length: int) -> None:
    b = FusionBuilder()
    x = b.tensor(dtype, (3, length))
    b.output(b.sum(x, [1]))
    b.output(b.prod(x, [1]))
    fusion = b.build()
    agrees(fusion, torch.full((3, length), torch.iinfo(dtype.torch).max // 2 + 2, dtype=dtype.torch))
    assert all("tf::add(" in s.text.rpartition("extern")[2] or "tf::mul(" in s.text.rpartition("extern")[2]
               for s in lower(fusion, [(length, 1)], [16])[0].sources), "signed overflow is undefined in C++"
