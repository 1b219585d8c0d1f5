"""The ops of `fd.ops` that torch runs between fusions: matrix products, attention, sorts.

The decorated function says what the result is before sizes are known, as in `views`; the function given to the decorator
is what runs. It is also called with tensors without data (device meta), for the shapes of its results.
"""

from __future__ import annotations

from typing import Any

import torch

from thunder_fuser.errors import IRError, UnsupportedError
from thunder_fuser.frontend.datatype import DataType
from thunder_fuser.frontend.rows import Result, dims_argument, register_call, sizes_argument, tensor_argument, tensor_result
from thunder_fuser.frontend.values import Scalar, TensorView
from thunder_fuser.runtime.generator import draw

# seeds


def draw_seed(device: torch.device) -> tuple[int, int]:
    """A seed and an offset of torch's generator, for random ops without their own. Raises `UnsupportedError` while a CUDA graph
    is captured, since all replays would have the same ones."""
    seed, offset = draw(device)
    if isinstance(seed, torch.Tensor) or isinstance(offset, torch.Tensor):
        raise UnsupportedError("No seed can be drawn while a CUDA graph is captured: give the random op rng_seed and rng_offset, "
                               "as 0-dim tensors if replays shall differ.")
    return seed, offset


# matrix products


def _one_dtype(op: str, *tensors: TensorView | None) -> DataType:
    dtypes = {tensor_argument(op, t).dtype for t in tensors if t is not None}
    if len(dtypes) != 1:
        raise IRError(f"'{op}' takes tensors of one dtype, got {' and '.join(sorted(map(str, dtypes)))}: cast them first.")
    return dtypes.pop()


def _product_rank(op: str, left: int, right: int) -> int:
    if not left or not right:
        raise IRError(f"'{op}' takes tensors of at least one dim, got ranks {left} and {right}.")
    return max(left, right) if left > 1 and right > 1 else max(left, right) - 1


@register_call("matmul", torch.matmul)
def _matmul(arg1: TensorView, arg2: TensorView) -> Result:
    """`torch.matmul`: batches broadcast, tensors of one dim are vectors."""
    dtype = _one_dtype("matmul", arg1, arg2)
    return tensor_result(dtype, _product_rank("matmul", arg1.ndim, arg2.ndim))


@register_call("linear", torch.nn.functional.linear)
def _linear(arg1: TensorView, arg2: TensorView, bias: TensorView | None = None) -> Result:
    """`arg1` times the transpose of `arg2` (a matrix, or a vector), plus `bias`."""
    dtype = _one_dtype("linear", arg1, arg2, bias)
    if arg2.ndim not in (1, 2):
        raise IRError(f"'linear' takes a weight of one or two dims, got {arg2.ndim}.")
    return tensor_result(dtype, _product_rank("linear", arg1.ndim, arg2.ndim))


@register_call("grouped_mm", lambda mat1, mat2, offsets, *_: torch._grouped_mm(mat1, mat2, offsets))
def _grouped_mm(
    mat1: TensorView, mat2: TensorView, offsets: TensorView, scale1: Any = None, scale2: Any = None, alpha: Any = None,
    bias: Any = None, beta: Any = None, dtype: Any = None,
) -> Result:
    """A matrix product a group; `offsets` are the ends of the groups along the dim that is grouped."""
    if any(a is not None for a in (scale1, scale2, alpha, bias, beta, dtype)):
        raise UnsupportedError("'grouped_mm' with scales, alpha, bias, beta or dtype is not supported: apply them to its result or operands.")
    made = _one_dtype("grouped_mm", mat1, mat2)
    tensor_argument("grouped_mm", offsets)
    if {mat1.ndim, mat2.ndim} - {2, 3}:
        raise IRError(f"'grouped_mm' takes matrices of two or three dims, got ranks {mat1.ndim} and {mat2.ndim}.")
    return tensor_result(made, 2 if mat1.ndim != mat2.ndim else 3)


# attention


def _sdpfa_fwd(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: Any, is_causal: Any, scale: Any) -> tuple[torch.Tensor, ...]:
    """Output, log of the sums of exponentials, seed and offset of the dropout's random numbers."""
    p, causal = 0.0 if dropout_p is None else dropout_p, bool(is_causal)
    if query.device.type == "cuda":
        made = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, p, causal, False, scale=scale)
        return made[0], made[1], made[6], made[7]
    seed, offset = (query.new_zeros(shape, dtype=torch.uint64) for shape in ((2,), ()))
    if query.device.type == "meta":
        output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale)
        return output, query.new_empty(query.shape[:-1], dtype=torch.float32), seed, offset
    if p:
        raise UnsupportedError(f"'sdpfa_fwd' with dropout_p={p} is not supported on the CPU: drop out with 'uniform' and 'where'.")
    output, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal, scale=scale)
    return output, sums, seed, offset


def _sdpfa_bwd(
    grad_output: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, output: torch.Tensor,
    log_sumexp: torch.Tensor, dropout_p: Any, is_causal: Any, philox_seed: torch.Tensor, philox_offset: torch.Tensor, scale: Any,
) -> tuple[torch.Tensor, ...]:
    """Gradients of query, key and value."""
    p, causal = 0.0 if dropout_p is None else dropout_p, bool(is_causal)
    if query.device.type == "meta":
        return tuple(map(torch.empty_like, (query, key, value)))
    if query.device.type == "cuda":
        return torch.ops.aten._scaled_dot_product_flash_attention_backward(
            grad_output, query, key, value, output, log_sumexp, None, None, query.shape[2], key.shape[2], p, causal,
            philox_seed, philox_offset, scale=scale)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_output, query, key, value, output, log_sumexp, p, causal, scale=scale)


def _attention_dtype(op: str, *tensors: TensorView) -> DataType:
    dtype = _one_dtype(op, *tensors)
    for t in tensors:
        if t.ndim != 4:
            raise IRError(f"'{op}' takes tensors of four dims (batch, heads, tokens, size), got {t.ndim}.")
    return dtype


@register_call("sdpfa_fwd", _sdpfa_fwd, static=("dropout_p", "is_causal", "scale"))
def _sdpfa_forward(
    query: TensorView, key: TensorView, value: TensorView, dropout_p: Any = None, is_causal: Any = None, scale: Any = None,
) -> tuple[Result, ...]:
    """Flash attention: output, log of the sums of exponentials, seed and offset for `sdpfa_bwd`."""
    dtype = _attention_dtype("sdpfa_fwd", query, key, value)
    return (tensor_result(dtype, 4), tensor_result(DataType.Float, 3), tensor_result(DataType.UInt64, 1),
            tensor_result(DataType.UInt64, 0))


@register_call("sdpfa_bwd", _sdpfa_bwd, static=("dropout_p", "is_causal", "scale"))
def _sdpfa_backward(
    grad_output: TensorView, query: TensorView, key: TensorView, value: TensorView, output: TensorView, log_sumexp: TensorView,
    dropout_p: Any, is_causal: Any, philox_seed: TensorView, philox_offset: TensorView, scale: Any = None,
) -> tuple[Result, ...]:
    """The gradients of `sdpfa_fwd`: of query, key and value."""
    dtype = _attention_dtype("sdpfa_bwd", grad_output, query, key, value, output)
    for t in (log_sumexp, philox_seed, philox_offset):
        tensor_argument("sdpfa_bwd", t)
    return (tensor_result(dtype, 4),) * 3


# sorts


def _along(op: str, arg: TensorView, dim: int) -> int:
    rank = tensor_argument(op, arg).ndim
    dims_argument(op, "dim", [dim], rank)
    return rank


@register_call("argsort", lambda arg, dim, descending, stable: torch.argsort(arg, dim=dim, descending=descending, stable=stable))
def _argsort(arg: TensorView, dim: int = -1, descending: bool = False, stable: bool = False) -> Result:
    """The positions along `dim` in the order of their values."""
    return tensor_result(DataType.Int, _along("argsort", arg, dim))


@register_call("sort", lambda arg, dim, descending, stable: tuple(torch.sort(arg, dim=dim, descending=descending, stable=stable)))
def _sort(arg: TensorView, dim: int = -1, descending: bool = False, stable: bool = False) -> tuple[Result, ...]:
    """Values in order along `dim`, and their positions."""
    rank = _along("sort", arg, dim)
    return tensor_result(arg.dtype, rank), tensor_result(DataType.Int, rank)


@register_call("topk", lambda arg, k, dim, largest, ordered: tuple(torch.topk(arg, k, dim, largest, ordered)), static=("k",))
def _topk(arg: TensorView, k: Scalar | int, dim: int = -1, largest: bool = True, sorted: bool = False) -> tuple[Result, ...]:
    """The k largest (or smallest) values along `dim`, and their positions."""
    sizes_argument("topk", "k", [k])
    rank = _along("topk", arg, dim)
    return tensor_result(arg.dtype, rank), tensor_result(DataType.Int, rank)
