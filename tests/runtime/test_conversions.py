"""tf::convert between every pair of dtypes against torch: all 8-bit and 16-bit patterns, edges and random bits of the rest."""

from __future__ import annotations

import pytest
import torch

from tests.runtime.handwritten import conversions, run
from thunder_fuser.ir.dtypes import BF16, DTYPES, F8_E4M3, F8_E5M2, F16, DType, from_torch
from thunder_fuser.runtime.compile_pool import POOL

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
FLOAT_EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 65504.0, 65519.99, 65520.0, 65536.0, -65520.0, 6e-8, 2.98e-8, 2.99e-8, 6.1e-5]
FLOAT_EDGES += [1e-45, 1e-40, 3.3895e38, 3.4e38, 127.0, 127.9, -128.0, 255.0, -255.0, 32767.0, 2.0**31 - 128, -(2.0**63)]
FLOAT_EDGES += [float("inf"), float("-inf"), float("nan"), float("-nan")]


def all_halves(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


def around(halves: torch.Tensor) -> torch.Tensor:
    """Floats where rounding to 16 bits is decided: the values, midpoints between neighbours, and one step on each side."""
    values = halves.float()
    values = values[values.isfinite()].sort().values
    centres = torch.cat([values, (values[1:] + values[:-1]) / 2])
    up, down = torch.nextafter(centres, torch.tensor(torch.inf)), torch.nextafter(centres, torch.tensor(-torch.inf))
    return torch.cat([centres, up, down])


def samples(dtype: DType) -> torch.Tensor:
    torch.manual_seed(0)
    t = dtype.torch
    if t is torch.bool:
        return torch.tensor([False, True])
    if dtype.size == 2 and dtype.kind == "float":
        return all_halves(t)
    if dtype.kind == "float8":
        return torch.arange(256).to(torch.uint8).view(t)
    if dtype.kind == "complex":
        parts = samples(from_torch(t.to_real()))
        return torch.complex(parts, parts.roll(1))
    if dtype.kind == "int":
        info = torch.iinfo(t)
        edges = torch.tensor([0, 1, info.min, info.max, info.max - 1, info.max // 2 + 1], dtype=t)
        # Powers of two and their neighbours, where integers stop being exact in a float.
        powers = torch.tensor([2**k + d for k in range(7 * dtype.size) for d in (-1, 0, 1)]).to(t)
        return torch.cat([edges, powers, -powers, torch.randint(info.min, info.max, (5000,), dtype=t)])
    bits = torch.randint(-(2**31), 2**31, (20_000,), dtype=torch.int64).to(torch.int32).view(torch.float32)
    narrow = [all_halves(torch.float16), all_halves(torch.bfloat16), samples(F8_E4M3), samples(F8_E5M2)]
    values = torch.cat([torch.tensor(FLOAT_EDGES), *map(around, narrow), bits])
    if t is torch.float64:
        wide = torch.cat([values.double(), torch.tensor([1e300, 1 + 2.0**-40, 1 + 2.0**-11 + 2.0**-40, 4e38, 1e-320])])
        return torch.cat([wide, torch.randn(5000, dtype=t) * 1e4])
    return torch.cat([values, torch.randn(5000) * 100])


def defined(x: torch.Tensor, to: DType) -> torch.Tensor:
    """Where the conversion has one answer: C++ leaves floats beyond an integer's range open."""
    x = x.real if x.is_complex() else x
    if not x.dtype.is_floating_point or to.kind != "int":
        return torch.ones_like(x, dtype=torch.bool)
    info = torch.iinfo(to.torch)
    low = -256.0 if to.name == "u8" else float(info.min)  # torch wraps small negatives into uint8
    x = x.double()
    return (x > low - 1) & (x < float(info.max) + 1 if to.size < 8 else x < 2.0**63) & (x >= -(2.0**63))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("from_", DTYPES.values(), ids=str)
def test_convert(device, from_):
    targets = list(DTYPES.values())
    x = samples(from_)
    outs = [torch.empty(x.shape, dtype=t.torch, device=device) for t in targets]
    run(conversions(from_, targets), -(-x.numel() // 256), 256, x.to(device), x.numel(), *outs, kinds="i32")
    for to, out in zip(targets, outs):
        where = defined(x, to)
        got, expected = out.cpu()[where], x.to(to.torch)[where]
        if to.kind == "float8":
            got, expected = got.view(torch.uint8), expected.view(torch.uint8)
        elif to.kind == "complex":
            got, expected = torch.view_as_real(got), torch.view_as_real(expected)
        same = got == expected
        if to.kind in ("float", "complex"):
            same |= got.isnan() & expected.isnan()
            same &= (got.signbit() == expected.signbit()) | got.isnan()
        if to.kind == "float8" and device == "cuda":  # reading a half, the card drops the sign of a NaN
            same |= (got & 0x7F == expected & 0x7F) & x[where].isnan()
        wrong = (~same).nonzero()[:5, 0]  # 8-bit floats are compared code by code, NaNs too
        assert not len(wrong), (to, x[where][wrong], got[wrong], expected[wrong])


@pytest.mark.parametrize("from_", DTYPES.values(), ids=str)
def test_nvrtc_takes_every_conversion(from_):
    assert POOL.cubin(conversions(from_, list(DTYPES.values())), "sm_80").result()[:4] == b"\x7fELF"


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_round_trip_through_float_keeps_every_pattern(device, dtype):
    from tests.runtime.handwritten import source

    name = f"round_trip_{dtype.name}"
    kernel = source(
        name,
        f'extern "C" __global__ void {name}(const {dtype.storage}* a, {dtype.storage}* o) {{\n'
        "  const int i = (blockIdx.x * 256 + threadIdx.x) * 2;\n"
        f"  tf::store(o + i, tf::convert<{dtype.storage}>(tf::convert<float>(tf::load<2>(a + i))));\n}}\n",
    )
    x = all_halves(dtype.torch).to(device)
    out = torch.empty_like(x)
    run(kernel, 128, 256, x, out)
    nan = x.isnan()
    assert torch.equal(out.view(torch.int16)[~nan], x.view(torch.int16)[~nan]) and bool(out[nan].isnan().all())
