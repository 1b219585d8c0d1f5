"""Merging of nodes that compute the same."""

from __future__ import annotations

import dataclasses
from operator import attrgetter

from thunder_fuser.ir.nodes import (
    VIEW_NODES,
    Bitcast,
    Broadcast,
    Cast,
    Cat,
    Copy,
    Flip,
    Full,
    Fusion,
    Gather,
    Iota,
    Node,
    Pad,
    Permute,
    Pointwise,
    Random,
    Reduce,
    Reshape,
    Scan,
    Scatter,
    Slice,
    Squeeze,
    TensorType,
    Value,
)
from thunder_fuser.passes.rewrite import exposed, rebuilt, substitute

_NODES = (Pointwise, Cast, Bitcast, Full, Iota, Random, Reshape, Permute, Slice, Squeeze, Broadcast, Pad, Cat, Flip, Gather, Reduce, Scan, Scatter)
_FIELDS = {cls: attrgetter(*(f.name for f in dataclasses.fields(cls) if f.name != "out")) for cls in _NODES}


def cse(fusion: Fusion) -> Fusion:
    """Computes equal nodes once. The builder does so while it builds; this is for fusions made otherwise, and for nodes
    that another pass made equal.

    Before:

        fusion f(x: f32[4]) {
          a: f32[4] = neg(x)
          b: f32[4] = neg(x)
          c: f32[4] = mul(a, b)
          return c
        }

    After:

        fusion f(x: f32[4]) {
          a: f32[4] = neg(x)
          c: f32[4] = mul(a, a)
          return c
        }

    Copies are never merged. Two equal values whose storage a user holds (outputs, or what outputs are views of) stay
    two tensors: the second becomes a copy of the first. A reshape of that kind stays as it is, since whether it is a
    view is not known here. Operands of a commutative op are not swapped: their order decides the result's strides.
    """
    known: dict[object, Value] = {}
    replaced: dict[Value, Value] = {}
    held = exposed(fusion)
    nodes: list[Node] = []
    for old in fusion.nodes:
        node = substitute(old, replaced)
        if not isinstance(node, Copy):
            first = known.setdefault(_key(node), node.out)
            if first is not node.out:
                if not (first in held and node.out in held) or not _is_fresh(node):
                    replaced[node.out] = first
                    if node.out in held:
                        held.add(first)
                    continue
                if not isinstance(node, Reshape):
                    node = Copy(node.out, first)
        nodes.append(node)
    if all(a is b for a, b in zip(nodes, fusion.nodes)) and len(nodes) == len(fusion.nodes):
        return fusion
    return rebuilt(fusion, nodes, replaced)


def _key(node: Node) -> object:
    return type(node), node.out.type, _FIELDS[type(node)](node)


def _is_fresh(node: Node) -> bool:
    """Whether the node may make storage of its own."""
    return isinstance(node.out.type, TensorType) and (isinstance(node, Reshape) or not isinstance(node, VIEW_NODES))
