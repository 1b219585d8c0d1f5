"""Segments -> kernel plans: pulls each segment's targets back to loop nests and gives the nests their schedule.

Called by `compiler`. Raises `UnsupportedError` for what no schedule takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from thunder_fuser.analysis.domains import Domains
from thunder_fuser.ir import nodes as ir
from thunder_fuser.maps.boxes import Refine
from thunder_fuser.maps.exprs import Load, Scalar
from thunder_fuser.maps.nests import Nest, build, build_scatter, elements
from thunder_fuser.maps.pullback import Pullback
from thunder_fuser.maps.rows import NotRows, Result, RowGroup, RowNest, RowPullback, build_rows
from thunder_fuser.schedule.limits import SERIAL
from thunder_fuser.schedule.order import indices, reductions
from thunder_fuser.schedule.plan import KernelPlan, RowPlan
from thunder_fuser.schedule.pointwise import bundles, plan_nests
from thunder_fuser.schedule.rows import plan_rows, split_stores
from thunder_fuser.schedule.scan import plan_scan
from thunder_fuser.schedule.segment import MAX_RECOMPUTE, Segment, Target

MAX_NESTS = 24  # of one kernel

Strides = tuple[int, ...]


class TooMuchRecomputation(Exception):
    """A segment evaluates values at too many indices; `counts` says how many for each. `compiler` cuts and tries again."""

    def __init__(self, counts: Mapping[ir.Value, int]) -> None:
        self.counts = counts


class Apart(Exception):
    """No schedule takes a segment's rows: `reductions` must be written before they are read, or each by a kernel of its
    own (`alone`). `compiler` segments again."""

    def __init__(self, reductions: AbstractSet[ir.Value], *, alone: bool) -> None:
        self.reductions, self.alone = reductions, alone


@dataclass
class Planned:
    """Kernels in the order in which they run, and the buffers between those of one segment."""

    kernels: list[KernelPlan] = field(default_factory=list)
    scratch: dict[ir.Value, Strides] = field(default_factory=dict)


class SegmentPlanner:
    """Plans the segments of one fusion, for inputs of one alignment."""

    def __init__(self, fusion: ir.Fusion, domains: Domains | None, alignment: Mapping[ir.Value, int], apart: AbstractSet[ir.Value]) -> None:
        self.budget = MAX_RECOMPUTE * len(fusion.nodes) + 4096
        self.domains, self.alignment, self.apart = domains, alignment, apart

    def plan(self, segment: Segment, producers: Mapping[ir.Value, ir.Node], sources: Mapping[ir.Value, Strides]) -> Planned:
        """The kernels of a segment. Raises `TooMuchRecomputation`, `Apart`."""
        if segment.node is not None:
            return Planned(self._by_itself(segment, segment.node, producers, sources))
        if segment.group is None:
            return Planned(self._boxes(segment.targets, producers, sources))
        group, refused = segment.group, segment.group.reductions | set(segment.group.columns)
        if not group.distinct:
            return Planned(self._boxes(segment.targets, producers, sources))
        try:
            return self._rows(segment, group, producers, sources, may_split=True)
        except (NotRows, Refine):
            if not refused <= self.apart:
                raise Apart(refused, alone=False) from None
        return Planned(self._boxes(segment.targets, producers, sources))

    def _by_itself(self, segment: Segment, node: ir.Scatter | ir.Scan, producers: Mapping[ir.Value, ir.Node],
                   sources: Mapping[ir.Value, Strides]) -> list[KernelPlan]:
        pullback, strides = Pullback(producers, sources, budget=self.budget), segment.targets[0][1]
        if isinstance(node, ir.Scan):
            scan = plan_scan(node, pullback, strides, self.alignment)
            if scan is None:
                raise TooMuchRecomputation(pullback.counts())
            return [KernelPlan(schedule="scan", bundles=(), rows=None, threads=scan.threads, scan=scan, **_traffic([scan.nest]))]
        nests = build_scatter(pullback, node, strides)
        if pullback.exhausted:
            raise TooMuchRecomputation(pullback.counts())
        return [self._nests_kernel(nests[k:k + MAX_NESTS], "scatter") for k in range(0, len(nests), MAX_NESTS)]

    def _boxes(self, targets: Sequence[Target], producers: Mapping[ir.Value, ir.Node], sources: Mapping[ir.Value, Strides]) -> list[KernelPlan]:
        pullback = Pullback(producers, sources, budget=self.budget)
        nests = build(pullback, targets)
        if pullback.exhausted:
            raise TooMuchRecomputation(pullback.counts())
        long = [n for n in nests if any(_is_long(a.axes) for a in reductions(n))]
        short = [n for n in nests if n not in long]
        plans = [self._kernel(self._alone(n, targets)) for n in long]
        for k in range(0, len(short), MAX_NESTS):
            part = short[k:k + MAX_NESTS]
            plans.append(self._nests_kernel(part, "pointwise" if len(part) == 1 and len(part[0].stores) == 1 else "boxes"))
        return plans

    def _alone(self, nest: Nest, targets: Sequence[Target]) -> RowPlan:
        """The rows of a nest whose one long reduction has axes of its own."""
        axes = {a.axes for a in reductions(nest) if _is_long(a.axes)}
        if len(axes) > 1:
            raise Apart({v for v, _ in targets}, alone=True)
        (reduced,) = axes
        return plan_rows(RowNest(nest.axes, reduced, nest.stores), self.alignment, may_split=False)

    def _rows(self, segment: Segment, group: RowGroup, producers: Mapping[ir.Value, ir.Node], sources: Mapping[ir.Value, Strides], *,
              may_split: bool) -> Planned:
        assert self.domains is not None
        needed = _columns_of(segment.columns, group, producers, sources)
        pullback = RowPullback(producers, sources, self.domains, group, self.budget)
        nest = build_rows(pullback, segment.targets, needed)
        if pullback.exhausted:
            raise TooMuchRecomputation(pullback.counts())
        results = pullback.results()
        of_rows = all(set(self.domains.atoms(v)) <= set(group.kept) for v, _ in segment.targets) and not needed
        plan = plan_rows(nest, self.alignment, may_split=may_split and of_rows and all(e.expr.axes == nest.reduced for e in results))
        planned = Planned()
        if plan.split > 1:
            plan, parts = split_stores(plan, results)
            planned.kernels.append(self._kernel(plan))
            self._finish(planned, segment.targets, segment.level, group.kept, results, parts, producers, sources)
        else:
            planned.kernels.append(self._kernel(plan))
            if needed:
                self._finish(planned, segment.columns, segment.level, group.reduced, nest.columns, plan.partials, producers, sources)
        return planned

    def _finish(self, planned: Planned, targets: Sequence[Target], level: int, kept: Sequence, results: Sequence[Result],
                parts: Sequence[ir.Value], producers: Mapping[ir.Value, ir.Node], sources: Mapping[ir.Value, Strides]) -> None:
        """Adds the kernel that makes `targets` of the parts of `results`."""
        assert self.domains is not None
        scratch = {p: tuple(math.prod(p.shape[d + 1:]) for d in range(len(p.shape))) for p in parts}
        atoms = {p: self.domains.declare(p, r.value, p.shape[0]) for p, r in zip(parts, results)}
        first = next(iter(atoms.values()))
        for atom in atoms.values():
            if atom is not first:
                atom.same = first
        merged = {r.value: ir.Reduce(r.value, r.expr.op, p, (0,)) for p, r in zip(parts, results)}
        group = RowGroup(tuple(kept), (first,), frozenset(merged))
        segment = Segment(tuple(targets), level, group)
        planned.scratch |= scratch
        rest = self._rows(segment, group, {**producers, **merged}, {**sources, **scratch}, may_split=False)
        planned.kernels += rest.kernels

    def _nests_kernel(self, nests: Sequence[Nest], schedule: str) -> KernelPlan:
        side_by_side, threads = bundles(plan_nests(nests, self.alignment))
        return KernelPlan(schedule=schedule, bundles=side_by_side, rows=None, threads=threads, **_traffic(nests))

    def _kernel(self, plan: RowPlan) -> KernelPlan:
        threads, schedule = plan.threads * plan.columns, "rows" if plan.lane_is_reduced else "columns"
        facts = _traffic([plan.nest])
        facts["writes"] = (*facts["writes"], *plan.partials)
        facts["bytes"] += sum(p.type.numel * p.dtype.size for p in plan.partials)
        return KernelPlan(schedule=schedule, bundles=(), rows=plan, threads=threads, **facts)


def _is_long(axes: Sequence) -> bool:
    return math.prod(a.extent for a in axes) > SERIAL


def _columns_of(targets: Sequence[Target], group: RowGroup, producers: Mapping[ir.Value, ir.Node], sources: Mapping[ir.Value, Strides]) -> list[ir.Value]:
    """The group's columns from which `targets` follow."""
    found: dict[ir.Value, None] = {}
    seen: set[ir.Value] = set()
    stack = [v for v, _ in targets]
    while stack:
        value = stack.pop()
        if value in seen or value in sources or value not in producers:
            continue
        seen.add(value)
        if value in group.columns:
            found[value] = None
        else:
            stack.extend(ir.operand_values(producers[value]))
    return list(found)


def _traffic(nests: Sequence[Nest | RowNest]) -> dict:
    """What a kernel reads and writes, whether its indices need 64 bits, and its least bytes."""
    exprs = [e for n in nests for e in n.exprs()]
    return {
        "reads": tuple(dict.fromkeys(e.buffer for e in exprs if isinstance(e, Load))),
        "scalars": tuple(dict.fromkeys(e.value for e in exprs if isinstance(e, Scalar))),
        "writes": tuple(dict.fromkeys(s.buffer for n in nests for s in n.stores)),
        "wide_index": any(i.hi >= 2**31 - 64 or i.lo < -(2**31) + 64 for n in nests for i in indices(n)),
        "bytes": _bytes(nests),
    }


def _bytes(nests: Sequence[Nest | RowNest]) -> int:
    """Bytes that must move: every address read once, within its buffer's size, every store once."""
    read: dict[ir.Value, dict[Load, None]] = {}
    for nest in nests:
        for load in nest.loads():
            read.setdefault(load.buffer, {})[load] = None
    total = sum(min(sum(elements(ld) for ld in loads), max(v.type.numel, 1)) * v.dtype.size for v, loads in read.items())
    return total + sum(math.prod(a.extent for a in set(s.address.axes())) * s.buffer.dtype.size for n in nests for s in n.stores)
