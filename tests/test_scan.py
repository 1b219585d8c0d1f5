"""Cumulative sums, products and extrema against torch: long lines, many lines, any dim, any layout, what surrounds them."""

from __future__ import annotations

import math

import pytest
import torch

from thunder_fuser import config
from thunder_fuser.compiler import compile_fusion
from thunder_fuser.errors import IRError
from thunder_fuser.executable import Executable
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BOOL, F32, I64, from_torch
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.ops import SCANS
from thunder_fuser.ir.parser import parse

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def run(build, x: torch.Tensor, *, device: str = "cpu", exact: bool = True) -> tuple[list[torch.Tensor], Executable]:
    """The program of `build(builder, value)`, compiled; compared with the interpreter if `exact`."""
    b = FusionBuilder("scanned")
    made = build(b, b.tensor(from_torch(x.dtype), x.shape))
    for value in made if isinstance(made, list) else [made]:
        b.output(value)
    fusion = b.build()
    assert str(parse(str(fusion))) == str(fusion)
    exe = compile_fusion(fusion, {"cpu": "host", "cuda": "cuda"}[device], keep_rounding=True)
    got = [g.cpu() for g in exe(x.to(device))]
    for g, w in zip(got, evaluate(fusion, x), strict=True):
        assert g.stride() == w.stride() and (not exact or torch.equal(g, w))
    return got, exe


def columns(exe: Executable) -> list[int]:
    return [k.scan.columns for k in exe.stages().kernels if k.scan is not None]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
def test_rows_columns_and_dims_between(dtype: torch.dtype, device: str) -> None:
    """Small integers, whose sums every dtype holds, or that wrap around."""
    for shape, dim in (((3, 2500), 1), ((60, 70), 0), ((2, 300, 3), 1), ((5, 7), -1)):
        x = (torch.randint(0, 2, shape) * (1 - torch.arange(shape[-1]) % 2 * 2)).to(dtype)
        (sums, most), _ = run(lambda b, x, d=dim: [b.cumsum(x, d), b.cummax(x, d)], x, device=device)
        assert torch.equal(sums, x.long().cumsum(dim).to(dtype)) and torch.equal(most, x.cummax(dim).values)


@pytest.mark.parametrize("device", DEVICES)
def test_a_line_takes_a_block_if_it_is_long_and_dense(device: str) -> None:
    for shape, dim, want in (((4, 5000), 1, 1), ((100, 5000), 0, 32), ((4, 100), 1, 32), ((2, 4999), 1, 1), ((3000, 4), 0, 1)):
        _, exe = run(lambda b, x, d=dim: b.cumsum(x, d), torch.randint(-3, 3, shape).float(), device=device)
        assert columns(exe) == [want]


@pytest.mark.parametrize("device", DEVICES)
def test_sums_of_random_floats_are_rounded_little_and_always_alike(device: str) -> None:
    x = torch.randn(3, 20011)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        given = x.to(dtype)
        (got,), exe = run(lambda b, x: b.cumsum(x, 1), given, device=device, exact=False)
        exact = given.double().cumsum(1)
        assert (got.double() - exact).abs().max() <= 4 * max(torch.finfo(dtype).eps / 4, torch.finfo(torch.float32).eps) * exact.abs().max()
        for seed in (1, 2):
            with config.override(host_seed=seed):
                assert torch.equal(got, exe(given.to(device))[0].cpu())  # added up in one order, whatever comes first


@pytest.mark.parametrize("device", DEVICES)
def test_any_layout(device: str) -> None:
    x = torch.randint(-4, 4, (30, 90)).float()
    odd = torch.zeros(30 * 90 + 3)[3:].view(30, 90).copy_(x)
    for given in (x.mT.contiguous().mT, odd, x[:, ::2], x[:1].expand(30, 90), x[:, :1].expand(30, 90)):
        for dim in (0, 1):
            run(lambda b, x, d=dim: [b.cumsum(x, d), b.cummin(x, d)], given, device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_nan_and_infinity_stay(device: str) -> None:
    x = torch.tensor([1.0, -0.0, math.inf, 2.0, -math.inf, 1.0, math.nan, 3.0]).repeat_interleave(200).view(1, -1)
    for op in SCANS:
        (got,), _ = run(lambda b, x, op=op: b.scan(op, x, 1), x, device=device, exact=False)
        torch.testing.assert_close(got, SCANS[op].torch(x, 1), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("device", DEVICES)
def test_what_comes_before_and_after(device: str) -> None:
    """Pads, cats, reshapes and gathers are read through; what is scanned may be scanned again, reduced, or be a reduction."""
    def program(b, x):
        joined = b.reshape(b.cat([b.mul(x, 2.0), b.pad(b.slice(x, (0, 0), (12, 20)), [(0, 0, 1), (1, 2, 0)], 1.0)], 0), (35, 23))
        first = b.cumsum(joined, 0)
        second = b.cumsum(b.reshape(b.flip(first, (0,)), (23, 35)), 1)
        rows = b.cummax(b.sum(x, (1,)), 0)
        picked = b.gather(first, b.broadcast(b.iota(23, I64), (1, 23), (1,)), 0)
        return [b.neg(second), b.sum(first, (1,)), rows, picked, b.cumprod(b.sign(x), 1)]

    run(program, torch.randint(-3, 3, (12, 23)).float(), device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_and_single_elements(device: str) -> None:
    for shape, dim in (((0, 3), 0), ((3, 0), 1), ((3, 0), 0), ((1, 1), 1), ((5, 1), 1), ((1,), 0)):
        run(lambda b, x, d=dim: b.cumsum(x, d), torch.randn(shape), device=device)
    (got,), _ = run(lambda b, x: b.cumsum(x, 0), torch.tensor(3.0), device=device)
    assert got.item() == 3.0


def test_illegal_scans_are_refused_in_a_sentence() -> None:
    b = FusionBuilder()
    for build, message in [(lambda: b.cumsum(b.tensor(BOOL, (3,)), 0), "'cumsum' does not take dtype 'b8'"),
                           (lambda: b.scan("cumall", b.tensor(F32, (3,)), 0), "'cumall' is not a scan"),
                           (lambda: b.cummax(b.tensor(F32, (3,)), 1), "Dim 1 is out of range for rank 1")]:
        with pytest.raises(IRError, match=message):
            build()
