"""Answers the questions that meta ops ask about an index inside a box, or asks for a finer box.

`within` and `divisible` answer True or False where the box decides, raise `Cut` or `Split` where a finer box would,
and return None where none can: then the value is guarded. `divmod_index` is the arithmetic of reshapes.
"""

from __future__ import annotations

from thunder_fuser.maps.affine import Affine, Axis, AxisPool, Opaque, affine
from thunder_fuser.maps.boxes import Cut, Split


def within(index: Affine, lo: int, hi: int, *, may_cut: bool) -> bool | None:
    """Whether lo <= index < hi."""
    low, high = index.lo, index.hi
    if low >= lo and high < hi:
        return True
    if high < lo or low >= hi:
        return False
    if may_cut:
        for border in (lo, hi):
            if low < border <= high:
                _cut_at(index, border)
    return None


def divisible(index: Affine, divisor: int, *, may_cut: bool) -> bool | None:
    """Whether index is a multiple of divisor."""
    rest = affine(index.const % divisor, ((a, c) for a, c in index.terms if c % divisor))
    if not rest.terms:
        return rest.const == 0
    if may_cut and len(rest.terms) == 1:
        axis, coef = rest.terms[0]
        if coef in (1, -1) and _is_loop(axis) and axis.key[0] == "i":  # a reduced axis is walked whole: guarded
            if axis.extent > divisor:
                raise Split(axis, divisor)
            # the one residue that fits, isolated on both sides
            at = (-rest.const * coef) % divisor
            if at >= axis.extent:
                return False
            raise Cut(axis, at if at > 0 else 1)
    return None


def divmod_index(index: Affine, divisor: int, pool: AxisPool, *, may_cut: bool) -> tuple[Affine, Affine]:
    """index // divisor and index % divisor (floor), both affine, over derived axes if need be."""
    quotient = affine(index.const // divisor, ((a, c // divisor) for a, c in index.terms if c % divisor == 0))
    rest = affine(index.const % divisor, ((a, c) for a, c in index.terms if c % divisor))
    shift = rest.lo // divisor
    quotient, rest = quotient + shift, rest + -shift * divisor
    if rest.hi < divisor:
        return quotient, rest
    _refine_for_divmod(rest, divisor, may_cut=may_cut)
    div = Affine.of(pool.derived("div", rest, divisor))
    mod = Affine.of(pool.derived("mod", rest, divisor))
    return quotient + div, mod


def _refine_for_divmod(rest: Affine, divisor: int, *, may_cut: bool) -> None:
    """Raises the refinement that makes rest // divisor affine, if there is one."""
    terms = sorted(rest.terms, key=lambda t: -abs(t[1]))
    below = [sum(abs(c) * (a.extent - 1) for a, c in terms[k + 1:]) for k in range(len(terms))]
    for (axis, coef), lower in zip(terms, below):
        if not _is_loop(axis) or coef < 0 or divisor % coef or lower >= coef:
            break
        inner = divisor // coef
        if axis.extent > inner and (axis.key[0] == "i" or axis.extent % inner == 0) and (may_cut or axis.extent % inner == 0):
            raise Split(axis, inner)
    if may_cut and rest.hi // divisor <= 4:
        _cut_at(rest, divisor)


def _cut_at(index: Affine, border: int) -> None:
    """Raises a cut that separates index < border from index >= border, or narrows the slab where they mix."""
    terms = [(a, c) for a, c in index.terms if _is_loop(a) and a.key[0] == "i"]
    if not terms or len(terms) < len(index.terms):
        return
    axis, coef = max(terms, key=lambda t: abs(t[1]))
    spread = index.hi - index.lo - abs(coef) * (axis.extent - 1)
    # the least axis value at which the whole of index (coef > 0) has reached the border
    base = index.const + sum(c * (a.lo if c > 0 else a.hi) for a, c in index.terms if a is not axis)
    if coef > 0:
        reached = -(-(border - base) // coef)
        started = -(-(border - base - spread) // coef)
    else:
        started = (base + spread - border) // -coef + 1
        reached = (base - border) // -coef + 1
        started, reached = reached, started
    for at in (reached, started):
        if 0 < at < axis.extent:
            raise Cut(axis, at)


def _is_loop(axis: Axis) -> bool:
    return not isinstance(axis, Opaque)
