"""Which long reductions run in one kernel with what is computed from them, and where the rest is cut.

Reductions over the same loops of the same domain are a group: a kernel that has a row of the domain at hand computes all
of them and everything that is read at the row's points, softmax as well as the input's gradient of a norm. Reductions
over the rows of such a domain (the gradient of a norm's weight) are added up by the same kernel, row after row, and
finished by a small second one. Called by `segment`; linear in the program for a bounded number of walks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from thunder_fuser.analysis.domains import Atom, Domains
from thunder_fuser.ir import nodes as ir
from thunder_fuser.maps.rows import RowGroup
from thunder_fuser.schedule.limits import SERIAL

MAX_WALKS = 8  # over the program; past that every long reduction that is read again is written first
_NONE: frozenset[ir.Value] = frozenset()


@dataclass(eq=False)
class _Family:
    """The long reductions with one signature. `returns`: some result is read again at the points of the domain."""

    kept: tuple[Atom, ...]
    reduced: tuple[Atom, ...]
    distinct: bool
    may_return: bool
    members: list[ir.Value] = field(default_factory=list)
    returns: bool = False

    @property
    def domain(self) -> frozenset[Atom]:
        return frozenset((*self.kept, *self.reduced))


@dataclass(frozen=True, slots=True)
class Groups:
    """For each value what its own kernel must reduce first: `of[value]` is its row group (None: no long reduction), and
    whether it is a result of the group's columns. `cuts`: values to write, and why."""

    of: Mapping[ir.Value, tuple[RowGroup, bool]]
    cuts: Mapping[ir.Value, str]


def group_reductions(nodes: Sequence[ir.Node], targets: Sequence[ir.Value], cuts: Mapping[ir.Value, str], domains: Domains,
                     may_return: Callable[[ir.Reduce, Sequence[Atom], Sequence[Atom]], bool]) -> Groups:
    """Groups the long reductions of `nodes`, of which `targets` and `cuts` are written. `may_return` says whether a
    kernel would go over the rows of a reduction a second time."""
    found = dict(cuts)
    for number in range(MAX_WALKS + 1):
        walk = _Walk(domains, found, may_return if number < MAX_WALKS else lambda *_: False)
        walk.prepare(nodes)
        new = walk.run(nodes, [*targets, *found])
        if not new:
            return Groups(walk.groups([*targets, *found]), found)
        found |= new
    raise AssertionError("every long reduction is written, and still some value has two")


class _Walk:
    """One pass: `heavy[value]` are the long reductions that a kernel writing `value` would evaluate."""

    def __init__(self, domains: Domains, cuts: Mapping[ir.Value, str], may_return: Callable[..., bool]) -> None:
        self.domains, self.cuts, self.may_return = domains, cuts, may_return
        self.heavy: dict[ir.Value, frozenset[ir.Value]] = {}
        self.family: dict[ir.Value, _Family] = {}
        self.column_of: dict[ir.Value, _Family] = {}
        self.new: dict[ir.Value, str] = {}

    def prepare(self, nodes: Sequence[ir.Node]) -> None:
        """Families by signature, and which reductions are another family's columns."""
        families: dict[object, _Family] = {}
        for node in nodes:
            if not (isinstance(node, ir.Reduce) and length(node) > SERIAL):
                continue
            leaves = self.domains.leaves(node.arg)
            kept = tuple(a for d, dim in enumerate(leaves) if d not in node.dims for a in dim)
            reduced = tuple(a for d in node.dims for a in leaves[d])
            distinct = len({*kept, *reduced}) == len(kept) + len(reduced)
            key = (frozenset(kept), frozenset(reduced)) if distinct else node.out
            family = families.get(key)
            if family is None:
                family = families[key] = _Family(kept, reduced, distinct, distinct and self.may_return(node, kept, reduced))
            family.members.append(node.out)
            self.family[node.out] = family
        self._find_returns(nodes)
        by_rows = {(f.domain, frozenset(f.kept)): f for f in families.values() if f.returns and f.may_return}
        for family in families.values():
            host = by_rows.get((family.domain, frozenset(family.reduced)))
            if host is not None and host is not family and not family.returns:
                self.column_of |= dict.fromkeys(family.members, host)

    def _find_returns(self, nodes: Sequence[ir.Node]) -> None:
        """Marks families of which some result is spread out again."""
        carried: dict[ir.Value, frozenset[ir.Value]] = {}
        for node in nodes:
            inherited = _NONE.union(*(carried.get(a, _NONE) for a in ir.operand_values(node)))
            if inherited and not keeps_points(node) and not isinstance(node, ir.Reduce):
                for value in inherited:
                    self.family[value].returns = True
                inherited = _NONE
            if node.out in self.family:
                inherited = frozenset((node.out,))
            if inherited:
                carried[node.out] = inherited

    def run(self, nodes: Sequence[ir.Node], targets: Sequence[ir.Value]) -> dict[ir.Value, str]:
        """New cuts, none if every target's kernel has one group."""
        for node in nodes:
            inherited = _NONE.union(*(self.heavy.get(a, _NONE) for a in ir.operand_values(node) if a not in self.cuts))
            if node.out in self.family:
                inherited = self._at_reduction(node, inherited)
            elif inherited:
                inherited = self._at_reader(node, inherited)
            if inherited:
                self.heavy[node.out] = inherited
        for value in dict.fromkeys(targets):
            self._at_target(value)
        return self.new

    def _cut(self, values: Set[ir.Value] | Sequence[ir.Value], why: str) -> None:
        for value in values:
            self.new.setdefault(value, why)

    def _at_reduction(self, node: ir.Reduce, inherited: frozenset[ir.Value]) -> frozenset[ir.Value]:
        own, host = self.family[node.out], self.column_of.get(node.out)
        here = frozenset((node.out,))
        if host is not None:
            foreign = frozenset(v for v in inherited if self._home(v) is not host or v in self.column_of)
        else:
            foreign = frozenset(v for v in inherited if self._home(v) is not own or v in self.column_of or not own.may_return)
        if foreign:
            homes = {self._home(v) for v in inherited}
            of_row = len(homes) == 1 and set(self.domains.atoms(node.arg)) <= set(next(iter(homes)).kept)
            self._cut((node.arg,) if of_row else foreign, f"a long reduction, reduced again by '{node.op}'")
            inherited = _NONE if of_row else inherited - foreign
        return here if host is not None else inherited | here

    def _at_reader(self, node: ir.Node, inherited: frozenset[ir.Value]) -> frozenset[ir.Value]:
        if isinstance(node, (ir.Scatter, ir.Scan)):  # kernels of their own
            self._cut(inherited, f"a long reduction, read by a {type(node).__name__.lower()}")
            return _NONE
        homes = {(self._home(v), v in self.column_of) for v in inherited}
        if len(homes) > 1:
            kept = max(homes, key=lambda h: (not h[1], h[0].returns and h[0].may_return, math.prod(a.size for a in h[0].reduced)))
            others = frozenset(v for v in inherited if (self._home(v), v in self.column_of) != kept)
            self._cut(others, f"a long reduction, read beside another by '{type(node).__name__.lower()}'")
            inherited -= others
        (home, columns), = {(self._home(v), v in self.column_of) for v in inherited}
        if not keeps_points(node) and (columns or not home.may_return):
            self._cut(inherited, f"a long reduction, read again by '{type(node).__name__.lower()}'")
            return _NONE
        return inherited

    def _at_target(self, value: ir.Value) -> None:
        inherited = self.heavy.get(value)
        if not inherited or not inherited.isdisjoint(self.new):
            return
        home, columns = self._home(next(iter(inherited))), next(iter(inherited)) in self.column_of
        if value in self.family and (columns or not home.may_return):
            return
        atoms = self.domains.atoms(value)
        kept, reduced = set(home.kept), set(home.reduced)
        if columns:
            fits = set(atoms) <= reduced
        elif home.may_return:
            fits = set(atoms) == home.domain or set(atoms) <= kept
        else:
            return  # walks its own boxes, whatever its loops are called
        if not fits or len(set(atoms)) < len(atoms):
            self._cut(inherited, "a long reduction, read at other points than its own")

    def _home(self, value: ir.Value) -> _Family:
        """The family in whose kernel a reduction is evaluated."""
        return self.column_of.get(value) or self.family[value]

    def groups(self, targets: Sequence[ir.Value]) -> dict[ir.Value, tuple[RowGroup, bool]]:
        """The row group in whose kernel each target is evaluated, and whether by its columns."""
        made: dict[int, RowGroup] = {}
        columns: dict[int, list[ir.Value]] = {}
        for value, host in self.column_of.items():
            columns.setdefault(id(host), []).append(value)
        result: dict[ir.Value, tuple[RowGroup, bool]] = {}
        for value in dict.fromkeys(targets):
            inherited = self.heavy.get(value)
            if not inherited:
                continue
            member = next(iter(inherited))
            home = self._home(member)
            group = made.get(id(home))
            if group is None:
                group = made[id(home)] = RowGroup(home.kept, home.reduced, frozenset(home.members), tuple(columns.get(id(home), ())), home.distinct)
            result[value] = (group, member in self.column_of)
        return result


def length(node: ir.Reduce) -> int:
    """Elements that one result is reduced from."""
    return math.prod(node.arg.shape[d] for d in node.dims)


def keeps_points(node: ir.Node) -> bool:
    """Whether each element of the operand is read for one element of the result."""
    match node:
        case ir.Pointwise() | ir.Cast() | ir.Bitcast() | ir.Reshape() | ir.Permute() | ir.Squeeze() | ir.Copy() | ir.Flip():
            return True
        case ir.Broadcast():
            return node.out.type.numel == node.arg.type.numel
        case _:
            return False
