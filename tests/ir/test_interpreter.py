"""The interpreter against torch spelled out by hand, and against itself in float64 on random programs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings

from tests.support.programs import programs
from thunder_fuser.errors import InputError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, BOOL, F16, F32, F64, I32, I64, U8, from_torch
from thunder_fuser.ir.interpreter import evaluate


@settings(max_examples=150, deadline=None)
@given(programs())
def test_exact_programs_are_the_same_in_float64(program) -> None:
    fusion, inputs = program
    for wide, eager in zip(evaluate(fusion, *inputs, dtype=torch.float64), evaluate(fusion, *inputs), strict=True):
        assert wide.shape == eager.shape and (wide.dtype is torch.float64 or wide.dtype is eager.dtype)
        assert torch.equal(wide, eager.to(wide.dtype))


@settings(max_examples=100, deadline=None)
@given(programs(exact=False))
def test_rounded_programs_are_near_those_in_float64(program) -> None:
    fusion, inputs = program
    for wide, eager in zip(evaluate(fusion, *inputs, dtype=torch.float64), evaluate(fusion, *inputs), strict=True):
        if eager.is_floating_point():  # a bf16 value may pass through any output: its error is the scale
            torch.testing.assert_close(eager.double(), wide, rtol=0.2, atol=0.2 * max(1.0, _largest(wide)))
        else:
            assert torch.equal(wide, eager)


@settings(max_examples=100, deadline=None)
@given(programs(specials=True))
def test_meta_tensors_get_the_same_types_and_strides(program) -> None:
    fusion, inputs = program
    meta = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") if isinstance(x, torch.Tensor) else x
            for x in inputs]
    for got, want in zip(evaluate(fusion, *meta), evaluate(fusion, *inputs), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        seen = [d for d, n in enumerate(want.shape) if n > 1] if want.numel() else []
        assert [got.stride(d) for d in seen] == [want.stride(d) for d in seen]


def _largest(x: torch.Tensor) -> float:
    return float(x.abs().max()) if x.numel() else 0.0


def _run(build, *inputs, **kwargs) -> torch.Tensor:
    """Evaluates a program of tensor inputs like `inputs` and one output, `build(builder, *values)`."""
    b = FusionBuilder()
    values = [b.tensor(from_torch(x.dtype), x.shape) for x in inputs]
    b.output(build(b, *values))
    return evaluate(b.build(), *inputs, **kwargs)[0]


def test_view_nodes_are_views_of_the_input() -> None:
    x = torch.randn(3, 1, 4).transpose(0, 2)
    cases = [
        (lambda b, v: b.permute(v, (2, 0, 1)), x.permute(2, 0, 1)),
        (lambda b, v: b.slice(v, (1, 0, 0), (4, 1, 3), (2, 1, 1)), x[1:4:2]),
        (lambda b, v: b.squeeze(v, (1,)), x.squeeze(1)),
        (lambda b, v: b.broadcast(v, (4, 5, 2, 3), (0, 1, 3)), x.unsqueeze(2).expand(4, 5, 2, 3)),
        (lambda b, v: b.reshape(v, (4, 1, 1, 3)), x.view(4, 1, 1, 3)),
    ]
    for build, want in cases:
        got = _run(build, x)
        assert torch.equal(got, want) and got.stride() == want.stride()
        assert got.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert got.storage_offset() == want.storage_offset()


def test_copies_are_fresh_and_have_torchs_strides() -> None:
    x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    cases = [
        (lambda b, v: b.copy(v), x.clone()),
        (lambda b, v: b.reshape(v, (6, 20)), x.reshape(6, 20)),
        (lambda b, v: b.flip(v, (1, 3)), x.flip(1, 3)),
        (lambda b, v: b.cat([v, v], 1), torch.cat([x, x], 1)),
        (lambda b, v: b.cat([v], 1), torch.cat([x], 1)),
        (lambda b, v: b.pad(v, [(0, 0, 0)] * 3 + [(1, 2, 0)], 7.0), torch.nn.functional.pad(x, (1, 2), value=7.0)),
        (lambda b, v: b.cast(v, F64), x.double()),
        (lambda b, v: b.exp(v), x.exp()),
        (lambda b, v: b.sum(v, (1, 3)), x.sum((1, 3))),
    ]
    for build, want in cases:
        got = _run(build, x)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
        assert got.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    assert _run(lambda b, v: b.copy(v, (2, 0, 3, 1)), x).permute(2, 0, 3, 1).is_contiguous()


def test_sixteen_bit_results_keep_the_order_of_strided_operands() -> None:
    for shape, order in (((2, 3, 4), (2, 0, 1)), ((4, 5), (1, 0)), ((2, 3, 4, 5), (0, 3, 1, 2))):
        x = torch.randn(shape).bfloat16().permute(order)
        y = torch.randn(x.shape).bfloat16()
        for first, second in ((x, y), (y, x), (x[:1].expand_as(x), y), (y, x[..., :1].expand_as(x))):
            got, want = _run(lambda b, v, w: b.mul(v, w), first, second), first * second
            assert torch.equal(got, want) and got.stride() == want.stride()


@pytest.mark.parametrize("size", [0, 1, 2, 5])
@pytest.mark.parametrize("low,high,interior", [
    (0, 0, 0), (2, 1, 0), (-1, 3, 0), (1, -1, 2), (-2, 4, 1), (-7, 9, 1), (9, -7, 2), (-1, 1, 3), (3, -1, 0)])
def test_pad_puts_each_element_where_it_belongs(size: int, low: int, high: int, interior: int) -> None:
    length = low + size + max(size - 1, 0) * interior + high
    x = torch.arange(1, size + 1)
    want = [-9] * length
    for i in range(size):
        if 0 <= low + i * (interior + 1) < length:
            want[low + i * (interior + 1)] = i + 1
    assert _run(lambda b, v: b.pad(v, [(low, high, interior)], -9), x).tolist() == want


def test_numbers_are_not_rounded_to_sixteen_bits() -> None:
    x = torch.randn(1000).bfloat16()
    assert torch.equal(_run(lambda b, v: b.mul(v, 0.1), x), (x.float() * 0.1).bfloat16())
    assert torch.equal(_run(lambda b, v: b.mul(v, 0.1), x), x * 0.1)


def test_scalars_take_the_tensors_dtype_and_compute_among_themselves() -> None:
    b = FusionBuilder()
    x, s, n, flag = b.tensor(I32, (3,)), b.scalar(F64), b.scalar(I64), b.scalar(BOOL)
    half = b.div(s, 2)
    b.output(b.mul(x, n))
    b.output(b.full((2,), half, F32))
    b.output(b.where(flag, x, b.neg(x)))
    b.output(b.full((), b.cast(half, I64), I64))
    b.output(b.pad(x, [(1, 0, 0)], n))
    got = evaluate(b.build(), torch.tensor([1, 2, 3], dtype=torch.int32), 5.0, 7, False)
    assert [g.tolist() for g in got] == [[7, 14, 21], [2.5, 2.5], [-1, -2, -3], 2, [7, 1, 2, 3]]


def test_reductions_keep_the_dtype_and_have_a_value_for_nothing() -> None:
    b = FusionBuilder()
    x, y = b.tensor(F16, (4, 5000)), b.tensor(F32, (3, 0))
    n, flags = b.tensor(U8, (300,)), b.tensor(BOOL, (2, 3))
    for out in (b.sum(x, (1,)), b.sum(n), b.sum(y, (1,)), b.prod(y, (1,)), b.amax(y, (1,)), b.amin(y, (1,)), b.any(flags, (1,)),
                b.all(flags, (1,)), b.sum(x, ())):
        b.output(out)
    halves, bits = torch.rand(4, 5000).half(), torch.tensor([[True, False, True], [True] * 3])
    got = evaluate(b.build(), halves, torch.empty(3, 0), torch.ones(300, dtype=torch.uint8), bits)
    torch.testing.assert_close(got[0], halves.double().sum(1).half(), rtol=1e-3, atol=0)
    assert got[1].item() == 300 % 256 and got[1].dtype is torch.uint8
    assert [g.tolist() for g in got[2:6]] == [[0.0] * 3, [1.0] * 3, [-math.inf] * 3, [math.inf] * 3]
    assert got[6].tolist() == [True, True] and got[7].tolist() == [False, True]
    assert torch.equal(got[8], halves)


def test_iota_wraps_and_rounds_once() -> None:
    b = FusionBuilder()
    for out in (b.iota(4, U8, 254, 1), b.iota(3, F32, 0.5, 0.25), b.iota(300, BF16, 0, 1), b.iota(0, I64)):
        b.output(out)
    bytes_, floats, halves, empty = evaluate(b.build())
    assert bytes_.tolist() == [254, 255, 0, 1] and floats.tolist() == [0.5, 0.75, 1.0] and empty.tolist() == []
    assert torch.equal(halves, torch.arange(300).bfloat16())


def test_an_output_may_be_an_input_and_shared_outputs_are_one_tensor() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (2,))
    y = b.neg(x)
    for value, shared in ((x, False), (y, False), (y, True), (y, False)):
        b.output(value, shared=shared)
    given = torch.tensor([1.0, -2.0])
    got = evaluate(b.build(), given)
    assert got[0] is given and got[1] is got[2] and got[3] is not got[1] and torch.equal(got[3], -given)


def test_ten_thousand_nodes() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (2,))
    value = x
    for _ in range(10_000):
        value = b.add(value, x)
    b.output(value)
    assert evaluate(b.build(), torch.tensor([1.0, -2.0]))[0].tolist() == [10_001.0, -20_002.0]


def test_wrong_inputs_are_refused_in_a_sentence() -> None:
    b = FusionBuilder("two")
    b.output(b.mul(b.tensor(F32, (2, 3), name="x"), b.scalar(F64, name="s")))
    fusion = b.build()
    for inputs, message in [
        ((torch.zeros(2, 3),), "Fusion 'two' takes 2 inputs, got 1"),
        ((torch.zeros(2, 4), 1.0), r"Input 'x' is f32\[2, 3\], got torch.float32 of shape \[2, 4\]"),
        ((torch.zeros(2, 3).double(), 1.0), "Input 'x' is f32"),
        ((3.0, 1.0), "Input 'x' is a tensor, got '3.0'"),
        ((torch.zeros(2, 3), torch.zeros(())), "Input 's' is a number, got a tensor"),
    ]:
        with pytest.raises(InputError, match=message):
            evaluate(fusion, *inputs)
