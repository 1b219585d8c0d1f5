"""Boxes: the pieces of an output's index space inside which every pad, cat and reshape is decided.

A box gives each dim as mixed-radix digits, so that a reshape can split an axis and a cat can cut one. `pullback` starts
with one box a buffer and refines it whenever an op asks (`Split`, `Cut`), until no op has a question left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from thunder_fuser.maps.affine import Affine, Axis, AxisPool, affine


@dataclass(frozen=True, slots=True)
class Digit:
    """stride * (lo + axis), with axis in [0, extent)."""

    stride: int
    lo: int
    extent: int


@dataclass(frozen=True, slots=True)
class Box:
    """`dims[d]` are the digits of output dim d, outermost first; `reduced` those of reduction dims that were split,
    keyed by (name of the reduction's value, dim)."""

    dims: tuple[tuple[Digit, ...], ...]
    reduced: tuple[tuple[tuple[str, int], tuple[Digit, ...]], ...] = ()

    @staticmethod
    def whole(shape: tuple[int, ...]) -> Box:
        return Box(tuple((Digit(1, 0, n),) for n in shape))

    def index(self, pool: AxisPool) -> tuple[tuple[Affine, ...], tuple[Axis, ...]]:
        """The index of each dim, and the axes outermost first. Axes are numbered by position among those of extent > 1,
        so that boxes of equal extents have equal axes."""
        index, axes = [], []
        for digits in self.dims:
            const, terms = 0, []
            for digit in digits:
                const += digit.stride * digit.lo
                if digit.extent > 1:
                    axes.append(pool.axis(("i", len(axes)), digit.extent))
                    terms.append((axes[-1], digit.stride))
            index.append(affine(const, terms))
        return tuple(index), tuple(axes)

    def reduction_index(self, pool: AxisPool, name: str, dim: int, size: int) -> tuple[Affine, tuple[Axis, ...]]:
        """The index and axes of a reduced dim."""
        digits = dict(self.reduced).get((name, dim), (Digit(1, 0, size),))
        terms = [(pool.axis(("r", name, dim, k), d.extent), d.stride) for k, d in enumerate(digits) if d.extent > 1]
        return affine(0, terms), tuple(axis for axis, _ in terms)

    def _locate(self, axis: Axis) -> tuple[int, int]:
        position = 0
        for d, digits in enumerate(self.dims):
            for k, digit in enumerate(digits):
                if digit.extent > 1:
                    if position == axis.key[1]:
                        return d, k
                    position += 1
        raise AssertionError(f"axis {axis} is not of this box")

    def _with(self, d: int, k: int, *digits: Digit) -> Box:
        dim = self.dims[d][:k] + digits + self.dims[d][k + 1:]
        return replace(self, dims=(*self.dims[:d], dim, *self.dims[d + 1:]))

    def split(self, axis: Axis, inner: int) -> list[Box]:
        """The boxes in which `axis` is two axes, the inner one of extent `inner`; up to three, if borders are odd."""
        if axis.key[0] == "r":
            key = (axis.key[1], axis.key[2])
            table = dict(self.reduced)
            digits = table.get(key, (Digit(1, 0, axis.extent),))
            k = axis.key[3]
            old = digits[k]
            table[key] = (*digits[:k], Digit(old.stride * inner, 0, old.extent // inner), Digit(old.stride, 0, inner), *digits[k + 1:])
            return [replace(self, reduced=tuple(table.items()))]
        d, k = self._locate(axis)
        digit = self.dims[d][k]
        first = -(-digit.lo // inner) * inner
        last = (digit.lo + digit.extent) // inner * inner
        if first >= last:
            return self.cut(axis, first - digit.lo)
        boxes = []
        if first > digit.lo:
            boxes.append(self._with(d, k, replace(digit, extent=first - digit.lo)))
        boxes.append(self._with(d, k, Digit(digit.stride * inner, first // inner, (last - first) // inner), Digit(digit.stride, 0, inner)))
        if last < digit.lo + digit.extent:
            boxes.append(self._with(d, k, replace(digit, lo=last, extent=digit.lo + digit.extent - last)))
        return boxes

    def cut(self, axis: Axis, at: int) -> list[Box]:
        """The two boxes axis < at and axis >= at."""
        d, k = self._locate(axis)
        digit = self.dims[d][k]
        return [self._with(d, k, replace(digit, extent=at)), self._with(d, k, replace(digit, lo=digit.lo + at, extent=digit.extent - at))]


class Refine(Exception):
    """Asks for a finer box. Not an error: `pullback` catches it."""


class Split(Refine):
    """`axis` must become two, the inner of extent `inner`."""

    def __init__(self, axis: Axis, inner: int) -> None:
        self.axis, self.inner = axis, inner

    def apply(self, box: Box) -> list[Box]:
        return box.split(self.axis, self.inner)


class Cut(Refine):
    """The box must be cut at `axis` = `at`."""

    def __init__(self, axis: Axis, at: int) -> None:
        self.axis, self.at = axis, at

    def apply(self, box: Box) -> list[Box]:
        return box.cut(self.axis, self.at)
