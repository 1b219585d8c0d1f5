"""Torch's meaning at every edge, through Thunder: NaN, infinities, zeros of either sign, overflow, division, empty reductions.

One function holds all ops of a kind, so that a case is one kernel or two. Signs of zero are compared too."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from tests.executors.jitted import forward, jit, operators, same

INF, NAN = math.inf, math.nan
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e30, -1e30, 1e-40, INF, -INF, NAN]
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def pairs(values, dtype, device):
    """Each value with each, as two tensors."""
    a, b = zip(*itertools.product(values, repeat=2))
    return torch.tensor(a, dtype=torch.float64).to(dtype).to(device), torch.tensor(b, dtype=torch.float64).to(dtype).to(device)


def integers(dtype, device):
    """Edges of an integer dtype with each other, but what torch's CPU kernels fault on: no zero, no -1, in the second."""
    info = torch.iinfo(dtype)
    first = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 8, 100] + ([-1, -2, -3, -7, -8, -100] if info.min else [])
    second = [info.max, 1, 2, 3, 5, 8] + ([info.min, -2, -3, -5, -8] if info.min else [])
    a, b = zip(*itertools.product(first, second))
    return torch.tensor(a, dtype=dtype, device=device), torch.tensor(b, dtype=dtype, device=device)


def check(f, *inputs, zeros=True, fused=True, **tolerance):
    """The fused function's results are eager torch's, signs of zero too."""
    jitted = jit(f)
    given, wanted = jitted(*inputs), f(*inputs)
    given, wanted = [given] if isinstance(given, torch.Tensor) else given, [wanted] if isinstance(wanted, torch.Tensor) else wanted
    same(given, wanted, **tolerance)
    for g, w in zip(given, wanted):
        if zeros and w.is_floating_point():
            zero = w == 0
            assert torch.equal(g[zero].signbit(), w[zero].signbit())
    assert not fused or not operators(forward(jitted)), forward(jitted)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_comparisons_and_choices_of_floats(dtype, device):
    def f(x, y):
        # which zero a maximum of both gives is not defined: torch's own kernels differ
        return torch.maximum(x, y) + 0.0, torch.minimum(x, y) + 0.0, x == y, x != y, x < y, x <= y, x > y, x >= y

    check(f, *pairs(SPECIAL, dtype, device), zeros=False)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32], ids=str)
def test_clamps(dtype, device):
    x = torch.tensor([v for v in SPECIAL if dtype.is_floating_point or abs(v) < 9], dtype=torch.float64).to(dtype).to(device)

    def f(x):
        found = [torch.clamp(x, -1, 2), torch.clamp(x, min=0), torch.clamp(x, max=0), torch.clamp(x, 2, -1)]
        return [*found, torch.clamp(x, -0.5, 0.5)] if dtype.is_floating_point else found

    check(f, x, zeros=False)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_arithmetic_keeps_signs_of_zero_and_infinities(dtype, device):
    def f(x, y):
        return x + y, x - y, x * y, x / y, -x, torch.abs(x), x + 0.0, x - 0.0, x * 0.0, 0.0 - x, x * -1.0, 1.0 / y

    check(f, *pairs(SPECIAL, dtype, device))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rounding_functions_keep_signs_of_zero(dtype, device):
    values = [*SPECIAL, 0.49999997, -0.3, 1.5, 2.5, -0.5, -1.5]

    def f(x):
        return torch.floor(x), torch.ceil(x), torch.round(x), torch.trunc(x), torch.sign(x), torch.signbit(x), torch.isfinite(x), torch.isnan(x)

    check(f, torch.tensor(values, dtype=torch.float64).to(dtype).to(device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_remainders_of_floats(dtype, device):
    values = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, -7.0, INF, -INF, NAN]

    def f(x, y):
        return torch.fmod(x, y), torch.remainder(x, y), torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, -2.0)

    check(f, *pairs(values, dtype, device), zeros=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_floor_division_of_floats(dtype, device):
    values = [0.5, 1.0, -1.0, 2.5, -2.5, 7.0, -7.0, 0.1, 1e6]
    check(lambda x, y: (torch.floor_divide(x, y), x // 2.0), *pairs(values, dtype, device), zeros=False)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_division_and_remainder_of_integers(dtype, device):
    def f(x, y):
        return (torch.floor_divide(x, y), torch.fmod(x, y), torch.remainder(x, y), x // 3, torch.div(x, y, rounding_mode="trunc"),
                torch.div(x, y, rounding_mode="floor"))

    check(f, *integers(dtype, device))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_true_division_of_integers(dtype, device):
    check(lambda x, y: (x / y, x / 2), *integers(dtype, device), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap_around(dtype, device):
    def f(x, y):
        found = [x + y, x - y, x * y, x + 100, x * 3, x << 1, x ^ y, x | y, x & y, ~x, torch.maximum(x, y), torch.minimum(x, y)]
        return found if dtype is torch.uint8 else [*found, -x, torch.abs(x)]

    check(f, *integers(dtype, device))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_by_any_count(dtype, device):
    bits = torch.iinfo(dtype).bits
    values = [1, 2, 85, torch.iinfo(dtype).max, 0] + ([-1, -2, -85, torch.iinfo(dtype).min] if torch.iinfo(dtype).min else [])
    counts = [0, 1, bits - 2, bits - 1, bits, bits + 1, 100] + ([-1, -7] if torch.iinfo(dtype).min else [])
    a, b = zip(*itertools.product(values, counts))
    x, y = torch.tensor(a, dtype=dtype, device=device), torch.tensor(b, dtype=dtype, device=device)
    check(lambda x, y: (torch.bitwise_left_shift(x, y), torch.bitwise_right_shift(x, y)), x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_powers_of_floats(dtype, device):
    values = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -8.0, INF, -INF, NAN]

    def f(x, y):
        literals = [x**e for e in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5)]
        return torch.pow(x, y), torch.sqrt(x), *literals, 2.0**x, torch.pow(-1.0, x)

    check(f, *pairs(values, dtype, device), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint8], ids=str)
def test_powers_of_integers(dtype, device):
    bases = [0, 1, 2, 3, 7, 100] + ([-1, -2, -3] if torch.iinfo(dtype).min else [])
    a, b = zip(*itertools.product(bases, [0, 1, 2, 3, 5, 31, 62, 63]))
    x, y = torch.tensor(a, dtype=dtype, device=device), torch.tensor(b, dtype=dtype, device=device)
    check(lambda x, y: (torch.pow(x, y), x**2, x**3, x**0), x, y)


def test_casts_where_torch_defines_them(device):
    x = torch.tensor([0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 127.0, -128.0, 100.7, -100.7], device=device)
    small = torch.tensor([0, 1, -1, 127, -128, 255, 256, -129, 2**31 - 1, -(2**31)], dtype=torch.int32, device=device)

    def f(x, n):
        floats = [x.to(d) for d in (torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float64)]
        return *floats, *(n.to(d) for d in (torch.int8, torch.uint8, torch.int16, torch.int64, torch.float32, torch.bfloat16, torch.bool))

    check(f, x, small)


@pytest.mark.parametrize("a, b", [(torch.float32, torch.int64), (torch.bfloat16, torch.float32), (torch.int8, torch.uint8), (torch.bool, torch.int32),
                                  (torch.float16, torch.bfloat16), (torch.float64, torch.complex64)], ids=str)
def test_where_of_mixed_dtypes(a, b, device):
    c = torch.tensor([True, False, True, False], device=device)
    x, y = torch.tensor([1, 2, 0, 4], device=device).to(a), torch.tensor([5, 6, 7, 0], device=device).to(b)
    check(lambda c, x, y: (torch.where(c, x, y), torch.where(c, y, x), torch.where(c, x, x), torch.where(c, 0.5, 1.5) * 1.0), c, x, y)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_softmax_of_rows_with_infinities(dtype, device):
    rows = [[-INF] * 4, [INF, 0.0, 1.0, 2.0], [INF, INF, 0.0, -INF], [NAN, 0.0, 1.0, 2.0], [-INF, 0.0, 1.0, -INF], [1e4, -1e4, 0.0, 5.0], [0.0] * 4]
    x = torch.tensor(rows, device=device).to(dtype)
    narrow = 1e-2 if dtype in (torch.bfloat16, torch.float16) else 1e-6
    check(lambda x: (torch.softmax(x, 1), torch.softmax(x, 0)), x, rtol=narrow, atol=narrow, zeros=False)


@pytest.mark.parametrize("length", [5, 70])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_reductions_see_every_nan_and_infinity(dtype, length, device):
    x = torch.randn(9, length, device=device)
    for row, values in enumerate(([NAN], [INF], [-INF], [INF, -INF], [NAN, INF], [-0.0], [0.0, -0.0], [INF, INF])):
        if math.isfinite(values[0]):
            x[row, :] = 0.0
        x[row, -len(values):] = torch.tensor(values)
    x = x.to(dtype)
    narrow = 2e-2 if dtype in (torch.bfloat16, torch.float16) else 1e-5

    def f(x):
        found = [x.sum(1), x.amax(1), x.amin(1), x.mean(1), torch.any(x != x, 1)]
        return found if dtype.itemsize == 2 else [*found, x.prod(1)]  # torch's CPU kernel rounds each product of 16 bits

    check(f, x, rtol=narrow, atol=narrow, zeros=False)


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS], ids=str)
def test_reductions_of_integers_accumulate_in_int64(dtype, device):
    x = torch.arange(-40, 60, device=device).reshape(4, 25)
    x = x > 3 if dtype is torch.bool else (x * torch.iinfo(dtype).max // 64).to(dtype)
    check(lambda x: (x.sum(1), x.sum(), x.prod(0), x.amax(1), x.amin(0), torch.any(x, 1), torch.all(x, 1), x.sum(0, dtype=torch.float64)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool], ids=str)
def test_reductions_of_nothing(dtype, device):
    x = torch.empty(3, 0, device=device).to(dtype)

    def f(x):
        found = [x.sum(1), x.sum(), x.prod(1), torch.any(x != 0, 1), torch.all(x != 0, 1), x.sum(0)]
        return [*found, x.mean(1), torch.var(x, 1)] if dtype.is_floating_point else found

    check(f, x, fused=False)


def test_accumulation_of_sixteen_bits_is_wide(device):
    x = torch.full((3, 5000), 0.1, device=device)
    for dtype in (torch.bfloat16, torch.float16):
        check(lambda x: (x.sum(1), x.mean(1), x.sum()), x.to(dtype), rtol=1e-2, atol=0)
