"""Runs a program through `thunder.jit`, forward and backward, and gathers what became of it. Used by the demo.

Everything here is data; `demo` prints it and writes it as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import thunder
import torch
from torch import Tensor

import thunder_fuser
from thunder_fuser.cli.timing import Timing, measure
from thunder_fuser.executors.callable import FusionCallable
from thunder_fuser.ir.nodes import META_NODES
from thunder_fuser.report import Report

# A result is right if it is no further from float64 than eager torch's, but for noise of a few percent.
MARGIN, FLOOR = 1.05, 1e-6


@dataclass(frozen=True, slots=True)
class Comparison:
    """Relative L2 errors of one result against float64, ours and eager torch's; `wrong` says why it is not right."""

    result: str
    ours: float
    eager: float
    wrong: str | None


@dataclass(frozen=True, slots=True)
class FusionResult:
    """One fusion of a trace: its line, its prims as the trace prints them, how many only move elements, what it ran."""

    line: str
    prims: tuple[str, ...]
    moves: int
    names: dict[str, str]
    report: Report
    timing: Timing | None


@dataclass(frozen=True, slots=True)
class Direction:
    """The forward or the backward trace: fusions, symbols left to other executors, how right the results are."""

    name: str
    fusions: tuple[FusionResult, ...]
    others: tuple[str, ...]
    comparisons: tuple[Comparison, ...]


def run_both_ways(program: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], results: Sequence[str]) -> list[Direction]:
    """Forward and backward of `program`, whose first input requires a gradient; `results` names its outputs.

    CPU tensors run on the host backend; on a CUDA device the fusions are timed. What cannot be fused is an error, not a fallback."""
    jitted = thunder.jit(program, executors=[thunder_fuser.executor], fuser_host=True, fuser_fallback="error")
    cotangents = [torch.randn_like(out) for out in jitted(*inputs)]
    traces = thunder.last_traces(jitted)[-1], thunder.last_backward_traces(jitted)[-1]
    for call in (c for trace in traces for c in _fusions(trace).values()):
        call.store_inputs = True
    ours, eager = (_gradient(f, inputs, cotangents) for f in (jitted, program))
    exact = _gradient(program, [x.detach().double().requires_grad_(x.requires_grad) for x in inputs], [c.double() for c in cotangents])
    labels = {p.name: label for p, label in zip(traces[0].output[0]["output"], results)}
    forward = [_compare(*row) for row in zip(results, ours[0], eager[0], exact[0])]
    backward = [_compare("gradient", ours[1], eager[1], exact[1])]
    return [Direction("forward", _results(traces[0], labels), _others(traces[0]), tuple(forward)),
            Direction("backward", _results(traces[1], {}), _others(traces[1]), tuple(backward))]


def _gradient(program: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], cotangents: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """The outputs, and the gradient of the first input."""
    outputs = list(program(*inputs))
    (gradient,) = torch.autograd.grad(outputs, inputs[0], list(cotangents))
    return outputs, gradient


def _compare(result: str, ours: Tensor, eager: Tensor, exact: Tensor) -> Comparison:
    size = exact.norm().item() or 1.0
    errors = [(t.double() - exact).norm().item() / size for t in (ours, eager)]
    wrong = None
    if ours.shape != eager.shape or ours.dtype is not eager.dtype or ours.stride() != eager.stride():
        wrong = f"is {ours.dtype} {list(ours.shape)} strides {ours.stride()}, eager's {eager.dtype} {list(eager.shape)} strides {eager.stride()}"
    elif not errors[0] <= MARGIN * errors[1] + FLOOR:  # also if it is NaN
        wrong = "is further from float64 than eager torch's"
    return Comparison(result, *errors, wrong)


def _fusions(trace: Any) -> dict[str, FusionCallable]:
    """The fusions' callables by name, in the trace's order."""
    context = trace.python_ctx()
    found = {b.sym.name: context[b.sym.name] for b in trace.bound_symbols if b.sym.is_fusion}
    return {name: call for name, call in found.items() if isinstance(call, FusionCallable)}


def _others(trace: Any) -> tuple[str, ...]:
    """Symbols that compute outside of fusions."""
    bookkeeping = ("unpack_trivial", "unpack_sequence", "python_del", "python_return", "clear_mutable_collection", "comment")
    return tuple(b.sym.name for b in trace.bound_symbols if not b.sym.is_fusion and b.sym.name not in bookkeeping)


def _results(trace: Any, labels: dict[str, str]) -> tuple[FusionResult, ...]:
    text = str(trace).splitlines()
    bound = {b.sym.name: b for b in trace.bound_symbols}
    found = []
    for name, call in _fusions(trace).items():
        at = next(i for i, line in enumerate(text) if f"{name}(" in line)
        end = next((i for i in range(at + 1, len(text)) if not text[i].lstrip().startswith("#")), len(text))
        proxies = zip([*bound[name].flat_proxy_args, *bound[name].flat_proxy_outs], [*call.fusion.inputs, *call.fusion.outputs])
        # Equal regions share one program, whose values are called as in the first of them.
        names = {value.name: f"{labels[p.name]} ({p.name})" if p.name in labels else p.name for p, value in proxies}
        report = call.last_used.report()
        timing = measure(lambda call=call: call(*call.last_inputs), report.bytes) if report.backend == "cuda" and report.bytes else None
        moves = sum(isinstance(n, META_NODES) for n in call.fusion.nodes)
        found.append(FusionResult(text[at].strip(), tuple(line.strip() for line in text[at + 1 : end]), moves, names, report, timing))
    return tuple(found)
