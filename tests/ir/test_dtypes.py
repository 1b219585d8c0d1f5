"""The dtypes that torch converts and stores but does little else with, and complex numbers, in the IR and in generated kernels."""

from __future__ import annotations

import math

import pytest
import torch

from thunder_fuser.compiler import compile_fusion
from thunder_fuser.errors import IRError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import C64, C128, DTYPES, F8_E4M3, F8_E5M2, F16, F32, F64, I32, DType, as_number, complex_of, from_torch, real_of
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.nodes import Constant
from thunder_fuser.ir.parser import parse
from thunder_fuser.ir.verify import verify

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
EIGHT_BITS = [F8_E4M3, F8_E5M2]


def _run(build, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """The outputs of a compiled program, after a check that its text parses back."""
    b = FusionBuilder()
    for out in build(b, *(b.tensor(from_torch(x.dtype), x.shape) for x in inputs)):
        b.output(out)
    fusion = b.build()
    verify(fusion)
    assert str(parse(str(fusion))) == str(fusion)
    outs = compile_fusion(fusion)(*inputs)
    for out, reference in zip(outs, evaluate(fusion, *inputs), strict=True):
        assert out.dtype is reference.dtype and out.stride() == reference.stride()
    return outs


def _flipped(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.uint8).flip(0).view(x.dtype)  # torch flips no 8-bit floats


def _codes(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.uint8)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_every_half_rounds_to_torchs_code(dtype: DType, device: str) -> None:
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16).to(device)
    (got,) = _run(lambda b, x: [b.cast(x, dtype)], halves)
    assert torch.equal(_codes(got), _codes(halves.to(dtype.torch)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_every_code_moves_and_compares(dtype: DType, device: str) -> None:
    x = torch.arange(256).to(torch.uint8).view(dtype.torch).to(device)
    y, c = _flipped(x), torch.rand(256, device=device) > 0.5

    def build(b, x, y, c):
        yield from (b.cast(x, F32), b.eq(x, y), b.ne(x, y), b.where(c, x, y), b.cat([x, y]), b.flip(x, [0]), b.slice(x, [3], [250], [2]))
        yield from (b.pad(x, [(3, -2, 1)], 1.5), b.reshape(b.cast(x, F16), (16, 16)), b.full((7,), 300.0, dtype))

    wide, equal, unequal, picked, joined, flipped, sliced, padded, halves, full = _run(build, x, y, c)
    torch.testing.assert_close(wide, x.float(), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(equal, x == y) and torch.equal(unequal, x != y)
    known = ~torch.where(c, x, y).isnan()  # a NaN may come back with other bits
    assert torch.equal(_codes(picked)[known], _codes(torch.where(c, x, y))[known]) and bool(picked[~known].isnan().all())
    for got, want in ((joined, torch.cat([x, y])), (flipped, _flipped(x)), (sliced, x[3:250:2]), (full, torch.full((7,), 300.0, dtype=dtype.torch))):
        assert torch.equal(_codes(got), _codes(want.to(device)))
    spread = _codes(torch.full((3 + 511 - 2,), 1.5, device=device).to(dtype.torch))
    spread[3::2] = _codes(x)[:255]
    assert torch.equal(_codes(padded), spread)
    torch.testing.assert_close(halves, x.half().reshape(16, 16), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_no_arithmetic_on_eight_bits(dtype: DType) -> None:
    b = FusionBuilder()
    x = b.tensor(dtype, (4,))
    for op in (lambda: b.add(x, x), lambda: b.neg(x), lambda: b.sum(x), lambda: b.exp(x), lambda: b.maximum(x, x), lambda: b.iota(4, dtype)):
        with pytest.raises(IRError, match=str(dtype)):
            op()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [C64, C128], ids=str)
def test_complex_numbers_move_like_any_other(dtype: DType, device: str) -> None:
    x = torch.randn(6, 10, dtype=dtype.torch, device=device)
    wide = torch.empty(13, 30, dtype=dtype.torch, device=device)[1::2, 5:25:2].copy_(x)

    def build(b, x, w):
        y = b.permute(w, (1, 0))
        yield from (y, b.cat([x, w], 1), b.pad(x, [(1, 0, 0), (0, 2, 1)], -0.5j), b.flip(w, [1]), b.broadcast(b.sum(w, (1,)), (3, 6), (1,)))
        yield from (b.copy(y), b.reshape(y, (4, 15)), b.full((3,), complex(math.nan, 2.0), dtype))

    got = _run(build, x, wide)
    padded = torch.full((7, 21), -0.5j, dtype=dtype.torch, device=device)
    padded[1:, :19:2] = x
    want = [x.T, torch.cat([x, x], 1), padded, x.flip(1), x.sum(1).expand(3, 6), x.T, x.T.reshape(4, 15)]
    for g, w in zip(got, want):
        torch.testing.assert_close(g, w)
    assert got[-1].real.isnan().all() and (got[-1].imag == 2.0).all()


@pytest.mark.parametrize("device", DEVICES)
def test_complex_numbers_are_handed_over_whole(device: str) -> None:
    b = FusionBuilder()
    x, s, n = b.tensor(C64, (5,)), b.scalar(C128), b.scalar(C128)
    b.output(b.add(b.mul(x, s), b.div(n, 2)))
    b.output(b.full((2,), b.mul(s, n), C128))
    exe = compile_fusion(b.build())
    given = torch.randn(5, dtype=torch.complex64, device=device)
    scaled, product = exe(given, 1.5 - 2j, 3)
    torch.testing.assert_close(scaled, given * (1.5 - 2j) + 1.5)
    assert product.tolist() == [(1.5 - 2j) * 3] * 2


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("length", [0, 1, 7, 33, 1000])
@pytest.mark.parametrize("dtype", [C64, C128], ids=str)
def test_complex_sums_and_products(dtype: DType, length: int, device: str) -> None:
    x = torch.randn(3, length, dtype=dtype.torch, device=device)
    x = x / x.abs()
    total, product, column = _run(lambda b, x: [b.sum(x, (1,)), b.prod(x, (1,)), b.sum(x, (0,))], x)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype is C64 else {"rtol": 1e-11, "atol": 1e-11}
    torch.testing.assert_close(total, x.sum(1), **tolerance)
    torch.testing.assert_close(product, x.prod(1), **tolerance)
    torch.testing.assert_close(column, x.sum(0), **tolerance)


@pytest.mark.parametrize("value", [1j, -0j, complex(-0.0, -2.5), complex(math.inf, -math.nan), complex(0.0, math.inf), 1e-300 + 1e300j])
def test_complex_literals_read_back(value: complex) -> None:
    b = FusionBuilder()
    b.output(b.mul(b.tensor(C128, (2,)), value))
    again = parse(str(b.build()))
    assert again.nodes[0].args[1] == Constant(value)


def test_dtypes_of_parts_and_numbers() -> None:
    assert real_of(C64) is F32 and real_of(C128) is F64 and real_of(I32) is I32 and complex_of(F64) is C128
    assert as_number(2, C64) == 2 and as_number(3 + 0j, I32) == 3 and as_number(2j, DTYPES["b8"]) is True
    for fault in (lambda: complex_of(F16), lambda: as_number(1j, F32)):
        with pytest.raises(IRError):
            fault()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("source", DTYPES.values(), ids=str)
def test_bits_are_read_as_every_dtype_of_their_size(source: DType, device: str) -> None:
    x = (torch.randn(6, 9, device=device) * 50).to(source.torch)
    targets = [d for d in DTYPES.values() if d.size == source.size and d.name != "b8"]
    pieces = [x, x.T, x[1::2, 3:]]
    outs = _run(lambda b, *xs: [b.bitcast(b.permute(v, (1, 0)), d) for v in xs for d in targets], *pieces)
    for (piece, target), out in zip([(p, d) for p in pieces for d in targets], outs):
        want = piece.T.contiguous().view(target.torch)
        assert out.dtype is target.torch and torch.equal(out.contiguous().view(torch.uint8), want.view(torch.uint8))


def test_bits_of_other_sizes_and_bools_are_refused() -> None:
    b = FusionBuilder()
    for source, target in ((F32, F64), (C64, F32), (DTYPES["u8"], DTYPES["b8"])):
        with pytest.raises(IRError, match="'bitcast' cannot read"):
            b.bitcast(b.tensor(source, (4,)), target)


def test_a_rounding_whose_bits_are_read_is_made() -> None:
    x = torch.randn(100)
    bits, again = _run(lambda b, x: [b.bitcast(y := b.cast(x, F16), DTYPES["i16"]), b.cast(y, F32)], x)
    assert torch.equal(bits, x.half().view(torch.int16)) and torch.equal(again, x.half().float())
