"""What a definition handles: `TensorView`, `Scalar` and `Vector`, symbols without data.

Made by `FusionDefinition` and its `ops`; each belongs to one definition and has a number there, which is how
records and specialisations refer to it. Python's operators record the op of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from thunder_fuser.errors import IRError, UnsupportedError
from thunder_fuser.frontend.datatype import DataType

if TYPE_CHECKING:
    from thunder_fuser.frontend.definition import FusionDefinition

Number: TypeAlias = bool | int | float | complex


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TensorView:
    """A tensor of known dtype and rank; its sizes are known at `execute`."""

    fd: FusionDefinition = field(repr=False)
    index: int
    dtype: DataType
    ndim: int

    is_tensor = True

    def __repr__(self) -> str:
        return f"T{self.index}"

    def size(self, dim: int) -> Scalar:
        """The size of `dim` as a Scalar, usable in shapes, slices and pads."""
        return self.fd.ops.size(self, dim)

    def shape(self) -> Vector:
        """All sizes as a Vector."""
        return self.fd.ops.shape(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Scalar:
    """A number: `value` if it is a constant, else given at `execute` or computed from other scalars and sizes."""

    fd: FusionDefinition = field(repr=False)
    index: int
    dtype: DataType
    value: Number | None = None

    is_tensor = False

    def __repr__(self) -> str:
        return f"S{self.index}"

    @property
    def ndim(self) -> int:
        return 0

    @property
    def is_symbolic(self) -> bool:
        return self.value is None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Vector:
    """A list of numbers used as a shape; `elements` is None for one whose entries are known at `execute`."""

    fd: FusionDefinition = field(repr=False)
    index: int
    size: int
    dtype: DataType = DataType.Int
    elements: tuple[Scalar | int, ...] | None = None

    is_tensor = False

    def __repr__(self) -> str:
        return f"V{self.index}"

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Scalar:
        if not -self.size <= index < self.size:
            raise IndexError(f"Index {index} is out of range for a vector of {self.size}.")
        return self.fd.ops.at(self, index % self.size)

    def __iter__(self) -> Iterator[Scalar]:
        return (self[i] for i in range(self.size))


Symbol: TypeAlias = TensorView | Scalar | Vector


def symbols_in(argument: Any) -> Iterator[Symbol]:
    """Every symbol in an argument of a record, lists looked through."""
    if isinstance(argument, Symbol):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for element in argument:
            yield from symbols_in(element)


_UNARY = {"__neg__": "neg", "__abs__": "abs", "__invert__": "bitwise_not"}
_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "truediv", "mod": "mod", "pow": "pow", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _add_operators(cls: type) -> None:
    """`x + y` and its kin, each recording the op. `==` records too, so values hash by identity."""
    def unary(op: str) -> Any:
        return lambda self: getattr(self.fd.ops, op)(self)

    def binary(op: str, swap: bool) -> Any:
        return lambda self, other: getattr(self.fd.ops, op)(*((other, self) if swap else (self, other)))

    for method, op in _UNARY.items():
        setattr(cls, method, unary(op))
    for method, op in _BINARY.items():
        setattr(cls, f"__{method}__", binary(op, swap=False))
        setattr(cls, f"__r{method}__", binary(op, swap=True))
    for op in _COMPARISONS:
        setattr(cls, f"__{op}__", binary(op, swap=False))

    def no_truth(self: Any) -> bool:
        raise IRError(f"'{self!r}' has no value while the fusion is defined, so it cannot decide an 'if'.")

    cls.__bool__ = no_truth
    cls.__hash__ = object.__hash__


def _refuse_scheduling(cls: type) -> None:
    """nvFuser's methods that schedule a tensor by hand or spread it over devices, each refused in one sentence."""
    def method(name: str, why: str) -> Any:
        def refuse(self: Any, *_: Any, **__: Any) -> Any:
            raise UnsupportedError(f"'TensorView.{name}' is not supported: {why}.")
        return refuse

    for name in ("split", "merge", "reorder", "parallelize", "swizzle", "axis", "axis_transforms", "cache_before", "cache_after", "cache_fork",
                 "rfactor", "set_memory_type", "set_allocation_domain", "get_loop_domain", "set_loop_domain"):
        setattr(cls, name, method(name, "the engine schedules, leave it out"))
    for name in ("set_device_mesh", "outer_split", "inner_split", "outer_parallelize", "inner_parallelize"):
        setattr(cls, name, method(name, "a definition runs on one device"))


_add_operators(TensorView)
_add_operators(Scalar)
_refuse_scheduling(TensorView)
