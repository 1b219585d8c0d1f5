"""The dtype table: one row a dtype, with its names in the IR, in torch and in generated code.

Called by every stage. A dtype is a frozen row, compared by identity; `DTYPES` finds one by IR name,
`from_torch` by torch dtype.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from thunder_fuser.errors import IRError, UnsupportedError

Number = bool | int | float | complex


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type.

    `storage` is the C++ type in memory, `math` the one arithmetic is done in: 16-bit floats are widened
    to `float` for every op and rounded after it, as torch does. 8-bit floats are a kind of their own, since torch stores
    and converts them but does no arithmetic on them. `size` is in bytes.
    """

    name: str
    torch: torch.dtype
    size: int
    kind: str  # "bool" | "int" | "float" | "float8" | "complex"
    storage: str
    math: str

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return _lookup, (self.name,)

    def __deepcopy__(self, memo: object) -> DType:
        return self


def _lookup(name: str) -> DType:
    return DTYPES[name]


# fmt: off
BOOL    = DType("b8",      torch.bool,          1, "bool",    "bool",           "bool")
U8      = DType("u8",      torch.uint8,         1, "int",     "unsigned char",  "unsigned char")
I8      = DType("i8",      torch.int8,          1, "int",     "signed char",    "signed char")
I16     = DType("i16",     torch.int16,         2, "int",     "short",          "short")
I32     = DType("i32",     torch.int32,         4, "int",     "int",            "int")
I64     = DType("i64",     torch.int64,         8, "int",     "long long",      "long long")
F8_E4M3 = DType("f8_e4m3", torch.float8_e4m3fn, 1, "float8",  "tf::float8_e4m3", "float")
F8_E5M2 = DType("f8_e5m2", torch.float8_e5m2,   1, "float8",  "tf::float8_e5m2", "float")
F16     = DType("f16",     torch.float16,       2, "float",   "tf::half",       "float")
BF16    = DType("bf16",    torch.bfloat16,      2, "float",   "tf::bfloat16",   "float")
F32     = DType("f32",     torch.float32,       4, "float",   "float",          "float")
F64     = DType("f64",     torch.float64,       8, "float",   "double",         "double")
C64     = DType("c64",     torch.complex64,     8, "complex", "tf::complex64",  "tf::complex64")
C128    = DType("c128",    torch.complex128,   16, "complex", "tf::complex128", "tf::complex128")
# fmt: on

DTYPES: dict[str, DType] = {d.name: d for d in (
    BOOL, U8, I8, I16, I32, I64, F8_E4M3, F8_E5M2, F16, BF16, F32, F64, C64, C128)}
_FROM_TORCH: dict[torch.dtype, DType] = {d.torch: d for d in DTYPES.values()}


def from_torch(dtype: torch.dtype) -> DType:
    """The row for a torch dtype. Raises `UnsupportedError` for one that the engine has no row for."""
    found = _FROM_TORCH.get(dtype)
    if found is None:
        names = ", ".join(str(d.torch) for d in DTYPES.values())
        raise UnsupportedError(f"dtype '{dtype}' is not supported; supported are {names}.")
    return found


def is_supported(dtype: torch.dtype) -> bool:
    """Whether `from_torch` has a row for it."""
    return dtype in _FROM_TORCH


def real_of(dtype: DType) -> DType:
    """The dtype of a complex dtype's parts; any other dtype itself."""
    return {C64: F32, C128: F64}.get(dtype, dtype)


def complex_of(dtype: DType) -> DType:
    """The complex dtype with parts of `dtype`. Raises `IRError` for one that is neither f32 nor f64."""
    found = {F32: C64, F64: C128}.get(dtype)
    if found is None:
        raise IRError(f"There is no complex dtype of '{dtype}', expected 'f32' or 'f64'.")
    return found


def number_of(dtype: DType) -> DType:
    """The dtype of the Python numbers that hold every value of `dtype`: b8, i64, f64 or c128."""
    return {"bool": BOOL, "int": I64, "complex": C128}.get(dtype.kind, F64)


def as_number(value: Number, dtype: DType) -> Number:
    """A Python number as the same number of `dtype`'s kind: floats truncate to integers, integers wrap around as torch's
    do, anything but zero is true. Floats are not rounded to the dtype. Raises `IRError` for an integer from inf or NaN,
    and for a real number from one with an imaginary part."""
    if dtype.kind == "bool":
        return bool(value)
    if dtype.kind == "complex":
        return complex(value)
    if isinstance(value, complex):
        if value.imag != 0:
            raise IRError(f"The number {value} has no value in dtype '{dtype}', expected a real one.")
        value = value.real
    if dtype.kind in ("float", "float8"):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise IRError(f"The number {value} has no value in dtype '{dtype}', expected a finite one.")
    low = 0 if dtype is U8 else -(1 << 8 * dtype.size - 1)
    return (int(value) - low) % (1 << 8 * dtype.size) + low
