"""The pointwise and boxes schedules: threads over vectors of a nest's points, nests of a kernel side by side.

A thread owns `lanes` neighbours along the loop that most bytes are contiguous in. Nests with equal outer loops share
blocks (a bundle), so that pieces of one row, q's rotated and passed-through parts or q, k and v, are touched close in
time; other nests take their own range of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from thunder_fuser.ir.nodes import Value
from thunder_fuser.ir.ops import POINTWISE
from thunder_fuser.ir.random import DRAW_COST
from thunder_fuser.maps.affine import Axis
from thunder_fuser.maps.exprs import Apply, Draw
from thunder_fuser.maps.nests import Nest
from thunder_fuser.schedule.order import (
    GRANULE,
    VECTOR_BYTES,
    accesses,
    coalesced,
    dtype_size,
    indices,
    invariant,
    ordered,
    reductions,
    traffic,
    vector_axis,
    vector_of,
)
from thunder_fuser.schedule.plan import Bundle, Loop, NestPlan

THREADS = 128
TILE = 4  # rows across a tile, where rows share granules
MAX_THREADS = 512  # of a block that nests share: past that, each takes blocks of its own
MAX_REPEATS = 64  # steps of a loop over which one value is stored again and again
MAX_STATEMENTS = 1024  # lanes x ops of one nest: past that, fewer lanes keep the compiler fast and registers free
SMALL = 132 * 512  # threads that keep a large card busy


def plan_nests(nests: Sequence[Nest], alignment: Mapping[Value, int]) -> list[NestPlan]:
    """Orders and vectorises the nests of a kernel; `alignment` gives each buffer's pointer alignment in bytes.

    Nests over the same outer axes are ordered as one, so that they can share blocks."""
    roles = [_roles(nest) for nest in nests]
    alike: dict[tuple[Axis, ...], list[Nest]] = {}
    for nest, (walked, _, _) in zip(nests, roles):
        alike.setdefault(walked, []).append(nest)
    orders = {walked: ordered(group, walked) for walked, group in alike.items()}
    return [_plan(nest, orders[walked], repeated, lane, alignment) for nest, (walked, repeated, lane) in zip(nests, roles)]


def _roles(nest: Nest) -> tuple[tuple[Axis, ...], tuple[Axis, ...], Axis | None]:
    """Axes to walk outside, axes to repeat stores over, and the axis of the lanes."""
    lane = vector_axis(nest, nest.axes)
    repeated = tuple(a for a in invariant(nest) if a.extent <= MAX_REPEATS and a is not lane) if len(nest.axes) > 1 else ()
    return tuple(a for a in nest.axes if a not in repeated and a is not lane), repeated, lane


def _plan(nest: Nest, order: Sequence[Axis], repeated: Sequence[Axis], lane_axis: Axis | None, alignment: Mapping[Value, int]) -> NestPlan:
    all_indices = indices(nest)
    loops = coalesced([*order, lane_axis] if lane_axis is not None else order, all_indices)
    repeats = coalesced(repeated, all_indices)
    lane = loops[-1] if lane_axis is not None else None
    lanes = _lanes(nest, loops) if lane is not None else 1
    access = {a: vector_of(a, lane, lanes, alignment.get(a.buffer, VECTOR_BYTES)) for a in accesses(nest)}
    return NestPlan(nest, tuple(loops), tuple(repeats), lanes, access)


def _lanes(nest: Nest, loops: Sequence[Loop]) -> int:
    """16 bytes of the dtype that moves most, at most 32 of any; less where the loop does not divide."""
    lane = loops[-1]
    contiguous = [a for a in accesses(nest) if lane.coef(a.address) == 1]
    main = max(contiguous, key=lambda a: traffic(nest, a))
    lanes = VECTOR_BYTES // dtype_size(main)
    widest = max(dtype_size(a) for a in contiguous)
    exprs = nest.exprs()
    cost = sum(POINTWISE[e.op].cost for e in exprs if isinstance(e, Apply)) + DRAW_COST * sum(isinstance(e, Draw) for e in exprs)
    while lanes > 1 and (lanes * widest > 2 * VECTOR_BYTES or lanes * cost > MAX_STATEMENTS):
        lanes //= 2
    points = math.prod(lp.extent for lp in loops)
    while lanes > 1 and lane.extent % lanes and (len(loops) > 1 or lane.extent < lanes):
        lanes //= 2
    while lanes > 1 and points // lanes < SMALL // 8 and lanes * dtype_size(main) > 4:
        lanes //= 2
    return lanes


def bundles(plans: Sequence[NestPlan]) -> tuple[tuple[Bundle, ...], int]:
    """The bundles of a kernel, and its threads a block. Plans that touch parts of the same memory granules share blocks."""
    groups: dict[tuple[int, ...], list[NestPlan]] = {}
    for plan in plans:
        groups.setdefault(tuple(lp.extent for lp in plan.loops[:-1]), []).append(plan)
    shared = [b for outer, group in groups.items() if outer and len(group) > 1 and _share_granules(group) for b in _side_by_side(group)]
    threads = max((32 * sum(b.warps) for b in shared), default=THREADS)
    in_shared = {id(p) for b in shared for p in b.nests}
    alone = [Bundle((p,), (threads // 32,), p.units, threads) for p in plans if id(p) not in in_shared]
    # blocks start in the order of their numbers: those with most work first, so that none of them is last to finish
    return tuple(sorted([*shared, *alone], key=_work_of_block, reverse=True)), threads


def _share_granules(group: Sequence[NestPlan]) -> bool:
    """Whether a row of some access is not made of whole granules, so that another nest's row lies in the same ones."""
    for plan in group:
        for access in accesses(plan.nest):
            steps = [c * dtype_size(access) for a, c in access.address.terms if a not in plan.loops[-1].axes]
            row = plan.loops[-1].coef(access.address) * plan.loops[-1].extent * dtype_size(access)
            if any(n % GRANULE for n in (row, access.address.const * dtype_size(access), *steps)):
                return True
    return False


def _side_by_side(group: Sequence[NestPlan]) -> list[Bundle]:
    """One bundle of the fewest rows that give every nest whole warps, or none if a block does not hold that many."""
    outer = [lp.extent for lp in group[0].loops[:-1]]
    rows = math.prod(outer)
    inner = [p.units // rows for p in group]
    per_block = math.lcm(*(32 // math.gcd(32, n) for n in inner))
    while sum(per_block * n for n in inner) < THREADS:
        per_block *= 2
    warps = tuple(per_block * n // 32 for n in inner)
    if 32 * sum(warps) > MAX_THREADS or per_block > rows:
        return []
    return [Bundle(tuple(group), warps, rows, per_block, _tile(group, outer, per_block))]


def _tile(group: Sequence[NestPlan], outer: Sequence[int], per_block: int) -> tuple[int, int] | None:
    """Tiles that bring together what lies together along the last but one loop. Where stores are contiguous along the last
    loop and loads hop, a block takes a tile; where stores hop, blocks keep their runs of loads and take turns. (Measured on
    rows of 160 bytes, H200: 1.5 and 2.5 percent.)"""
    if len(outer) < 2:
        return None
    row = group[0].loops[-2]
    stores = {s.address.coef(row.inner) for p in group for s in p.nest.stores}
    loads = {ld.address.coef(row.inner) for p in group for ld in p.nest.loads() if traffic(p.nest, ld) >= dtype_size(ld) * p.nest.points}
    hops = max(loads, default=0) > max(stores)
    across, along = (TILE, per_block // TILE) if hops else (2 * TILE, per_block)
    fits = along > 0 and outer[-2] % across == 0 and outer[-1] % along == 0
    return (across, along) if fits else None


def _work_of_block(bundle: Bundle) -> float:
    """Accesses that the threads of a block make."""
    return sum(warps * _accesses_of_unit(p) for warps, p in zip(bundle.warps, bundle.nests))


def _accesses_of_unit(plan: NestPlan) -> int:
    serial = {a: math.prod(x.extent for x in a.axes) for a in reductions(plan.nest)}
    loads = len(plan.nest.loads()) * max(serial.values(), default=1)
    return loads + len(plan.nest.stores) * math.prod(r.extent for r in plan.repeats)
