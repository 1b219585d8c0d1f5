"""Segments: which values are written to memory between kernels, and which kernel writes what.

Everything is fused except where a schedule cannot go on: a long reduction is written out before something larger reads
it, and programs past a size are cut so that compilers stay fast. Pads and cats never cut. Called by `compiler` once a
stride pattern; linear in the program.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from thunder_fuser.analysis.layout import Layout
from thunder_fuser.ir import nodes as ir
from thunder_fuser.ir.ops import POINTWISE
from thunder_fuser.ir.random import DRAW_COST
from thunder_fuser.schedule.reduction import SERIAL

MAX_COST = 384  # operations of one segment, transcendental ones counted by weight
MAX_RECOMPUTE = 16  # times that a kernel may evaluate its operations at different indices
MAX_TARGETS = 16  # buffers of one kernel

Target = tuple[ir.Value, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Segment:
    """One kernel's work: it writes `targets` (value, strides), reading inputs and the targets of earlier segments."""

    targets: tuple[Target, ...]
    reduces: bool
    level: int
    node: ir.Scatter | ir.Scan | None = None  # what makes the one target: a scan, or a scatter whose base is there already

    def __str__(self) -> str:
        kind = type(self.node).__name__.lower() if self.node is not None else "reduction" if self.reduces else "pointwise"
        return f"segment level {self.level} ({kind}) writes " + ", ".join(f"{v}{list(v.shape)}" for v, _ in self.targets)


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments in an order in which they can run, and why each value between them is written at all."""

    segments: tuple[Segment, ...]
    cuts: Mapping[ir.Value, str]

    def __str__(self) -> str:
        return "\n".join([*map(str, self.segments), *(f"cut at {v}: {why}" for v, why in self.cuts.items())])


def segment(fusion: ir.Fusion, layouts: Mapping[ir.Value, Layout], outputs: Sequence[Target], forced: Iterable[ir.Value] = ()) -> Segments:
    """Cuts `fusion` so that `outputs` get written. `forced` values are written out too (see `recompute_cut`)."""
    cuts = dict.fromkeys(forced, "evaluated at too many indices")
    needed = _needed(fusion, [v for v, _ in outputs])
    nodes = [n for n in fusion.nodes if n.out in needed]
    alone = {n.out: n for n in nodes if isinstance(n, (ir.Scatter, ir.Scan))}
    cuts |= {out: f"made by a {type(n).__name__.lower()}" for out, n in alone.items()}
    cuts |= {n.arg: "what a scatter writes into" for n in alone.values() if isinstance(n, ir.Scatter)}
    cuts |= {v: why for v, why in _size_cuts(nodes).items() if v not in cuts}
    cuts |= _nested_cuts(nodes, cuts)
    heavy = _reduction_cuts(nodes, cuts)
    strides = dict(outputs)
    targets = {**strides, **{v: _dense(v, layouts) for v in cuts if v not in strides}}
    targets |= {n.arg: targets[n.out] for n in alone.values() if isinstance(n, ir.Scatter)}  # one memory
    levels = _levels(nodes, set(cuts))
    groups: dict[tuple[int, bool, int], list[Target]] = {}
    reductions = 0
    for value, value_strides in targets.items():
        if math.prod(value.shape) == 0:
            continue
        reduces = bool(heavy.get(value))
        by_itself = reduces or value in alone
        reductions += by_itself
        key = (levels.get(value, 0), reduces, reductions if by_itself else 0)
        groups.setdefault(key, []).append((value, value_strides))
    segments = [Segment(tuple(group[k:k + MAX_TARGETS]), reduces, level, alone.get(group[0][0]))
                for (level, reduces, _), group in sorted(groups.items(), key=lambda g: g[0])
                for k in range(0, len(group), MAX_TARGETS)]
    return Segments(tuple(segments), cuts)


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


def _reduction_cuts(nodes: list[ir.Node], cuts: dict[ir.Value, str]) -> dict[ir.Value, frozenset[ir.Value]]:
    """Adds to `cuts` the long reductions that something other than elementwise work of their own size reads. Returns the
    long reductions that each value would evaluate in its own kernel."""
    heavy: dict[ir.Value, frozenset[ir.Value]] = {}
    none: frozenset[ir.Value] = frozenset()
    for node in nodes:
        inherited = none.union(*(heavy.get(a, none) for a in ir.operand_values(node))) if heavy else none
        if inherited and not _keeps_points(node):
            for reduction in inherited:
                cuts.setdefault(reduction, f"a long reduction, read again by '{type(node).__name__.lower()}'")
            inherited = none
        if isinstance(node, ir.Reduce) and _length(node) > SERIAL:
            inherited = frozenset((node.out,))
        if inherited:
            heavy[node.out] = inherited
    # a value evaluates only what its operands do not find written
    for node in nodes:
        if node.out in heavy:
            kept = none.union(*(heavy.get(a, none) for a in ir.operand_values(node) if a not in cuts))
            heavy[node.out] = kept | ({node.out} if isinstance(node, ir.Reduce) and _length(node) > SERIAL else none)
    return heavy


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
        spread = any(k[2] for k in known) or (bool(last) and not isinstance(node, ir.Reduce) and not _keeps_points(node))
        if isinstance(node, ir.Reduce):
            if spread and steps * _length(node) > SERIAL:
                found |= dict.fromkeys(last, "a short reduction, spread out and reduced again")
                steps, spread = 1, False
            steps, last = steps * _length(node), frozenset((node.out,))
        if last:
            inside[node.out] = (steps, last, spread)
    return found


def _length(node: ir.Reduce) -> int:
    return math.prod(node.arg.shape[d] for d in node.dims)


def _keeps_points(node: ir.Node) -> bool:
    """Whether each element of the operand is read for one element of the result."""
    match node:
        case ir.Pointwise() | ir.Cast() | ir.Bitcast() | ir.Reshape() | ir.Permute() | ir.Squeeze() | ir.Copy() | ir.Flip():
            return True
        case ir.Broadcast():
            return node.out.type.numel == node.arg.type.numel
        case _:
            return False


def _levels(nodes: list[ir.Node], written: set[ir.Value]) -> dict[ir.Value, int]:
    """How many kernels must have run before the one that writes a value."""
    level: dict[ir.Value, int] = {}
    for node in nodes:
        level[node.out] = max((level.get(a, 0) + (a in written) for a in ir.operand_values(node)), default=0)
    return level
