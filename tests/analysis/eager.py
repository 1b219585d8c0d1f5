"""Runs a fusion op by op with the torch calls that Thunder's own torch executor makes, so that strides and sharing of
storage are eager's. Views stay views; values are kept for all nodes."""

from __future__ import annotations

import torch

from thunder_fuser.ir.nodes import (
    Broadcast,
    Cast,
    Cat,
    Copy,
    Flip,
    Full,
    Fusion,
    Iota,
    Node,
    Pad,
    Permute,
    Pointwise,
    Reduce,
    Reshape,
    Slice,
    Squeeze,
    Value,
    operands,
)
from thunder_fuser.ir.ops import POINTWISE, REDUCTIONS


def run_eager(fusion: Fusion, *inputs: torch.Tensor | float) -> dict[Value, torch.Tensor]:
    values: dict[Value, torch.Tensor] = dict(zip(fusion.inputs, inputs))
    for node in fusion.nodes:
        args = [values[a] if isinstance(a, Value) else a.value for a in operands(node)]
        values[node.out] = _run(node, args)
    return values


def _run(node: Node, args: list) -> torch.Tensor:
    match node:
        case Pointwise(op=op):
            return POINTWISE[op].torch(*args)
        case Cast():
            return args[0].to(node.out.dtype.torch, copy=True)
        case Full():
            return torch.full(node.out.shape, args[0], dtype=node.out.dtype.torch)
        case Iota():
            return torch.arange(args[0], args[0] + node.out.shape[0] * args[1], args[1], dtype=node.out.dtype.torch)
        case Reshape():
            return torch.reshape(args[0], node.out.shape)
        case Permute(dims=dims):
            return args[0].permute(dims)
        case Slice(starts=starts, stops=stops, steps=steps):
            return args[0][tuple(slice(*p) for p in zip(starts, stops, steps))]
        case Squeeze(dims=dims):
            return args[0].squeeze(dims)
        case Broadcast(dims=dims):
            for d in range(len(node.out.shape)):
                if d not in dims:
                    args[0] = args[0].unsqueeze(d)
            return args[0].expand(node.out.shape)
        case Pad(widths=widths):
            return thunder_pad(args[0], widths, args[1])
        case Cat(dim=dim):
            return torch.cat(args, dim)
        case Flip(dims=dims):
            return torch.flip(args[0], dims)
        case Copy(order=None):
            return args[0].clone()
        case Copy(order=order):
            fresh = torch.empty([node.out.shape[d] for d in order], dtype=args[0].dtype)
            return fresh.permute([order.index(d) for d in range(len(order))]).copy_(args[0])
        case Reduce(op=op, dims=dims):
            return REDUCTIONS[op].torch(args[0], dims)
    raise AssertionError(node)


def thunder_pad(x: torch.Tensor, widths: list[tuple[int, int, int]], value: float) -> torch.Tensor:
    """prims.pad as Thunder runs it: interior padding through a full tensor, the rest through torch's pad."""
    if any(w[2] for w in widths):
        full = torch.full([n + max(n - 1, 0) * w[2] for n, w in zip(x.shape, widths)], value, dtype=x.dtype)
        full[tuple(slice(None, None, w[2] + 1) for w in widths)] = x
        x = full
    return torch.nn.functional.pad(x, [w for low, high, _ in reversed(widths) for w in (low, high)], value=value)
