"""Pointwise prims, casts and the prims that make tensors out of numbers.

One loop over the engine's op table registers every row whose name is that of a prim; adding a row there is enough.
"""

from __future__ import annotations

from typing import Any

from thunder.core.dtypes import to_torch_dtype
from thunder.core.prims import PrimIDs
from thunder.core.proxies import TensorProxy

from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BOOL, from_torch
from thunder_fuser.ir.nodes import Operand, TensorType, Value
from thunder_fuser.ir.ops import POINTWISE, PointwiseOp
from thunder_fuser.translators.proxies import dtype_of, is_cpu_scalar, why_not_dtype, why_not_number, why_not_static, why_not_tensor
from thunder_fuser.translators.registry import TRANSLATIONS, Translation, translates

# Rows whose prim has another name.
RENAMED: dict[str, str] = {}


def _why_not_operands(op: PointwiseOp, args: tuple[Any, ...]) -> str | None:
    """Operands must be tensors of one shape and dtype, on which the op is defined, or numbers. To Thunder a rank-0 tensor on
    the CPU is a number too, of any shape."""
    tensors = [a for a in args if isinstance(a, TensorProxy)]
    if not tensors:
        return f"'{op.name}' of numbers alone makes no tensor"
    for arg in args:
        reason = why_not_tensor(arg) if isinstance(arg, TensorProxy) else why_not_number(arg)
        if reason is not None:
            return reason
    if len({t.shape for t in tensors if not is_cpu_scalar(t)}) > 1:
        return f"the operands of '{op.name}' have different shapes"
    typed = {dtype_of(a) for a in (args[1:] if op.name == "where" else args) if isinstance(a, TensorProxy)}
    if len(typed) > 1:
        return f"the operands of '{op.name}' have different dtypes"
    for dtype in typed:
        if not op.takes(dtype):
            return f"'{op.name}' of dtype '{dtype}' is not supported"
    return None


def _register(op: PointwiseOp, prim: PrimIDs) -> None:
    def why_not(*args: Any, **kwargs: Any) -> str | None:
        if len(args) != op.arity or kwargs:
            return f"'{op.name}' takes {op.arity} operands and nothing else"
        return _why_not_operands(op, args)

    def translate(b: FusionBuilder, out: TensorProxy, *args: Operand) -> Value:
        return b.pointwise(op.name, *(_spread(b, a, tuple(out.shape)) for a in args), name=out.name)

    TRANSLATIONS[prim] = Translation(translate, why_not, takes_cpu_scalars=True)


def _spread(b: FusionBuilder, arg: Operand, shape: tuple[int, ...]) -> Operand:
    """A rank-0 tensor among larger ones in their shape."""
    is_scalar = isinstance(arg, Value) and isinstance(arg.type, TensorType) and not arg.shape
    return b.broadcast(arg, shape, ()) if is_scalar and shape else arg


for _op in POINTWISE.values():
    _prim = getattr(PrimIDs, RENAMED.get(_op.name, _op.name).upper(), None)
    if _prim is not None:
        _register(_op, _prim)


_where_of_tensors = TRANSLATIONS[PrimIDs.WHERE]


def _where(b: FusionBuilder, out: TensorProxy, condition: Operand, x: Operand, y: Operand) -> Value:
    """Between two numbers Thunder's result has a dtype of its own, which a tensor of the first number states."""
    if not isinstance(x, Value) and not isinstance(y, Value):
        x = b.full(out.shape, x, dtype_of(out))
    return _where_of_tensors.translate(b, out, condition, x, y)


TRANSLATIONS[PrimIDs.WHERE] = Translation(_where, _where_of_tensors.why_not, takes_cpu_scalars=True)


_pow_of_operands = TRANSLATIONS[PrimIDs.POW]


def _pow(b: FusionBuilder, out: TensorProxy, base: Operand, exponent: Operand) -> Value:
    """Torch takes a root where a float's exponent is the number 0.5 or -0.5: of -inf it is NaN, of -0 it keeps the sign."""
    root = {0.5: "sqrt", -0.5: "rsqrt"}.get(exponent) if isinstance(exponent, float) else None
    if root is not None and isinstance(base, Value) and base.dtype.kind == "float":
        return b.pointwise(root, base, name=out.name)
    return _pow_of_operands.translate(b, out, base, exponent)


TRANSLATIONS[PrimIDs.POW] = Translation(_pow, _pow_of_operands.why_not, takes_cpu_scalars=True)


def _why_not_cast(a: Any, dtype: Any) -> str | None:
    return why_not_tensor(a) or why_not_dtype(dtype)


@translates(PrimIDs.CONVERT_ELEMENT_TYPE, _why_not_cast)
def _cast(b: FusionBuilder, out: TensorProxy, a: Value, dtype: Any) -> Value:
    return b.cast(a, dtype_of(out), name=out.name)


def _why_not_bitcast(src: Any, dtype: Any) -> str | None:
    reason = why_not_tensor(src) or why_not_dtype(dtype)
    if reason is not None:
        return reason
    wanted = from_torch(to_torch_dtype(dtype))
    if wanted.size != dtype_of(src).size or wanted is BOOL:
        return f"'bitcast' of dtype '{dtype_of(src)}' to '{wanted}' is left to torch"
    return None


@translates(PrimIDs.BITCAST, _why_not_bitcast)
def _bitcast(b: FusionBuilder, out: TensorProxy, src: Value, dtype: Any) -> Value:
    return b.bitcast(src, dtype_of(out), name=out.name)


def _why_not_full(shape: Any, fill_value: Any, *, device: Any, dtype: Any) -> str | None:
    return why_not_static(shape) or why_not_number(fill_value) or why_not_dtype(dtype)


@translates(PrimIDs.FULL, _why_not_full)
def _full(b: FusionBuilder, out: TensorProxy, shape: Any, fill_value: Operand, *, device: Any, dtype: Any) -> Value:
    return b.full(shape, fill_value, dtype_of(out), name=out.name)


def _why_not_iota(length: Any, *, start: Any, step: Any, device: Any, dtype: Any) -> str | None:
    reason = why_not_static(length) or why_not_number(start) or why_not_number(step) or why_not_dtype(dtype)
    # Thunder gives an empty iota the shape of a scalar.
    return reason or ("an empty 'iota' is left to torch" if length == 0 else None)


@translates(PrimIDs.IOTA, _why_not_iota)
def _iota(b: FusionBuilder, out: TensorProxy, length: int, *, start: Operand, step: Operand, device: Any, dtype: Any) -> Value:
    return b.iota(length, dtype_of(out), start, step, name=out.name)
