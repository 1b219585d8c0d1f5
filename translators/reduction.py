"""Reductions: one loop over the engine's table registers every row whose name is that of a prim.

The engine accumulates 16-bit floats in float32 and rounds once at the end, as torch does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.core.prims import PrimIDs
from thunder.core.proxies import TensorProxy

from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.decompositions import index_of_extremum, variance
from thunder_fuser.ir.nodes import Value
from thunder_fuser.ir.ops import REDUCTIONS, Reduction
from thunder_fuser.translators.proxies import dtype_of, why_not_static, why_not_tensor
from thunder_fuser.translators.registry import TRANSLATIONS, Translation, translates


def _register(op: Reduction, prim: PrimIDs) -> None:
    def why_not(a: Any, dims: Any, **kwargs: Any) -> str | None:
        given = ", ".join(name for name, value in kwargs.items() if value is not None)
        if given:
            return f"'{op.name}' with {given} is not supported"
        reason = why_not_tensor(a) or why_not_static(dims)
        if reason is not None:
            return reason
        if not dims and a.shape:
            return f"'{op.name}' over no dims is left to torch"
        if dtype_of(a).kind not in op.accepts:
            return f"'{op.name}' of dtype '{dtype_of(a)}' is not supported"
        return None

    def translate(b: FusionBuilder, out: TensorProxy, a: Value, dims: Sequence[int], **kwargs: None) -> Value:
        return b.reduce(op.name, a, dims if a.shape else (), name=out.name)  # torch takes dim 0 of a scalar, too

    TRANSLATIONS[prim] = Translation(translate, why_not, cheap=False)


for _op in REDUCTIONS.values():
    _prim = getattr(PrimIDs, _op.name.upper(), None)
    if _prim is not None:
        _register(_op, _prim)


def _why_not_index_of_extremum(a: Any, dim: Any) -> str | None:
    reason = why_not_tensor(a) or (None if dim is None else why_not_static(dim))
    if reason is None and dtype_of(a).kind not in ("int", "float"):
        return f"'argmax' and 'argmin' of dtype '{dtype_of(a)}' are left to torch"
    return reason


def _register_index_of_extremum(op: str, prim: PrimIDs) -> None:
    def translate(b: FusionBuilder, out: TensorProxy, a: Value, dim: int | None) -> Value:
        return index_of_extremum(b, op, a, dim, name=out.name)

    TRANSLATIONS[prim] = Translation(translate, _why_not_index_of_extremum, cheap=False)


_register_index_of_extremum("amax", PrimIDs.ARGMAX)
_register_index_of_extremum("amin", PrimIDs.ARGMIN)


def _why_not_variance(a: Any, dims: Any, *, correction: Any) -> str | None:
    reason = why_not_tensor(a) or why_not_static(dims)
    if reason is not None:
        return reason
    if not dims or not a.shape or dtype_of(a).kind not in ("float", "complex"):
        return f"a variance of dtype '{dtype_of(a)}' over dims {tuple(dims)} is left to torch"
    return None if type(correction) in (int, float) else f"the correction '{correction}' is no static number"


@translates(PrimIDs.VAR, _why_not_variance, cheap=False)
def _var(b: FusionBuilder, out: TensorProxy, a: Value, dims: Sequence[int], *, correction: float) -> Value:
    return _rounded(b, out, variance(b, a, dims, correction)[0])


@translates(PrimIDs.STD, _why_not_variance, cheap=False)
def _std(b: FusionBuilder, out: TensorProxy, a: Value, dims: Sequence[int], *, correction: float) -> Value:
    return _rounded(b, out, b.sqrt(variance(b, a, dims, correction)[0]))


def _why_not_var_mean(a: Any, dims: Any, *, correction: Any) -> str | None:
    reason = _why_not_variance(a, dims, correction=correction)
    # Thunder converts the mean to the variance's dtype.
    return reason or ("'var_mean' of complex numbers is left to torch" if dtype_of(a).kind == "complex" else None)


@translates(PrimIDs.VAR_MEAN, _why_not_var_mean, cheap=False)
def _var_mean(b: FusionBuilder, out: tuple[TensorProxy | None, ...], a: Value, dims: Sequence[int], *, correction: float) -> tuple[Value, ...]:
    made = variance(b, a, dims, correction)
    return tuple(v if p is None else _rounded(b, p, v) for p, v in zip(out, made))


def _rounded(b: FusionBuilder, out: TensorProxy, value: Value) -> Value:
    dtype = dtype_of(out)
    return value if value.dtype is dtype else b.cast(value, dtype, name=out.name)
