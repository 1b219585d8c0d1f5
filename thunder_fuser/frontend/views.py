"""The ops of `fd.ops` that only say where elements come from: sizes, views and one entry along a dim.

The decorated function is what a user calls: its parameters are nvFuser's, it says what the result is and refuses what
cannot be right. The `_lower` function beside it emits the IR once sizes are numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder_fuser.errors import IRError
from thunder_fuser.frontend.datatype import DataType
from thunder_fuser.frontend.lowering import Lowering
from thunder_fuser.frontend.rows import Result, dims_argument, register, sizes_argument, tensor_argument, tensor_result
from thunder_fuser.frontend.values import Scalar, TensorView, Vector
from thunder_fuser.ir.nodes import Value

# sizes


@register("size", lambda low, result, arg, dim: arg.shape[dim])
def _size(arg: TensorView, dim: int) -> Result:
    """The size of `dim` as a Scalar."""
    dims_argument("size", "dim", [dim], tensor_argument("size", arg).ndim)
    return Result("scalar", DataType.Int)


@register("shape", lambda low, result, arg: list(arg.shape))
def _shape(arg: TensorView) -> Result:
    """All sizes as a Vector."""
    return Result("vector", DataType.Int, tensor_argument("shape", arg).ndim)


@register("at", lambda low, result, vector, index: vector[index])
def _at(vector: Vector, index: int) -> Result:
    """One entry of a Vector as a Scalar."""
    if not isinstance(vector, Vector) or not -len(vector) <= index < len(vector):
        raise IRError(f"'at' takes a Vector and an index into it, got '{vector!r}' and '{index!r}'.")
    return Result("scalar", vector.dtype)


# views


@register("reshape", lambda low, result, arg, new_shape: low.b.reshape(arg, new_shape), static=("new_shape",))
def _reshape(arg: TensorView, new_shape: Any) -> Result:
    """`arg` in row-major order with another shape; one size may be -1."""
    return tensor_result(tensor_argument("reshape", arg).dtype, len(sizes_argument("reshape", "new_shape", new_shape)))


@register("permute", lambda low, result, arg, dims: low.b.permute(arg, dims))
def _permute(arg: TensorView, dims: Sequence[int]) -> Result:
    """Dim i of the result is dim dims[i] of `arg`."""
    rank = tensor_argument("permute", arg).ndim
    if len(dims_argument("permute", "dims", dims, rank)) != rank:
        raise IRError(f"'permute' takes {rank} dims for a tensor of rank {rank}, got {list(dims)}.")
    return tensor_result(arg.dtype, rank)


def _lower_slice(
    low: Lowering, result: Result, arg: Value, start_indices: Sequence[int], end_indices: Sequence[int],
    strides: Sequence[int] | None, manual_normalization: bool,
) -> Value:
    steps = [1] * len(start_indices) if strides is None else list(strides)
    if any(s < 1 for s in steps):
        raise IRError(f"'slice' takes strides of at least 1, got {steps}.")
    bounds = list(zip(start_indices, end_indices))
    if not manual_normalization:  # clamped to the size, and negative ones counted from the end, as Python does
        bounds = [slice(start, stop).indices(n)[:2] for n, (start, stop) in zip(arg.shape, bounds)]
        bounds = [(start, max(start, stop)) for start, stop in bounds]
    return low.b.slice(arg, [start for start, _ in bounds], [stop for _, stop in bounds], steps)


@register("slice", _lower_slice, static=("start_indices", "end_indices", "strides"))
def _slice(
    arg: TensorView, start_indices: Any, end_indices: Any, strides: Any = None, manual_normalization: bool = False,
) -> Result:
    """Elements start, start + stride, ... below end, per dim. Bounds beyond the size are clamped to it unless
    `manual_normalization` says that they are in range already."""
    rank = tensor_argument("slice", arg).ndim
    for name, value in (("start_indices", start_indices), ("end_indices", end_indices), ("strides", strides)):
        if value is not None and len(sizes_argument("slice", name, value)) != rank:
            raise IRError(f"'slice' takes {rank} {name} for a tensor of rank {rank}, got {len(value)}.")
    for start, end in zip(_constants(start_indices), _constants(end_indices)):
        if start is not None and start < 0:
            raise IRError(f"'slice' takes start_indices of at least 0, got {start}.")
        if start is not None and end is not None and end < start:
            raise IRError(f"'slice' takes end_indices that are not below start_indices, got {start}:{end}.")
    return tensor_result(arg.dtype, rank)


def _constants(sizes: Any) -> list[int | None]:
    """The entries that are known when the fusion is defined, None for the others."""
    elements = (sizes.elements or [None] * len(sizes)) if isinstance(sizes, Vector) else sizes
    return [e.value if isinstance(e, Scalar) else e for e in elements]


def _lower_squeeze(low: Lowering, result: Result, arg: Value, dims: Sequence[int], squeeze_expanded: bool) -> Value:
    rank = len(arg.shape)
    wide = [d % rank for d in dims if arg.shape[d] != 1]
    for d in wide:
        if not squeeze_expanded or not low.is_expanded(arg, d) or arg.shape[d] == 0:
            raise IRError(f"'squeeze' takes dims of size 1, or expanded ones with squeeze_expanded=True: dim {d} of "
                          f"shape {list(arg.shape)} is neither.")
    if wide:
        arg = low.b.slice(arg, [0] * rank, [1 if d in wide else n for d, n in enumerate(arg.shape)])
    return low.b.squeeze(arg, dims)


@register("squeeze", _lower_squeeze)
def _squeeze(arg: TensorView, dims: Sequence[int], squeeze_expanded: bool = False) -> Result:
    """`arg` without its size-1 dims `dims`; with `squeeze_expanded` also without dims that a broadcast made."""
    rank = tensor_argument("squeeze", arg).ndim
    return tensor_result(arg.dtype, rank - len(dims_argument("squeeze", "dims", dims, rank)))


def _lower_broadcast(low: Lowering, result: Result, arg: Value, is_broadcast_dim: Sequence[bool]) -> Value:
    kept = [d for d, new in enumerate(is_broadcast_dim) if not new]
    shape = [1] * len(is_broadcast_dim)
    for d, n in zip(kept, arg.shape):
        shape[d] = n
    return low.broadcast(arg, shape, kept)


@register("broadcast", _lower_broadcast)
def _broadcast(arg: TensorView, is_broadcast_dim: Sequence[bool]) -> Result:
    """New dims of size 1 where `is_broadcast_dim` is True."""
    rank = tensor_argument("broadcast", arg).ndim
    if sum(not new for new in is_broadcast_dim) != rank:
        raise IRError(f"'broadcast' takes {rank} entries that are False for a tensor of rank {rank}, "
                      f"got {list(is_broadcast_dim)}.")
    return tensor_result(arg.dtype, len(is_broadcast_dim))


def _kept_sizes(op: str, shape: Sequence[int], arg: Value, dims: Sequence[int]) -> list[int]:
    """`shape` with -1 replaced by the size of the dim of `arg` that lands there."""
    sizes = list(shape)
    for k, d in enumerate(dims):
        sizes[d] = arg.shape[k] if sizes[d] == -1 else sizes[d]
    if any(n < 0 for n in sizes):
        raise IRError(f"'{op}' cannot infer a size of -1 in {list(shape)}.")
    return sizes


def _lower_broadcast_in_dim(
    low: Lowering, result: Result, arg: Value, shape: Sequence[int], broadcast_dims: Sequence[int],
) -> Value:
    return low.broadcast(arg, _kept_sizes("broadcast_in_dim", shape, arg, broadcast_dims), broadcast_dims)


@register("broadcast_in_dim", _lower_broadcast_in_dim, static=("shape",))
def _broadcast_in_dim(arg: TensorView, shape: Any, broadcast_dims: Sequence[int]) -> Result:
    """Dim k of `arg` becomes dim broadcast_dims[k] of `shape`; new dims and dims of size 1 repeat."""
    rank, out = tensor_argument("broadcast_in_dim", arg).ndim, len(sizes_argument("broadcast_in_dim", "shape", shape))
    dims = dims_argument("broadcast_in_dim", "broadcast_dims", broadcast_dims, out)
    if len(dims) != rank or list(dims) != sorted(broadcast_dims):
        raise IRError(f"'broadcast_in_dim' takes {rank} increasing broadcast_dims for a tensor of rank {rank}, "
                      f"got {list(broadcast_dims)}.")
    return tensor_result(arg.dtype, out)


def _lower_expand(low: Lowering, result: Result, arg: Value, shape: Sequence[int]) -> Value:
    dims = range(len(shape) - len(arg.shape), len(shape))
    return low.broadcast(arg, _kept_sizes("expand", shape, arg, dims), dims)


@register("expand", _lower_expand, static=("shape",))
def _expand(arg: TensorView, shape: Any) -> Result:
    """`arg` with its dims of size 1 repeated; -1 keeps a size."""
    rank, out = tensor_argument("expand", arg).ndim, len(sizes_argument("expand", "shape", shape))
    if out < rank:
        raise IRError(f"'expand' takes at least {rank} sizes for a tensor of rank {rank}, got {out}.")
    return tensor_result(arg.dtype, out)


# one entry along a dim


def _lower_select(low: Lowering, result: Result, arg: Value, index: int, dim: int) -> Value:
    d, rank = dim % len(arg.shape), len(arg.shape)
    if not -arg.shape[d] <= index < arg.shape[d]:
        raise IRError(f"'select' has index {index}, out of range for size {arg.shape[d]}.")
    at = index % arg.shape[d]
    starts, stops = [0] * rank, list(arg.shape)
    starts[d], stops[d] = at, at + 1
    return low.b.squeeze(low.b.slice(arg, starts, stops), [d])


@register("select", _lower_select, static=("index",))
def _select(arg: TensorView, index: Any, dim: int) -> Result:
    """The entry `index` (a number or a Scalar) along `dim`, which is removed."""
    rank = tensor_argument("select", arg).ndim
    sizes_argument("select", "index", [index])
    dims_argument("select", "dim", [dim], rank)
    return tensor_result(arg.dtype, rank - 1)
