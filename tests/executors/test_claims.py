"""Reasons: which symbols are claimed and why others are not."""

from __future__ import annotations

import pytest
import thunder
import torch
from thunder.core import dtypes, prims
from thunder.core.devices import Device
from thunder.core.proxies import TensorProxy
from thunder.core.trace import TraceCtx, tracectx

import thunder_fuser.executors
from thunder_fuser import config
from thunder_fuser.executors.claims import device_of, why_not
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.translators import translate

executor = thunder_fuser.executors.executor


def reasons(f, *inputs):
    """What `why_not` says of each symbol that computes something, as traced."""
    jitted = thunder.jit(f)
    jitted(*inputs)
    trace = thunder.last_traces(jitted)[0]
    return [why_not(b) for b in trace.bound_symbols if b.sym.name not in ("unpack_trivial", "python_return")]


CASES = {
    "cpu": (lambda x: x * 2.0, "CPU tensors are left to torch", False),
    "no translation": (lambda x: torch.sort(x)[0], "'sort' has no translation", True),
    "inside a composite": (lambda x: torch.topk(x, 2)[0], "'topk' has no translation", True),
    "dtype": (lambda x: x.to(torch.float8_e5m2fnuz), "float8_e5m2fnuz' is not supported", True),
    "rank": (lambda x: x.reshape(1, 1, 1, 1, 1, 1, 1, 4, 3) * 2.0, "rank 9 is above 8", True),
}


@pytest.mark.parametrize("f, reason, host", CASES.values(), ids=CASES.keys())
def test_the_reason_says_what_is_missing(f, reason, host):
    with config.override(host=host):
        found = reasons(f, torch.randn(4, 3))
    assert any(r is not None and reason in r for r in found), found


def test_claimed_symbols_have_no_reason():
    with config.override(host=True):
        assert reasons(lambda x: torch.nn.functional.gelu(x).sum(0) + x[0], torch.randn(4, 3)) == [None] * 4


def test_checkers_agree_with_reasons_and_leave_nothing_behind():
    jitted = thunder.jit(lambda x: torch.tanh(x) * torch.sort(x)[0])
    jitted(torch.randn(4, 3))
    for host in (True, False):
        with config.override(host=host):
            for bsym in thunder.last_traces(jitted)[0].bound_symbols:
                if bsym.sym.name not in ("unpack_trivial", "python_return"):
                    assert executor.can_fuse(bsym) == (why_not(bsym) is None)


def test_rank_0_tensors_on_the_cpu_stand_beside_tensors_on_a_card():
    """Claimed for the card's region; the fusion sees a tensor of rank 0 that is spread out."""
    trace = TraceCtx()
    with tracectx(trace):
        x = TensorProxy(shape=(3, 4), device=Device("cuda:0"), dtype=dtypes.float32)
        s = TensorProxy(shape=(), device=Device("cpu"), dtype=dtypes.float32)
        y = prims.where(prims.lt(x, s), x, s)
        prims.broadcast_in_dim(s, (3, 4), ())
    less, chosen, spread = trace.bound_symbols
    assert why_not(less) is None and device_of(less) == device_of(chosen) == str(x.device)
    assert "CPU tensors are left to torch" in why_not(spread)
    fusion = translate([less, chosen], [x, s], [y])
    given, number = torch.randn(3, 4), torch.tensor(0.25)
    assert torch.equal(evaluate(fusion, given, number)[0], torch.where(given < number, given, number))


def test_ops_on_rank_0_tensors_alone_stay_on_the_cpu():
    trace = TraceCtx()
    with tracectx(trace):
        s = TensorProxy(shape=(), device=Device("cpu"), dtype=dtypes.float32)
        prims.add(s, s)
    with config.override(host=True):
        assert why_not(trace.bound_symbols[0]) is None and device_of(trace.bound_symbols[0]) == str(s.device)
