"""From recorded arguments to IR nodes: `Lowering`, a builder that casts, broadcasts and folds numbers.

Used by the `lower` functions of the op rows while a definition is specialised. Operands are IR tensor values, IR
scalar values or Python numbers; numbers computed from numbers stay Python numbers, so shapes never need a node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from thunder_fuser.errors import IRError
from thunder_fuser.frontend.values import Number
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BOOL, C128, F64, I64, DType
from thunder_fuser.ir.nodes import TensorType, Value
from thunder_fuser.ir.ops import POINTWISE

Operand: TypeAlias = Value | Number
_SCALAR_TYPES = {"bool": BOOL, "int": I64, "float": F64, "float8": F64, "complex": C128}
_PYTHON_TYPES = {"bool": bool, "int": int, "float": float, "float8": float, "complex": complex}


def is_tensor(operand: object) -> bool:
    """Whether an operand is an IR tensor, as opposed to a number."""
    return isinstance(operand, Value) and isinstance(operand.type, TensorType)


class Lowering:
    """One specialisation in the making: `b` is the IR builder that the op rows emit into, `drawn()` gives a seed and an offset
    that each call draws anew."""

    def __init__(self, builder: FusionBuilder, drawn: Callable[[], tuple[Value, Value]]) -> None:
        self.b = builder
        self.drawn = drawn
        self._expanded: dict[Value, frozenset[int]] = {}

    def cast(self, operand: Operand, dtype: DType) -> Operand:
        """`operand` in `dtype`: the operand itself if it is of it already."""
        if is_tensor(operand):
            return operand if operand.dtype is dtype else self.b.cast(operand, dtype)
        if isinstance(operand, Value):
            scalar = _SCALAR_TYPES[dtype.kind]
            return operand if operand.dtype is scalar else self.b.cast(operand, scalar)
        return _PYTHON_TYPES[dtype.kind](operand)

    def pointwise(self, op: str, compute: DType, *operands: Operand) -> Operand:
        """A row of the op table with all operands (but `where`'s condition) cast to `compute` and broadcast together."""
        fixed = [BOOL] if op == "where" else []
        dtypes = fixed + [compute] * (len(operands) - len(fixed))
        operands = tuple(self.cast(o, d) for o, d in zip(operands, dtypes))
        if not any(isinstance(o, Value) for o in operands):
            return self._fold(op, operands, dtypes)
        operands = self.broadcast_together(operands)
        if op == "where" and is_tensor(operands[0]) and not any(map(is_tensor, operands[1:])):
            shape = operands[0].shape  # with numbers alone the result would take their dtype, not `compute`
            operands = (operands[0], self.b.full(shape, operands[1], compute), operands[2])
        return self.b.pointwise(op, *operands)

    def broadcast_together(self, operands: Sequence[Operand]) -> tuple[Operand, ...]:
        """Tensors expanded to the shape that they have in common (aligned at the last dim), numbers as they are."""
        shapes = [o.shape for o in operands if is_tensor(o)]
        if not shapes:
            return tuple(operands)
        try:
            shape = tuple(torch.broadcast_shapes(*shapes))
        except RuntimeError:
            listed = " and ".join(str(list(s)) for s in shapes)
            raise IRError(f"Shapes {listed} do not broadcast together.") from None
        return tuple(self.b.expand(o, shape) if is_tensor(o) and o.shape != shape else o for o in operands)

    def broadcast(self, arg: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
        """`broadcast_in_dim`, remembering which dims of the result repeat one element."""
        out = self.b.broadcast(arg, shape, dims)
        new = {d for d in range(len(shape)) if d not in dims}
        grown = {d for k, d in enumerate(dims) if arg.shape[k] == 1 or k in self._expanded.get(arg, ())}
        self._expanded[out] = frozenset(new | grown)
        return out

    def is_expanded(self, arg: Value, dim: int) -> bool:
        """Whether `dim` of a broadcast's result repeats one element."""
        return dim in self._expanded.get(arg, ())

    def _fold(self, op: str, numbers: Sequence[Number], dtypes: Sequence[DType]) -> Number:
        tensors = [torch.tensor(n, dtype=_SCALAR_TYPES[d.kind].torch) for n, d in zip(numbers, dtypes)]
        return POINTWISE[op].torch(*tensors).item()
