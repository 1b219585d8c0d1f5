"""Pulls values back for a kernel that walks rows: every atom of the domain has one axis, in reductions and results alike.

So what a reduction reads and what is computed from its result are the same loads, one object each, and a kernel can keep
them between the two. Made for `schedule.rows`; `pullback` does the walking.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thunder_fuser.analysis.domains import Atom, Domains
from thunder_fuser.ir import nodes as ir
from thunder_fuser.maps.affine import Affine, Axis, affine, dot
from thunder_fuser.maps.exprs import Accumulate, Expr, Load, topological
from thunder_fuser.maps.nests import Store
from thunder_fuser.maps.pullback import Index, Pullback


@dataclass(frozen=True, slots=True, eq=False)
class RowGroup:
    """Reductions over the loops `reduced` of one domain, for each point of the loops `kept` (a row).

    `reductions` are their results; `columns` are the results of reductions over `kept`, which a kernel that walks the
    rows adds up on the way. `distinct`: no loop stands for two dims of the domain at once."""

    kept: tuple[Atom, ...]
    reduced: tuple[Atom, ...]
    reductions: frozenset[ir.Value]
    columns: tuple[ir.Value, ...] = ()
    distinct: bool = True

    @property
    def rows(self) -> int:
        return math.prod(a.size for a in self.kept)

    @property
    def length(self) -> int:
        return math.prod(a.size for a in self.reduced)

    def __str__(self) -> str:
        return f"rows {list(self.kept)} reduced over {list(self.reduced)}"


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """A reduction's result: the value of the program, the expression, and its place in a row-major buffer of its shape."""

    value: ir.Value
    expr: Accumulate
    address: Affine


@dataclass(frozen=True, slots=True, eq=False)
class RowNest:
    """What is done for each row (`kept`) and along it (`reduced`): stores of rows' results and of elements, and `columns`,
    reductions over the rows for each element of one row."""

    kept: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    stores: tuple[Store, ...]
    columns: tuple[Result, ...] = ()

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (*self.kept, *self.reduced)

    @property
    def points(self) -> int:
        return math.prod(a.extent for a in self.axes)

    def exprs(self) -> list[Expr]:
        """All expressions, operands first."""
        return topological([*(s.expr for s in self.stores), *(c.expr for c in self.columns)])

    def loads(self) -> list[Load]:
        return [e for e in self.exprs() if isinstance(e, Load)]

    def __str__(self) -> str:
        lines = [f"rows {' '.join(f'{a}:{a.extent}' for a in self.kept) or 'one'} along {' '.join(f'{a}:{a.extent}' for a in self.reduced)}"]
        lines += [f"  load  {ld.buffer}[{ld.address}]" + "".join(f" if {g}" for g in ld.guards) for ld in self.loads()]
        lines += [f"  store {s.buffer}[{s.address}]" for s in self.stores]
        lines += [f"  column {c.value}" for c in self.columns]
        return "\n".join(lines)


class NotRows(Exception):
    """What was asked for does not walk the rows of the group. Not an error: the segmenter cuts at its reductions instead."""


class RowPullback(Pullback):
    """Pulls values back to `sources` at indices made of the group's axes. Raises `NotRows`, and `Refine` where only a finer
    box would decide."""

    def __init__(self, producers: Mapping[ir.Value, ir.Node], sources: Mapping[ir.Value, tuple[int, ...]], domains: Domains,
                 group: RowGroup, budget: int | None = None) -> None:
        super().__init__(producers, sources, budget)
        self._domains, self._group = domains, group
        self._may_cut = False
        self.kept = tuple(self.pool.axis(("k", k), a.size) for k, a in enumerate(group.kept))
        self.reduced = tuple(self.pool.axis(("r", k), a.size) for k, a in enumerate(group.reduced))
        self._results: dict[Accumulate, ir.Value] = {}
        self._axes = dict(zip((*group.kept, *group.reduced), (*self.kept, *self.reduced)))

    def index(self, value: ir.Value) -> Index:
        """The index of `value` at the point that the axes stand for. Raises `NotRows` if it has other loops."""
        return tuple(self._dim(dim) for dim in self._domains.leaves(value))

    def pull(self, value: ir.Value) -> Expr:
        """The element of `value` at `index(value)`."""
        return self._pull((value, self.index(value), ()))

    def column(self, value: ir.Value) -> Result:
        """The reduction over the rows that `value` is."""
        node = self.producers[value]
        assert isinstance(node, ir.Reduce)
        return self._result(value, self.exprs.make(Accumulate, node.op, self.kept, self.pull(node.arg), value.dtype))

    def results(self) -> list[Result]:
        """The reductions along the row that were met so far."""
        return [self._result(value, expr) for expr, value in self._results.items()]

    def _result(self, value: ir.Value, expr: Accumulate) -> Result:
        return Result(value, expr, dot(self.index(value), [math.prod(value.shape[d + 1:]) for d in range(len(value.shape))]))

    def _dim(self, dim: Sequence[Atom]) -> Affine:
        terms, stride = [], 1
        for atom in reversed(dim):
            axis = self._axes.get(atom)
            if axis is None:
                raise NotRows
            terms.append((axis, stride))
            stride *= atom.size
        return affine(0, terms)

    def _reduce(self, node: ir.Reduce, index: Index, guards: tuple):
        if node.out not in self._group.reductions:
            if node.out in self._group.columns:
                raise NotRows
            return super()._reduce(node, index, guards)
        own = set(self.reduced)
        if any(a in own for i in index for a in i.axes()):
            raise NotRows  # another row's result for each element of this one
        kept = iter(index)
        leaves = self._domains.leaves(node.arg)
        inner = tuple(self._dim(leaves[d]) if d in node.dims else next(kept) for d in range(len(leaves)))

        def finish(found: list[Expr]) -> Expr:
            made = self.exprs.make(Accumulate, node.op, self.reduced, found[0], node.out.dtype)
            self._results[made] = node.out
            return made

        return [(node.arg, inner, guards)], finish


def build_rows(pullback: RowPullback, buffers: Sequence[tuple[ir.Value, tuple[int, ...]]], columns: Sequence[ir.Value]) -> RowNest:
    """The nest that writes `buffers`, given with their strides, and reduces `columns` over the rows."""
    stores = tuple(Store(v, dot(pullback.index(v), strides), pullback.pull(v)) for v, strides in buffers)
    return RowNest(pullback.kept, pullback.reduced, stores, tuple(pullback.column(v) for v in columns))
