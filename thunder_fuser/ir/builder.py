"""Makes fusions: `FusionBuilder` has one method a node class, and one a row of the op tables.

Called by the translators, the `FusionDefinition` front end, the parser and tests. Equal views are built once
(hash-consing); equal computations are left to the cse pass, which knows what is returned and must stay distinct
tensors. Every method raises `IRError` on an illegal argument; dims may be negative as in torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from thunder_fuser.errors import IRError
from thunder_fuser.ir.dtypes import F32, DType, Number
from thunder_fuser.ir.nodes import (
    VIEW_NODES,
    Bitcast,
    Broadcast,
    Cast,
    Cat,
    Constant,
    Copy,
    Flip,
    Full,
    Fusion,
    Gather,
    Iota,
    Node,
    Operand,
    Pad,
    Permute,
    Pointwise,
    Random,
    Reduce,
    Reshape,
    ScalarType,
    Scan,
    Scatter,
    Slice,
    Squeeze,
    TensorType,
    Type,
    Update,
    Value,
    is_legal_name,
)
from thunder_fuser.ir.ops import POINTWISE, REDUCTIONS, SCANS
from thunder_fuser.ir.rules import infer


class FusionBuilder:
    """Collects inputs, nodes and outputs, then `build()`s the fusion.

        b = FusionBuilder("scale")
        x = b.tensor(F32, (4, 8))
        b.output(b.mul(x, 2.0))
        fusion = b.build()
    """

    def __init__(self, name: str = "fusion", *, shared: bool = False) -> None:
        """`shared` builds equal computations once too: for programs whose equal outputs may be one tensor."""
        if not is_legal_name(name):
            raise IRError(f"'{name}' is no name for a fusion, expected letters, digits and underscores.")
        self.name = name
        self._inputs: list[Value] = []
        self._nodes: list[Node] = []
        self._outputs: list[Value] = []
        self._made: dict[Value, Node] = {}
        self._updates: dict[Value, Value] = {}
        self._apart: dict[Value, int] = {}
        self._views: list[Value] = []
        self._shared = shared
        self._known: dict[Any, Value] = {}
        self._names: set[str] = set()
        self._counter = 0

    # inputs and outputs

    def tensor(self, dtype: DType, shape: Sequence[int], name: str | None = None) -> Value:
        """A tensor input."""
        return self._input(TensorType(dtype, tuple(shape)), name)

    def scalar(self, dtype: DType, name: str | None = None) -> Value:
        """A number input, handed in at each call."""
        return self._input(ScalarType(dtype), name)

    def output(self, value: Value, *, shared: bool = False) -> Value:
        """Returns `value` from the fusion. A tensor that is returned already is copied, so that the two are distinct
        tensors as in eager torch, unless `shared`: then both are the same tensor (gradients of a backward)."""
        if value in self._outputs and not shared:
            value = self.copy(value)
        self._outputs.append(value)
        return value

    def update(self, target: Value, value: Value) -> None:
        """At the end of a call `value` is written into `target`, an input or a view of one: torch's `target.copy_(value)`,
        with its conversion and broadcasting. Of several updates of one target the last one is made, in the first one's place."""
        if not isinstance(target.type, TensorType) or not isinstance(value.type, TensorType):
            raise IRError(f"'update' takes tensors, got '{target!r}' and '{value!r}'.")
        if value.dtype is not target.dtype:
            value = self.cast(value, target.dtype)
        if value.shape != target.shape:
            value = self.expand(value, target.shape)
        self._updates[target] = value

    def require_apart(self, value: Value, updates: int) -> None:
        """The program is right only for calls in which an input shares no memory with the targets of the first so many
        updates (its own memory aside); other calls are refused."""
        self._apart[value] = max(updates, self._apart.get(value, 0))

    def require_view(self, value: Value) -> None:
        """The program is right only for strides under which `value`, a view node's result, is a view; others are refused."""
        if value not in self._views:
            self._views.append(value)

    def producer(self, value: Value) -> Node | None:
        """The node that makes a value, None for an input."""
        return self._made.get(value)

    def build(self) -> Fusion:
        updates = tuple(Update(target, value) for target, value in self._updates.items())
        return Fusion(self.name, tuple(self._inputs), tuple(self._nodes), tuple(self._outputs), updates,
                      tuple(self._apart.items()), tuple(self._views))

    # nodes

    def pointwise(self, op: str, *args: Operand | Number, name: str | None = None) -> Value:
        """A row of `POINTWISE` applied to values and numbers. Also callable as a method: `b.add(x, y)`."""
        return self._emit(Pointwise(None, op, tuple(_operand(a) for a in args)), name=name)

    def reduce(self, op: str, arg: Value, dims: Sequence[int] | None = None, *, keepdim: bool = False,
               name: str | None = None) -> Value:
        """A row of `REDUCTIONS` over `dims` (all if None), which are removed, or kept as size 1 with `keepdim`."""
        rank = len(arg.shape)
        reduced = tuple(range(rank)) if dims is None else tuple(sorted(_dim(d, rank) for d in dims))
        out = self._emit(Reduce(None, op, arg, reduced), name=None if keepdim else name)
        if not keepdim:
            return out
        shape = tuple(1 if d in reduced else n for d, n in enumerate(arg.shape))
        return self.broadcast(out, shape, [d for d in range(rank) if d not in reduced], name=name)

    def scan(self, op: str, arg: Value, dim: int, *, name: str | None = None) -> Value:
        """A row of `SCANS` along `dim`; also callable as a method: `b.cumsum(x, 0)`. A tensor of rank 0 is copied."""
        dim = _dim(dim, len(arg.shape))
        return self._emit(Scan(None, op, arg, dim), name=name) if arg.shape else self.copy(arg, name=name)

    def cast(self, arg: Operand | Number, dtype: DType, *, name: str | None = None) -> Value:
        return self._emit(Cast(None, _operand(arg)), TensorType(dtype, ()), name)

    def bitcast(self, arg: Value, dtype: DType, *, name: str | None = None) -> Value:
        """`arg.view(dtype)`, of a dtype of the same size."""
        return self._emit(Bitcast(None, arg), TensorType(dtype, ()), name)

    def full(self, shape: Sequence[int], value: Operand | Number, dtype: DType, *, name: str | None = None) -> Value:
        return self._emit(Full(None, _operand(value)), TensorType(dtype, tuple(shape)), name)

    def iota(self, length: int, dtype: DType, start: Operand | Number = 0, step: Operand | Number = 1, *,
             name: str | None = None) -> Value:
        return self._emit(Iota(None, _operand(start), _operand(step)), TensorType(dtype, (length,)), name)

    def random(self, op: str, shape: Sequence[int], dtype: DType, seed: Operand | Number, offset: Operand | Number,
               low: Operand | Number = 0.0, high: Operand | Number = 1.0, *, name: str | None = None) -> Value:
        """Numbers of one of `random.KINDS`: "uniform" in [low, high), "normal" with mean `low` and deviation `high`."""
        operands = [_operand(x) for x in (seed, offset, low, high)]
        return self._emit(Random(None, op, *operands), TensorType(dtype, tuple(shape)), name)

    def reshape(self, arg: Value, shape: Sequence[int], *, name: str | None = None) -> Value:
        """One size may be -1: it is what is left."""
        shape = list(shape)
        if -1 in shape:
            known = 1
            for n in shape:
                known *= n if n != -1 else 1
            if known == 0 or shape.count(-1) > 1:
                raise IRError(f"'reshape' cannot infer the size -1 in {shape}.")
            shape[shape.index(-1)] = arg.type.numel // known
        return self._emit(Reshape(None, arg), TensorType(arg.dtype, tuple(shape)), name)

    def permute(self, arg: Value, dims: Sequence[int], *, name: str | None = None) -> Value:
        return self._emit(Permute(None, arg, tuple(_dim(d, len(arg.shape)) for d in dims)), name=name)

    def slice(self, arg: Value, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int] | None = None, *,
              name: str | None = None) -> Value:
        steps = (1,) * len(starts) if steps is None else tuple(steps)
        return self._emit(Slice(None, arg, tuple(starts), tuple(stops), steps), name=name)

    def squeeze(self, arg: Value, dims: Sequence[int], *, name: str | None = None) -> Value:
        return self._emit(Squeeze(None, arg, tuple(sorted(_dim(d, len(arg.shape)) for d in dims))), name=name)

    def broadcast(self, arg: Value, shape: Sequence[int], dims: Sequence[int], *, name: str | None = None) -> Value:
        """`broadcast_in_dim`: arg dim k becomes dim dims[k] of `shape`."""
        return self._emit(Broadcast(None, arg, tuple(dims)), TensorType(arg.dtype, tuple(shape)), name)

    def expand(self, arg: Value, shape: Sequence[int], *, name: str | None = None) -> Value:
        """`torch.expand`: aligned at the last dim, -1 keeps a size."""
        lead = len(shape) - len(arg.shape)
        full = tuple(arg.shape[d - lead] if n == -1 else n for d, n in enumerate(shape))
        return self.broadcast(arg, full, range(lead, len(full)), name=name)

    def pad(self, arg: Value, widths: Sequence[tuple[int, int, int]], value: Operand | Number = 0, *,
            name: str | None = None) -> Value:
        return self._emit(Pad(None, arg, _operand(value), tuple(tuple(w) for w in widths)), name=name)

    def cat(self, args: Sequence[Value], dim: int = 0, *, name: str | None = None) -> Value:
        rank = len(args[0].shape) if args else 0
        return self._emit(Cat(None, tuple(args), _dim(dim, rank)), name=name)

    def flip(self, arg: Value, dims: Sequence[int], *, name: str | None = None) -> Value:
        return self._emit(Flip(None, arg, tuple(sorted(_dim(d, len(arg.shape)) for d in dims))), name=name)

    def gather(self, arg: Value, index: Value, dim: int, *, name: str | None = None) -> Value:
        """`torch.gather`: arg at `index` along `dim`; index has the result's shape."""
        return self._emit(Gather(None, arg, index, _dim(dim, len(arg.shape))), name=name)

    def index_select(self, arg: Value, index: Value, dim: int, *, name: str | None = None) -> Value:
        """`torch.index_select`: whole slices of arg, those that `index` (of rank 1) names, along `dim`."""
        dim = _dim(dim, len(arg.shape))
        shape = (*arg.shape[:dim], *index.shape, *arg.shape[dim + 1:])
        return self.gather(arg, self.broadcast(index, shape, (dim,)), dim, name=name)

    def scatter(self, arg: Value, index: Value | Sequence[Value], updates: Value, dim: int | Sequence[int], *, accumulate: bool = False,
                preserve: bool = False, name: str | None = None) -> Value:
        """`torch.scatter`, or `scatter_add` with `accumulate`: arg with `updates`, of index's shape, at `index` along `dim`; or at
        several indices along as many dims. Sums of 16-bit floats are made in f32 and rounded once."""
        indices, dims = ((index,), (dim,)) if isinstance(index, Value) else (tuple(index), tuple(dim))
        dims = tuple(_dim(d, len(arg.shape)) for d in dims)
        if not accumulate or arg.dtype.kind != "float" or arg.dtype.size > 2:
            return self._emit(Scatter(None, arg, updates, indices, dims, accumulate, preserve), name=name)
        wide = self.scatter(self.cast(arg, F32), indices, self.cast(updates, F32), dims, accumulate=True, preserve=preserve)
        return self.cast(wide, arg.dtype, name=name)

    def scatter_slices(self, arg: Value, index: Value, updates: Value, dim: int, *, accumulate: bool = False, name: str | None = None) -> Value:
        """`torch.index_copy`, or `index_add` with `accumulate`: whole slices of arg, those that `index` (of rank 1) names."""
        spread = self.broadcast(index, updates.shape, (_dim(dim, len(arg.shape)),))
        return self.scatter(arg, spread, updates, dim, accumulate=accumulate, name=name)

    def copy(self, arg: Value, order: Sequence[int] | None = None, *, name: str | None = None) -> Value:
        """A clone; `order` lists the dims from outermost to innermost in the new memory."""
        return self._emit(Copy(None, arg, None if order is None else tuple(order)), name=name)

    # inside

    def _input(self, type_: Type, name: str | None) -> Value:
        value = Value(self._fresh(name), type_)
        self._inputs.append(value)
        return value

    def _emit(self, node: Node, declared: TensorType | None = None, name: str | None = None) -> Value:
        merged = isinstance(node, VIEW_NODES) or (self._shared and not isinstance(node, Copy))
        key = (type(node), declared, *(getattr(node, f) for f in _FIELDS[type(node)])) if merged else None
        if key is not None and key in self._known:
            return self._known[key]
        out = Value(self._fresh(name), infer(node, declared))
        self._nodes.append(dataclasses.replace(node, out=out))
        self._made[out] = self._nodes[-1]
        if key is not None:
            self._known[key] = out
        return out

    def _fresh(self, name: str | None) -> str:
        if name is not None and not is_legal_name(name):
            raise IRError(f"'{name}' is no name for a value, expected letters, digits and underscores.")
        if name is not None and name not in self._names:
            self._names.add(name)
            return name
        while f"t{self._counter}" in self._names:
            self._counter += 1
        self._names.add(f"t{self._counter}")
        return f"t{self._counter}"


_FIELDS = {cls: tuple(f.name for f in dataclasses.fields(cls) if f.name != "out") for cls in (
    *VIEW_NODES, Pointwise, Cast, Bitcast, Full, Iota, Random, Pad, Cat, Flip, Gather, Reduce, Scan, Scatter)}


def _operand(value: Operand | Number) -> Operand:
    return value if isinstance(value, (Value, Constant)) else Constant(value)


def _dim(dim: int, rank: int) -> int:
    if not -rank <= dim < max(rank, 1):
        raise IRError(f"Dim {dim} is out of range for rank {rank}.")
    return dim + rank if dim < 0 else dim


def _add_table_methods() -> None:
    """`b.add(x, y)` for each pointwise row and `b.sum(x, dims)` for each reduction."""
    def pointwise_method(op: str) -> Any:
        def method(self: FusionBuilder, *args: Operand | Number, name: str | None = None) -> Value:
            return self.pointwise(op, *args, name=name)
        return method

    def reduction_method(op: str) -> Any:
        def method(self: FusionBuilder, arg: Value, dims: Sequence[int] | None = None, *, keepdim: bool = False,
                   name: str | None = None) -> Value:
            return self.reduce(op, arg, dims, keepdim=keepdim, name=name)
        return method

    for op in POINTWISE:
        setattr(FusionBuilder, op, pointwise_method(op))
    def scan_method(op: str) -> Any:
        def method(self: FusionBuilder, arg: Value, dim: int, *, name: str | None = None) -> Value:
            return self.scan(op, arg, dim, name=name)
        return method

    for op in SCANS:
        setattr(FusionBuilder, op, scan_method(op))
    for op in REDUCTIONS:
        setattr(FusionBuilder, op, reduction_method(op))


_add_table_methods()
