"""The random ops of `fd.ops`: numbers that belong to the elements of their own shape, by seed, offset and position alone.

Written as in `views`. Where a definition gives no seed, each call draws one from torch's generator of its device, so that
`torch.manual_seed` decides, and the call is listed among those that torch runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from thunder_fuser.errors import IRError
from thunder_fuser.frontend.datatype import DataType
from thunder_fuser.frontend.lowering import Lowering, Operand
from thunder_fuser.frontend.rows import Result, dtype_argument, operand_argument, register, sizes_argument, tensor_argument, tensor_result
from thunder_fuser.frontend.values import TensorView
from thunder_fuser.ir.dtypes import F64, I64
from thunder_fuser.ir.nodes import Value


def _numbers(low: Lowering, result: Result, kind: str, shape: Sequence[int], bounds: Sequence[Operand], seed: Any, offset: Any) -> Value:
    seed, offset = (low.cast(n, I64) for n in ((seed, offset) if seed is not None else low.drawn()))
    return low.b.random(kind, shape, result.dtype.ir, seed, offset, *(low.cast(b, F64) for b in bounds))


def _result(op: str, shape: Any, bounds: Sequence[Any], dtype: Any, seed: Any, offset: Any) -> Result:
    for bound in bounds:
        if isinstance(operand_argument(op, bound), TensorView):
            raise IRError(f"'{op}' takes numbers or Scalars for its range, got '{bound!r}'.")
    if (seed is None) != (offset is None):
        raise IRError(f"'{op}' takes rng_seed and rng_offset together or neither.")
    for name, value in (("rng_seed", seed), ("rng_offset", offset)):
        if value is None:
            continue
        kind = (DataType.Bool if isinstance(value, bool) else DataType.Int if isinstance(value, int) else getattr(value, "dtype", DataType.Double)).kind
        if kind != "int" or getattr(value, "ndim", 0):
            raise IRError(f"'{op}' takes an integer, or a Scalar or 0-dim tensor of integers, as {name}, got '{value!r}'.")
    if dtype_argument(op, dtype).kind != "float":
        raise IRError(f"'{op}' makes floating dtypes, got '{dtype}'.")
    return tensor_result(dtype, len(sizes_argument(op, "shape", shape)))


def _lower_uniform(low: Lowering, result: Result, minval: Operand, maxval: Operand, shape: Sequence[int], rng_seed: Any, rng_offset: Any, dtype: Any) -> Value:
    return _numbers(low, result, "uniform", shape, (minval, maxval), rng_seed, rng_offset)


@register("uniform", _lower_uniform, static=("shape",))
def _uniform(minval: Any, maxval: Any, shape: Any, *, rng_seed: Any = None, rng_offset: Any = None, dtype: DataType = DataType.Float) -> Result:
    """Uniform numbers in [minval, maxval)."""
    return _result("uniform", shape, (minval, maxval), dtype, rng_seed, rng_offset)


def _lower_normal(low: Lowering, result: Result, mean: Operand, std: Operand, shape: Sequence[int], rng_seed: Any, rng_offset: Any, dtype: Any) -> Value:
    return _numbers(low, result, "normal", shape, (mean, std), rng_seed, rng_offset)


@register("normal", _lower_normal, static=("shape",))
def _normal(mean: Any, std: Any, shape: Any, *, rng_seed: Any = None, rng_offset: Any = None, dtype: DataType = DataType.Float) -> Result:
    """Normal numbers of a mean and a standard deviation."""
    return _result("normal", shape, (mean, std), dtype, rng_seed, rng_offset)


def _lower_like(kind: str) -> Callable[..., Value]:
    return lambda low, result, arg: _numbers(low, result, kind, arg.shape, (0.0, 1.0), None, None)


def _like(op: str, arg: TensorView) -> Result:
    if tensor_argument(op, arg).dtype.kind != "float":
        raise IRError(f"'{op}' takes a tensor of a floating dtype, got '{arg.dtype}'.")
    return tensor_result(arg.dtype, arg.ndim)


@register("rand_like", _lower_like("uniform"))
def _rand_like(arg: TensorView) -> Result:
    """Uniform numbers in [0, 1) of the shape and dtype of `arg`."""
    return _like("rand_like", arg)


@register("randn_like", _lower_like("normal"))
def _randn_like(arg: TensorView) -> Result:
    """Normal numbers, of mean 0 and deviation 1, of the shape and dtype of `arg`."""
    return _like("randn_like", arg)
