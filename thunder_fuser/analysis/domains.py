"""Which dims of a fusion's values are the same loop: iteration domains, as sets of atoms.

Called by the segmenter, which asks whether a reduction's operand and what is computed from its result walk the same
points, and by the pullback of row kernels, which gives every atom one axis. An atom is a factor of a dim that no reshape
divides; ops that match elements one to one unite atoms, reshapes split and join them, a slice, pad or cat along a dim
starts a new one. Two dims that share an atom are walked together, which is a statement about loops, not about
elements: a flipped dim has the atoms of the dim it flips.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from thunder_fuser.ir import nodes as ir


class Atom:
    """A loop of `size` steps; `parts` once a reshape has split it, outermost first, `same` once it was united."""

    __slots__ = ("number", "parts", "same", "size")

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.parts: tuple[Atom, ...] = ()
        self.same: Atom | None = None

    def __repr__(self) -> str:
        return f"a{self.number}:{self.size}"


Dim = tuple[Atom, ...]


class Domains:
    """The atoms of every tensor value of a fusion: `leaves(value)` gives each dim's, outermost first."""

    def __init__(self, fusion: ir.Fusion) -> None:
        self._dims: dict[ir.Value, tuple[Dim, ...]] = {}
        self._count = 0
        for value in fusion.inputs:
            if isinstance(value.type, ir.TensorType):
                self._dims[value] = tuple(self._fresh(n) for n in value.shape)
        for node in fusion.nodes:
            if isinstance(node.out.type, ir.TensorType):
                self._dims[node.out] = self._of(node)

    def leaves(self, value: ir.Value) -> tuple[Dim, ...]:
        """Each dim of `value` as atoms that are whole, none of size 1."""
        return tuple(self._leaves(dim) for dim in self._dims[value])

    def declare(self, value: ir.Value, of: ir.Value, parts: int) -> Atom:
        """Gives `value`, which holds `parts` parts of each element of `of`, its dims; returns the atom of the parts."""
        (atom,) = self._fresh(parts) or (Atom(0, 1),)
        self._dims[value] = ((atom,), *self._dims[of])
        return atom

    def atoms(self, value: ir.Value) -> tuple[Atom, ...]:
        """All atoms of `value`, in the order of its dims."""
        return tuple(a for dim in self.leaves(value) for a in dim)

    def _fresh(self, size: int) -> Dim:
        if size == 1:
            return ()
        self._count += 1
        return (Atom(self._count, size),)

    def _leaves(self, dim: Iterable[Atom]) -> Dim:
        found: list[Atom] = []
        stack = list(dim)[::-1]
        while stack:
            atom = _root(stack.pop())
            if atom.parts:
                stack.extend(reversed(atom.parts))
            else:
                found.append(atom)
        return tuple(found)

    def _of(self, node: ir.Node) -> tuple[Dim, ...]:
        dims, shape = self._dims, node.out.type.shape  # type: ignore[union-attr]
        match node:
            case ir.Permute(arg=arg, dims=order):
                return tuple(dims[arg][d] for d in order)
            case ir.Squeeze(arg=arg, dims=gone):
                return tuple(dim for d, dim in enumerate(dims[arg]) if d not in gone)
            case ir.Reduce(arg=arg, dims=gone):
                return tuple(dim for d, dim in enumerate(dims[arg]) if d not in gone)
            case ir.Broadcast(arg=arg, dims=places):
                kept = {place: dims[arg][d] for d, place in enumerate(places) if arg.shape[d] == shape[place]}
                return tuple(kept[d] if d in kept else self._fresh(n) for d, n in enumerate(shape))
            case ir.Reshape(arg=arg):
                return self._reshaped(dims[arg], shape)
            case ir.Gather(arg=arg, index=index, dim=dim):
                for d, n in enumerate(shape):
                    if d != dim and arg.shape[d] == n:
                        self._unite(dims[index][d], dims[arg][d])
                return dims[index]
            case ir.Cat():
                return self._alike([v for v in node.args if isinstance(v, ir.Value)], shape)
            case _:
                return self._alike([v for v in ir.operand_values(node) if isinstance(v.type, ir.TensorType)], shape)

    def _alike(self, args: Sequence[ir.Value], shape: tuple[int, ...]) -> tuple[Dim, ...]:
        """Dims of a result whose dims are those of its operands wherever sizes agree."""
        result: list[Dim] = []
        for d, size in enumerate(shape):
            same = [self._dims[a][d] for a in args if len(a.shape) == len(shape) and a.shape[d] == size]
            for other in same[1:]:
                self._unite(same[0], other)
            result.append(same[0] if same else self._fresh(size))
        return tuple(result)

    def _unite(self, left: Dim, right: Dim) -> None:
        """Makes two dims of one size the same loop, as far as their factors allow."""
        a, b = list(self._leaves(left)), list(self._leaves(right))
        if any(atom.size == 0 for atom in (*a, *b)):
            return
        while a and b:
            x, y = _root(a.pop()), _root(b.pop())
            if x is y:
                continue
            if x.size != y.size:
                large, small, rest = (x, y, a) if x.size > y.size else (y, x, b)
                if large.size % small.size:
                    return
                outer, inner = self._split(large, small.size)
                rest.append(outer)
                x, y = inner, small
            y.same = x

    def _split(self, atom: Atom, inner: int) -> tuple[Atom, Atom]:
        (outer,), (last,) = self._fresh(atom.size // inner), self._fresh(inner)
        atom.parts = (outer, last)
        return outer, last

    def _reshaped(self, source: Sequence[Dim], shape: tuple[int, ...]) -> tuple[Dim, ...]:
        """Deals the atoms of `source` out to dims of `shape`, innermost first, splitting those that reach across."""
        if math.prod(shape) == 0:
            return tuple(self._fresh(n) for n in shape)
        left = [a for dim in source for a in self._leaves(dim)]
        result: list[Dim] = []
        for d in range(len(shape) - 1, -1, -1):
            size, taken = shape[d], []
            while size > 1:
                atom = left.pop()
                if size % atom.size == 0:
                    taken.append(atom)
                    size //= atom.size
                elif atom.size % size == 0:
                    outer, inner = self._split(atom, size)
                    taken.append(inner)
                    left.append(outer)
                    size = 1
                else:  # sizes without a common factoring: from here on the loops are others
                    return (*(self._fresh(n) for n in shape[:d + 1]), *reversed(result))
            result.append(tuple(reversed(taken)))
        return tuple(reversed(result))


def _root(atom: Atom) -> Atom:
    while atom.same is not None:
        if atom.same.same is not None:
            atom.same = atom.same.same
        atom = atom.same
    return atom
