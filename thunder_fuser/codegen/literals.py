"""How a number is spelled in generated C++: exactly, and in the arithmetic type of its dtype.

Called by the emitter for each `Constant`, pad value and reduction identity.
"""

from __future__ import annotations

import ctypes
import math

from thunder_fuser.ir.dtypes import DType, Number, as_number, real_of


def cuda_literal(value: Number, dtype: DType) -> str:
    """A C++ expression of type `dtype.math` that is `value` once converted to `dtype` (a float of 16 or 8 bits
    keeps float's precision: torch rounds no literal to 16 bits). Safe next to any operator: negative ones are in parentheses."""
    value = as_number(value, dtype)
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.kind == "complex":
        part = real_of(dtype)
        return f"{dtype.math}({_float(value.real, part)}, {_float(value.imag, part)})"
    return _integer(value, dtype) if dtype.kind == "int" else _float(value, dtype)


def _integer(value: int, dtype: DType) -> str:
    suffix = "LL" if dtype.size == 8 else ""
    if dtype.size >= 4 and value == -(1 << 8 * dtype.size - 1):
        return f"({value + 1}{suffix} - 1)"  # there are no negative literals, and its magnitude alone is no int
    text = f"({value}{suffix})" if value < 0 else f"{value}{suffix}"
    return text if dtype.size >= 4 else f"({dtype.math}){text}"


def _float(value: float, dtype: DType) -> str:
    single = dtype.math == "float"
    value = ctypes.c_float(value).value if single else value
    sign = math.copysign(1.0, value) < 0
    if math.isnan(value):
        return f"tf::nan<{dtype.math}>()"
    if math.isinf(value):
        text = f"tf::infinity<{dtype.math}>()"
    else:
        text = (_shortest_single(abs(value)) + "f") if single else repr(abs(value))
    return f"(-{text})" if sign else text


def _shortest_single(value: float) -> str:
    """The shortest decimal that reads back as the same float32."""
    text = next(t for digits in range(1, 10) if ctypes.c_float(float(t := f"{value:.{digits}g}")).value == value)
    return text if "e" in text or "." in text else text + ".0"
