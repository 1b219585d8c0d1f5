"""Removal of roundings to 16 bits that nobody can see. The rule and its reasons: docs/decisions/0003-rounding.md."""

from __future__ import annotations

import dataclasses

import torch

from thunder_fuser.ir.dtypes import BF16, F16, F32, F64, DType
from thunder_fuser.ir.nodes import (
    META_NODES,
    VIEW_NODES,
    Cast,
    Constant,
    Copy,
    Full,
    Fusion,
    Node,
    Pad,
    TensorType,
    Value,
    operand_values,
)
from thunder_fuser.passes.rewrite import exposed, rebuilt, substitute

_NARROW = (F16, BF16)
_WIDE = (F32, F64)


def merge_casts(fusion: Fusion) -> Fusion:
    """Keeps values wide where the program rounds them to 16 bits and widens them again, if no one sees them rounded.

    Before:

        fusion f(x: f32[4, 2]) {
          a: f32[4, 2] = exp(x)
          b: bf16[4, 2] = cast(a)
          c: bf16[2, 4] = permute(b, dims=[1, 0])
          d: f32[2, 4] = cast(c)
          e: f32[2, 4] = neg(d)
          return e
        }

    After:

        fusion f(x: f32[4, 2]) {
          a: f32[4, 2] = exp(x)
          c: f32[2, 4] = permute(a, dims=[1, 0])
          d: f32[2, 4] = copy(c)
          e: f32[2, 4] = neg(d)
          return e
        }

    16-bit values that are connected by nodes that only move elements stand and fall together: either all are kept
    wide, or none is. A cast to the wide dtype becomes its operand, or a copy where it matters that a cast has fresh
    dense storage: of a view, of an input, and of what a user holds. So no stride and no alias changes.
    """
    groups = _Groups(fusion)
    if not groups.any_wide():
        return fusion
    held = exposed(fusion)
    fresh = {n.out for n in fusion.nodes if not isinstance(n, VIEW_NODES)}
    replaced: dict[Value, Value] = {}
    nodes: list[Node] = []
    for old in fusion.nodes:
        node, out, wide = substitute(old, replaced), old.out, groups.wide(old.out)
        if wide is not None and isinstance(node, Cast) and node.arg in fresh:
            replaced[out] = node.arg
        elif wide is not None:
            new = Value(out.name, TensorType(wide, out.shape))
            replaced[out] = new
            if out in fresh:
                fresh.add(new)
            nodes.append(Copy(new, node.arg) if isinstance(node, Cast) else dataclasses.replace(node, out=new))
        elif isinstance(node, Cast) and node.arg is not old.arg and groups.wide(old.arg) is not None:
            if node.arg in fresh and out not in held:
                replaced[out] = node.arg
            else:
                nodes.append(Copy(out, node.arg))
        else:
            nodes.append(node)
    return rebuilt(fusion, nodes, replaced)


class _Groups:
    """Sets of 16-bit values connected by moves, each with the wide dtype that it can be kept in, if there is one."""

    def __init__(self, fusion: Fusion) -> None:
        self._parent: dict[Value, Value] = {}
        for node in fusion.nodes:
            if _moves(node):
                for arg in _narrow_operands(node):
                    self._join(arg, node.out)
        self._dtype: dict[Value, DType | None] = {}
        for value in fusion.inputs + fusion.roots():
            self._require(value, None)
        for node in fusion.nodes:
            self._visit(node)
        sources = (n.out for n in fusion.nodes if isinstance(n, Cast) and n.out.dtype in _NARROW)
        self._wide = {root: dtype for root in map(self._root, sources) if (dtype := self._dtype[root]) in _WIDE}

    def wide(self, value: object) -> DType | None:
        """The dtype to keep a 16-bit value in, or None if it is to be rounded (or is no 16-bit value)."""
        return self._wide.get(self._root(value)) if isinstance(value, Value) and value.dtype in _NARROW else None

    def any_wide(self) -> bool:
        return bool(self._wide)

    def _visit(self, node: Node) -> None:
        """What a node asks of its 16-bit result and operands: their rounding (None), a wide dtype, or nothing."""
        moves = _moves(node)
        if node.out.dtype in _NARROW:
            if isinstance(node, Cast):
                self._require(node.out, node.arg.dtype if isinstance(node.arg, Value) else None)
            elif not (moves or isinstance(node, Full)) or not _is_exact(node):
                self._require(node.out, None)
        if not moves:
            for arg in _narrow_operands(node):
                self._require(arg, node.out.dtype if isinstance(node, Cast) else None)

    def _require(self, value: Value, dtype: DType | None) -> None:
        root = self._root(value)
        if self._dtype.setdefault(root, dtype) is not dtype:
            self._dtype[root] = None

    def _root(self, value: Value) -> Value:
        root = value
        while (up := self._parent.get(root)) is not None:
            root = up
        while value is not root:
            self._parent[value], value = root, self._parent[value]
        return root

    def _join(self, a: Value, b: Value) -> None:
        a, b = self._root(a), self._root(b)
        if a is not b:
            self._parent[b] = a


def _moves(node: Node) -> bool:
    return isinstance(node, META_NODES) and node.out.dtype in _NARROW


def _narrow_operands(node: Node) -> list[Value]:
    return [a for a in operand_values(node) if a.dtype in _NARROW]


def _is_exact(node: Node) -> bool:
    """Whether the literal of a full or pad, if the node is one, is the same number in the 16-bit dtype."""
    if not isinstance(node, (Full, Pad)):
        return True
    if not isinstance(node.value, Constant):
        return False
    value = float(node.value.value)
    rounded = torch.tensor(value, dtype=torch.float64).to(node.out.dtype.torch).item()
    return rounded == value or value != value
