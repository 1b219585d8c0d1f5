"""Functions under `thunder.jit` with this executor, and what their traces hold."""

from __future__ import annotations

import thunder
import torch
from torch import Tensor

import thunder_fuser
import thunder_fuser.executors
from thunder_fuser.executors.executor import PREFIX


def jit(fn, **options):
    """With the host backend for CPU tensors, fallback an error, and every trace checked by Thunder."""
    options = {"fuser_host": True, "fuser_fallback": "error"} | options
    options.setdefault("debug_options", thunder.DebugOptions(check_traces=True))
    return thunder.jit(fn, executors=[thunder_fuser.executor], **options)


def rand(*shape, device="cpu", dtype=torch.float32, grad=False):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(device, dtype).requires_grad_(grad)


def fusions(trace):
    """The fusion symbols of a trace."""
    return [b for b in trace.bound_symbols if b.sym.name.startswith(PREFIX)]


def forward(jitted):
    return thunder.last_traces(jitted)[-1]


def backward(jitted):
    return thunder.last_backward_traces(jitted)[-1]


def calls(trace):
    """The fusions' callables, by name."""
    context = trace.python_ctx()
    return {b.sym.name: context[b.sym.name] for b in fusions(trace)}


def operators(trace):
    """Names of the symbols that compute something outside of fusions."""
    bookkeeping = ("unpack_trivial", "unpack_sequence", "python_del", "python_return", "clear_mutable_collection", "check_type",
                   "comment")
    return [b.sym.name for b in trace.bound_symbols if not b.sym.is_fusion and b.sym.name not in bookkeeping]


def inputs_of(bsym):
    return {p.name for p in bsym.flat_proxy_args}


def same(given, wanted, **tolerance):
    """Equal values, shapes and dtypes; exactly, unless a tolerance is given."""
    given = [given] if isinstance(given, Tensor) else list(given)
    wanted = [wanted] if isinstance(wanted, Tensor) else list(wanted)
    assert len(given) == len(wanted)
    for g, w in zip(given, wanted):
        torch.testing.assert_close(g, w, equal_nan=True, **(tolerance or {"rtol": 0, "atol": 0}))


def gradients(fn, inputs, cotangents=None):
    """Outputs, and the gradients of the inputs that require them."""
    leaves = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    out = fn(*inputs)
    outs = [out] if isinstance(out, Tensor) else list(out)
    differentiable = [o for o in outs if o.requires_grad]
    if cotangents is None:
        generator = torch.Generator().manual_seed(1)
        cotangents = [torch.randn(o.shape, generator=generator).to(o.device, o.dtype) for o in differentiable]
    return outs, list(torch.autograd.grad(differentiable, leaves, cotangents, allow_unused=True))
