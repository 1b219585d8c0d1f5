"""Pulled-back values against the interpreter, index by index, without any generated code in between."""

from __future__ import annotations

import math
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.expressions import run
from tests.support.programs import programs
from thunder_fuser.errors import UnsupportedError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BOOL, F32, F64, I32, I64
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.nodes import Fusion, ScalarType, Scan, Scatter
from thunder_fuser.ir.parser import parse
from thunder_fuser.maps import nests
from thunder_fuser.maps.exprs import Load, Select, topological
from thunder_fuser.maps.pullback import BoxExpr, Pullback

SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[d + 1:]) for d in range(len(shape)))


def pullback(fusion: Fusion, **options: int) -> Pullback:
    return Pullback(fusion.producers(), {v: row_major(v.shape) for v in fusion.inputs if not isinstance(v.type, ScalarType)}, **options)


def boxes(fusion: Fusion, **options: int) -> list[BoxExpr]:
    return pullback(fusion).boxes(fusion.outputs[0], **options)


def agrees(fusion: Fusion, inputs: list, *, max_boxes: int = 48) -> None:
    assume(not any(isinstance(n, (Scatter, Scan)) for n in fusion.nodes))  # kernels of their own, without an index map
    memory = {v: t.reshape(-1) for v, t in zip(fusion.inputs, inputs) if isinstance(t, torch.Tensor)}
    numbers = {v: t for v, t in zip(fusion.inputs, inputs) if not isinstance(t, torch.Tensor)}
    outputs = list(dict.fromkeys(v for v in fusion.outputs if v not in fusion.inputs))
    buffers = [(v, row_major(v.shape)) for v in outputs]
    # strides are row-major, so that a buffer is its value's elements in order
    with mock.patch.object(Pullback.boxes, "__kwdefaults__", {"max_boxes": max_boxes}):
        made = nests.build(pullback(fusion), buffers)
    got = run(made, memory, numbers, {v: v.type.numel for v in outputs})
    want = dict(zip(fusion.outputs, evaluate(fusion, *inputs)))
    for value in outputs:
        torch.testing.assert_close(got[value].view(value.shape), want[value].contiguous(), rtol=0, atol=0)


@SETTINGS
@given(programs(dtypes=(F64, I64, BOOL, I32, F32)), st.sampled_from((48, 48, 1, 2, 5)))
def test_random_programs(case: tuple[Fusion, list], max_boxes: int) -> None:
    """Also with few boxes allowed, when guards have to do what boxes did."""
    agrees(*case, max_boxes=max_boxes)


@SETTINGS
@given(programs(dtypes=(I64,), max_nodes=20, sizes=(6, 4, 12, 2, 3, 8), max_rank=5), st.sampled_from((0, 1 << 20)))
def test_random_programs_of_divisible_sizes(case: tuple[Fusion, list], busy: int) -> None:
    with mock.patch.object(nests, "BUSY_POINTS", busy):
        agrees(*case)


# one rule each: what the boxes of an output are

def program(signature: str, *lines: str) -> Fusion:
    body = "\n".join(f"  {line}" for line in lines)
    return parse(f"fusion f({signature}) {{\n{body}\n  return {lines[-1].split(':')[0]}\n}}")


def addresses(box: BoxExpr) -> list[str]:
    return [f"{e.buffer}[{e.address}]" for e in topological([box.expr]) if isinstance(e, Load)]


@pytest.mark.parametrize("line,want", [
    ("y: i64[12] = reshape(x)", ["x[3*i0 + i1]"]),
    ("y: i64[2, 2, 3] = reshape(x)", ["x[6*i0 + 3*i1 + i2]"]),
    ("y: i64[3, 4] = permute(x, dims=[1, 0])", ["x[i0 + 3*i1]"]),
    ("y: i64[2, 2] = slice(x, starts=[1, 0], stops=[4, 3], steps=[2, 2])", ["x[6*i0 + 2*i1 + 3]"]),
    ("y: i64[4, 3] = flip(x, dims=[0, 1])", ["x[-3*i0 + -1*i1 + 11]"]),
    ("y: i64[4, 5, 3] = broadcast(x, dims=[0, 2])", ["x[3*i0 + i2]"]),
    ("y: i64[4, 3] = copy(x)", ["x[3*i0 + i1]"]),
])
def test_what_moves_elements_is_an_index(line: str, want: list[str]) -> None:
    (box,) = boxes(program("x: i64[4, 3]", line))
    assert addresses(box) == want and isinstance(box.expr, Load) and not box.expr.guards


def test_squeeze_is_an_index() -> None:
    (box,) = boxes(program("x: i64[4, 1, 3]", "y: i64[4, 3] = squeeze(x, dims=[1])"))
    assert addresses(box) == ["x[3*i0 + i1]"]


def test_pad_is_boxes_of_constants_around_one_of_loads() -> None:
    found = boxes(program("x: i64[4, 3]", "y: i64[7, 3] = pad(x, 5, widths=[(1, 2, 0), (0, 0, 0)])"))
    assert [addresses(b) for b in found] == [[], ["x[3*i0 + i1]"], []]
    assert not any(isinstance(e, Select) for b in found for e in topological([b.expr]))


def test_dilation_is_every_other_box() -> None:
    found = boxes(program("x: i64[4]", "y: i64[7] = pad(x, 0, widths=[(0, 0, 1)])"))
    assert sorted(a for b in found for a in addresses(b)) == ["x[3]", "x[i0]"]
    assert not any(isinstance(e, Select) for b in found for e in topological([b.expr]))


def test_cat_is_a_box_a_piece() -> None:
    found = boxes(program("x: i64[4, 3], z: i64[0, 3], w: i64[2, 3]", "y: i64[6, 3] = cat(x, z, w, dim=0)"))
    assert [addresses(b) for b in found] == [["x[3*i0 + i1]"], ["w[3*i0 + i1]"]]


def test_reshape_across_a_border_is_guarded() -> None:
    """Rows of 5 cut out of pieces of 6 and 4 elements: no box does it, one that would not be right is worse."""
    fusion = program("x: i64[3, 2], w: i64[2, 2]", "y: i64[5, 2] = cat(x, w, dim=0)", "z: i64[2, 5] = reshape(y)")
    agrees(fusion, [torch.arange(6).view(3, 2), torch.arange(4).view(2, 2) + 10])


def test_reshape_without_common_factors_divides() -> None:
    fusion = program("x: i64[2, 3]", "y: i64[3, 2] = permute(x, dims=[1, 0])", "z: i64[2, 3] = reshape(y)", "w: i64[3, 2] = permute(z, dims=[1, 0])")
    agrees(fusion, [torch.arange(6).view(2, 3)])


def test_empty_pieces_and_sizes() -> None:
    assert boxes(program("x: i64[0, 3]", "y: i64[0, 3] = neg(x)")) == []
    agrees(program("x: i64[0, 3]", "y: i64[2, 3] = pad(x, 7, widths=[(1, 1, 0), (0, 0, 0)])"), [torch.empty(0, 3, dtype=torch.int64)])
    agrees(program("x: i64[0, 3]", "y: i64[3] = sum(x, dims=[0])"), [torch.empty(0, 3, dtype=torch.int64)])


def test_an_extremum_of_nothing_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="'amax' over no elements"):
        boxes(program("x: i64[0, 3]", "y: i64[3] = amax(x, dims=[0])"))


def test_equal_expressions_are_one_object() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (8,))
    low, high = b.slice(x, [0], [4]), b.slice(x, [4], [8])
    b.output(b.cat([b.neg(high), low]))
    first, second = boxes(b.build())
    both = [e for box in (first, second) for e in topological([box.expr]) if isinstance(e, Load)]
    assert first.axes == second.axes and len(both) == 2 and both[0] is not both[1]
    assert {str(e.address) for e in both} == {"i0", "i0 + 4"}


def test_budget_stops_the_walk() -> None:
    b = FusionBuilder()
    y = b.tensor(I64, (4, 4))
    for _ in range(12):
        y = b.add(y, b.permute(b.flip(y, [0]), [1, 0]))
        y = b.add(y, b.cat([b.slice(y, [1, 0], [4, 4]), b.slice(y, [0, 0], [1, 4])]))
    b.output(y)
    fusion = b.build()
    limited = pullback(fusion, budget=20)
    limited.boxes(fusion.outputs[0])
    assert limited.exhausted and max(limited.counts().values()) > 1
    assert not pullback(fusion).exhausted
