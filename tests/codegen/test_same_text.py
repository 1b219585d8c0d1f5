"""The host's compiler and NVRTC get the same bytes: what is tested here is what runs on the card."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from tests.support.programs import programs
from thunder_fuser.compiler import compile_fusion, lower
from thunder_fuser.ir.nodes import Fusion
from thunder_fuser.ir.parser import parse
from thunder_fuser.passes import simplify
from thunder_fuser.runtime import nvrtc
from thunder_fuser.runtime.host import toolchain
from thunder_fuser.runtime.options import CompileOptions
from thunder_fuser.runtime.source import KernelSource

FUSIONS = {
    "pointwise": "fusion f(x: f32[64, 48]) {\n  y: f32[64, 48] = exp(x)\n  return y\n}",
    "halves": "fusion f(x: bf16[8, 32]) {\n  a: bf16[8, 16] = slice(x, starts=[0, 0], stops=[8, 16])\n"
              "  b: bf16[8, 16] = slice(x, starts=[0, 16], stops=[8, 32])\n  n: bf16[8, 16] = neg(b)\n"
              "  y: bf16[8, 32] = cat(n, a, dim=1)\n  return y\n}",
    "reduction": "fusion f(x: f32[64, 100]) {\n  y: f32[64] = sum(x, dims=[1])\n  return y\n}",
    "short reduction": "fusion f(x: f16[64, 7]) {\n  y: f16[64] = amax(x, dims=[1])\n  return y\n}",
    "number": "fusion f(x: i64[5], s: f64) {\n  c: f32[5] = cast(x)\n  y: f32[5] = mul(c, s)\n  return y\n}",
    "pad": "fusion f(x: f64[5]) {\n  y: f64[11] = pad(x, 1.5, widths=[(1, 1, 1)])\n  return y\n}",
}


def given_to_compilers(source: KernelSource) -> tuple[bytes, bytes]:
    """What the host's compiler found in its file, and what NVRTC was handed."""
    texts: list[bytes] = []

    def read_instead(command: list[str], folder: Path, what: str, of: KernelSource | None) -> bytes:
        (unit,) = folder.glob("*.cu")
        texts.append(unit.read_bytes())
        return b""

    create = nvrtc.nvrtc.nvrtcCreateProgram
    with mock.patch.object(toolchain, "_run", read_instead):
        toolchain.compile_library(source, CompileOptions())
    with mock.patch.object(nvrtc.nvrtc, "nvrtcCreateProgram", side_effect=create) as created:
        nvrtc.compile_cubin(source, "sm_90", CompileOptions())
    texts.append(created.call_args.args[0])
    return texts[0], texts[1]


def same(fusion: Fusion, strides: list) -> None:
    _, plan = lower(fusion, strides, [16] * len(strides))
    for call in plan.calls:
        host, card = given_to_compilers(call.source)
        assert host == card == call.source.text.encode()


@pytest.mark.parametrize("text", FUSIONS.values(), ids=FUSIONS)
def test_every_schedule(text: str) -> None:
    fusion = parse(text)
    same(fusion, [torch.empty(v.shape).stride() if hasattr(v.type, "shape") else None for v in fusion.inputs])


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_random_programs(case: tuple[Fusion, list]) -> None:
    fusion, inputs = case
    same(simplify(fusion), [t.stride() if isinstance(t, torch.Tensor) else None for t in inputs])


def test_equal_kernels_of_other_names_are_one_source() -> None:
    """So that equal layers compile once, whatever Thunder called their values."""
    first = parse(FUSIONS["pointwise"])
    second = parse(FUSIONS["pointwise"].replace("x", "input_17").replace("einput_17p", "exp").replace("y:", "z9:").replace("return y", "return z9"))
    sources = [lower(f, [(48, 1)], [16])[1].calls[0].source for f in (first, second)]
    assert sources[0] == sources[1]
    other = lower(first, [(96, 2)], [16])[1].calls[0].source
    assert other != sources[0] and other.name != sources[0].name


def test_another_alignment_is_another_text_with_the_same_values() -> None:
    fusion, given_ = parse(FUSIONS["halves"]), torch.arange(8 * 32 + 1).to(torch.bfloat16)
    exe = compile_fusion(fusion, "host")
    exe(given_[:256].view(8, 32))
    shifted = exe(given_[1:257].view(8, 32))[0]
    low, high = given_[1:257].view(8, 32)[:, :16], given_[1:257].view(8, 32)[:, 16:]
    assert torch.equal(shifted, torch.cat([-high, low], 1))
    assert exe.cache_info()["plans_made"] == 2
