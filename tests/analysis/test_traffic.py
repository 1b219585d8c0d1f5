"""The least bytes of fusions for which they can be counted by hand."""

from __future__ import annotations

from thunder_fuser.analysis.alias import aliases
from thunder_fuser.analysis.layout import layouts
from thunder_fuser.analysis.traffic import least_bytes
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, F32, F64, I64


def count(b: FusionBuilder, *strides: tuple[int, ...] | None) -> int:
    fusion = b.build()
    table = layouts(fusion, strides)
    return least_bytes(aliases(fusion, table), table)


def test_read_once_and_written_once() -> None:
    b = FusionBuilder()
    x, y = b.tensor(F32, (4, 6)), b.tensor(F32, (4, 6))
    b.output(b.cast(b.add(b.mul(x, y), b.add(x, y)), BF16))
    assert count(b, (6, 1), (1, 4)) == 24 * (4 + 4 + 2)


def test_views_of_inputs_cost_nothing() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (4, 6))
    b.output(b.slice(x, (0, 1), (4, 3))), b.output(x)
    assert count(b, (6, 1)) == 0


def test_unused_inputs_and_nodes_cost_nothing() -> None:
    b = FusionBuilder()
    x, y = b.tensor(F32, (4,)), b.tensor(F32, (4,))
    b.neg(y), b.output(b.neg(x))
    assert count(b, (1,), (1,)) == 32


def test_a_slice_counts_the_slice_only() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (4, 6))
    b.output(b.neg(b.slice(x, (0, 1), (4, 3))))
    assert count(b, (6, 1)) == 8 * 4 * 2


def test_two_slices_add_up_and_are_capped_by_the_input() -> None:
    b = FusionBuilder()
    x = b.tensor(F64, (8,))
    parts = [b.slice(x, (i,), (i + 3,)) for i in (0, 5)]
    b.output(b.add(*parts))
    assert count(b, (1,)) == (3 + 3 + 3) * 8
    b.output(b.add(b.slice(x, (1,), (7,)), b.slice(x, (2,), (8,))))
    assert count(b, (1,)) == (8 + 3 + 6) * 8


def test_one_region_seen_in_two_ways_counts_once() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (4, 6))
    part = b.slice(x, (1, 0), (3, 6))
    b.output(b.neg(part)), b.output(b.exp(b.permute(part, (1, 0)))), b.output(b.abs(b.expand(part, (5, 2, 6))))
    assert count(b, (6, 1)) == 4 * (12 + 12 + 12 + 60)


def test_stride_0_counts_once() -> None:
    b = FusionBuilder()
    b.output(b.neg(b.tensor(F32, (4, 6))))
    assert count(b, (0, 1)) == 4 * (6 + 24)
    assert count(b, (0, 0)) == 4 * (1 + 24)


def test_buffers_of_views_and_numbers() -> None:
    b = FusionBuilder()
    x, n = b.tensor(F32, (4,)), b.scalar(I64)
    b.output(b.expand(b.mul(x, n), (100, 4)))
    assert count(b, (1,), None) == 4 * (4 + 4)


def test_nothing_is_nothing() -> None:
    b = FusionBuilder()
    b.output(b.sum(b.tensor(F32, (0, 3)), (0,)))
    assert count(b, (3, 1)) == 12
