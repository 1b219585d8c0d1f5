"""Large regions through Thunder: their values, and that the fusion pass grows with the trace, not with its square."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.executors.jitted import calls, forward, jit, rand, same
from thunder_fuser.executors.fusion_pass import fuse_trace


def chain(n: int) -> Callable[[Tensor], Tensor]:
    def f(x: Tensor) -> Tensor:
        y = x
        for k in range(n // 2):
            y = -(y + x) if k % 3 else y * 0.5 - x
        return y

    return f


def work(n: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Python calls that the fusion pass makes for a chain of n ops: a measure that does not depend on the machine."""
    count = 0

    def profile(frame, event: str, arg) -> None:
        nonlocal count
        count += event == "call"

    def profiled(*args):
        sys.setprofile(profile)
        try:
            return fuse_trace(*args)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(sys.modules["thunder_fuser.executors.executor"], "fuse_trace", profiled)
    jit(chain(n), debug_options=None)(rand(8))
    return count


def test_the_fusion_pass_grows_with_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = work(50, monkeypatch), work(200, monkeypatch)
    assert 0 < large < 4.8 * small, f"50 ops take {small} calls, 200 take {large}"


@pytest.mark.long
def test_a_thousand_ops(device: str) -> None:
    x = torch.randint(-4, 5, (64,)).to(device, torch.float64)
    jitted = jit(chain(1000), debug_options=None)
    same(jitted(x), chain(1000)(x))
    assert len(calls(forward(jitted))) == 1


def test_more_than_a_hundred_inputs_and_outputs_of_one_region(device: str) -> None:
    def f(*xs: Tensor) -> tuple[Tensor, ...]:
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        return (total, *(x * 2.0 for x in xs))

    inputs = [torch.randint(-4, 5, (7, 5)).to(device, torch.float32) for _ in range(150)]
    jitted = jit(f, debug_options=None)
    same(jitted(*inputs), f(*inputs))
    assert len(calls(forward(jitted))) == 1
