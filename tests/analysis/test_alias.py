"""Alias analysis: each rule on its own, then random programs run by their recipes against eager torch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.eager import run_eager
from tests.analysis.strided import factorings, strided, tensor
from thunder_fuser.analysis.alias import AliasInfo, OutputPlan, View, aliases
from thunder_fuser.analysis.layout import layouts
from thunder_fuser.errors import UnsupportedError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import F32, I64
from thunder_fuser.ir.nodes import Fusion, Value


def analyse(b: FusionBuilder, *strides: tuple[int, ...]) -> AliasInfo:
    fusion = b.build()
    return aliases(fusion, layouts(fusion, strides))


def run_recipe(info: AliasInfo, inputs: list[torch.Tensor], values: dict[Value, torch.Tensor]) -> list[torch.Tensor]:
    """The outputs made by a recipe, its buffers filled from `values`."""
    buffers = []
    for buffer in info.buffers:
        memory = torch.empty_strided(buffer.value.shape, buffer.strides, dtype=buffer.value.dtype.torch)
        buffers.append(memory.copy_(values[buffer.value]))
    outs = []
    for plan in info.outputs:
        source = (inputs if plan.of_input else buffers)[plan.index]
        view = plan.view
        outs.append(source if view is None else
                    source.as_strided(view.shape, view.strides, source.storage_offset() + view.offset))
    return outs


def sharing(tensors: list[torch.Tensor]) -> list[int]:
    """For each element of all tensors, one after the other: the first element that lies in the same place."""
    first: dict[tuple[int, int], int] = {}
    places = []
    for t in tensors:
        reach = t.storage_offset() + 1 + sum(max(n - 1, 0) * s for n, s in zip(t.shape, t.stride()))
        where = torch.arange(reach).as_strided(t.shape, t.stride(), t.storage_offset())
        places += [(t.untyped_storage()._cdata, i) for i in where.flatten().tolist()]
    return [first.setdefault(place, i) for i, place in enumerate(places)]


def check(fusion: Fusion, inputs: list[torch.Tensor]) -> AliasInfo:
    """Runs the recipe of `fusion` and compares values, strides and sharing of storage with eager."""
    table = layouts(fusion, [t.stride() for t in inputs])
    info = aliases(fusion, table)
    values = run_eager(fusion, *inputs)
    want = [values[v] for v in fusion.outputs]
    got = run_recipe(info, inputs, values)
    pieces = {b.value for b in info.buffers if table[b.value].base is not b.value}
    for value, g, w, plan in zip(fusion.outputs, got, want, info.outputs):
        torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True)
        if plan.of_input or info.buffers[plan.index].value not in pieces:
            assert g.stride() == w.stride(), str(info)
        elif plan.view is None:
            assert g.stride() == torch.empty_like(w).stride(), str(info)
    assert sharing([*inputs, *got]) == sharing([*inputs, *want]), str(info)
    return info


@st.composite
def programs(draw: st.DrawFn) -> tuple[Fusion, list[torch.Tensor]]:
    """Mostly views, of strided inputs and of computed values; several of them returned."""
    b = FusionBuilder()
    spec = draw(strided(max_rank=3))
    live = [b.tensor(F32, spec[0])]
    if draw(st.booleans()):
        live = [_compute(draw, b, live[0])]
    for _ in range(draw(st.integers(0, 8))):
        x = draw(st.sampled_from(live))
        live.append(draw(st.sampled_from(STEPS))(draw, b, x))
    for v in live[:-4:-1] + draw(st.lists(st.sampled_from(live), max_size=2)):
        b.output(v, shared=v is live[0])
    return b.build(), [tensor(spec, offset=1)]


def _slice(draw: st.DrawFn, b: FusionBuilder, x: Value) -> Value:
    starts, stops = [], []
    for n in x.shape:
        start, stop = draw(st.sampled_from([(0, n), (0, n), (0, -(-n // 2)), (n // 2, n), (n // 2, n), (0, n - 1), (1, n), (n, n)]))
        starts.append(min(start, n))
        stops.append(max(stop, starts[-1]))
    return b.slice(x, starts, stops, [draw(st.sampled_from([1, 1, 1, 2])) for _ in x.shape])


def _reshape(draw: st.DrawFn, b: FusionBuilder, x: Value) -> Value:
    return b.reshape(x, draw(st.sampled_from(factorings(x.type.numel, 3))))


def _permute(draw: st.DrawFn, b: FusionBuilder, x: Value) -> Value:
    return b.permute(x, draw(st.permutations(range(len(x.shape)))))


def _squeeze(draw: st.DrawFn, b: FusionBuilder, x: Value) -> Value:
    return b.squeeze(x, [d for d, n in enumerate(x.shape) if n == 1][:1])


def _broadcast(draw: st.DrawFn, b: FusionBuilder, x: Value) -> Value:
    if len(x.shape) > 3:
        return b.copy(x)
    at = draw(st.integers(0, len(x.shape)))
    return b.broadcast(x, (*x.shape[:at], draw(st.integers(1, 2)), *x.shape[at:]), [d + (d >= at) for d in range(len(x.shape))])


def _compute(draw: st.DrawFn, b: FusionBuilder, x: Value) -> Value:
    return draw(st.sampled_from([
        lambda: b.neg(x), lambda: b.add(x, x), lambda: b.mul(x, 2.0), lambda: b.cast(x, F32), lambda: b.copy(x),
        lambda: b.flip(x, range(len(x.shape))), lambda: b.cat([x, x], 0) if x.shape else b.neg(x),
        lambda: b.pad(x, [(1, 0, 0) for _ in x.shape]), lambda: b.pad(x, [(0, 0, 0) for _ in x.shape])]))()


STEPS = [_slice, _slice, _slice, _reshape, _permute, _squeeze, _broadcast, _compute]


@given(programs())
@settings(max_examples=300, deadline=None)
def test_recipes_against_eager(program: tuple[Fusion, list[torch.Tensor]]) -> None:
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
], ids=["clone", "cast", "cat of one", "pad by nothing", "crop", "add 0", "mul 1", "flip", "flip nothing", "same order", "reshape"])
def test_fresh_storage(build) -> None:  # noqa: ANN001
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
