"""64-bit indices exactly where offsets need them, strides included; nothing of that size is allocated here."""

from __future__ import annotations

import re

import pytest

from thunder_fuser.codegen.kernel import kernel_text
from thunder_fuser.compiler import lower
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import F32, U8
from thunder_fuser.ir.nodes import Fusion
from thunder_fuser.runtime.compile_pool import POOL
from thunder_fuser.runtime.launch_plan import LaunchPlan

HALF = 1 << 31


def planned(fusion: Fusion, *strides: tuple[int, ...]) -> tuple[bool, LaunchPlan, str]:
    """Whether the first kernel's index is wide, the launch plan, and all kernels' texts, which NVRTC takes too."""
    stages, plan = lower(fusion, strides, [16] * len(strides))
    for call in plan.calls:
        assert POOL.cubin(call.source, "sm_90").result()
    return stages.kernels[0].wide_index, plan, "\n".join(map(kernel_text, stages.sources))


def negated(*shape: int, dtype=F32) -> Fusion:
    b = FusionBuilder()
    b.output(b.neg(b.tensor(dtype, shape)))
    return b.build()


@pytest.mark.parametrize("shape,strides,wide", [
    ((1 << 15, 1 << 15), (1 << 15, 1), False),
    ((1 << 16, 1 << 15), (1 << 15, 1), True),
    ((1 << 15, 1 << 15), (1 << 17, 1), True),
    ((4, 4), (HALF, 1), True),
    ((4, 4), (HALF // 4, 1), False),
    ((1 << 20, 64), (0, 1), False),
    ((HALF - 1024,), (0,), False),
    ((HALF,), (0,), True),
], ids=str)
def test_width_follows_the_largest_offset(shape: tuple[int, ...], strides: tuple[int, ...], wide: bool) -> None:
    found, _, text = planned(negated(*shape, dtype=F32), strides)
    assert found is wide and ("long long i" in text) is wide


def test_more_threads_than_32_bits_count() -> None:
    b = FusionBuilder()
    b.output(b.add(b.tensor(U8, (1 << 36,)), 1))
    wide, plan, text = planned(b.build(), (1,))
    assert wide and "unsigned long long unit0 = (unsigned long long)blockIdx.x" in text
    assert plan.calls[0].blocks * plan.calls[0].threads * 16 >= 1 << 36


def test_reduction_of_a_large_tensor() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (1 << 20, 1 << 12))
    b.output(b.sum(x, [1]))
    b.output(b.sum(x, [0]))
    wide, _, text = planned(b.build(), (1 << 12, 1))
    assert wide and "const long long i0" in text


def test_reduction_of_a_repeated_element_counts_past_32_bits() -> None:
    """The offsets are all 0; the steps are not: a counter of 32 bits would never reach the end."""
    b = FusionBuilder()
    b.output(b.sum(b.expand(b.tensor(F32, (1,)), (1 << 33,)), [0]))
    _, _, text = planned(b.build(), (1,))
    assert re.search(r"for \(unsigned long long u = along; u < \d{10}u", text)


def test_many_outputs_of_a_reduction_count_past_32_bits() -> None:
    b = FusionBuilder()
    b.output(b.sum(b.expand(b.tensor(U8, (1, 1)), (1 << 36, 64)), [1]))
    wide, _, text = planned(b.build(), (1, 1))
    assert wide and "const unsigned long long group = blockIdx.x" in text and "const unsigned long long unit_of_thread = group" in text
