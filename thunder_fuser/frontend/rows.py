"""What an op of the front end is: `OpRow`, and the table `OPS` of them by nvFuser's name.

`pointwise`, `views` and `copies` fill the table; `definition` records calls through it, `specialize` lowers records with it,
`translation` prints them with it. An op is its signature (nvFuser's parameter names), a function that says what the
result is before sizes are known, and one that emits IR nodes once they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from thunder_fuser.errors import IRError
from thunder_fuser.frontend.datatype import DataType
from thunder_fuser.frontend.values import Number, Scalar, TensorView, Vector


@dataclass(frozen=True, slots=True)
class Result:
    """What an op makes: `kind` is "tensor" (of rank `extent`), "scalar" or "vector" (of length `extent`).

    `compute` is the dtype that operands are cast to before the op, for ops that promote."""

    kind: str
    dtype: DataType
    extent: int = 0
    compute: DataType | None = None


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op. `infer(**arguments)` gives a `Result`; `lower(lowering, result, **arguments)` gives the IR operand. An op of
    several results has a tuple of both. An op with a `torch` function is run by torch instead, between fusions: it gets
    the arguments in order, tensors as torch tensors, Scalars as numbers.

    Scalars in the parameters named by `static` decide sizes: a definition is specialised for their values."""

    name: str
    signature: inspect.Signature
    infer: Callable[..., Result | tuple[Result, ...]]
    lower: Callable[..., Any]
    static: tuple[str, ...] = ()
    torch: Callable[..., Any] | None = None


OPS: dict[str, OpRow] = {}


def tensor_result(dtype: DataType, rank: int) -> Result:
    """A tensor of an op that does not promote."""
    return Result("tensor", dtype, rank)


def register(name: str, lower: Callable[..., Any], static: Sequence[str] = ()) -> Callable[..., Any]:
    """Decorator of an `infer` function, whose parameters become the op's."""
    def add(infer: Callable[..., Result]) -> Callable[..., Result]:
        OPS[name] = OpRow(name, inspect.signature(infer), infer, lower, tuple(static))
        return infer
    return add


def register_call(name: str, run: Callable[..., Any], static: Sequence[str] = ()) -> Callable[..., Any]:
    """Decorator of the `infer` function of an op that torch runs as `run(*arguments)`."""
    def add(infer: Callable[..., Result | tuple[Result, ...]]) -> Callable[..., Result | tuple[Result, ...]]:
        OPS[name] = OpRow(name, inspect.signature(infer), infer, _not_lowered, tuple(static), run)
        return infer
    return add


def _not_lowered(*_: Any, **__: Any) -> Any:
    raise AssertionError("An op that torch runs is not part of a fusion.")


def tensor_argument(op: str, value: Any) -> TensorView:
    """`value` if it is a TensorView, else an `IRError` that names the op."""
    if not isinstance(value, TensorView):
        raise IRError(f"'{op}' takes a TensorView, got '{value!r}'.")
    return value


def operand_argument(op: str, value: Any) -> TensorView | Scalar | Number:
    """`value` if it is a TensorView, a Scalar or a Python number, else an `IRError` that names the op."""
    if not isinstance(value, (TensorView, Scalar, bool, int, float, complex)):
        raise IRError(f"'{op}' takes a TensorView, a Scalar or a number, got '{value!r}'.")
    return value


def sizes_argument(op: str, parameter: str, value: Any) -> Sequence[Scalar | int] | Vector:
    """`value` if it is a Vector or a list of integers and integer Scalars, else an `IRError` that names both."""
    if isinstance(value, Vector):
        return value
    if not isinstance(value, (list, tuple)):
        raise IRError(f"'{op}' takes a list or a Vector as {parameter}, got '{value!r}'.")
    for element in value:
        whole = isinstance(element, int) and not isinstance(element, bool)
        if not whole and not (isinstance(element, Scalar) and element.dtype.kind == "int"):
            raise IRError(f"'{op}' takes integers in {parameter}, got '{element!r}'.")
    return value


def dims_argument(op: str, parameter: str, value: Any, rank: int) -> tuple[int, ...]:
    """Dims as a tuple of 0 <= d < rank, all distinct, from a list that may hold negative ones."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(d, int) for d in value):
        raise IRError(f"'{op}' takes a list of integers as {parameter}, got '{value!r}'.")
    for d in value:
        if not -rank <= d < rank:
            raise IRError(f"'{op}' has {parameter} {list(value)}, out of range for rank {rank}.")
    dims = tuple(d % rank for d in value)
    if len(set(dims)) != len(dims):
        raise IRError(f"'{op}' has {parameter} {list(value)}, which names a dim twice.")
    return dims


def dtype_argument(op: str, dtype: Any) -> DataType:
    """`dtype` if it is a DataType that the engine has a row for, else an error that says so."""
    if not isinstance(dtype, DataType):
        raise IRError(f"'{op}' takes a DataType as dtype, got '{dtype!r}'.")
    dtype.ir  # noqa: B018  raises for a dtype that has none
    return dtype
