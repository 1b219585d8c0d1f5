"""In which order a nest's axes are walked, which become one loop, and how wide each access may be.

Shared by the pointwise and the reduction schedules. Strides decide, with one weight: the bytes that an access moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thunder_fuser.maps.affine import Affine, Axis, Derived, Fetched, Opaque
from thunder_fuser.maps.exprs import Accumulate, Load, axes_of, indices_of
from thunder_fuser.maps.nests import Nest, Store
from thunder_fuser.schedule.plan import Access, Loop, Vector

VECTOR_BYTES = 16
GRANULE = 64  # bytes that memory fetches or writes at least


def accesses(nest: Nest) -> list[Access]:
    return [*nest.loads(), *nest.stores]


def dtype_size(access: Access) -> int:
    return (access.dtype if isinstance(access, Load) else access.buffer.dtype).size


def traffic(nest: Nest, access: Access) -> int:
    """Bytes that an access moves, an element read again counted once."""
    axes = axes_of(access) if isinstance(access, Load) else set(access.address.axes())
    return dtype_size(access) * math.prod(a.extent for a in axes)


def indices(nest: Nest) -> list[Affine]:
    """Every index expression of the nest: addresses, guards, positions, and what opaque axes are made of."""
    found: list[Affine] = [s.address for s in nest.stores]
    for expr in nest.exprs():
        found += indices_of(expr)
    seen = list(dict.fromkeys(found))
    for index in seen:
        for axis, _ in index.terms:
            inner = [axis.source] if isinstance(axis, Derived) else [g.index for g in axis.guards] if isinstance(axis, Fetched) else []
            seen.extend(i for i in inner if i not in seen)
    return seen


def vector_axis(nest: Nest, axes: Iterable[Axis]) -> Axis | None:
    """The axis along which most bytes are contiguous; a store counts twice, since a scattered store costs more."""
    score = dict.fromkeys(axes, 0)
    for access in accesses(nest):
        for axis in score:
            if access.address.coef(axis) == 1 and not _is_hidden(axis, access.address):
                score[axis] += traffic(nest, access) * (2 if isinstance(access, Store) else 1)
    best = max(score, key=lambda a: (score[a], a.key), default=None)
    return best if best is not None and score[best] else None


def _is_hidden(axis: Axis, address: Affine) -> bool:
    """Whether an opaque axis of the address depends on `axis`, so that steps along it are not what its coefficient says."""
    return any(isinstance(a, Opaque) and axis in a.axes() for a, _ in address.terms)


def ordered(nests: Sequence[Nest], axes: Sequence[Axis]) -> list[Axis]:
    """`axes` outermost first, for nests that walk all of them around their own lanes.

    Least waste of memory granules first; among equals the order of the stores, then that of the loads, then the one
    that keeps axes over which inputs repeat outside."""
    moved = [(traffic(nest, a), isinstance(a, Store), a.address) for nest in nests for a in accesses(nest)]
    runs = _runs(nests, axes)
    candidates = [list(axes)]
    for _, _, address in moved:
        stride = {a: abs(address.coef(a)) for a in axes}
        candidates.append(sorted(axes, key=lambda a: (stride[a] != 0, -stride[a])))
    candidates = [list(order) for order in dict.fromkeys(map(tuple, candidates))]

    def score(order: list[Axis]) -> tuple[float, int, int, int]:
        stored = loaded = repeats_outside = 0
        for size, is_store, address in moved:
            strides = [abs(address.coef(a)) for a in order]
            for k, outer in enumerate(strides):
                for inner in strides[k + 1:]:
                    gain = size * ((outer > inner > 0) - (0 < outer < inner))
                    stored += gain * is_store
                    loaded += gain * (not is_store)
                    repeats_outside += (outer == 0 < inner) - (inner == 0 < outer)
        return -round(sum(run.waste(order) for run in runs), 2), stored, loaded, repeats_outside

    return max(candidates, key=score)


@dataclass(frozen=True, slots=True)
class _Run:
    """A stretch of `length` elements that a kernel touches at every step of the outer axes, `moved` bytes in all."""

    address: Affine
    length: int
    size: int
    moved: int

    def waste(self, order: Sequence[Axis]) -> float:
        """Bytes fetched or written in vain, for runs that do not fill memory's granules."""
        length = self.length
        outer = list(order)
        while outer and self.address.coef(outer[-1]) == length:
            length *= outer.pop().extent
        if not any(self.address.coef(a) for a in outer):
            return 0.0
        steps = [self.address.coef(a) * self.size for a in outer]
        alignment = math.gcd(GRANULE, length * self.size, self.address.const * self.size, *steps)
        return self.moved * (GRANULE - alignment) / (length * self.size)


def _runs(nests: Sequence[Nest], axes: Sequence[Axis]) -> list[_Run]:
    """What all of `nests` touch around `axes`: neighbouring pieces of a buffer, read or written alike, are one run."""
    pieces: dict[tuple, list[tuple[int, int, Affine, int]]] = {}
    for nest in nests:
        inner = [a for a in nest.axes if a not in axes]
        for access in accesses(nest):
            address = access.address
            lane = next((a for a in inner if address.coef(a) == 1), None)
            length = lane.extent if lane is not None else 1
            outer = tuple((a, c) for a, c in address.terms if a in axes)
            pieces.setdefault((access.buffer, isinstance(access, Store), outer), []).append(
                (address.const, length, address, dtype_size(access)))
    runs = []
    points = math.prod(a.extent for a in axes)
    for parts in pieces.values():
        parts.sort(key=lambda p: p[0])
        start, end, address, size = parts[0][0], parts[0][0] + parts[0][1], parts[0][2], parts[0][3]
        for const, length, other, _ in [*parts[1:], (1 << 62, 0, address, 0)]:
            if const <= end:
                end = max(end, const + length)
                continue
            runs.append(_Run(address, end - start, size, (end - start) * size * points))
            start, end, address = const, const + length, other
    return runs


def coalesced(order: Sequence[Axis], all_indices: Sequence[Affine]) -> list[Loop]:
    """Neighbours become one loop where every index steps through both as through one."""
    loops: list[list[Axis]] = []
    for axis in order:
        if loops:
            outer = loops[-1][-1]
            if all(i.coef(outer) == i.coef(axis) * axis.extent for i in all_indices):
                loops[-1].append(axis)
                continue
        loops.append([axis])
    return [Loop(tuple(group)) for group in loops]


def vector_of(access: Access, lane: Loop | None, lanes: int, alignment: int) -> Vector:
    """How `access` moves `lanes` elements along `lane`; `alignment` is its base pointer's, in bytes."""
    index, size = access.address, dtype_size(access)
    guards = access.guards if isinstance(access, Load) else ()
    inner = lane.inner if lane is not None else None
    varies = inner is not None and any(a in lane.axes for i in (index, *(g.index for g in guards)) for a in i.axes())
    if not varies:
        return Vector(0)
    if any(a in lane.axes for g in guards for a in g.index.axes()):
        return Vector(1, "guarded along the vector")
    if any(_is_hidden(a, index) for a in lane.axes):
        return Vector(1, "index is not affine along the vector")
    coef = lane.coef(index)
    if coef != 1:
        return Vector(1, f"stride {coef} along the vector")
    width, limit = min(lanes, VECTOR_BYTES // size), ""
    for what, offset in (("pointer alignment", alignment), ("offset", index.const * size),
                         *((f"stride of {t}", c * size) for t, c in index.terms if t is not inner and t not in lane.axes)):
        while width > 1 and offset % (width * size):
            width, limit = width // 2, what
    return Vector(width, limit)


def invariant(nest: Nest) -> list[Axis]:
    """Axes on which nothing that is read or computed depends: each value is stored once for each step along them."""
    used = {a for e in nest.exprs() for a in axes_of(e)}
    return [a for a in nest.axes if a not in used]


def reductions(nest: Nest) -> list[Accumulate]:
    return [e for e in nest.exprs() if isinstance(e, Accumulate)]
