"""Alias analysis: each rule on its own, then random programs run by their recipes against eager torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings

from tests.analysis.recipes import check, programs
from tests.support.programs import programs as all_programs
from thunder_fuser.analysis.alias import AliasInfo, OutputPlan, View, aliases
from thunder_fuser.analysis.layout import layouts
from thunder_fuser.errors import UnsupportedError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import F32, I64
from thunder_fuser.ir.nodes import Fusion, Value


def analyse(b: FusionBuilder, *strides: tuple[int, ...]) -> AliasInfo:
    fusion = b.build()
    return aliases(fusion, layouts(fusion, strides))


@given(programs())
@settings(max_examples=300, deadline=None)
def test_recipes_against_eager(program: tuple[Fusion, list[torch.Tensor]]) -> None:
    check(*program)


@given(all_programs())
@settings(max_examples=200, deadline=None)
def test_recipes_of_all_ops(program: tuple[Fusion, list]) -> None:
    check(*program)


def test_views_of_an_input_need_no_kernel() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (4, 6))
    b.output(b.permute(b.slice(x, (0, 2), (4, 6)), (1, 0)))
    b.output(x)
    info = analyse(b, (6, 1))
    assert info.is_noop
    assert info.outputs == (OutputPlan(True, 0, View((4, 4), (1, 6), 2)), OutputPlan(True, 0))


@pytest.mark.parametrize("build", [
    lambda b, x: b.copy(x),
    lambda b, x: b.cast(x, F32),
    lambda b, x: b.cat([x], 0),
    lambda b, x: b.pad(x, [(0, 0, 0), (0, 0, 0)]),
    lambda b, x: b.pad(x, [(0, 0, 0), (-1, -1, 0)]),
    lambda b, x: b.add(x, 0.0),
    lambda b, x: b.mul(x, 1.0),
    lambda b, x: b.flip(x, (0,)),
    lambda b, x: b.flip(x, ()),
    lambda b, x: b.copy(x, (0, 1)),
    lambda b, x: b.reshape(b.permute(x, (1, 0)), (24,)),
], ids=["clone", "cast", "cat of one", "pad by nothing", "crop", "add 0", "mul 1", "flip", "flip nothing", "same order",
        "reshape"])
def test_fresh_storage(build: Callable[[FusionBuilder, Value], Value]) -> None:
    b = FusionBuilder()
    out = b.output(build(b, b.tensor(F32, (4, 6))))
    info = analyse(b, (6, 1))
    assert info.outputs == (OutputPlan(False, 0),)
    assert info.buffers[0].value is out and not info.is_noop


def test_an_output_returned_twice_is_two_buffers_unless_shared() -> None:
    b = FusionBuilder()
    y = b.neg(b.tensor(F32, (3,)))
    b.output(y), b.output(y), b.output(y, shared=True)
    assert analyse(b, (1,)).outputs == (OutputPlan(False, 0), OutputPlan(False, 1), OutputPlan(False, 0))


def test_a_permuted_temporary_is_a_view_of_its_buffer() -> None:
    b = FusionBuilder()
    y = b.neg(b.tensor(F32, (2, 3)))
    b.output(b.broadcast(b.permute(y, (1, 0)), (5, 3, 2), (1, 2)))
    info = analyse(b, (3, 1))
    assert [(x.value, x.strides) for x in info.buffers] == [(y, (3, 1))]
    assert info.outputs == (OutputPlan(False, 0, View((5, 3, 2), (0, 1, 3), 0)),)


def test_disjoint_slices_of_a_temporary_have_buffers_of_their_own() -> None:
    b = FusionBuilder()
    y = b.neg(b.tensor(F32, (4, 6)))
    left, right = b.slice(y, (0, 0), (4, 2)), b.slice(y, (0, 2), (4, 6))
    b.output(b.permute(left, (1, 0))), b.output(right)
    info = analyse(b, (6, 1))
    assert [(x.value, x.strides) for x in info.buffers] == [(left, (2, 1)), (right, (4, 1))]
    assert info.outputs == (OutputPlan(False, 0, View((2, 4), (1, 2), 0)), OutputPlan(False, 1))


def test_a_slice_keeps_the_order_of_its_dims() -> None:
    b = FusionBuilder()
    b.output(b.slice(b.neg(b.tensor(F32, (4, 6))), (0, 0), (4, 2)))
    assert analyse(b, (1, 4)).buffers[0].strides == (1, 4)


@pytest.mark.parametrize("second", [((1, 0), (4, 6)), ((0, 1), (4, 3)), ((0, 0), (4, 6))], ids=["rows", "columns", "all"])
def test_overlapping_slices_share_the_temporary(second: tuple) -> None:
    b = FusionBuilder()
    y = b.neg(b.tensor(F32, (4, 6)))
    first = b.slice(y, (0, 0), (3, 2))
    b.output(first), b.output(b.slice(y, *second))
    info = analyse(b, (6, 1))
    assert [x.value for x in info.buffers] == [y]
    assert info.outputs[0] == OutputPlan(False, 0, View((3, 2), (6, 1), 0))


def test_a_slice_across_rows_overlaps_one_of_a_row() -> None:
    b = FusionBuilder()
    y = b.neg(b.tensor(F32, (3, 4)))
    b.output(b.slice(b.reshape(y, (12,)), (0,), (7,))), b.output(b.slice(y, (1, 0), (2, 2)))
    assert [x.value for x in analyse(b, (4, 1)).buffers] == [y]


def test_a_slice_of_an_expanded_temporary_repeats_its_elements() -> None:
    b = FusionBuilder()
    y = b.neg(b.tensor(F32, (4,)))
    b.output(b.slice(b.expand(y, (5, 4)), (0, 0), (5, 2)))
    info = analyse(b, (1,))
    assert [x.value for x in info.buffers] == [y]
    assert info.outputs == (OutputPlan(False, 0, View((5, 2), (0, 1), 0)),)


def test_a_slice_of_an_output_is_a_view_of_it() -> None:
    b = FusionBuilder()
    y = b.neg(b.tensor(F32, (4, 6)))
    b.output(b.slice(y, (1, 0), (3, 2))), b.output(y)
    info = analyse(b, (6, 1))
    assert info.outputs == (OutputPlan(False, 0, View((2, 2), (6, 1), 6)), OutputPlan(False, 0))


def test_text() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (4, 6), "x")
    b.output(b.slice(x, (1, 0), (4, 6), name="tail")), b.output(b.neg(x, name="y")), b.output(x)
    assert str(analyse(b, (6, 1))) == """buffers
  b0 = y [4, 6] strides [6, 1]
outputs
  tail = x as [3, 6] strides [6, 1] offset 6
  y = b0
  x = x"""


def test_numbers() -> None:
    b = FusionBuilder()
    n = b.scalar(I64)
    b.output(n)
    fusion = b.build()
    assert aliases(fusion, layouts(fusion, [None])).outputs == (OutputPlan(True, 0),)
    b.output(b.add(n, 1))
    fusion = b.build()
    with pytest.raises(UnsupportedError, match="computed number"):
        aliases(fusion, layouts(fusion, [None]))
