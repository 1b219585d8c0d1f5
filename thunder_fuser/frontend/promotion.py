"""nvFuser's type promotion: which dtype an op computes in, from the dtypes of its operands.

Called when an op is recorded. The rules are torch's three tiers (tensors with dims, tensors without, numbers: a lower
tier matters only if it is of a higher category), with two differences that nvFuser's users know: a Python float or
a `Double` scalar stands for float64, so an integer tensor plus 0.5 is Double, and Half or BFloat16 operands are
computed, and returned, as Float unless the op keeps its operand's dtype.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from thunder_fuser.errors import UnsupportedError
from thunder_fuser.frontend.datatype import DataType, from_torch, of_number
from thunder_fuser.frontend.values import Number, Scalar, TensorView

HALVES = (DataType.Half, DataType.BFloat16)


def dtype_of(operand: TensorView | Scalar | Number) -> DataType:
    """The declared dtype of a symbol, or the one a Python number has."""
    return operand.dtype if isinstance(operand, (TensorView, Scalar)) else of_number(operand)


def common_dtype(
    operands: Iterable[TensorView | Scalar | Number], *, to_float: bool = False, keep_half: bool = False
) -> DataType:
    """The dtype that `operands` meet in. `to_float` turns Bool and integers into Float (exp, truediv);
    `keep_half` leaves Half and BFloat16 as they are (where, cat)."""
    operands = list(operands)
    distinct = {dtype_of(o) for o in operands}
    common = distinct.pop() if len(distinct) == 1 else _combine(operands)
    if to_float and common.kind in ("bool", "int"):
        common = DataType.Float
    return DataType.Float if common in HALVES and not keep_half else common


def _combine(operands: list[TensorView | Scalar | Number]) -> DataType:
    tiers: list[torch.dtype | None] = [None, None, None]
    for operand in operands:
        dtype, tier = dtype_of(operand), 2
        if isinstance(operand, TensorView):
            tier = 0 if operand.ndim else 1
        elif dtype in HALVES:
            dtype = DataType.Float
        if dtype.kind == "float8":
            raise UnsupportedError(f"dtype '{dtype}' meets no other dtype by itself: cast it first.")
        tiers[tier] = _promote(tiers[tier], dtype.ir.torch)
    return from_torch(_higher(_higher(tiers[0], tiers[1]), tiers[2]))


_CATEGORIES = {"bool": 0, "int": 1, "float": 2, "complex": 3}


def _category(dtype: torch.dtype) -> int:
    return _CATEGORIES[from_torch(dtype).kind]


def _promote(a: torch.dtype | None, b: torch.dtype | None) -> torch.dtype | None:
    if a is None or b is None:
        return a or b
    return torch.promote_types(a, b)


def _higher(strong: torch.dtype | None, weak: torch.dtype | None) -> torch.dtype | None:
    """The strong tier's dtype, unless the weak one is of a higher category (bool < integer < float < complex)."""
    if strong is None or weak is None:
        return strong or weak
    if _category(weak) <= _category(strong):
        return strong
    if weak.is_complex and strong.is_floating_point:  # a complex number leaves floats their precision
        return torch.complex128 if strong is torch.float64 else torch.complex64
    return _promote(strong, weak)
