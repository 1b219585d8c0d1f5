"""`var`, `var_mean` and `welford` of `fd.ops`, made of two sums each.

Written as in `views`: a decorated function that says what the result is, and a `_lower` function that emits the IR.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from thunder_fuser.errors import IRError, UnsupportedError
from thunder_fuser.frontend.datatype import DataType, from_torch
from thunder_fuser.frontend.lowering import Lowering
from thunder_fuser.frontend.rows import Result, dims_argument, register, tensor_argument, tensor_result
from thunder_fuser.frontend.values import TensorView
from thunder_fuser.ir.decompositions import squared_deviations, variance
from thunder_fuser.ir.dtypes import real_of
from thunder_fuser.ir.nodes import Value


def _lower_variance(low: Lowering, result: tuple[Result, ...], arg: Value, dims: Any, correction: Any, keepdim: bool) -> tuple[Value, ...]:
    made = variance(low.b, arg, list(dims), correction, keepdim=keepdim)
    return tuple(low.cast(v, r.dtype.ir) for v, r in zip(made, result))


def _variance_results(op: str, arg: Any, dims: Any, correction: Any, keepdim: bool) -> tuple[Result, Result]:
    """Of a variance, real, and of a mean."""
    over = dims_argument(op, "dims", dims, tensor_argument(op, arg).ndim)
    if arg.dtype.kind not in ("float", "complex"):
        raise UnsupportedError(f"'{op}' of dtype '{arg.dtype}' is not supported: cast it to a float first.")
    if isinstance(correction, bool) or not isinstance(correction, (int, float)):
        raise IRError(f"'{op}' takes a number as correction, got '{correction!r}'.")
    rank = arg.ndim if keepdim else arg.ndim - len(over)
    return tensor_result(from_torch(real_of(arg.dtype.ir).torch), rank), tensor_result(arg.dtype, rank)


@register("var_mean", _lower_variance)
def _var_mean(arg: TensorView, dims: Any, correction: float = 1, keepdim: bool = False) -> tuple[Result, Result]:
    """The variance over `dims`, its sum of squares divided by their number less `correction`, and the mean."""
    return _variance_results("var_mean", arg, dims, correction, keepdim)


@register("var", lambda low, result, *args, **kwargs: _lower_variance(low, (result,), *args, **kwargs)[0])
def _var(arg: TensorView, dims: Any, correction: float = 1, keepdim: bool = False) -> Result:
    """The variance over `dims`."""
    return _variance_results("var", arg, dims, correction, keepdim)[0]


def _lower_welford(low: Lowering, result: tuple[Result, ...], arg: Value, dims: Sequence[int]) -> tuple[Value, ...]:
    total, mean = squared_deviations(low.b, arg, list(dims))
    count = math.prod(arg.shape[d] for d in {d % len(arg.shape) for d in dims})
    made = mean, total, low.b.full(mean.shape, count, result[2].dtype.ir)
    return tuple(low.cast(v, r.dtype.ir) for v, r in zip(made, result))


@register("welford", _lower_welford)
def _welford(arg: TensorView, dims: Any) -> tuple[Result, ...]:
    """The mean over `dims`, the sum of squared deviations from it, and their number."""
    total, mean = _variance_results("welford", arg, dims, 0, False)
    return mean, total, tensor_result(DataType.Int, mean.extent)
