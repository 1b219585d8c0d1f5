"""The elementwise ops of `fd.ops`: a row for each row of the engine's op table, and nvFuser's composites.

Which dtype an op computes in follows nvFuser: most unary maths turns integers into Float and Half or BFloat16 into
Float, a few unary ops keep their operand's dtype, binary ops meet in `common_dtype`, comparisons give Bool.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from thunder_fuser.errors import IRError, UnsupportedError
from thunder_fuser.frontend.datatype import DataType, from_torch
from thunder_fuser.frontend.lowering import Lowering, Operand
from thunder_fuser.frontend.promotion import HALVES, common_dtype, dtype_of
from thunder_fuser.frontend.rows import OPS, OpRow, Result, operand_argument
from thunder_fuser.frontend.values import TensorView
from thunder_fuser.ir.dtypes import BOOL, DType, real_of
from thunder_fuser.ir.ops import POINTWISE, PointwiseOp

# Unary ops whose result has the operand's dtype, also where that is a 16-bit float or an integer.
KEEP_DTYPE = ("abs", "neg", "ceil", "floor", "round", "trunc", "frac", "sign", "bitwise_not", "relu", "silu")
# Ops that turn integers into Float though the engine's row would take them.
TO_FLOAT = ("truediv", "atan2", "lerp")
_NAMES = {1: ("x",), 2: ("lhs", "rhs"), 3: ("start", "end", "weight")}


def _signature(names: Sequence[str], defaults: Mapping[str, Any] = MappingProxyType({})) -> inspect.Signature:
    kind, none = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    return inspect.Signature([inspect.Parameter(n, kind, default=defaults.get(n, none)) for n in names])


def _result(dtype: DataType, operands: Sequence[Any], compute: DataType) -> Result:
    """A tensor if an operand is one, of the highest rank among them, else a scalar."""
    ranks = [o.ndim for o in operands if isinstance(o, TensorView)]
    if ranks:
        return Result("tensor", dtype, max(ranks), compute)
    return Result("scalar", dtype, 0, compute)


def compute_dtype(name: str, row: PointwiseOp, operands: Sequence[Any]) -> DataType:
    """The dtype that op `name` computes in. Raises `UnsupportedError` if the engine has no kernel for it."""
    if row.arity == 1 and (name in KEEP_DTYPE or row.out == "bool"):
        dtype = dtype_of(operands[0])
    else:
        dtype = common_dtype(operands, to_float=name in TO_FLOAT or (row.arity == 1 and "int" not in row.accepts))
    if not row.takes(dtype.ir) and row.out == "bool" and row.takes(DataType.Float.ir):
        return DataType.Float  # isfinite and its kin of integers
    if not row.takes(dtype.ir):
        raise UnsupportedError(f"'{name}' of dtype '{dtype}' is not supported.")
    return dtype


def _add_row(name: str, row: PointwiseOp) -> None:
    names = _NAMES[row.arity]

    def infer(**arguments: Any) -> Result:
        operands = [operand_argument(name, arguments[n]) for n in names]
        compute = compute_dtype(name, row, operands)
        return _result(compute if row.out == "same" else from_torch(row.result(compute.ir).torch), operands, compute)

    def lower(lowering: Lowering, result: Result, **arguments: Any) -> Operand:
        return lowering.pointwise(row.name, result.compute.ir, *(arguments[n] for n in names))

    OPS[name] = OpRow(name, _signature(names), infer, lower)


def _add_composite(
    name: str, names: Sequence[str], dtype: Callable[..., DataType], lower: Callable[..., Operand], *,
    defaults: dict[str, Any] | None = None,
) -> None:
    """An op made of table rows, which computes in, and returns, `dtype(*operands)`. 16-bit operands of ops that keep
    their dtype are widened to Float inside, so that they are rounded once."""
    defaults = defaults or {}

    def infer(**arguments: Any) -> Result:
        operands = [operand_argument(name, arguments[n]) for n in names if arguments[n] is not None]
        compute = dtype(*operands)
        return _result(compute, operands, compute)

    def run(lowering: Lowering, result: Result, **arguments: Any) -> Operand:
        inner = DataType.Float if result.compute in HALVES else result.compute
        made = lower(lowering, inner.ir, *(arguments[n] for n in names))
        return lowering.cast(made, result.dtype.ir)

    OPS[name] = OpRow(name, _signature(names, defaults), infer, run)


def _where(condition: Any, x: Any, y: Any) -> Result:
    """Rows of `x` where `condition`, else of `y`; Half and BFloat16 are kept."""
    operands = [operand_argument("where", o) for o in (condition, x, y)]
    if dtype_of(condition) is not DataType.Bool:
        raise IRError(f"'where' takes a condition of dtype '{DataType.Bool}', got '{dtype_of(condition)}'.")
    compute = common_dtype((x, y), keep_half=True)
    return _result(compute, operands, compute)


def _lower_where(lowering: Lowering, result: Result, condition: Operand, x: Operand, y: Operand) -> Operand:
    return lowering.pointwise("where", result.compute.ir, condition, x, y)


def _kept(*operands: Any) -> DataType:
    return dtype_of(operands[0])


def _clamp(low: Lowering, t: DType, x: Operand, low_end: Operand | None, high_end: Operand | None) -> Operand:
    """NaN stays NaN: neither comparison holds for it."""
    x = low.cast(x, t)
    if high_end is not None:
        x = low.pointwise("where", t, low.pointwise("lt", t, high_end, x), high_end, x)
    if low_end is not None:
        x = low.pointwise("where", t, low.pointwise("lt", t, x, low_end), low_end, x)
    return x


def _addcmul(low: Lowering, t: DType, x: Operand, y: Operand, z: Operand, value: Operand) -> Operand:
    return low.pointwise("add", t, x, low.pointwise("mul", t, y, low.pointwise("mul", t, z, value)))


def _threshold(low: Lowering, t: DType, x: Operand, limit: Operand, value: Operand) -> Operand:
    return low.pointwise("where", t, low.pointwise("le", t, x, limit), value, x)


def _logical_right_shift(low: Lowering, t: DType, x: Operand, shift: Operand) -> Operand:
    """Zeros come in from the left, all of them for a shift by less than nothing or more than all bits."""
    bits = 8 * t.size
    by = low.pointwise("where", t, low.pointwise("lt", t, shift, 0), bits, low.pointwise("minimum", t, shift, bits))
    kept = low.pointwise("sub", t, low.pointwise("bitwise_left_shift", t, 1, low.pointwise("sub", t, bits, by)), 1)
    return low.pointwise("bitwise_and", t, low.pointwise("bitwise_right_shift", t, x, by), kept)


def _integers(*operands: Any) -> DataType:
    dtype = common_dtype(operands)
    if dtype.kind != "int":
        raise UnsupportedError(f"'logical_right_shift' of dtype '{dtype}' is not supported, only of integers.")
    return dtype


def _isreal(x: Any) -> Result:
    """Whether the imaginary part is zero: so for all that are not complex."""
    return _result(DataType.Bool, [operand_argument("isreal", x)], dtype_of(x))


def _lower_isreal(low: Lowering, result: Result, x: Operand) -> Operand:
    t = result.compute.ir
    if t.kind == "complex":
        return low.pointwise("eq", real_of(t), low.pointwise("imag", t, x), 0)
    return low.b.full(x.shape, True, BOOL) if result.kind == "tensor" else True


def _fill_table() -> None:
    for name, row in POINTWISE.items():
        if name != "where":
            _add_row(name, row)
    OPS["isreal"] = OpRow("isreal", inspect.signature(_isreal), _isreal, _lower_isreal)
    OPS["where"] = OpRow("where", inspect.signature(_where), _where, _lower_where)
    _add_row("truediv", POINTWISE["div"])  # `div` divides integers as C does, `truediv` makes them Float first
    _add_row("mod", POINTWISE["fmod"])
    _add_composite("addcmul", ("x", "y", "z", "value"), lambda x, y, z, value: common_dtype((x, y, z)), _addcmul)
    _add_composite("clamp", ("x", "min", "max"), _kept, _clamp, defaults={"min": None, "max": None})
    _add_composite("logical_right_shift", ("lhs", "rhs"), _integers, _logical_right_shift)
    _add_composite("threshold", ("x", "threshold", "value"), _kept, _threshold)


_fill_table()
