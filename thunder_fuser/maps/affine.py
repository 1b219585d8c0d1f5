"""Affine index expressions over loop axes, and conditions on them. Used by all of maps, schedule and codegen.

    index = const + sum(coef * axis)

An `Axis` runs from 0 to its extent. An `Opaque` one is an escape from affine. `Derived` is a floor division or remainder of
another affine expression, for reshapes that no common factoring makes affine (6 as 2x3 and as 3x2); `Fetched` is an index
that the program itself computes, usually loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from thunder_fuser.maps.exprs import Expr


class Axis:
    """A loop variable: 0 <= axis < extent. `key` orders and identifies it; equal keys are made one object by `AxisPool`."""

    __slots__ = ("extent", "key")

    def __init__(self, key: tuple, extent: int) -> None:
        self.key = key
        self.extent = extent

    @property
    def lo(self) -> int:
        return 0

    @property
    def hi(self) -> int:
        return self.extent - 1

    def __repr__(self) -> str:
        return "".join(str(k) for k in self.key)


class Opaque(Axis):
    """Stands in an index like an axis, and is none that a loop walks; `axes` are the loop axes that it depends on."""

    __slots__ = ()

    def axes(self) -> Iterator[Axis]:
        raise NotImplementedError


class Derived(Opaque):
    """floor(source / divisor), or source modulo divisor, as if it were an axis; lies in [lo, hi]."""

    __slots__ = ("_hi", "_lo", "divisions", "divisor", "kind", "source")

    def __init__(self, kind: str, source: Affine, divisor: int) -> None:
        lo, hi = (source.lo // divisor, source.hi // divisor) if kind == "div" else (0, divisor - 1)
        super().__init__(("~", kind, divisor, source.sort_key()), hi - lo + 1)
        self.kind, self.source, self.divisor, self._lo, self._hi = kind, source, divisor, lo, hi
        self.divisions = 1 + source.divisions

    @property
    def lo(self) -> int:
        return self._lo

    @property
    def hi(self) -> int:
        return self._hi

    def axes(self) -> Iterator[Axis]:
        return self.source.axes()

    def __repr__(self) -> str:
        return f"({self.source} {'//' if self.kind == 'div' else '%'} {self.divisor})"


class Fetched(Opaque):
    """The number `value`, an i64 expression, where all `guards` hold, and 0 elsewhere. What fetches it makes sure that it
    lies in [0, extent). `label` is what a person reads for it."""

    __slots__ = ("_axes", "guards", "label", "value")

    def __init__(self, number: int, value: Expr, guards: tuple[Condition, ...], extent: int, axes: Iterable[Axis], label: str) -> None:
        super().__init__(("~", "fetched", number), extent)
        self.value, self.guards, self.label, self._axes = value, guards, label, tuple(axes)

    def axes(self) -> Iterator[Axis]:
        return iter(self._axes)

    def __repr__(self) -> str:
        return self.label


class Affine:
    """const + sum of coef * axis. Immutable, hashable; terms are sorted by the axes' keys and have no zero coefs."""

    __slots__ = ("_hash", "const", "terms")

    def __init__(self, const: int = 0, terms: tuple[tuple[Axis, int], ...] = ()) -> None:
        self.const = const
        self.terms = terms
        self._hash = hash((const, tuple((id(a), c) for a, c in terms)))

    @staticmethod
    def of(axis: Axis, coef: int = 1, const: int = 0) -> Affine:
        return Affine(const, ((axis, coef),) if coef else ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affine) and self._hash == other._hash and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.const + other, self.terms) if other else self
        if not other.terms:
            return self + other.const
        if not self.terms:
            return other + self.const
        coefs = dict(self.terms)
        for axis, coef in other.terms:
            coefs[axis] = coefs.get(axis, 0) + coef
        return affine(self.const + other.const, coefs.items())

    def __mul__(self, factor: int) -> Affine:
        if factor == 1:
            return self
        return Affine(self.const * factor, tuple((a, c * factor) for a, c in self.terms)) if factor else ZERO

    @property
    def lo(self) -> int:
        """The least value over all axes."""
        return self.const + sum(c * (a.lo if c > 0 else a.hi) for a, c in self.terms)

    @property
    def hi(self) -> int:
        """The greatest value over all axes."""
        return self.const + sum(c * (a.hi if c > 0 else a.lo) for a, c in self.terms)

    @property
    def divisions(self) -> int:
        """How many divisions and remainders the value takes, those inside others counted as often as they occur."""
        return sum(a.divisions for a, _ in self.terms if isinstance(a, Derived))

    def coef(self, axis: Axis) -> int:
        return next((c for a, c in self.terms if a is axis), 0)

    def axes(self) -> Iterator[Axis]:
        """The loop axes that the value depends on, through opaque ones too."""
        for axis, _ in self.terms:
            if isinstance(axis, Opaque):
                yield from axis.axes()
            else:
                yield axis

    def fetched(self) -> Iterator[Fetched]:
        """The fetched numbers in the value, those inside derived axes too."""
        for axis, _ in self.terms:
            if isinstance(axis, Fetched):
                yield axis
            elif isinstance(axis, Derived):
                yield from axis.source.fetched()

    def sort_key(self) -> tuple:
        return (self.const, tuple((a.key, c) for a, c in self.terms))

    def __repr__(self) -> str:
        parts = [f"{a!r}" if c == 1 else f"{c}*{a!r}" for a, c in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


ZERO = Affine()


def affine(const: int, terms: Iterable[tuple[Axis, int]]) -> Affine:
    """An `Affine` from terms in any order, zero coefs dropped; each axis may occur once."""
    return Affine(const, tuple(sorted(((a, c) for a, c in terms if c), key=lambda t: _order(t[0]))))


def _order(axis: Axis) -> tuple:
    return (axis.key[0] == "~", repr(axis.key)) if axis.key[0] == "~" else (False, axis.key)


def dot(index: Iterable[Affine], strides: Iterable[int]) -> Affine:
    """sum of index[d] * strides[d]."""
    const = 0
    coefs: dict[Axis, int] = {}
    for position, stride in zip(index, strides):
        if not stride:
            continue
        const += position.const * stride
        for axis, coef in position.terms:
            coefs[axis] = coefs.get(axis, 0) + coef * stride
    if len(coefs) == 1:
        ((axis, coef),) = coefs.items()
        return Affine(const, ((axis, coef),) if coef else ())
    return affine(const, coefs.items())


@dataclass(frozen=True, slots=True)
class Within:
    """lo <= index < hi."""

    index: Affine
    lo: int
    hi: int

    def __str__(self) -> str:
        return f"{self.lo} <= {self.index} < {self.hi}"


@dataclass(frozen=True, slots=True)
class Divisible:
    """index is a multiple of divisor (index is not negative where it matters)."""

    index: Affine
    divisor: int

    def __str__(self) -> str:
        return f"{self.index} % {self.divisor} == 0"


Condition: TypeAlias = Within | Divisible


def all_of(guards: tuple[Condition, ...], more: Sequence[Condition]) -> tuple[Condition, ...]:
    """`guards` and `more`; ranges of indices that differ by a constant become one, so that nested pieces stay short."""
    result = list(guards)
    for new in more:
        for k, old in enumerate(result):
            if old == new:
                break
            if isinstance(old, Within) and isinstance(new, Within) and old.index.terms == new.index.terms:
                shift = new.index.const - old.index.const
                result[k] = Within(old.index, max(old.lo, new.lo - shift), min(old.hi, new.hi - shift))
                break
        else:
            result.append(new)
    return tuple(result)


class AxisPool:
    """Hands out one `Axis` object a (key, extent), so that equal boxes of different outputs share their axes, and one
    `Opaque` a definition."""

    def __init__(self) -> None:
        self._axes: dict[tuple, Axis] = {}

    def axis(self, key: tuple, extent: int) -> Axis:
        found = self._axes.get((key, extent))
        if found is None:
            found = self._axes[(key, extent)] = Axis(key, extent)
        return found

    def derived(self, kind: str, source: Affine, divisor: int) -> Derived:
        found = self._axes.get((kind, source, divisor))
        if found is None:
            found = self._axes[(kind, source, divisor)] = Derived(kind, source, divisor)
        return found

    def fetched(self, value: Expr, guards: tuple[Condition, ...], extent: int, axes: Iterable[Axis], label: str) -> Fetched:
        found = self._axes.get((value, guards, extent))
        if found is None:
            found = self._axes[(value, guards, extent)] = Fetched(len(self._axes), value, guards, extent, axes, label)
        return found
