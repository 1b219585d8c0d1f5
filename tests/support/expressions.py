"""Evaluates nests without generating code: every index of every point as a tensor, loads as gathers. A second opinion on
`maps`, slow and plain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from thunder_fuser.ir.dtypes import BOOL
from thunder_fuser.ir.nodes import Value
from thunder_fuser.ir.ops import POINTWISE, REDUCTIONS
from thunder_fuser.maps.affine import Affine, Axis, Condition, Derived, Fetched, Within
from thunder_fuser.maps.exprs import Accumulate, Apply, Convert, Expr, Literal, Load, Position, Scalar, Select
from thunder_fuser.maps.nests import Nest

Memory = Mapping[Value, Tensor]  # rank 1: what lies at each element offset from the buffer's first element


class Points:
    """All points of some axes, one tensor of the grid's shape an axis."""

    def __init__(self, axes: Sequence[Axis], memory: Memory, numbers: Mapping[Value, bool | int | float]) -> None:
        self.axes, self.memory, self.numbers = list(axes), memory, numbers
        self.shape = [a.extent for a in axes]
        self._known: dict[Expr, Tensor] = {}

    def index(self, index: Affine) -> Tensor:
        total = torch.full(self.shape, index.const)
        for axis, coef in index.terms:
            total = total + coef * self._axis(axis)
        return total

    def _axis(self, axis: Axis) -> Tensor:
        if isinstance(axis, Derived):
            source = self.index(axis.source)
            return source // axis.divisor if axis.kind == "div" else source % axis.divisor
        if isinstance(axis, Fetched):
            number, inside = self.value(axis.value), self.holds(axis.guards)
            assert bool(((number >= 0) & (number < axis.extent) | ~inside).all()), f"{axis} is out of range"
            return torch.where(inside, number, 0)
        k = self.axes.index(axis)
        return torch.arange(axis.extent).view([-1 if d == k else 1 for d in range(len(self.axes))]).expand(self.shape)

    def holds(self, guards: Sequence[Condition]) -> Tensor:
        inside = torch.ones(self.shape, dtype=torch.bool)
        for g in guards:
            value = self.index(g.index)
            inside &= (value >= g.lo) & (value < g.hi) if isinstance(g, Within) else value % g.divisor == 0
        return inside

    def value(self, expr: Expr) -> Tensor:
        if expr not in self._known:
            self._known[expr] = self._value(expr)
        return self._known[expr]

    def _value(self, expr: Expr) -> Tensor:
        match expr:
            case Load(buffer=buffer, address=address, guards=guards):
                inside, memory = self.holds(guards), self.memory[buffer]
                where = self.index(address)
                assert bool(((where >= 0) & (where < memory.numel()) | ~inside).all()), f"{expr} reads outside of {buffer}"
                return torch.where(inside, memory[where.clamp(0, memory.numel() - 1)], torch.zeros((), dtype=memory.dtype))
            case Literal(value=value, dtype=dtype):
                return torch.full(self.shape, value, dtype=dtype.torch)
            case Scalar(value=value, dtype=dtype):
                return torch.full(self.shape, self.numbers[value], dtype=dtype.torch)
            case Position(index=index):
                return self.index(index)
            case Convert(arg=arg, dtype=dtype):
                return self.value(arg).to(dtype.torch)
            case Select(guards=guards, chosen=chosen, other=other):
                return torch.where(self.holds(guards), self.value(chosen), self.value(other))
            case Accumulate(op=op, axes=axes, body=body, dtype=dtype):
                inner = Points([*self.axes, *axes], self.memory, self.numbers)
                dims = list(range(len(self.axes), len(self.axes) + len(axes)))
                return REDUCTIONS[op].torch(inner.value(body), dims).to(dtype.torch) if dims else inner.value(body)
            case Apply(op=op, args=args, operand_dtype=wanted, dtype=dtype):
                given = [self.value(a).to((BOOL if op == "where" and k == 0 else wanted).torch) for k, a in enumerate(args)]
                return POINTWISE[op].torch(*given).to(dtype.torch)
        raise AssertionError(f"'{expr!r}' is no expression")


def run(nests: Sequence[Nest], memory: Memory, numbers: Mapping[Value, bool | int | float], sizes: Mapping[Value, int]) -> dict[Value, Tensor]:
    """Memory of every buffer that `nests` store to, given its size in elements. Fails if an element is stored twice."""
    out = {v: torch.zeros(n, dtype=v.dtype.torch) for v, n in sizes.items()}
    times = {v: torch.zeros(n, dtype=torch.int64) for v, n in sizes.items()}
    for nest in nests:
        at = Points(nest.axes, memory, numbers)
        for store in nest.stores:
            where = at.index(store.address).flatten()
            times[store.buffer].index_add_(0, where, torch.ones_like(where))
            out[store.buffer][where] = at.value(store.expr).flatten()
    assert all(bool((t <= 1).all()) for t in times.values()), "an element is stored twice"
    return out
