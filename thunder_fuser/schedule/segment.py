"""Segments: which values are written to memory between kernels, and which kernel writes what.

Everything is fused except where a schedule cannot go on: long reductions share a kernel with what walks the same rows
(`groups`) and are written out before anything else reads them, and programs past a size are cut so that compilers stay
fast. Pads and cats never cut. Called by `compiler` once a stride pattern; linear in the program.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from thunder_fuser.analysis.domains import Atom, Domains
from thunder_fuser.analysis.layout import Layout
from thunder_fuser.ir import nodes as ir
from thunder_fuser.ir.ops import POINTWISE
from thunder_fuser.ir.random import DRAW_COST
from thunder_fuser.maps.rows import RowGroup
from thunder_fuser.schedule.groups import group_reductions, keeps_points, length
from thunder_fuser.schedule.limits import CLUSTER, PROCESSORS, RESIDENT, SERIAL

MAX_COST = 384  # operations of one segment, transcendental ones counted by weight
MAX_RECOMPUTE = 16  # times that a kernel may evaluate its operations at different indices
MAX_TARGETS = 16  # buffers of one kernel
READ_TWICE = 1 << 20  # elements that one kernel reads twice sooner than a second one is launched

Target = tuple[ir.Value, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Segment:
    """One kernel's work: it writes `targets` (value, strides), reading inputs and the targets of earlier segments.

    With a row `group` it walks rows; `columns` are then the targets that follow from reductions over the rows, which a
    second kernel finishes."""

    targets: tuple[Target, ...]
    level: int
    group: RowGroup | None = None
    columns: tuple[Target, ...] = ()
    node: ir.Scatter | ir.Scan | None = None  # what makes the one target: a scan, or a scatter whose base is there already

    @property
    def reduces(self) -> bool:
        return self.group is not None

    @property
    def written(self) -> tuple[Target, ...]:
        return (*self.targets, *self.columns)

    def __str__(self) -> str:
        kind = type(self.node).__name__.lower() if self.node is not None else "reduction" if self.reduces else "pointwise"
        return f"segment level {self.level} ({kind}) writes " + ", ".join(f"{v}{list(v.shape)}" for v, _ in self.written)


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments in an order in which they can run, and why each value between them is written at all."""

    segments: tuple[Segment, ...]
    cuts: Mapping[ir.Value, str]

    def __str__(self) -> str:
        return "\n".join([*map(str, self.segments), *(f"cut at {v}: {why}" for v, why in self.cuts.items())])


def segment(fusion: ir.Fusion, layouts: Mapping[ir.Value, Layout], outputs: Sequence[Target], domains: Domains | None = None,
            forced: Iterable[ir.Value] = (), apart: Iterable[ir.Value] = ()) -> Segments:
    """Cuts `fusion` so that `outputs` get written. `domains` are its iteration domains, needed if it `reduces`. `forced`
    values are written out too (see `recompute_cut`); reductions `apart` are not read again in their own kernel."""
    cuts = dict.fromkeys(forced, "evaluated at too many indices")
    needed = _needed(fusion, [v for v, _ in outputs])
    nodes = [n for n in fusion.nodes if n.out in needed]
    alone = {n.out: n for n in nodes if isinstance(n, (ir.Scatter, ir.Scan))}
    cuts |= {out: f"made by a {type(n).__name__.lower()}" for out, n in alone.items()}
    cuts |= {n.arg: "what a scatter writes into" for n in alone.values() if isinstance(n, ir.Scatter)}
    cuts |= {v: why for v, why in _size_cuts(nodes).items() if v not in cuts}
    cuts |= _nested_cuts(nodes, cuts)
    strides = dict(outputs)
    of: Mapping[ir.Value, tuple[RowGroup, bool]] = {}
    if domains is not None:
        groups = group_reductions(nodes, [v for v, _ in outputs], cuts, domains, _Returns(fusion, layouts, frozenset(apart)))
        cuts, of = dict(groups.cuts), groups.of
    targets = {**strides, **{v: _dense(v, layouts) for v in cuts if v not in strides}}
    targets |= {n.arg: targets[n.out] for n in alone.values() if isinstance(n, ir.Scatter)}  # one memory
    levels = _levels(nodes, set(cuts))
    return Segments(tuple(_segments(targets, levels, of, alone, domains)), cuts)


def reduces(fusion: ir.Fusion) -> bool:
    """Whether a fusion has a reduction that is too long for one thread."""
    return any(isinstance(n, ir.Reduce) and length(n) > SERIAL for n in fusion.nodes)


def _segments(targets: Mapping[ir.Value, tuple[int, ...]], levels: Mapping[ir.Value, int], of: Mapping[ir.Value, tuple[RowGroup, bool]],
              alone: Mapping[ir.Value, ir.Scatter | ir.Scan], domains: Domains | None) -> list[Segment]:
    """Targets of one level that can share a kernel, together; reductions first, so that pointwise targets of their
    domain may join them."""
    plain: dict[int, list[Target]] = {}
    rows: dict[tuple[int, int], tuple[RowGroup, list[Target], list[Target]]] = {}
    found: list[Segment] = []
    for value, strides in targets.items():
        if math.prod(value.shape) == 0:
            continue
        level, (group, is_column) = levels.get(value, 0), of.get(value, (None, False))
        if value in alone:
            found.append(Segment(((value, strides),), level, node=alone[value]))
        elif group is None:
            plain.setdefault(level, []).append((value, strides))
        else:
            rows.setdefault((level, id(group)), (group, [], []))[1 + is_column].append((value, strides))
    for (level, _), (group, own, _) in rows.items():
        if domains is not None and group.distinct and len(own) < MAX_TARGETS:
            joining = [t for t in plain.get(level, ()) if set(domains.atoms(t[0])) == {*group.kept, *group.reduced}]
            own += joining[:MAX_TARGETS - len(own)]
            plain[level] = [t for t in plain.get(level, ()) if t not in own]
    found += [Segment(tuple(own[k:k + MAX_TARGETS]), level, group, tuple(columns) if k == 0 else ())
             for (level, _), (group, own, columns) in rows.items() for k in range(0, max(len(own), 1), MAX_TARGETS)]
    found += [Segment(tuple(part[k:k + MAX_TARGETS]), level) for level, part in plain.items() for k in range(0, len(part), MAX_TARGETS)]
    return sorted(found, key=lambda s: (s.level, s.reduces))


class _Returns:
    """Whether a kernel should go over the rows of a reduction a second time, from sizes and strides.

    It should if its rows keep the card busy, clusters included: rows that threads hold cost no second read, and longer ones
    are read twice either way."""

    def __init__(self, fusion: ir.Fusion, layouts: Mapping[ir.Value, Layout], apart: frozenset[ir.Value]) -> None:
        self.layouts, self.apart = layouts, apart
        self.inputs = [v for v in fusion.inputs if isinstance(v.type, ir.TensorType)]

    def __call__(self, node: ir.Reduce, kept: Sequence[Atom], reduced: Sequence[Atom]) -> bool:
        if node.out in self.apart:
            return False
        rows, row = math.prod(a.size for a in kept), math.prod(a.size for a in reduced)
        layout = self.layouts.get(node.arg)
        fastest = min(((s, d) for d, (s, n) in enumerate(zip(layout.strides, node.arg.shape)) if n > 1 and s), default=(1, -1))[1] if layout else -1
        if fastest >= 0 and fastest not in node.dims:  # neighbours in memory belong to different rows
            blocks = max(1, rows // 32)
            return blocks >= PROCESSORS // 2 or rows * row <= READ_TWICE * min(blocks, 8) // 8
        size = min((v.dtype.size for v in self.inputs if v.type.numel >= rows * row // 2), default=node.arg.dtype.size)
        blocks = min(CLUSTER, -(-row * size // (RESIDENT // 4)))
        return rows * blocks >= PROCESSORS // 2 or rows * row <= READ_TWICE


def recompute_cut(counts: Mapping[ir.Value, int], fusion: ir.Fusion, forced: Sequence[ir.Value] = ()) -> ir.Value | None:
    """Where to cut a kernel that evaluates values at too many indices, or at indices that are too long: the value in the
    middle of those that are evaluated more than once (of all, if none is) and not cut yet. Computed ones come first,
    those that only move elements last."""
    open_ = [n for n in fusion.nodes if counts.get(n.out) and n.out not in forced and isinstance(n.out.type, ir.TensorType)]
    for among in ([n for n in open_ if counts[n.out] > 1], open_):
        for kinds in (ir.META_NODES, ir.VIEW_NODES, ()):
            best = [n.out for n in among if not isinstance(n, kinds)]
            if best:
                return best[len(best) // 2]
    return None


def _needed(fusion: ir.Fusion, roots: list[ir.Value]) -> set[ir.Value]:
    needed = set(roots)
    for node in reversed(fusion.nodes):
        if node.out in needed:
            needed.update(ir.operand_values(node))
    return needed


def _dense(value: ir.Value, layouts: Mapping[ir.Value, Layout]) -> tuple[int, ...]:
    """Strides of a buffer between kernels: eager's where its storage is its own, else row-major."""
    layout = layouts.get(value)
    if layout is not None and layout.base is value:
        return layout.strides
    return tuple(math.prod(value.shape[d + 1:]) for d in range(len(value.shape)))


def _size_cuts(nodes: list[ir.Node]) -> dict[ir.Value, str]:
    """Values that cross from one stretch of MAX_COST operations into a later one."""
    stretch: dict[ir.Value, int] = {}
    source: dict[ir.Value, ir.Value] = {}  # through meta ops, which belong to whoever reads them
    cost, cuts = 0, {}
    for node in nodes:
        if isinstance(node, ir.VIEW_NODES):
            source[node.out] = source.get(node.arg, node.arg)
            continue
        here = cost // MAX_COST
        for arg in ir.operand_values(node):
            origin = source.get(arg, arg)
            if stretch.get(origin, here) < here:
                cuts[origin] = f"more than {MAX_COST} operations"
        stretch[node.out] = here
        cost += POINTWISE[node.op].cost if isinstance(node, ir.Pointwise) else DRAW_COST if isinstance(node, ir.Random) else 1
    return cuts


def _nested_cuts(nodes: list[ir.Node], cuts: Mapping[ir.Value, str]) -> dict[ir.Value, str]:
    """Short reductions that are spread out and reduced again: a thread would evaluate them anew at every step, which
    multiplies their lengths with each further one."""
    none: frozenset[ir.Value] = frozenset()
    inside: dict[ir.Value, tuple[int, frozenset[ir.Value], bool]] = {}  # steps for an element, the last reductions, spread out
    found: dict[ir.Value, str] = {}
    for node in nodes:
        known = [inside[a] for a in ir.operand_values(node) if a in inside and a not in cuts and a not in found]
        steps = max((k[0] for k in known), default=1)
        last = none.union(*(k[1] for k in known))
        spread = any(k[2] for k in known) or (bool(last) and not isinstance(node, ir.Reduce) and not keeps_points(node))
        if isinstance(node, ir.Reduce):
            if spread and steps * length(node) > SERIAL:
                found |= dict.fromkeys(last, "a short reduction, spread out and reduced again")
                steps, spread = 1, False
            if length(node) > SERIAL:
                continue  # has threads of its own
            steps, last = steps * length(node), frozenset((node.out,))
        if last:
            inside[node.out] = (steps, last, spread)
    return found


def _levels(nodes: list[ir.Node], written: set[ir.Value]) -> dict[ir.Value, int]:
    """How many kernels must have run before the one that writes a value."""
    level: dict[ir.Value, int] = {}
    for node in nodes:
        level[node.out] = max((level.get(a, 0) + (a in written) for a in ir.operand_values(node)), default=0)
    return level
