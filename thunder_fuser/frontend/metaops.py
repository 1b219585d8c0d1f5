"""The ops of `fd.ops` that are not elementwise: shapes, factories, casts and reductions, one function pair each.

The decorated function is what a user calls: its parameters are nvFuser's, it says what the result is and refuses what
cannot be right. The `_lower` function beside it emits the IR once sizes are numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder_fuser.errors import IRError, UnsupportedError
from thunder_fuser.frontend.datatype import DataType
from thunder_fuser.frontend.lowering import Lowering, Operand
from thunder_fuser.frontend.promotion import common_dtype
from thunder_fuser.frontend.rows import (
    Result,
    dims_argument,
    operand_argument,
    register,
    sizes_argument,
    tensor_argument,
)
from thunder_fuser.frontend.values import Scalar, TensorView, Vector
from thunder_fuser.ir.nodes import Value
from thunder_fuser.ir.ops import REDUCTIONS


def _tensor(dtype: DataType, rank: int) -> Result:
    return Result("tensor", dtype, rank)


def _like(op: str, arg: Any) -> Result:
    if isinstance(arg, Scalar):
        return Result("scalar", arg.dtype)
    return _tensor(tensor_argument(op, arg).dtype, arg.ndim)


# identities and casts


def _lower_set(low: Lowering, result: Result, arg: Operand) -> Operand:
    return low.b.copy(arg) if isinstance(arg, Value) and result.kind == "tensor" else arg


@register("set", _lower_set)
def _set(arg: Any) -> Result:
    """A copy of the tensor."""
    return _like("set", arg)


@register("segment_set", lambda low, result, arg: arg)
def _segment_set(arg: Any) -> Result:
    """The tensor itself: where a fusion is cut is the engine's decision."""
    return _like("segment_set", arg)


def _lower_cast(low: Lowering, result: Result, arg: Operand, dtype: DataType) -> Operand:
    return low.b.cast(arg, dtype.ir) if result.kind == "tensor" else low.cast(arg, dtype.ir)


@register("cast", _lower_cast)
def _cast(arg: Any, dtype: DataType) -> Result:
    """`arg` converted to `dtype`."""
    _dtype_argument("cast", dtype)
    if isinstance(operand_argument("cast", arg), TensorView):
        return _tensor(dtype, arg.ndim)
    return Result("scalar", dtype)


def _dtype_argument(op: str, dtype: Any) -> DataType:
    if not isinstance(dtype, DataType):
        raise IRError(f"'{op}' takes a DataType as dtype, got '{dtype!r}'.")
    dtype.ir  # noqa: B018  raises for a dtype that has none
    return dtype


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
    return _tensor(tensor_argument("reshape", arg).dtype, len(sizes_argument("reshape", "new_shape", new_shape)))


@register("permute", lambda low, result, arg, dims: low.b.permute(arg, dims))
def _permute(arg: TensorView, dims: Sequence[int]) -> Result:
    """Dim i of the result is dim dims[i] of `arg`."""
    rank = tensor_argument("permute", arg).ndim
    if len(dims_argument("permute", "dims", dims, rank)) != rank:
        raise IRError(f"'permute' takes {rank} dims for a tensor of rank {rank}, got {list(dims)}.")
    return _tensor(arg.dtype, rank)


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
    return _tensor(arg.dtype, rank)


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
    return _tensor(arg.dtype, rank - len(dims_argument("squeeze", "dims", dims, rank)))


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
    return _tensor(arg.dtype, len(is_broadcast_dim))


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
    return _tensor(arg.dtype, out)


def _lower_expand(low: Lowering, result: Result, arg: Value, shape: Sequence[int]) -> Value:
    dims = range(len(shape) - len(arg.shape), len(shape))
    return low.broadcast(arg, _kept_sizes("expand", shape, arg, dims), dims)


@register("expand", _lower_expand, static=("shape",))
def _expand(arg: TensorView, shape: Any) -> Result:
    """`arg` with its dims of size 1 repeated; -1 keeps a size."""
    rank, out = tensor_argument("expand", arg).ndim, len(sizes_argument("expand", "shape", shape))
    if out < rank:
        raise IRError(f"'expand' takes at least {rank} sizes for a tensor of rank {rank}, got {out}.")
    return _tensor(arg.dtype, out)


# copies


def _lower_pad(low: Lowering, result: Result, arg: Value, pad_widths: Sequence[int], value: Operand | None) -> Value:
    rank = len(arg.shape)
    widths = [(0, 0, 0)] * rank
    for k in range(len(pad_widths) // 2):
        widths[rank - 1 - k] = (pad_widths[2 * k], pad_widths[2 * k + 1], 0)
    return low.b.pad(arg, widths, low.cast(0 if value is None else value, arg.dtype))


@register("pad", _lower_pad, static=("pad_widths",))
def _pad(arg: TensorView, pad_widths: Any, value: Any = None) -> Result:
    """`arg` with `value` (0) around it; widths (low, high) from the last dim to the first, negative ones crop."""
    rank, given = tensor_argument("pad", arg).ndim, len(sizes_argument("pad", "pad_widths", pad_widths))
    if given % 2 or given > 2 * rank:
        raise IRError(f"'pad' takes two pad_widths for each of at most {rank} dims, got {given}.")
    if isinstance(value, TensorView):
        raise IRError(f"'pad' takes a number or a Scalar as value, got '{value!r}'.")
    return _tensor(arg.dtype, rank)


def _lower_cat(low: Lowering, result: Result, tensors: Sequence[Value], dim: int, manual_padding: bool) -> Value:
    return low.b.cat([low.cast(t, result.dtype.ir) for t in tensors], dim)


@register("cat", _lower_cat)
def _cat(tensors: Sequence[TensorView], dim: int = 0, manual_padding: bool = False) -> Result:
    """The tensors one after the other along `dim`."""
    if not isinstance(tensors, (list, tuple)) or not tensors:
        raise IRError(f"'cat' takes a list of at least one TensorView, got '{tensors!r}'.")
    ranks = {tensor_argument("cat", t).ndim for t in tensors}
    if len(ranks) != 1:
        raise IRError(f"'cat' takes tensors of one rank, got {sorted(ranks)}.")
    if manual_padding:
        raise UnsupportedError("'cat' with manual_padding=True is not supported: give it the unpadded tensors.")
    rank = ranks.pop()
    dims_argument("cat", "dim", [dim], rank)
    return _tensor(common_dtype(tensors, keep_half=True), rank)


def _lower_stride_order(low: Lowering, result: Result, arg: Value, stride_order: Sequence[int]) -> Value:
    return low.b.copy(arg, sorted(range(len(stride_order)), key=lambda d: -stride_order[d]))


@register("stride_order", _lower_stride_order)
def _stride_order(arg: TensorView, stride_order: Sequence[int]) -> Result:
    """A copy of `arg`; dim d has the stride_order[d]-th smallest stride in its memory."""
    rank = tensor_argument("stride_order", arg).ndim
    if sorted(stride_order) != list(range(rank)):
        raise IRError(f"'stride_order' takes a permutation of 0..{rank - 1}, got {list(stride_order)}.")
    return _tensor(arg.dtype, rank)


# factories


def _lower_full(low: Lowering, result: Result, shape: Sequence[int], fill_value: Operand, dtype: DataType) -> Value:
    return low.b.full(shape, low.cast(fill_value, dtype.ir), dtype.ir)


@register("full", _lower_full, static=("shape",))
def _full(shape: Any, fill_value: Any, dtype: DataType) -> Result:
    """A tensor of `shape` filled with one number."""
    if isinstance(operand_argument("full", fill_value), TensorView):
        raise IRError(f"'full' takes a number or a Scalar as fill_value, got '{fill_value!r}'.")
    return _tensor(_dtype_argument("full", dtype), len(sizes_argument("full", "shape", shape)))


def _lower_iota(
    low: Lowering, result: Result, length: int, start: Operand | None, step: Operand | None, dtype: DataType,
) -> Value:
    begin, stride = (0 if start is None else start), (1 if step is None else step)
    return low.b.iota(length, dtype.ir, low.cast(begin, dtype.ir), low.cast(stride, dtype.ir))


@register("iota", _lower_iota, static=("length",))
def _iota(length: Any, start: Any = None, step: Any = None, dtype: DataType = DataType.Int) -> Result:
    """start, start + step, ...: `length` of them (from 0 by 1 unless given)."""
    sizes_argument("iota", "length", [length])
    for value in (start, step):
        if isinstance(value, TensorView):
            raise IRError(f"'iota' takes numbers or Scalars as start and step, got '{value!r}'.")
    return _tensor(_dtype_argument("iota", dtype), 1)


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
    return _tensor(arg.dtype, rank - 1)


# reductions


def _reduced(op: str, arg: TensorView, dims: Any, dim: Any) -> tuple[int, ...]:
    given = dims if dims is not None else dim
    if given is None:
        return tuple(range(arg.ndim))
    return dims_argument(op, "dims", [given] if isinstance(given, int) else given, arg.ndim)


def _lower_reduction(op: str) -> Any:
    def lower(low: Lowering, result: Result, arg: Value, dims: Any, keep_dim: bool, dtype: Any, dim: Any, keepdim: bool) -> Value:
        rank, given = len(arg.shape), dims if dims is not None else dim
        over = range(rank) if given is None else [given] if isinstance(given, int) else given
        return low.b.reduce(op, low.cast(arg, result.dtype.ir), list(over), keepdim=keep_dim or keepdim)
    return lower


def register_reduction(op: str, *, widens: bool) -> None:
    """A reduction of the engine's table under its own name. `widens`: integers and Bool become Int (sum, prod)."""
    @register(op, _lower_reduction(op))
    def infer(
        arg: TensorView, dims: Any = None, keep_dim: bool = False, dtype: DataType = DataType.Null, dim: Any = None,
        keepdim: bool = False,
    ) -> Result:
        dropped = _reduced(op, tensor_argument(op, arg), dims, dim)
        out = DataType.Int if widens and arg.dtype.kind != "float" else arg.dtype
        if dtype is not DataType.Null:
            out = _dtype_argument(op, dtype)
        return _tensor(out, arg.ndim if keep_dim or keepdim else arg.ndim - len(dropped))


for _name in REDUCTIONS:
    register_reduction(_name, widens=_name in ("sum", "prod"))
