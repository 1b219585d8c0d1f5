"""The elementwise ops of `fd.ops`: a row for each row of the engine's op table, and nvFuser's composites.

Which dtype an op computes in follows nvFuser: most unary maths turns integers into Float and Half or BFloat16 into
Float, a few unary ops keep their operand's dtype, binary ops meet in `common_dtype`, comparisons give Bool.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from thunder_fuser.errors import IRError, UnsupportedError
from thunder_fuser.frontend.datatype import DataType
from thunder_fuser.frontend.lowering import Lowering, Operand
from thunder_fuser.frontend.promotion import HALVES, common_dtype, dtype_of
from thunder_fuser.frontend.rows import OPS, OpRow, Result, operand_argument
from thunder_fuser.frontend.values import TensorView
from thunder_fuser.ir.dtypes import BOOL
from thunder_fuser.ir.ops import POINTWISE, PointwiseOp

# Unary ops whose result has the operand's dtype, also where that is a 16-bit float or an integer.
KEEP_DTYPE = ("abs", "neg", "ceil", "floor", "round", "trunc", "frac", "sign", "bitwise_not", "relu", "silu")
# Ops that turn integers into Float though the engine's row would take them.
TO_FLOAT = ("truediv", "atan2", "reciprocal")
_NAMES = {1: ("x",), 2: ("lhs", "rhs"), 3: ("x", "y", "z")}


def _signature(names: Sequence[str]) -> inspect.Signature:
    return inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names])


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
    if dtype.kind not in row.accepts and row.out == "bool" and "float" in row.accepts:
        return DataType.Float  # isfinite and its kin of integers
    if dtype.kind not in row.accepts:
        raise UnsupportedError(f"'{name}' of dtype '{dtype}' is not supported.")
    return dtype


def _add_row(name: str, row: PointwiseOp) -> None:
    names = _NAMES[row.arity]

    def infer(**arguments: Any) -> Result:
        operands = [operand_argument(name, arguments[n]) for n in names]
        compute = compute_dtype(name, row, operands)
        return _result(DataType.Bool if row.out == "bool" else compute, operands, compute)

    def lower(lowering: Lowering, result: Result, **arguments: Any) -> Operand:
        return lowering.pointwise(row.name, result.compute.ir, *(arguments[n] for n in names))

    OPS[name] = OpRow(name, _signature(names), infer, lower)


def _add_composite(
    name: str, names: Sequence[str], dtype: Callable[..., DataType], lower: Callable[..., Operand], *,
    out: DataType | None = None, needs: Sequence[str] = (), defaults: dict[str, Any] | None = None,
) -> None:
    """An op made of table rows. `dtype(*operands)` is what it computes in, `out` what it returns if not that;
    16-bit operands of ops that keep their dtype are widened to Float inside, so that they are rounded once."""
    if name in OPS or not all(n in POINTWISE for n in needs):
        return
    defaults = defaults or {}

    def infer(**arguments: Any) -> Result:
        operands = [operand_argument(name, arguments[n]) for n in names if arguments[n] is not None]
        compute = dtype(*operands)
        return _result(out or compute, operands, compute)

    def run(lowering: Lowering, result: Result, **arguments: Any) -> Operand:
        inner = DataType.Float if result.compute in HALVES else result.compute
        made = lower(lowering, inner.ir, *(arguments[n] for n in names))
        return lowering.cast(made, result.dtype.ir)

    parameters = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=defaults.get(n, inspect.Parameter.empty))
                  for n in names]
    OPS[name] = OpRow(name, inspect.Signature(parameters), infer, run)


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


def _met(*operands: Any) -> DataType:
    return common_dtype(operands)


def _met_float(*operands: Any) -> DataType:
    return common_dtype(operands, to_float=True)


def _bool(*operands: Any) -> DataType:
    return DataType.Bool


def _sigmoid(low: Lowering, t: Any, x: Operand) -> Operand:
    grown = low.pointwise("exp", t, low.pointwise("neg", t, x))
    return low.pointwise("div", t, 1, low.pointwise("add", t, grown, 1))


def _clamp(low: Lowering, t: Any, x: Operand, low_end: Operand | None, high_end: Operand | None) -> Operand:
    """NaN stays NaN: neither comparison holds for it."""
    x = low.cast(x, t)
    if high_end is not None:
        x = low.pointwise("where", t, low.pointwise("lt", t, high_end, x), high_end, x)
    if low_end is not None:
        x = low.pointwise("where", t, low.pointwise("lt", t, x, low_end), low_end, x)
    return x


def _sign(low: Lowering, t: Any, x: Operand) -> Operand:
    negative = low.pointwise("where", t, low.pointwise("lt", t, x, 0), -1, 0)
    return low.pointwise("where", t, low.pointwise("lt", t, 0, x), 1, negative)


def _lerp(low: Lowering, t: Any, start: Operand, end: Operand, weight: Operand) -> Operand:
    return low.pointwise("add", t, start, low.pointwise("mul", t, weight, low.pointwise("sub", t, end, start)))


def _addcmul(low: Lowering, t: Any, x: Operand, y: Operand, z: Operand, value: Operand) -> Operand:
    return low.pointwise("add", t, x, low.pointwise("mul", t, y, low.pointwise("mul", t, z, value)))


def _fill_table() -> None:
    for name, row in POINTWISE.items():
        if name != "where":
            _add_row(name, row)
    OPS["where"] = OpRow("where", inspect.signature(_where), _where, _lower_where)
    if "div" in POINTWISE:  # nvFuser's `div` divides integers as C does; `truediv` makes them Float first
        _add_row("truediv", POINTWISE["div"])
    if "fmod" in POINTWISE:
        _add_row("mod", POINTWISE["fmod"])
    add, p = _add_composite, Lowering.pointwise
    add("relu", ("x",), _kept, lambda low, t, x: p(low, "where", t, p(low, "lt", t, x, 0), 0, x))
    add("sigmoid", ("x",), _met_float, _sigmoid, needs=("exp", "div"))
    add("silu", ("x",), _kept, lambda low, t, x: p(low, "mul", t, x, _sigmoid(low, t, x)), needs=("exp", "div"))
    add("frac", ("x",), _kept, lambda low, t, x: p(low, "sub", t, x, p(low, "trunc", t, x)), needs=("trunc",))
    add("sign", ("x",), _kept, _sign)
    add("reciprocal", ("x",), _met_float, lambda low, t, x: p(low, "div", t, 1, x), needs=("div",))
    add("logical_not", ("x",), _bool, lambda low, t, x: p(low, "bitwise_not", BOOL, x), needs=("bitwise_not",))
    add("logical_and", ("lhs", "rhs"), _bool, lambda low, t, x, y: p(low, "bitwise_and", BOOL, x, y), needs=("bitwise_and",))
    add("logical_or", ("lhs", "rhs"), _bool, lambda low, t, x, y: p(low, "bitwise_or", BOOL, x, y), needs=("bitwise_or",))
    add("lerp", ("start", "end", "weight"), _met_float, _lerp)
    add("addcmul", ("x", "y", "z", "value"), lambda x, y, z, value: common_dtype((x, y, z)), _addcmul)
    add("clamp", ("x", "min", "max"), _kept, _clamp, defaults={"min": None, "max": None})
    add("threshold", ("x", "threshold", "value"), _kept,
        lambda low, t, x, limit, value: p(low, "where", t, p(low, "le", t, x, limit), value, x), needs=("le",))


_fill_table()
