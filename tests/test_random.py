"""Random numbers in kernels: those that `ir/random.py` says, whatever the schedule, the dtype and the moves around them."""

from __future__ import annotations

import math

import pytest
import torch

from tests.support.memory import copied
from thunder_fuser.codegen.kernel import kernel_text
from thunder_fuser.compiler import compile_fusion
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, F16, F32, F64, I64, DType
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.nodes import Fusion, Value
from thunder_fuser.ir.random import sample
from thunder_fuser.schedule import pointwise

FLOATS = (F32, BF16, F16, F64)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def check(fusion: Fusion, *inputs, device: str = "cpu", tolerance: float = 0.0) -> list[torch.Tensor]:
    given = [x.to(device) if isinstance(x, torch.Tensor) else x for x in inputs]
    outputs = compile_fusion(fusion)(*copied(given))
    for got, want in zip(outputs, evaluate(fusion, *inputs, device="cpu"), strict=True):
        if tolerance:
            torch.testing.assert_close(got.cpu(), want, rtol=tolerance, atol=tolerance)
        else:
            assert torch.equal(got.cpu(), want)
    return outputs


SHAPES = [(64, 64), (8, 128), (5, 7), (3, 33), (1,), (4097,), (0, 8), (), (2, 3, 4, 5)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numbers_of_every_shape(shape: tuple[int, ...], dtype: DType, device: str) -> None:
    b = FusionBuilder()
    x, seed, offset = b.tensor(dtype, shape), b.scalar(I64), b.scalar(I64)
    b.output(b.add(b.random("uniform", shape, dtype, seed, offset), x))
    check(b.build(), torch.zeros(shape, dtype=dtype.torch), -(2**62) + 1, 2**40 + 3, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_normal_numbers(dtype: DType, device: str) -> None:
    b = FusionBuilder()
    x, mean = b.tensor(dtype, (8, 64)), b.scalar(F64)
    b.output(b.add(b.random("normal", (8, 64), dtype, 77, 5, mean, 0.5), x))
    tolerance = {F64: 1e-14, F32: 2e-6, BF16: 2e-2, F16: 2e-3}[dtype]
    check(b.build(), torch.zeros(8, 64, dtype=dtype.torch), -1.5, device=device, tolerance=tolerance)


def moved(b: FusionBuilder, u: Value) -> list[Value]:
    """The same numbers read in other orders, in parts, repeated, reduced."""
    return [b.permute(u, [1, 0]), b.reshape(u, (-1,)), b.slice(u, [3, 1], [16, 60], [2, 3]), b.flip(u, [0, 1]),
            b.pad(u, [(1, 2, 0), (-3, 4, 1)], -1.0), b.cat([b.slice(u, [0, 32], [16, 64]), b.slice(u, [0, 0], [16, 32])], 1),
            b.broadcast(u, (3, 16, 64), [1, 2]), b.amax(u, [1]), b.amin(u, [0]), b.amax(u)]


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_number_belongs_to_its_element(dtype: DType, busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if busy:
        monkeypatch.setattr(pointwise, "SMALL", 0)  # the widest vectors, as for large tensors
    b = FusionBuilder()
    u = b.random("uniform", (16, 64), dtype, b.scalar(I64), b.scalar(I64), -2.0, 2.0)
    for value in moved(b, u):
        b.output(b.neg(value) if value.type.numel else value)
    check(b.build(), 3, 4)


@pytest.mark.parametrize("shape", [(32, 64), (31, 33), (7, 2)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_layout_of_the_other_operand_does_not_matter(dtype: DType, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointwise, "SMALL", 0)
    b = FusionBuilder()
    x = b.tensor(dtype, shape)
    mask = b.lt(b.random("uniform", shape, dtype, 1, 2), 0.7)
    b.output(b.mul(x, b.cast(mask, dtype)))
    fusion = b.build()
    base = torch.randn(4 * math.prod(shape) + 8).to(dtype.torch)
    for strides, offset in [((shape[1], 1), 0), ((1, shape[0]), 0), ((shape[1], 1), 1), ((2 * shape[1], 2), 3), ((0, 1), 0), ((1, 0), 2)]:
        (out,) = check(fusion, base.as_strided(shape, strides, offset))
        numbers = sample("uniform", shape, dtype.torch, 1, 2, 0.0, 1.0, device=torch.device("cpu"))
        assert torch.equal(out != 0, (numbers.double() < 0.7) & (base.as_strided(shape, strides, offset) != 0))


@pytest.mark.parametrize("dtype,calls", [(F32, 1), (BF16, 2), (F16, 2), (F64, 1)], ids=str)
def test_four_lanes_share_a_call(dtype: DType, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointwise, "SMALL", 0)
    b = FusionBuilder()
    x = b.tensor(dtype, (64, 64))
    b.output(b.mul(x, b.random("uniform", (64, 64), dtype, 1, 2)))
    exe = compile_fusion(b.build(), "host")
    exe(torch.ones(64, 64, dtype=dtype.torch))
    (source,) = exe.stages().sources
    lanes = 16 // dtype.size
    assert f"tf::draw<{dtype.storage}, {lanes}>" in kernel_text(source) and "words_at" not in kernel_text(source)
    assert lanes // (4 if dtype is not F64 else 2) == calls


def test_seeds_in_tensors_and_computed_ones() -> None:
    b = FusionBuilder()
    seed, offset, x = b.tensor(I64, ()), b.tensor(I64, (1,)), b.tensor(F32, (8, 16))
    b.output(b.add(b.random("uniform", (8, 16), F32, seed, offset), x))
    b.output(b.add(b.random("uniform", (8, 16), F32, b.add(seed, 1), b.neg(offset)), x))
    fusion = b.build()
    first, second = check(fusion, torch.tensor(9), torch.tensor([4]), torch.zeros(8, 16))
    for got, numbers in ((first, (9, 4)), (second, (10, -4))):
        assert torch.equal(got, sample("uniform", (8, 16), torch.float32, *numbers, 0.0, 1.0, device=torch.device("cpu")))


def test_numbers_inside_a_long_reduction() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (6, 512))
    b.output(b.amax(b.mul(x, b.random("uniform", (6, 512), F32, 1, 2)), [1]))
    b.output(b.amin(b.add(x, b.random("uniform", (6, 512), F32, 1, 3)), [0]))
    check(b.build(), torch.randn(6, 512))


def test_equal_numbers_are_made_once_and_others_are_not() -> None:
    b = FusionBuilder()
    for seed, offset in ((1, 2), (1, 2), (2, 1), (1, 3)):
        b.output(b.mul(b.random("uniform", (64,), F32, seed, offset), 2.0))
    outputs = check(b.build())
    assert torch.equal(outputs[0], outputs[1]) and all(not torch.equal(outputs[0], o) for o in outputs[2:])


def test_bounds_at_run_time() -> None:
    b = FusionBuilder()
    low, high = b.scalar(F64), b.scalar(F64)
    b.output(b.random("uniform", (1000,), BF16, 5, 6, low, high))
    fusion = b.build()
    for bounds in ((0.0, 1.0), (-4.0, 4.0), (0.5, 0.5)):
        (out,) = check(fusion, *bounds)
        assert bool((out >= bounds[0]).all()) and (bool((out < bounds[1]).all()) or bounds[0] == bounds[1])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_both_backends_agree(dtype: DType) -> None:
    b = FusionBuilder()
    seed, offset = b.scalar(I64), b.scalar(I64)
    b.output(b.random("uniform", (100, 333), dtype, seed, offset, -1.0, 3.0))
    fusion = b.build()
    with torch.cuda.device(0):
        (device,) = compile_fusion(fusion, "cuda")(123, 456)
    (host,) = compile_fusion(fusion, "host")(123, 456)
    assert torch.equal(device.cpu(), host)
