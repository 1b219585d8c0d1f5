"""Philox against its published vectors, and against a second reading of the paper that shares no line with the engine's."""

from __future__ import annotations

import math

import pytest
import torch

from thunder_fuser.errors import IRError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import F32, I32, I64
from thunder_fuser.ir.parser import parse
from thunder_fuser.ir.random import philox, sample
from thunder_fuser.ir.verify import verify

CPU = torch.device("cpu")

# Counter, key, words: the known-answer vectors that its authors publish with Random123 (philox4x32, 10 rounds).
VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words_of(seed: int, offset: int, block: int) -> list[int]:
    """The paper's round in Python's integers, one counter at a time."""
    def halves(n: int) -> list[int]:
        n %= 2**64
        return [n % 2**32, n // 2**32]

    left_0, right_0, left_1, right_1 = *halves(block), *halves(offset)
    key = halves(seed)
    for step in range(10):
        if step:
            key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
        first, second = left_0 * 0xD2511F53, left_1 * 0xCD9E8D57
        left_0, right_0, left_1, right_1 = (second // 2**32 ^ right_0 ^ key[0], second % 2**32, first // 2**32 ^ right_1 ^ key[1], first % 2**32)
    return [left_0, right_0, left_1, right_1]


def unit_of(seed: int, offset: int, element: int, dtype: torch.dtype) -> float:
    if dtype is torch.float64:
        words = words_of(seed, offset, element // 2)
        high, low = words[2 * (element % 2)], words[2 * (element % 2) + 1]
        return (high * 2**21 + low // 2**11) / 2**53
    return words_of(seed, offset, element // 4)[element % 4] // 2**8 / 2**24


SEEDS = [(0, 0), (1, 2), (-1, 7), (2**63 - 1, -(2**63)), (67280421310721, 2**33 + 5), (-(2**63), 2**62)]


@pytest.mark.parametrize("counter,key,words", VECTORS)
def test_known_answers(counter: str, key: str, words: str) -> None:
    c, k, want = ([int(w, 16) for w in text.split()] for text in (counter, key, words))
    got = philox([torch.tensor([n]) for n in c], tuple(torch.tensor([n]) for n in k))
    assert [w.item() for w in got] == want
    assert words_of(k[0] + (k[1] << 32), c[2] + (c[3] << 32), c[0] + (c[1] << 32)) == want


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("seed,offset", SEEDS)
def test_uniform_numbers(seed: int, offset: int, dtype: torch.dtype) -> None:
    for shape in ((), (1,), (3, 5), (0, 4), (2, 8)):
        got = sample("uniform", shape, dtype, seed, offset, 0.0, 1.0, device=CPU)
        assert got.shape == shape and got.dtype is dtype
        want = torch.tensor([unit_of(seed, offset, e, dtype) for e in range(math.prod(shape))], dtype=torch.float64).to(dtype)
        assert torch.equal(got.reshape(-1), torch.where(want == 1, torch.zeros((), dtype=dtype), want))


def test_a_seed_in_a_tensor() -> None:
    seed, offset = torch.tensor(-5), torch.tensor([9])
    assert torch.equal(sample("normal", (7,), torch.float32, seed, offset, 0.0, 1.0, device=CPU),
                       sample("normal", (7,), torch.float32, -5, 9, 0.0, 1.0, device=CPU))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_normal_numbers(dtype: torch.dtype) -> None:
    got = sample("normal", (40,), dtype, 11, 3, -2.0, 0.5, device=CPU)
    for e in range(40):
        words = words_of(11, 3, e // (2 if dtype is torch.float64 else 4))
        if dtype is torch.float64:
            a, b = (words[0] * 2**21 + words[1] // 2**11 + 0.5) / 2**53, (words[2] * 2**21 + words[3] // 2**11) / 2**53
        else:
            a, b = (words[e % 4 // 2 * 2] + 0.5) / 2**32, words[e % 4 // 2 * 2 + 1] / 2**32
        z = math.sqrt(-2 * math.log(a)) * (math.sin if e % 2 else math.cos)(2 * math.pi * b)
        assert math.isclose(got[e].item(), z * 0.5 - 2, rel_tol=0, abs_tol=2e-6 if dtype is torch.float32 else 1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("low,high", [(0.0, 1.0), (-3.0, 5.0), (0.3, 0.7), (1e-3, 2e-3), (1.0, 1.0)])
def test_never_the_upper_bound(low: float, high: float, dtype: torch.dtype) -> None:
    got = sample("uniform", (1 << 16,), dtype, 5, 6, low, high, device=CPU)
    below = torch.tensor(low, dtype=torch.float64).to(dtype)
    assert bool((got >= below).all()) and (bool((got.double() < high).all()) or low == high)


@pytest.mark.parametrize("offset", [0, 1, 12345])
def test_means_variances_and_quantiles(offset: int) -> None:
    """A million numbers: mean and variance within five standard errors, the largest gap of the distribution function (Kolmogorov
    and Smirnov's) below what one sample in ten thousand exceeds, neighbours and offsets uncorrelated."""
    n = 1 << 20
    u = sample("uniform", (n,), torch.float64, 42, offset, 0.0, 1.0, device=CPU)
    z = sample("normal", (n,), torch.float32, 42, offset, 0.0, 1.0, device=CPU).double()
    other = sample("uniform", (n,), torch.float64, 42, offset + 1, 0.0, 1.0, device=CPU)
    error = 5 / math.sqrt(n)
    assert abs(u.mean() - 0.5) < error * math.sqrt(1 / 12) and abs(u.var() - 1 / 12) < error * math.sqrt(1 / 180)
    assert abs(z.mean()) < error and abs(z.var() - 1) < error * math.sqrt(2) and abs((z**3).mean()) < error * math.sqrt(15)
    assert abs((z**4).mean() - 3) < error * math.sqrt(96)
    ranks = torch.arange(1, n + 1, dtype=torch.float64) / n
    for distribution in (u.sort().values, torch.special.ndtr(z.sort().values)):
        assert (distribution - ranks).abs().max() < 2.23 / math.sqrt(n)
    for a, b in ((u[:-1], u[1:]), (u[:-2], u[2:]), (u[:-3], u[3:]), (u, other), (z[:-1], z[1:])):
        assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < error


# what is legal

def test_text_and_types() -> None:
    text = "fusion f(s: i64, o: i64[1]) {\n  u: f32[3, 4] = uniform(s, o, -1.0, 2.5)\n  n: bf16[2] = normal(3, -4, 0.0, 1.0)\n  return u, n\n}"
    fusion = parse(text)
    verify(fusion)
    assert str(fusion) == text


def test_illegal_ones() -> None:
    b = FusionBuilder()
    seed = b.scalar(I64)
    with pytest.raises(IRError, match="The seed of 'uniform' is '1.5', expected an i64 number or an i64 tensor of one element"):
        b.random("uniform", (2,), F32, 1.5, seed)
    with pytest.raises(IRError, match="The offset of 'uniform' is 't[0-9]', expected"):
        b.random("uniform", (2,), F32, seed, b.tensor(I64, (2,)))
    with pytest.raises(IRError, match="The seed of 'normal' is 't[0-9]', expected"):
        b.random("normal", (2,), F32, b.tensor(I32, ()), seed)
    with pytest.raises(IRError, match="'uniform' does not take dtype 'i64'"):
        b.random("uniform", (2,), I64, seed, seed)
    with pytest.raises(IRError, match="'poisson' is not a distribution, expected one of uniform, normal"):
        b.random("poisson", (2,), F32, seed, seed)
