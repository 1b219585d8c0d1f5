"""The reduction schedule: one block for some outputs, its threads along the reduced loops of each.

Taken by nests whose reductions are too long for one thread. Partial results meet in shared memory, in an order that
does not depend on timing, so that results repeat bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from thunder_fuser.ir.nodes import Value
from thunder_fuser.maps.affine import Axis
from thunder_fuser.maps.exprs import Accumulate
from thunder_fuser.maps.nests import Nest
from thunder_fuser.schedule.order import VECTOR_BYTES, accesses, coalesced, dtype_size, indices, ordered, traffic, vector_axis, vector_of
from thunder_fuser.schedule.plan import Loop, ReductionPlan

THREADS = 256
SERIAL = 32  # elements that one thread reduces by itself, inside a pointwise kernel


def is_large(accumulate: Accumulate) -> bool:
    """Whether a reduction deserves a block."""
    return math.prod(a.extent for a in accumulate.axes) > SERIAL


def plan_reduction(nest: Nest, alignment: Mapping[Value, int]) -> ReductionPlan:
    """Decides along what the threads of a block lie, and how wide they read."""
    top = [e for e in nest.exprs() if isinstance(e, Accumulate)]
    reduced_axes = list(dict.fromkeys(a for e in top for a in e.axes))
    lane_axis = vector_axis(nest, [*nest.axes, *reduced_axes])
    all_indices = indices(nest)
    inner = lane_axis in reduced_axes
    loops = coalesced(_lane_last(nest, nest.axes, lane_axis), all_indices)
    reduced = coalesced(_lane_last(nest, reduced_axes, lane_axis), all_indices)
    lane = (reduced if inner else loops)[-1] if lane_axis is not None else None
    lanes = _lanes(nest, lane, alone=len(top) == 1 or not inner) if lane is not None else 1
    access = {a: vector_of(a, lane, lanes, alignment.get(a.buffer, VECTOR_BYTES)) for a in accesses(nest)}
    length = math.prod(lp.extent for lp in reduced) // (lanes if inner else 1)
    threads = THREADS
    while threads > 1 and threads // 2 >= length:
        threads //= 2
    if not inner:
        threads = min(threads, THREADS // 32)
    return ReductionPlan(nest, tuple(loops), tuple(reduced), lanes, threads, THREADS // threads, access, inner)


def _lane_last(nest: Nest, axes: Sequence[Axis], lane_axis: Axis | None) -> list[Axis]:
    order = ordered([nest], [a for a in axes if a is not lane_axis])
    return [*order, lane_axis] if lane_axis in axes else order


def _lanes(nest: Nest, lane: Loop, *, alone: bool) -> int:
    contiguous = [a for a in accesses(nest) if lane.coef(a.address) == 1]
    if not alone or not contiguous:
        return 1
    main = max(contiguous, key=lambda a: traffic(nest, a))
    lanes = VECTOR_BYTES // dtype_size(main)
    while lanes > 1 and lane.extent % lanes:
        lanes //= 2
    return lanes
