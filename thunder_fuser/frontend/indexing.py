"""The ops of `fd.ops` that read and write at indices which the fusion computes. An index out of range is an error, also a negative one.

Written as in `views`: a decorated function that says what the result is, and a `_lower` function that emits the IR.
"""

from __future__ import annotations

from typing import Any

from thunder_fuser.errors import IRError, UnsupportedError
from thunder_fuser.frontend.lowering import Lowering, Operand, is_tensor
from thunder_fuser.frontend.rows import Result, dims_argument, operand_argument, register, tensor_argument, tensor_result
from thunder_fuser.frontend.values import TensorView
from thunder_fuser.ir.nodes import Value


def index_argument(op: str, index: Any) -> TensorView:
    """`index` if it is a TensorView of integers, else an `IRError` that names the op."""
    if tensor_argument(op, index).dtype.kind != "int":
        raise IRError(f"'{op}' takes an index of integers, got dtype '{index.dtype}'.")
    return index


def _gathered(op: str, arg: Any, index: Any, dim: int) -> Result:
    rank = tensor_argument(op, arg).ndim
    dims_argument(op, "dim", [dim], rank)
    if index_argument(op, index).ndim != rank:
        raise IRError(f"'{op}' takes an index of rank {rank}, got rank {index.ndim}.")
    return tensor_result(arg.dtype, rank)


@register("gather", lambda low, result, arg, index, dim: low.b.gather(arg, index, dim))
def _gather(arg: TensorView, index: TensorView, dim: int) -> Result:
    """`arg` at `index` along `dim`, for each element of `index`."""
    return _gathered("gather", arg, index, dim)


def _lower_take_along_axis(low: Lowering, result: Result, arg: Value, index: Value, dim: int) -> Value:
    rank = len(arg.shape)
    shape = [index.shape[d] if d == dim % rank else n for d, n in enumerate(arg.shape)]
    return low.b.gather(arg, low.b.expand(index, shape), dim)


@register("take_along_axis", _lower_take_along_axis)
def _take_along_axis(arg: TensorView, index: TensorView, dim: int) -> Result:
    """As `gather`, for an index that has, or broadcasts to, the sizes of `arg` but for `dim`."""
    return _gathered("take_along_axis", arg, index, dim)


def _lower_index_select(low: Lowering, result: Result, arg: Value, index: Value, dim: int) -> Value:
    return low.b.index_select(arg, low.b.reshape(index, (index.type.numel,)), dim)


@register("index_select", _lower_index_select)
def _index_select(arg: TensorView, index: TensorView, dim: int) -> Result:
    """The slices of `arg` along `dim` that `index`, of rank 1 or a single number, names."""
    dims_argument("index_select", "dim", [dim], tensor_argument("index_select", arg).ndim)
    if index_argument("index_select", index).ndim > 1:
        raise IRError(f"'index_select' takes an index of rank 1, got rank {index.ndim}.")
    return tensor_result(arg.dtype, arg.ndim)


def _lower_embedding(low: Lowering, result: Result, input: Value, weight: Value, **_: Any) -> Value:
    rows = low.b.index_select(weight, low.b.reshape(input, (input.type.numel,)), 0)
    return low.b.reshape(rows, (*input.shape, weight.shape[1]))


@register("embedding_fwd", _lower_embedding)
def _embedding_fwd(
    input: TensorView, weight: TensorView, padding_idx: Any = None, max_norm: Any = None, norm_type: Any = None,
    scale_grad_by_freq: Any = None, sparse: Any = None,
) -> Result:
    """Row input[i] of `weight` for each i. Only the gradient heeds the arguments after max_norm."""
    if tensor_argument("embedding_fwd", weight).ndim != 2:
        raise IRError(f"'embedding_fwd' takes a weight of rank 2, got rank {weight.ndim}.")
    if max_norm is not None:
        raise UnsupportedError("'embedding_fwd' with max_norm is not supported: normalise the weight yourself.")
    return tensor_result(weight.dtype, index_argument("embedding_fwd", input).ndim + 1)


# writes


def _lower_scatter(low: Lowering, result: Result, arg1: Value, index: Value, src: Operand, dim: int) -> Value:
    if is_tensor(src):
        updates = low.b.slice(src, [0] * len(index.shape), index.shape) if src.shape != index.shape else src
    else:
        updates = low.b.full(index.shape, low.cast(src, arg1.dtype), arg1.dtype)
    return low.b.scatter(arg1, index, updates, dim)


@register("scatter", _lower_scatter)
def _scatter(arg1: TensorView, index: TensorView, src: Any, dim: int) -> Result:
    """`arg1` with `src`, a tensor or a number, put at `index` along `dim`; of several for one place any is kept."""
    result = _gathered("scatter", arg1, index, dim)
    if isinstance(src, TensorView) and (src.ndim != arg1.ndim or src.dtype is not arg1.dtype):
        raise IRError(f"'scatter' takes a src of rank {arg1.ndim} and dtype '{arg1.dtype}', got rank {src.ndim} and '{src.dtype}'.")
    operand_argument("scatter", src)
    return result


def _lower_index_put_accumulate(low: Lowering, result: Result, acc: Value, index: Value, value: Value) -> Value:
    return low.b.scatter_slices(acc, low.b.reshape(index, (index.type.numel,)), value, 0, accumulate=True)


@register("index_put_accumulate", _lower_index_put_accumulate)
def _index_put_accumulate(acc: TensorView, index: TensorView, value: TensorView) -> Result:
    """`acc` with each row of `value` added to the row that `index`, of one number a row, names."""
    rank = tensor_argument("index_put_accumulate", acc).ndim
    index_argument("index_put_accumulate", index)
    if tensor_argument("index_put_accumulate", value).ndim != rank or value.dtype is not acc.dtype:
        raise IRError(f"'index_put_accumulate' takes a value of rank {rank} and dtype '{acc.dtype}', got rank {value.ndim} and '{value.dtype}'.")
    return tensor_result(acc.dtype, rank)
