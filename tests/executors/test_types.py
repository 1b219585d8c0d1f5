"""Complex numbers, 8-bit floats and rank-0 operands through Thunder, against torch."""

from __future__ import annotations

import operator

import pytest
import torch
from thunder.core import prims
from thunder.core.dtypes import to_dtype

from tests.executors.jitted import forward, fusions, jit, operators, same

UNARY = ("abs", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh",
         "exp2", "expm1", "log2", "log10", "log1p", "neg", "reciprocal", "sigmoid", "isfinite", "isnan", "real", "square")


def complex_numbers(*shape, device="cpu", dtype=torch.complex64):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=dtype).to(device)


def assert_fused(jitted):
    assert fusions(forward(jitted)) and not operators(forward(jitted)), forward(jitted)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype, device):
    x = complex_numbers(7, 5, device=device, dtype=dtype)
    fn = getattr(torch, name)
    jitted = jit(lambda x: fn(x * 1.5))
    same(jitted(x), fn(x * 1.5), rtol=1e-5 if dtype is torch.complex64 else 1e-12, atol=1e-5 if dtype is torch.complex64 else 1e-12)
    assert_fused(jitted)


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.eq, operator.ne])
@pytest.mark.parametrize("other", ["tensor", "real tensor", 2, 0.5, 1 - 2j])
def test_binary(op, other, device):
    x = complex_numbers(4, 6, device=device)
    y = {"tensor": complex_numbers(4, 6, device=device).flip(0), "real tensor": torch.rand(4, 6, device=device) + 1}.get(other, other)
    jitted = jit(op)
    same(jitted(x, y), op(x, y), rtol=2e-5, atol=2e-5)
    assert_fused(jitted)


def test_where_full_sums_and_means(device):
    def f(x, y, c):
        z = torch.where(c, x, y * (2 + 1j))
        return z.sum(1), z.mean(), z, torch.full_like(z, 1j) + z, x.real + 1, x.imag * 2, z.to(torch.complex128), z.prod(1)

    x, y = complex_numbers(5, 70, device=device), complex_numbers(5, 70, device=device) * 1j
    c = torch.rand(5, 70, device=device) > 0.5
    x = x / x.abs()
    jitted = jit(f)
    same(jitted(x, y / 3, c), f(x, y / 3, c), rtol=1e-4, atol=1e-5)


def test_conjugated_and_negated_views_are_read_as_what_they_stand_for(device):
    x = complex_numbers(6, 3, device=device)
    jitted = jit(lambda x: x * 2 + 1)
    same(jitted(x), x * 2 + 1)
    same(jitted(x.conj()), x.conj() * 2 + 1)
    same(jitted(x.conj().imag), x.conj().imag * 2 + 1)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_eight_bit_floats_are_stored_and_cast(dtype, device):
    x = torch.randn(8, 33, device=device) * 100
    x[0, :4] = torch.tensor([float("nan"), float("inf"), 470.0, -1e9])

    def f(x, y):
        z = (x * 2).to(dtype)
        return z, z.to(torch.float32) + 1, torch.nn.functional.pad(z, (2, -1), value=1.5)[:, 3:], y.to(torch.bfloat16) * 3, z.t()

    y = torch.randn(8, 5, device=device).to(dtype)
    jitted = jit(f)
    given, wanted = jitted(x, y), f(x, y)
    for g, w in zip(given, wanted):
        assert g.dtype is w.dtype and g.shape == w.shape
        if w.dtype is dtype:
            assert torch.equal(g.view(torch.uint8), w.view(torch.uint8))
        else:
            same(g, w)
    assert_fused(jitted)


@pytest.mark.parametrize("scalar", [torch.tensor(3), torch.tensor(0.1, dtype=torch.float64), torch.tensor(True), torch.tensor(1 - 1j)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
def test_rank_0_cpu_tensors_beside_others(scalar, dtype, device):
    x = torch.randint(-9, 9, (4, 7), device=device).to(dtype)

    def f(x, s):
        return x * s, s + x, torch.where(x == s, x, s), x + 1

    jitted = jit(f)
    rounding = {"rtol": 2e-2, "atol": 0} if dtype is torch.bfloat16 else {"rtol": 1e-6, "atol": 1e-6}  # Thunder rounds the scalar first
    same(jitted(x, scalar), f(x, scalar), **rounding)
    same(jitted(x, scalar + scalar), f(x, scalar + scalar), **rounding)
    assert_fused(jitted)


@pytest.mark.parametrize("source, target", [(torch.float32, torch.int32), (torch.int16, torch.bfloat16), (torch.float64, torch.complex64),
                                            (torch.uint8, torch.float8_e4m3fn), (torch.bool, torch.int8)], ids=str)
def test_bits_read_as_another_dtype(source, target, device):
    x = (torch.randn(5, 6, device=device) * 20).to(source)
    jitted = jit(lambda x: prims.bitcast(x.transpose(0, 1), to_dtype(target)))
    got, want = jitted(x), x.transpose(0, 1).view(target)
    assert got.dtype is target and torch.equal(got.contiguous().view(source), want.contiguous().view(source))
    assert_fused(jitted)


@pytest.mark.parametrize("correction", [0, 1, 3, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
def test_variances(dtype, correction, device):
    x = (torch.randn(6, 40, device=device) + 2).to(dtype)

    def f(x):
        return (torch.var(x, 1, correction=correction), *torch.var_mean(x, 0, correction=correction), torch.std(x, (0, 1), correction=correction),
                torch.var(x[:, :1], 1, correction=correction))

    jitted = jit(f)
    same(jitted(x), f(x), rtol=2e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-5)
    assert fusions(forward(jitted)) and operators(forward(jitted)) == (["var_mean"] if dtype.is_complex else [])
