"""`DataType`: nvFuser's names of element types, and the engine's dtypes behind them.

Called by every module of the front end; users pass members to `define_tensor`, `define_scalar`, `cast`, `full`.
"""

from __future__ import annotations

import enum

import torch

from thunder_fuser.errors import UnsupportedError
from thunder_fuser.ir import dtypes as ir


class DataType(enum.Enum):
    """Element types under nvFuser's names. Some can be named, not used: `ir` says which."""

    Double = "Double"
    Float = "Float"
    Half = "Half"
    BFloat16 = "BFloat16"
    Int = "Int"
    Int32 = "Int32"
    Short = "Short"
    Char = "Char"
    Byte = "Byte"
    UInt64 = "UInt64"
    Index = "Index"
    Bool = "Bool"
    ComplexFloat = "ComplexFloat"
    ComplexDouble = "ComplexDouble"
    Float8_e4m3fn = "Float8_e4m3fn"
    Float8_e5m2 = "Float8_e5m2"
    Float8_e8m0fnu = "Float8_e8m0fnu"
    Float4_e2m1fn = "Float4_e2m1fn"
    Float4_e2m1fn_x2 = "Float4_e2m1fn_x2"
    Null = "Null"

    def __call__(self) -> DataType:
        """Itself: in nvFuser a tensor's `dtype` has been an attribute in some releases and a method in others."""
        return self

    def __str__(self) -> str:
        return f"DataType.{self.name}"

    __repr__ = __str__

    @property
    def ir(self) -> ir.DType:
        """The engine's dtype. Raises `UnsupportedError` if it has none."""
        found = _IR.get(self)
        if found is None:
            raise UnsupportedError(f"dtype '{self}' is not supported; supported are {', '.join(map(str, _IR))}.")
        return found

    @property
    def torch(self) -> torch.dtype:
        """The torch dtype of tensors. Raises `UnsupportedError` where the engine has none, `UInt64` aside: tensors of it
        (the seeds of attention) pass between torch's calls and never enter a fusion."""
        return torch.uint64 if self is DataType.UInt64 else self.ir.torch

    @property
    def kind(self) -> str:
        """ "bool", "int", "float", "float8" or "complex"."""
        return self.ir.kind


_IR: dict[DataType, ir.DType] = {
    DataType.Double: ir.F64,
    DataType.Float: ir.F32,
    DataType.Half: ir.F16,
    DataType.BFloat16: ir.BF16,
    DataType.Int: ir.I64,
    DataType.Int32: ir.I32,
    DataType.Short: ir.I16,
    DataType.Char: ir.I8,
    DataType.Byte: ir.U8,
    DataType.Index: ir.I64,
    DataType.Bool: ir.BOOL,
    DataType.ComplexFloat: ir.C64,
    DataType.ComplexDouble: ir.C128,
    DataType.Float8_e4m3fn: ir.F8_E4M3,
    DataType.Float8_e5m2: ir.F8_E5M2,
}
_BY_TORCH: dict[torch.dtype, DataType] = {d.torch: name for name, d in _IR.items() if name is not DataType.Index}


def from_torch(dtype: torch.dtype) -> DataType:
    """nvFuser's name of a torch dtype. Raises `UnsupportedError` for one that the engine does not know."""
    return _BY_TORCH[ir.from_torch(dtype).torch]


def of_number(value: ir.Number) -> DataType:
    """What a Python number is on its own: Bool, Int, Double or ComplexDouble."""
    if isinstance(value, bool):
        return DataType.Bool
    if isinstance(value, complex):
        return DataType.ComplexDouble
    return DataType.Int if isinstance(value, int) else DataType.Double
