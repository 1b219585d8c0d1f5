"""Where a fusion is cut into kernels, why, and in which order they run."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from thunder_fuser.compiler import Stages, compile_fusion, lower
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import F32, F64
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.nodes import Fusion
from thunder_fuser.schedule import segment


def staged(fusion: Fusion) -> Stages:
    """The stages, after the whole has been run and compared."""
    inputs = [torch.randint(-3, 4, v.shape, generator=torch.Generator().manual_seed(0)).to(v.dtype.torch) for v in fusion.inputs]
    exe = compile_fusion(fusion, "host")
    for got, want in zip(exe(*inputs), evaluate(fusion, *inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)
    return lower(exe.fusion, [t.stride() for t in inputs], [16] * len(inputs))[0]


def shape(stages: Stages) -> list[tuple[int, bool, int]]:
    return [(s.level, s.reduces, len(s.targets)) for s in stages.segments.segments]


def test_pads_cats_and_pointwise_work_are_one_segment() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (6, 8))
    y = b.cat([b.neg(x), b.pad(x, [(1, 2, 1), (0, 0, 0)], 1.0)], 0)
    b.output(b.mul(y, 2.0))
    b.output(b.permute(b.add(x, 1.0), [1, 0]))
    stages = staged(b.build())
    assert shape(stages) == [(0, False, 2)] and not stages.segments.cuts


def test_a_long_reduction_that_is_read_at_other_points_is_written_first() -> None:
    b = FusionBuilder()
    x = b.tensor(F64, (6, 64))
    total = b.sum(x, [1], name="total")
    b.output(b.neg(b.broadcast(total, (6, 2, 64), [0])))
    stages = staged(b.build())
    assert shape(stages) == [(0, True, 1), (1, False, 1)]
    assert str(stages.segments).splitlines()[-1] == "cut at total: a long reduction, read at other points than its own"


def test_work_of_a_reductions_own_size_stays_with_it() -> None:
    b = FusionBuilder()
    total = b.sum(b.tensor(F64, (6, 64)), [1])
    b.output(b.reshape(b.neg(b.add(total, 1.0)), (2, 3)))
    assert shape(staged(b.build())) == [(0, True, 1)]


def test_each_long_reduction_has_a_kernel() -> None:
    b = FusionBuilder()
    x = b.tensor(F64, (6, 64))
    b.output(b.sum(x, [1]))
    b.output(b.amax(x, [0, 1]))
    b.output(b.neg(x))
    assert shape(staged(b.build())) == [(0, True, 2), (0, True, 1)]


def test_a_short_reduction_is_recomputed_where_it_is_read() -> None:
    b = FusionBuilder()
    x = b.tensor(F64, (6, 4))
    b.output(b.sub(x, b.broadcast(b.sum(x, [1]), (6, 4), [0])))
    assert shape(staged(b.build())) == [(0, False, 1)]


@pytest.mark.parametrize("limit", [4, 16])
def test_long_programs_are_cut_by_cost(limit: int) -> None:
    b = FusionBuilder()
    y = b.tensor(F64, (5,))
    for k in range(40):
        y = b.add(b.mul(y, 0.5), float(k % 3))
    b.output(y)
    fusion = b.build()
    with mock.patch.object(segment, "MAX_COST", limit):
        stages = staged(fusion)
    assert len(stages.segments.cuts) == (80 - 1) // limit
    assert [s.level for s in stages.segments.segments] == list(range(len(stages.segments.cuts) + 1))
    assert set(stages.segments.cuts.values()) == {f"more than {limit} operations"}


def test_many_outputs_are_shared_out() -> None:
    b = FusionBuilder()
    x = b.tensor(F64, (5,))
    for k in range(segment.MAX_TARGETS + 3):
        b.output(b.mul(x, float(k)))
    assert [n for _, _, n in shape(staged(b.build()))] == [segment.MAX_TARGETS, 3]


def test_nothing_is_planned_for_what_has_no_elements_or_no_use() -> None:
    b = FusionBuilder()
    x = b.tensor(F64, (0, 3))
    b.exp(x)
    b.output(b.neg(x))
    assert shape(staged(b.build())) == []


def test_values_at_too_many_indices_are_written() -> None:
    """Every step reads the last one twice, at other places: left alone that is 2 ** 25 expressions."""
    b = FusionBuilder()
    y = b.tensor(F64, (12, 12))
    for k in range(25):
        moved = b.permute(b.flip(y, [0]), [1, 0]) if k % 2 else b.reshape(b.permute(b.reshape(y, (16, 9)), [1, 0]), (12, 12))
        y = b.mul(b.add(y, moved), 0.5)
    b.output(y)
    stages = staged(b.build())
    assert "evaluated at too many indices" in stages.segments.cuts.values()


def test_recompute_cut_prefers_what_is_computed() -> None:
    b = FusionBuilder()
    x = b.tensor(F64, (4,))
    turned = b.flip(x, [0])
    cat = b.cat([turned, x])
    work = b.neg(cat)
    b.output(work)
    fusion = b.build()
    again = {turned: 3, cat: 3, work: 3}
    assert segment.recompute_cut(again, fusion) is work
    assert segment.recompute_cut(again, fusion, [work]) in (turned, cat)
    assert segment.recompute_cut(again, fusion, [work, turned, cat]) is None
    assert segment.recompute_cut({x: 9, turned: 1, cat: 1}, fusion) is cat, "nothing twice: then what is evaluated at all"
    assert segment.recompute_cut({x: 9}, fusion) is None
