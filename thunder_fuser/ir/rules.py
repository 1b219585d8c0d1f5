"""What type a node's result has, and which nodes are legal at all: one function, `infer`.

Called by the builder for each new node and by the verifier for each node of a fusion. Raises `IRError` with one
sentence that says what was expected and what was given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from thunder_fuser.errors import IRError
from thunder_fuser.ir.dtypes import BOOL, C128, F64, I64, DType
from thunder_fuser.ir.nodes import (
    Bitcast,
    Broadcast,
    Cast,
    Cat,
    Constant,
    Copy,
    Flip,
    Full,
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
    Value,
)
from thunder_fuser.ir.ops import POINTWISE, REDUCTIONS, SCANS
from thunder_fuser.ir.random import KINDS


def infer(node: Node, declared: TensorType | None = None) -> Type:
    """The type of `node`'s result. `declared` gives what operands cannot: the dtype of a cast, full or iota and the
    shape of a reshape, broadcast, full or iota. Raises `IRError` if the node is not legal."""
    match node:
        case Pointwise():
            return _pointwise(node)
        case Cast() | Full() | Iota():
            return _declared(node, declared)
        case Bitcast():
            return _bitcast(node, declared)
        case Random():
            return _random(node, declared)
        case Reduce():
            return _reduce(node)
        case Cat():
            return _cat(node)
        case Gather():
            return _gather(node)
        case Scatter():
            return _scatter(node)
        case Scan():
            return _scan(node)
        case Reshape() | Broadcast():
            arg = _tensor(node, node.arg)
            _expect(declared is not None, f"'{_name(node)}' needs a result shape.")
            rule = _reshape if isinstance(node, Reshape) else _broadcast
            return TensorType(arg.dtype, rule(node, arg.shape, declared.shape))
        case Permute() | Slice() | Squeeze() | Pad() | Flip() | Copy():
            arg = _tensor(node, node.arg)
            return TensorType(arg.dtype, _SHAPES[type(node)](node, arg.shape))
    raise IRError(f"'{node!r}' is not a node.")


def natural_dtype(operand: Operand) -> DType:
    """The dtype of a value, or the one that a literal has on its own."""
    if isinstance(operand, Value):
        return operand.dtype
    match operand.value:
        case bool():
            return BOOL
        case int():
            return I64
        case complex():
            return C128
        case _:
            return F64


def operand_dtype(node: Pointwise) -> DType:
    """The dtype that a pointwise node computes in: its tensor operands', or else its numbers' widest one."""
    args = node.args[1:] if node.op == "where" else node.args
    typed = [a for a in args if isinstance(a, Value) and isinstance(a.type, TensorType)]
    if typed:
        return typed[0].dtype
    order = (BOOL, I64, F64, C128)
    return max((natural_dtype(a) for a in args), key=lambda d: order.index(d) if d in order else len(order))


def _name(node: Node) -> str:
    return node.op if isinstance(node, (Pointwise, Random, Reduce, Scan)) else type(node).__name__.lower()


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise IRError(message)


def _tensor(node: Node, value: object) -> TensorType:
    _expect(isinstance(value, Value) and isinstance(value.type, TensorType),
            f"'{_name(node)}' takes a tensor, got '{value!r}'.")
    return value.type


def _pointwise(node: Pointwise) -> Type:
    op = POINTWISE.get(node.op)
    if op is None:
        raise IRError(f"'{node.op}' is not a pointwise op.")
    _expect(len(node.args) == op.arity, f"'{op.name}' takes {op.arity} operands, got {len(node.args)}.")
    tensors = [a.type for a in node.args if isinstance(a, Value) and isinstance(a.type, TensorType)]
    dtype = operand_dtype(node)
    for i, arg in enumerate(node.args):
        if not (isinstance(arg, Value) and isinstance(arg.type, TensorType)):
            continue
        want = BOOL if node.op == "where" and i == 0 else dtype
        _expect(arg.dtype is want, f"Operand {i} of '{op.name}' has dtype '{arg.dtype}', expected '{want}'.")
        _expect(arg.shape == tensors[0].shape,
                f"Operand {i} of '{op.name}' has shape {list(arg.shape)}, expected {list(tensors[0].shape)}.")
    _expect(op.takes(dtype), f"'{op.name}' does not take dtype '{dtype}'.")
    out = op.result(dtype)
    return TensorType(out, tensors[0].shape) if tensors else ScalarType(out)


def _bitcast(node: Bitcast, declared: TensorType | None) -> Type:
    arg = _tensor(node, node.arg)
    _expect(declared is not None, "'bitcast' needs a result dtype.")
    _expect(declared.dtype.size == arg.dtype.size and declared.dtype is not BOOL,
            f"'bitcast' cannot read '{arg.dtype}' as '{declared.dtype}', expected a number dtype of {arg.dtype.size} bytes.")
    return TensorType(declared.dtype, arg.shape)


def _declared(node: Cast | Full | Iota, declared: TensorType | None) -> Type:
    _expect(declared is not None, f"'{_name(node)}' needs a result type.")
    if isinstance(node, Cast):
        if isinstance(node.arg, Value) and isinstance(node.arg.type, TensorType):
            return TensorType(declared.dtype, node.arg.shape)
        return ScalarType(declared.dtype)
    for operand in (node.value,) if isinstance(node, Full) else (node.start, node.step):
        _expect(isinstance(operand, Constant) or isinstance(operand.type, ScalarType),
                f"'{_name(node)}' takes numbers, got tensor '{operand!r}'.")
    if isinstance(node, Iota):
        _expect(len(declared.shape) == 1, f"'iota' has rank 1, got shape {list(declared.shape)}.")
        _expect(declared.dtype.kind in ("int", "float"), f"'iota' takes a dtype of real numbers, got '{declared.dtype}'.")
    _expect(all(n >= 0 for n in declared.shape), f"Sizes must not be negative, got {list(declared.shape)}.")
    return declared


def _random(node: Random, declared: TensorType | None) -> Type:
    _expect(node.op in KINDS, f"'{node.op}' is not a distribution, expected one of {', '.join(KINDS)}.")
    _expect(declared is not None, f"'{node.op}' needs a result type.")
    _expect(declared.dtype.kind == "float", f"'{node.op}' does not take dtype '{declared.dtype}'.")
    _expect(all(n >= 0 for n in declared.shape), f"Sizes must not be negative, got {list(declared.shape)}.")
    for what, operand in (("seed", node.seed), ("offset", node.offset)):
        tensor = isinstance(operand, Value) and isinstance(operand.type, TensorType)
        _expect(natural_dtype(operand) is I64 and (not tensor or operand.type.numel == 1),
                f"The {what} of '{node.op}' is '{operand!r}', expected an i64 number or an i64 tensor of one element.")
    for operand in (node.low, node.high):
        _expect(isinstance(operand, Constant) or isinstance(operand.type, ScalarType), f"'{node.op}' takes numbers, got tensor '{operand!r}'.")
    return declared


def _reduce(node: Reduce) -> Type:
    arg = _tensor(node, node.arg)
    op = REDUCTIONS.get(node.op)
    if op is None:
        raise IRError(f"'{node.op}' is not a reduction.")
    _expect(arg.dtype.kind in op.accepts, f"'{op.name}' does not take dtype '{arg.dtype}'.")
    _dims(node, node.dims, len(arg.shape))
    return TensorType(arg.dtype, tuple(n for d, n in enumerate(arg.shape) if d not in node.dims))


def _scan(node: Scan) -> Type:
    arg = _tensor(node, node.arg)
    _expect(node.op in SCANS, f"'{node.op}' is not a scan.")
    _expect(arg.dtype.kind in ("int", "float"), f"'{node.op}' does not take dtype '{arg.dtype}'.")
    _expect(0 <= node.dim < len(arg.shape), f"'{node.op}' dim {node.dim} is out of range for rank {len(arg.shape)}.")
    return arg


def _cat(node: Cat) -> Type:
    _expect(bool(node.args), "'cat' takes at least one tensor.")
    types = [_tensor(node, a) for a in node.args]
    first = types[0]
    _expect(0 <= node.dim < len(first.shape), f"'cat' dim {node.dim} is out of range for rank {len(first.shape)}.")
    for i, t in enumerate(types):
        _expect(t.dtype is first.dtype, f"Operand {i} of 'cat' has dtype '{t.dtype}', expected '{first.dtype}'.")
        same = len(t.shape) == len(first.shape) and all(
            a == b for d, (a, b) in enumerate(zip(t.shape, first.shape)) if d != node.dim)
        _expect(same, f"Operand {i} of 'cat' has shape {list(t.shape)}, expected {list(first.shape)} but for dim {node.dim}.")
    shape = list(first.shape)
    shape[node.dim] = sum(t.shape[node.dim] for t in types)
    return TensorType(first.dtype, tuple(shape))


def _gather(node: Gather) -> Type:
    arg, index = _tensor(node, node.arg), _tensor(node, node.index)
    _expect(index.dtype.kind == "int", f"'gather' takes an index of an integer dtype, got '{index.dtype}'.")
    _expect(len(index.shape) == len(arg.shape), f"'gather' takes an index of rank {len(arg.shape)}, got shape {list(index.shape)}.")
    _expect(0 <= node.dim < len(arg.shape), f"'gather' dim {node.dim} is out of range for rank {len(arg.shape)}.")
    _expect(all(n <= m for d, (n, m) in enumerate(zip(index.shape, arg.shape)) if d != node.dim),
            f"'gather' takes an index within shape {list(arg.shape)} but for dim {node.dim}, got {list(index.shape)}.")
    _expect(arg.shape[node.dim] > 0 or index.numel == 0, f"'gather' reads elements of dim {node.dim}, which has size 0.")
    return TensorType(arg.dtype, index.shape)


def _scatter(node: Scatter) -> Type:
    arg, updates = _tensor(node, node.arg), _tensor(node, node.updates)
    rank = len(arg.shape)
    _dims(node, node.dims, rank)
    _expect(len(node.indices) == len(node.dims) > 0, f"'scatter' takes an index for each of dims {list(node.dims)}, got {len(node.indices)}.")
    _expect(updates.dtype is arg.dtype, f"'scatter' takes updates of dtype '{arg.dtype}', got '{updates.dtype}'.")
    _expect(len(updates.shape) == rank, f"'scatter' takes updates of rank {rank}, got shape {list(updates.shape)}.")
    for index in node.indices:
        type_ = _tensor(node, index)
        _expect(type_.dtype.kind == "int", f"'scatter' takes indices of an integer dtype, got '{type_.dtype}'.")
        _expect(type_.shape == updates.shape, f"'scatter' takes indices of the updates' shape {list(updates.shape)}, got {list(type_.shape)}.")
    for d, (n, m) in enumerate(zip(updates.shape, arg.shape)):
        _expect(d in node.dims or n <= m, f"'scatter' takes updates within shape {list(arg.shape)} but for dims {list(node.dims)}, "
                                          f"got {list(updates.shape)}.")
        _expect(d not in node.dims or m > 0 or updates.numel == 0, f"'scatter' writes to dim {d}, which has size 0.")
    if node.accumulate:
        sums = arg.dtype.kind == "int" or (arg.dtype.kind == "float" and arg.dtype.size >= 4)
        _expect(sums, f"'scatter' accumulates integers and floats of 32 and 64 bits, got '{arg.dtype}'.")
    return arg


def _dims(node: Node, dims: Sequence[int], rank: int) -> None:
    _expect(all(0 <= d < rank for d in dims), f"'{_name(node)}' dims {list(dims)} are out of range for rank {rank}.")
    _expect(list(dims) == sorted(set(dims)), f"'{_name(node)}' dims must be sorted and distinct, got {list(dims)}.")


def _reshape(node: Reshape, shape: tuple[int, ...], out: tuple[int, ...]) -> tuple[int, ...]:
    _expect(all(n >= 0 for n in out) and math.prod(shape) == math.prod(out),
            f"'reshape' cannot turn shape {list(shape)} into {list(out)}.")
    return out


def _broadcast(node: Broadcast, shape: tuple[int, ...], out: tuple[int, ...]) -> tuple[int, ...]:
    _expect(len(node.dims) == len(shape), f"'broadcast' needs one dim for each of {len(shape)}, got {list(node.dims)}.")
    _dims(node, node.dims, len(out))
    for size, dim in zip(shape, node.dims):
        _expect(size in (1, out[dim]), f"'broadcast' cannot turn shape {list(shape)} into {list(out)} by dims {list(node.dims)}.")
    return out


def _permute(node: Permute, shape: tuple[int, ...]) -> tuple[int, ...]:
    _expect(sorted(node.dims) == list(range(len(shape))),
            f"'permute' dims must be a permutation of 0..{len(shape) - 1}, got {list(node.dims)}.")
    return tuple(shape[d] for d in node.dims)


def _slice(node: Slice, shape: tuple[int, ...]) -> tuple[int, ...]:
    _expect(len(node.starts) == len(node.stops) == len(node.steps) == len(shape),
            f"'slice' needs a start, stop and step for each of {len(shape)} dims.")
    out = []
    for size, start, stop, step in zip(shape, node.starts, node.stops, node.steps):
        _expect(0 <= start <= stop <= size and step >= 1,
                f"'slice' {start}:{stop}:{step} is not within size {size}.")
        out.append(-(-(stop - start) // step))
    return tuple(out)


def _squeeze(node: Squeeze, shape: tuple[int, ...]) -> tuple[int, ...]:
    _dims(node, node.dims, len(shape))
    _expect(all(shape[d] == 1 for d in node.dims), f"'squeeze' dims {list(node.dims)} of shape {list(shape)} are not all 1.")
    return tuple(n for d, n in enumerate(shape) if d not in node.dims)


def _pad(node: Pad, shape: tuple[int, ...]) -> tuple[int, ...]:
    _expect(len(node.widths) == len(shape), f"'pad' needs widths for each of {len(shape)} dims, got {len(node.widths)}.")
    _expect(isinstance(node.value, Constant) or isinstance(node.value.type, ScalarType), "'pad' takes a number as its value.")
    out = []
    for size, (low, high, interior) in zip(shape, node.widths):
        _expect(interior >= 0, f"'pad' interior width must not be negative, got {interior}.")
        out.append(low + size + max(size - 1, 0) * interior + high)
        _expect(out[-1] >= 0, f"'pad' widths {(low, high, interior)} leave a negative size of {size}.")
    return tuple(out)


def _flip(node: Flip, shape: tuple[int, ...]) -> tuple[int, ...]:
    _dims(node, node.dims, len(shape))
    return shape


def _copy(node: Copy, shape: tuple[int, ...]) -> tuple[int, ...]:
    _expect(node.order is None or sorted(node.order) == list(range(len(shape))),
            f"'copy' order must be a permutation of 0..{len(shape) - 1}, got {node.order}.")
    return shape


_SHAPES = {Permute: _permute, Slice: _slice, Squeeze: _squeeze, Pad: _pad, Flip: _flip, Copy: _copy}
