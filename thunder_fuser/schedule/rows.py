"""The schedule of rows: threads along each row of a domain, several passes over it, results in the same kernel.

Taken by every reduction that is too long for one thread. Decides along what the lanes lie, how many threads and blocks
share a row, what stays in registers between passes, and whether a row's blocks leave partial results for a second
kernel. Partial results meet in an order that does not depend on timing, so that results repeat bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from thunder_fuser.ir.dtypes import F32, DType
from thunder_fuser.ir.nodes import TensorType, Value
from thunder_fuser.maps.affine import Affine, Axis
from thunder_fuser.maps.exprs import Accumulate, Expr, Load, axes_of, children, fetched_in, indices_of
from thunder_fuser.maps.nests import Store
from thunder_fuser.maps.rows import NotRows, Result, RowNest
from thunder_fuser.schedule.limits import CLUSTER, PROCESSORS, RESIDENT, WAVES
from thunder_fuser.schedule.order import VECTOR_BYTES, accesses, coalesced, dtype_size, indices, ordered, traffic, vector_axis, vector_of
from thunder_fuser.schedule.plan import Loop, RowPlan

THREADS = 256  # of a block that streams
SMALLEST_BLOCK = 128
HELD_BYTES = 64  # of resident loads that a thread aims at
HELD_BY_BLOCK = 48 * 1024  # bytes of resident loads from which on a row is shared by a cluster
WORTH = 4  # parts of a row that are worth a second kernel
MAX_SUMS = 64  # column sums of one thread
STAGES = 4  # rows that a walker has under way
STAGED_BYTES = 200 * 1024  # of a processor's shared memory for them
WALKING = 1024  # threads of a processor that walk: more would leave too few registers for the sums
FULL_LINE = 512  # bytes side by side that a warp reads across rows


def depths(nest: RowNest) -> dict[Expr, int]:
    """For each expression of the nest, how many reductions along the row must be known first, one after the other."""
    along = set(nest.reduced)
    found: dict[Expr, int] = {}
    for expr in nest.exprs():
        below = max((found[c] for c in children(expr)), default=0)
        found[expr] = below + (isinstance(expr, Accumulate) and bool(along.intersection(expr.axes)))
    return found


def along_row(nest: RowNest, expr: Load) -> bool:
    """Whether a load differs from element to element of a row."""
    return not axes_of(expr).isdisjoint(nest.reduced)


def plan_rows(nest: RowNest, alignment: Mapping[Value, int], *, may_split: bool) -> RowPlan:
    """The plan of one nest. `may_split`: its stores are reductions' results alone, of which blocks may leave partial ones.
    Raises `NotRows` for rows whose column sums no block can hold."""
    lane_axis = vector_axis(nest, nest.axes)
    every = indices(nest)
    inner = lane_axis is None or lane_axis in nest.reduced
    kept = coalesced(_lane_last(nest, nest.kept, lane_axis), every)
    reduced = coalesced(_lane_last(nest, nest.reduced, lane_axis), every)
    lane = (reduced if inner else kept)[-1] if lane_axis is not None else None
    lanes = _lanes(nest, lane)
    access = {a: vector_of(a, lane, lanes, alignment.get(a.buffer, VECTOR_BYTES)) for a in accesses(nest)}
    plan = RowPlan(nest, tuple(kept), tuple(reduced), lanes, inner, 1, 1, access)
    if nest.columns and not inner:
        raise NotRows
    return _inner(plan, may_split=may_split) if inner else _outer(plan, may_split=may_split)


def _lane_last(nest: RowNest, axes: Sequence[Axis], lane_axis: Axis | None) -> list[Axis]:
    order = ordered([nest], [a for a in axes if a is not lane_axis])
    return [*order, lane_axis] if lane_axis in axes else order


def _lanes(nest: RowNest, lane: Loop | None) -> int:
    contiguous = [a for a in accesses(nest) if lane is not None and lane.coef(a.address) == 1]
    if not contiguous:
        return 1
    main = max(contiguous, key=lambda a: traffic(nest, a))
    lanes = VECTOR_BYTES // dtype_size(main)
    while lanes > 1 and (lane.extent % lanes or lanes * max(map(dtype_size, contiguous)) > 2 * VECTOR_BYTES):
        lanes //= 2
    return lanes


def _inner(plan: RowPlan, *, may_split: bool) -> RowPlan:
    nest, lanes, units = plan.nest, plan.lanes, plan.row_units
    depth = depths(nest)
    held = frozenset(ld for ld in nest.loads() if along_row(nest, ld) and not depth[ld]) if _passes(nest) > 1 or nest.columns else frozenset()
    unit_bytes = sum(ld.dtype.size for ld in held) * lanes
    sums = len(nest.columns) * lanes
    cluster = 1
    while cluster < CLUSTER and units >= 64 * cluster and max(units * unit_bytes, units * sums * 2) > HELD_BY_BLOCK * cluster:
        cluster *= 2
    if held and units * unit_bytes > RESIDENT * cluster:
        held, unit_bytes = frozenset(), 0
    mine = -(-units // cluster)
    if held or nest.columns:
        threads = _threads(mine, unit_bytes, sums, plan.units * cluster)
    else:
        threads = _power(min(mine, THREADS))
        cluster = 1 if _passes(nest) == 1 else cluster
    columns = max(1, SMALLEST_BLOCK // threads)
    while columns > 1 and plan.units // columns < PROCESSORS:
        columns //= 2
    columns = max(columns, -(-32 // threads))
    if nest.columns:
        return _walking(replace(plan, threads=threads, columns=columns, cluster=cluster, resident=held))
    split = _split(-(-plan.units // columns), units // (4 * threads)) if may_split else 1
    return replace(plan, threads=threads, columns=columns, cluster=cluster, resident=held, split=split)


def _walking(plan: RowPlan) -> RowPlan:
    """`plan` with blocks that walk over the rows: a thousand threads a processor, rows dealt out evenly, and rows under way in
    shared memory, as many as fit, if hardware can copy what is held there by itself."""
    nest = plan.nest
    if plan.steps * plan.lanes * len(nest.columns) > MAX_SUMS:
        raise NotRows
    together = max(1, WALKING // (plan.threads * plan.columns))
    groups = -(-plan.units // plan.columns)
    walkers = max(1, min(groups, together * PROCESSORS // plan.cluster))
    walkers = -(-groups // -(-groups // walkers))
    partials = tuple(_partial(c, walkers * plan.columns) for c in nest.columns)
    plan = replace(plan, walkers=walkers, partials=partials, together=together)
    copied = [ld for ld in plan.resident if not axes_of(ld).isdisjoint(nest.kept)]
    if not copied or any(ld.guards or plan.access[ld].width * ld.dtype.size not in (4, 8, 16, 32) or any(fetched_in(indices_of(ld))) for ld in copied):
        return plan
    for stages in range(STAGES, 1, -1):
        staged = replace(plan, stages=stages)
        if staged.shared_bytes * together <= STAGED_BYTES:
            return staged
    return plan


def _outer(plan: RowPlan, *, may_split: bool) -> RowPlan:
    main = max((ld.dtype.size for ld in plan.nest.loads()), default=4)
    columns = _power(min(max(1, FULL_LINE // (plan.lanes * main)), 32, max(plan.units, 1)))
    while columns > 8 and (plan.units % columns or (not may_split and plan.units // columns < PROCESSORS)):
        columns //= 2
    threads = max(1, THREADS // columns)
    while threads > 1 and threads // 2 >= plan.row_units:
        threads //= 2
    threads = max(threads, -(-32 // columns))
    split = _split(-(-plan.units // columns), plan.row_units // (4 * threads)) if may_split else 1
    return replace(plan, threads=threads, columns=columns, split=split)


def _threads(units: int, unit_bytes: int, sums: int, blocks: int) -> int:
    """Threads along a row of `units`: few idle ones first, then about HELD_BYTES each, less where rows are few."""
    best, chosen = (-1.0, 0.0), 32
    aim = max(1, HELD_BYTES // max(unit_bytes, 1), -(-units // THREADS))
    if sums:
        aim = -(-units // 1024) if units > 64 else 2
    while not sums and aim > 1 and blocks < 2 * PROCESSORS:
        aim //= 2
    for steps in range(1, 2 * aim + 1):
        threads = -(-units // steps)
        threads = _power(threads) if threads <= 32 else -(-threads // 32) * 32
        if threads > 1024:
            continue
        used = round(units / (threads * -(-units // threads)), 1)
        score = (used, -abs(math.log2(steps / aim)))
        if score > best:
            best, chosen = score, threads
    if best[0] < 0:
        chosen = 1024
    return chosen


def _power(n: int) -> int:
    """The least power of two that is n or more."""
    return 1 << max(n - 1, 0).bit_length()


def _passes(nest: RowNest) -> int:
    """How often the elements of a row are needed, one reduction after the other."""
    depth = depths(nest)
    last = [depth[s.expr] for s in nest.stores if not set(s.address.axes()).isdisjoint(nest.reduced)]
    last += [depth[c.expr.body] for c in nest.columns]
    reductions = [depth[e] - 1 for e in nest.exprs() if isinstance(e, Accumulate) and set(nest.reduced).intersection(e.axes)]
    return 1 + max([*last, *reductions], default=0)


def _split(blocks: int, most: int) -> int:
    """Blocks that share a row so that the card is busy, each with a few steps at least."""
    wanted = -(-WAVES * 2 * PROCESSORS // max(blocks, 1))
    return max(1, min(wanted, most)) if blocks < WAVES * PROCESSORS and most >= WORTH else 1


def _partial(result: Result, parts: int) -> Value:
    """The buffer of what `parts` walkers or blocks leave of a reduction."""
    return Value(f"{result.value.name}.parts", TensorType(accumulated(result.expr.dtype), (parts, *result.value.shape)))


def accumulated(dtype: DType) -> DType:
    """The dtype in which a sum of `dtype` is kept until it is whole."""
    return F32 if dtype.kind == "float" and dtype.size < 4 else dtype


def split_stores(plan: RowPlan, results: Sequence[Result]) -> tuple[RowPlan, tuple[Value, ...]]:
    """`plan` with each of `results` left in `plan.split` parts, and the buffers that hold them."""
    part = Axis(("s",), plan.split)
    buffers = tuple(_partial(r, plan.split) for r in results)
    stores = tuple(Store(b, r.address + Affine.of(part, r.value.type.numel),
                         Accumulate(r.expr.op, r.expr.axes, r.expr.body, b.dtype)) for b, r in zip(buffers, results))
    nest = RowNest(plan.nest.kept, plan.nest.reduced, stores)
    lane = plan.kept[-1] if not plan.lane_is_reduced and plan.kept else None
    loads = {a: v for a, v in plan.access.items() if isinstance(a, Load)}
    access = {**loads, **{s: vector_of(s, lane, plan.lanes, VECTOR_BYTES) for s in stores}}
    return replace(plan, nest=nest, access=access), buffers
