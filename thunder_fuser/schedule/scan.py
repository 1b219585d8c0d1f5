"""The scan schedule: a block for a line, or for 32 neighbouring ones, walked in chunks that hand their total on.

Within a chunk a thread scans neighbours by itself, the lanes of a warp meet in shuffles, and the parts of the block in shared
memory, always in the same order: results repeat bit for bit. What is computed before the scan is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from thunder_fuser.ir import nodes as ir
from thunder_fuser.maps.affine import dot
from thunder_fuser.maps.nests import Nest, Store
from thunder_fuser.maps.pullback import Pullback
from thunder_fuser.schedule.order import VECTOR_BYTES, accesses, coalesced, indices, vector_of
from thunder_fuser.schedule.plan import Loop, ScanPlan

THREADS = 256
COLUMNS = 32  # lines of a block whose neighbours in memory are other lines
MAX_LANES = 8
LONG = 64  # threads' worth of work of a line that deserves a block


def plan_scan(node: ir.Scan, pullback: Pullback, strides: tuple[int, ...], alignment: Mapping[ir.Value, int]) -> ScanPlan | None:
    """The plan of a scan whose result has the strides given, or None if the pullback's budget is exhausted. The index space
    stays whole: pads and cats before the scan are guarded."""
    boxes = pullback.together((node.arg,), max_boxes=1)
    if pullback.exhausted:
        return None
    ((axes, index, (expr,)),) = boxes
    along = set(index[node.dim].axes())
    store = Store(node.out, dot(index, strides), expr)
    nest = Nest(axes, (store,))
    all_indices = indices(nest)
    kept = sorted((a for a in axes if a not in along), key=lambda a: -abs(store.address.coef(a)))
    lines = coalesced(kept, all_indices)
    steps = coalesced([a for a in axes if a in along], all_indices)
    lane = steps[-1] if steps else None
    lanes = _lanes(lane, node.out.dtype.size) if lane is not None else 1
    access = {a: vector_of(a, lane, lanes, alignment.get(a.buffer, VECTOR_BYTES)) for a in accesses(nest)}
    plan = ScanPlan(nest, node.op, tuple(lines), tuple(steps), lanes, THREADS, 1, access)
    few = math.prod(lp.extent for lp in lines) < COLUMNS // 2
    dense = lane is not None and lane.coef(store.address) == 1
    columns = 1 if plan.units >= LONG and (dense or few) else COLUMNS
    return ScanPlan(nest, node.op, tuple(lines), tuple(steps), lanes, THREADS, columns, access)


def _lanes(lane: Loop, size: int) -> int:
    """16 bytes, as far as the loop divides."""
    lanes = min(VECTOR_BYTES // size, MAX_LANES)
    while lane.extent % lanes:
        lanes //= 2
    return lanes
