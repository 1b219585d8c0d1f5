"""What one thread computes at one point of a box: an interned DAG of expressions. Read by schedule and codegen.

Expressions are made by `Exprs`, which returns the same object for equal arguments: boxes that load the same address
share the load, and equality is identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from thunder_fuser.ir.dtypes import DType
from thunder_fuser.ir.nodes import Value
from thunder_fuser.maps.affine import Affine, Axis, Condition, Fetched


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """buffer[address], an element offset from the buffer's first element; 0 where a guard does not hold."""

    buffer: Value
    address: Affine
    guards: tuple[Condition, ...]
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A number known at compile time."""

    value: bool | int | float
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A number input of the fusion, handed to the kernel at each launch."""

    value: Value
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """An index as an i64 number."""

    index: Affine
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    """A row of `ops.POINTWISE`, computed in `operand_dtype`'s math type and rounded to `dtype`."""

    op: str
    args: tuple[Expr, ...]
    operand_dtype: DType
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Convert:
    """arg converted to `dtype`, or its `bits` read as that."""

    arg: Expr
    dtype: DType
    bits: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Select:
    """chosen if all guards hold, else other. Loads below `chosen` carry the same guards."""

    guards: tuple[Condition, ...]
    chosen: Expr
    other: Expr
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """The random number of kind `op` at a row-major position; `args` are seed, offset (i64), low and high (f64)."""

    op: str
    index: Affine
    args: tuple[Expr, ...]
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Accumulate:
    """body reduced over `axes` by a row of `ops.REDUCTIONS`."""

    op: str
    axes: tuple[Axis, ...]
    body: Expr
    dtype: DType


Expr: TypeAlias = Load | Literal | Scalar | Position | Apply | Convert | Select | Draw | Accumulate
_E = TypeVar("_E")


class Exprs:
    """Interns expressions."""

    def __init__(self) -> None:
        self._known: dict[tuple, Any] = {}

    def make(self, cls: type[_E], *fields: Any) -> _E:
        # a literal's key keeps -0.0, 0, 0.0, False and NaN apart
        key = (cls, repr(fields[0]), fields[1]) if cls is Literal else (cls, *fields)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = cls(*fields)
        return found


def children(expr: Expr) -> tuple[Expr, ...]:
    """What `expr` is computed from, the numbers fetched for its indices included."""
    match expr:
        case Load() | Position():
            return tuple([f.value for f in fetched_in(indices_of(expr))])
        case Apply(args=args):
            return args
        case Convert(arg=arg):
            return (arg,)
        case Select(guards=guards, chosen=chosen, other=other):
            return (chosen, other, *(f.value for f in fetched_in([g.index for g in guards])))
        case Draw(index=index, args=args):
            return (*args, *(f.value for f in fetched_in([index])))
        case Accumulate(body=body):
            return (body,)
        case _:
            return ()


def indices_of(expr: Expr) -> list[Affine]:
    """The index expressions that one node holds itself."""
    match expr:
        case Load(address=address, guards=guards):
            return [address, *(g.index for g in guards)]
        case Position(index=index) | Draw(index=index):
            return [index]
        case Select(guards=guards):
            return [g.index for g in guards]
        case _:
            return []


def fetched_in(indices: Iterable[Affine]) -> Iterator[Fetched]:
    """The fetched numbers that `indices` are made of, those in the guards of one before itself."""
    for index in indices:
        for fetched in index.fetched():
            yield from fetched_in(g.index for g in fetched.guards)
            yield fetched


def topological(roots: list[Expr], *, into_reductions: bool = True, known: Iterable[Expr] = ()) -> list[Expr]:
    """Every expression below `roots`, operands first, each once, `known` ones and what is below them left out; iterative."""
    order: list[Expr] = []
    done: set[int] = {id(e) for e in known}
    stack: list[tuple[Expr, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        expr, expanded = stack.pop()
        if id(expr) in done:
            continue
        if expanded:
            done.add(id(expr))
            order.append(expr)
            continue
        stack.append((expr, True))
        if into_reductions or not isinstance(expr, Accumulate):
            stack.extend((c, False) for c in reversed(children(expr)) if id(c) not in done)
    return order


def axes_of(expr: Expr) -> set[Axis]:
    """The axes that one node (not its children) depends on by itself."""
    return {a for index in indices_of(expr) for a in index.axes()}


def free_axes(expr: Expr) -> list[Axis]:
    """The axes that `expr` depends on with all below it, those that its own reductions walk left out."""
    below = topological([expr])
    bound = {a for e in below if isinstance(e, Accumulate) for a in e.axes}
    return sorted({a for e in below for a in axes_of(e)} - bound, key=lambda a: a.key)
