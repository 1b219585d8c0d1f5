"""Segments -> kernel plans: pulls each segment's targets back to loop nests and gives the nests their schedule.

Called by `compiler`. Raises `UnsupportedError` for what no schedule takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from thunder_fuser.ir import nodes as ir
from thunder_fuser.maps.exprs import Load, Scalar
from thunder_fuser.maps.nests import Nest, build, build_scatter, elements
from thunder_fuser.maps.pullback import Pullback
from thunder_fuser.schedule.order import indices, reductions
from thunder_fuser.schedule.plan import KernelPlan, ScanPlan
from thunder_fuser.schedule.pointwise import bundles, plan_nests
from thunder_fuser.schedule.reduction import THREADS as REDUCTION_THREADS
from thunder_fuser.schedule.reduction import is_large, plan_reduction
from thunder_fuser.schedule.scan import plan_scan
from thunder_fuser.schedule.segment import MAX_RECOMPUTE, Segment

MAX_NESTS = 24  # of one kernel


class TooMuchRecomputation(Exception):
    """A segment evaluates values at too many indices; `counts` says how many for each. `compiler` cuts and tries again."""

    def __init__(self, counts: Mapping[ir.Value, int]) -> None:
        self.counts = counts


def plan_segment(segment: Segment, fusion: ir.Fusion, producers: Mapping[ir.Value, ir.Node], sources: Mapping[ir.Value, tuple[int, ...]],
                 alignment: Mapping[ir.Value, int]) -> list[KernelPlan]:
    """The kernels of a segment: one, or several if it holds several long reductions or very many nests."""
    pullback = Pullback(producers, sources, budget=MAX_RECOMPUTE * len(fusion.nodes) + 4096)
    node, strides = segment.node, segment.targets[0][1]
    if isinstance(node, ir.Scan):
        scan = plan_scan(node, pullback, strides, alignment)
        if scan is None:
            raise TooMuchRecomputation(pullback.counts())
        return [_kernel("scan", (scan.nest,), alignment, None, scan)]
    nests = build_scatter(pullback, node, strides) if node is not None else build(pullback, segment.targets)
    if pullback.exhausted:
        raise TooMuchRecomputation(pullback.counts())
    long = [n for n in nests if any(is_large(a) for a in reductions(n))]
    short = [n for n in nests if n not in long]
    plans = [_kernel("reduction", (n,), alignment, n) for n in long]
    for k in range(0, len(short), MAX_NESTS):
        part = short[k:k + MAX_NESTS]
        schedule = "scatter" if node is not None else "pointwise" if len(part) == 1 and len(part[0].stores) == 1 else "boxes"
        plans.append(_kernel(schedule, part, alignment, None))
    return plans


def _kernel(schedule: str, nests: Sequence[Nest], alignment: Mapping[ir.Value, int], long: Nest | None, scan: ScanPlan | None = None) -> KernelPlan:
    exprs = [e for n in nests for e in n.exprs()]
    reads = tuple(dict.fromkeys(e.buffer for e in exprs if isinstance(e, Load)))
    scalars = tuple(dict.fromkeys(e.value for e in exprs if isinstance(e, Scalar)))
    writes = tuple(dict.fromkeys(s.buffer for n in nests for s in n.stores))
    wide = any(i.hi >= 2**31 - 64 or i.lo < -(2**31) + 64 for n in nests for i in indices(n))
    side_by_side, threads = ((), scan.threads) if scan else ((), REDUCTION_THREADS) if long else bundles(plan_nests(nests, alignment))
    return KernelPlan(
        schedule=schedule,
        bundles=side_by_side,
        reduction=plan_reduction(long, alignment) if long else None,
        threads=threads,
        reads=reads, scalars=scalars, writes=writes, wide_index=wide,
        bytes=_bytes(nests), scan=scan)


def _bytes(nests: Sequence[Nest]) -> int:
    """Bytes that must move: every address read once, within its buffer's size, every store once."""
    read: dict[ir.Value, dict[Load, None]] = {}
    for nest in nests:
        for load in nest.loads():
            read.setdefault(load.buffer, {})[load] = None
    total = sum(min(sum(elements(ld) for ld in loads), max(v.type.numel, 1)) * v.dtype.size for v, loads in read.items())
    return total + sum(n.points * s.buffer.dtype.size for n in nests for s in n.stores)
