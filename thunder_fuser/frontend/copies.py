"""The ops of `fd.ops` whose result is a tensor of its own: copies, casts, pads, cats, factories, reductions and scans.

Written as in `views`: a decorated function that says what the result is, and a `_lower` function that emits the IR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from thunder_fuser.errors import IRError, UnsupportedError
from thunder_fuser.frontend.datatype import DataType
from thunder_fuser.frontend.lowering import Lowering, Operand
from thunder_fuser.frontend.promotion import common_dtype
from thunder_fuser.frontend.rows import (
    Result,
    dims_argument,
    dtype_argument,
    operand_argument,
    register,
    sizes_argument,
    tensor_argument,
    tensor_result,
)
from thunder_fuser.frontend.values import Scalar, TensorView
from thunder_fuser.ir.dtypes import I64
from thunder_fuser.ir.nodes import Value
from thunder_fuser.ir.ops import SCANS


def _like(op: str, arg: Any) -> Result:
    if isinstance(arg, Scalar):
        return Result("scalar", arg.dtype)
    return tensor_result(tensor_argument(op, arg).dtype, arg.ndim)


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
    dtype_argument("cast", dtype)
    if isinstance(operand_argument("cast", arg), TensorView):
        return tensor_result(dtype, arg.ndim)
    return Result("scalar", dtype)


# pads, cats and memory orders


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
    return tensor_result(arg.dtype, rank)


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
    return tensor_result(common_dtype(tensors, keep_half=True), rank)


def _lower_stride_order(low: Lowering, result: Result, arg: Value, stride_order: Sequence[int]) -> Value:
    return low.b.copy(arg, sorted(range(len(stride_order)), key=lambda d: -stride_order[d]))


@register("stride_order", _lower_stride_order)
def _stride_order(arg: TensorView, stride_order: Sequence[int]) -> Result:
    """A copy of `arg`; dim d has the stride_order[d]-th smallest stride in its memory."""
    rank = tensor_argument("stride_order", arg).ndim
    if sorted(stride_order) != list(range(rank)):
        raise IRError(f"'stride_order' takes a permutation of 0..{rank - 1}, got {list(stride_order)}.")
    return tensor_result(arg.dtype, rank)


def _lower_triu(low: Lowering, result: Result, arg: Value, diagonal: int) -> Value:
    rank, (rows, columns) = len(arg.shape), arg.shape[-2:]
    row = low.b.broadcast(low.b.iota(rows, I64, diagonal), (rows, columns), [0])
    below = low.b.lt(low.b.broadcast(low.b.iota(columns, I64), (rows, columns), [1]), row)
    return low.b.where(low.b.broadcast(below, arg.shape, [rank - 2, rank - 1]), low.cast(0, arg.dtype), arg)


@register("triu", _lower_triu, static=("diagonal",))
def _triu(arg: TensorView, diagonal: Any = 0) -> Result:
    """The last two dims' elements on and above a diagonal (`diagonal` 0: the main one, 1: the one above), zeros below."""
    if tensor_argument("triu", arg).ndim < 2:
        raise IRError(f"'triu' takes a tensor of at least two dims, got {arg.ndim}.")
    sizes_argument("triu", "diagonal", [diagonal])
    return tensor_result(arg.dtype, arg.ndim)


# factories


def _lower_full(low: Lowering, result: Result, shape: Sequence[int], fill_value: Operand, dtype: DataType) -> Value:
    return low.b.full(shape, low.cast(fill_value, dtype.ir), dtype.ir)


@register("full", _lower_full, static=("shape",))
def _full(shape: Any, fill_value: Any, dtype: DataType) -> Result:
    """A tensor of `shape` filled with one number."""
    if isinstance(operand_argument("full", fill_value), TensorView):
        raise IRError(f"'full' takes a number or a Scalar as fill_value, got '{fill_value!r}'.")
    return tensor_result(dtype_argument("full", dtype), len(sizes_argument("full", "shape", shape)))


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
    return tensor_result(dtype_argument("iota", dtype), 1)


# reductions


def _reduced(op: str, arg: TensorView, dims: Any, dim: Any) -> tuple[int, ...]:
    given = dims if dims is not None else dim
    if given is None:
        return tuple(range(arg.ndim))
    return dims_argument(op, "dims", [given] if isinstance(given, int) else given, arg.ndim)


def _lower_reduction(row: str) -> Callable[..., Value]:
    def lower(low: Lowering, result: Result, arg: Value, dims: Any, keep_dim: bool, dtype: Any, dim: Any, keepdim: bool) -> Value:
        given = dims if dims is not None else dim
        over = range(len(arg.shape)) if given is None else [given] if isinstance(given, int) else given
        return low.b.reduce(row, low.cast(arg, result.dtype.ir), list(over), keepdim=keep_dim or keepdim)
    return lower


def _add_reduction(name: str, row: str) -> None:
    """nvFuser's reduction `name` by `row` of the engine's table. Sums and products of integers and Bool are Int."""
    @register(name, _lower_reduction(row))
    def infer(
        arg: TensorView, dims: Any = None, keep_dim: bool = False, dtype: DataType = DataType.Null, dim: Any = None,
        keepdim: bool = False,
    ) -> Result:
        dropped = _reduced(name, tensor_argument(name, arg), dims, dim)
        out = DataType.Int if name in ("sum", "prod") and arg.dtype.kind in ("bool", "int") else arg.dtype
        if dtype is not DataType.Null:
            out = dtype_argument(name, dtype)
        return tensor_result(out, arg.ndim if keep_dim or keepdim else arg.ndim - len(dropped))


for _name, _row in {"sum": "sum", "prod": "prod", "max": "amax", "min": "amin"}.items():
    _add_reduction(_name, _row)


# scans


def _add_scan(name: str) -> None:
    """nvFuser's scan `name`, a row of the engine's table. Sums and products of integers and Bool are Int."""
    @register(name, lambda low, result, arg, dim: low.b.scan(name, low.cast(arg, result.dtype.ir), dim))
    def infer(arg: TensorView, dim: int) -> Result:
        dims_argument(name, "dim", [dim], tensor_argument(name, arg).ndim)
        out = DataType.Int if name in ("cumsum", "cumprod") and arg.dtype.kind in ("bool", "int") else arg.dtype
        if out.kind not in ("int", "float"):
            raise UnsupportedError(f"'{name}' of dtype '{arg.dtype}' is not supported.")
        return tensor_result(out, arg.ndim)


for _name in SCANS:
    _add_scan(_name)
