"""What the passes share: putting other operands into a node, and which values a user can hold the storage of."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from thunder_fuser.ir.nodes import VIEW_NODES, Cat, Full, Fusion, Gather, Iota, Node, Operand, Pad, Pointwise, Random, Scatter, Update, Value, operands


def substitute(node: Node, replaced: Mapping[Value, Value]) -> Node:
    """`node` with each operand that `replaced` knows put in its place; the same object if there is none."""
    old = operands(node)
    if not any(a in replaced for a in old):
        return node
    new: list[Operand] = [replaced.get(a, a) for a in old]
    match node:
        case Pointwise() | Cat():
            return dataclasses.replace(node, args=tuple(new))
        case Full():
            return dataclasses.replace(node, value=new[0])
        case Iota():
            return dataclasses.replace(node, start=new[0], step=new[1])
        case Random():
            return dataclasses.replace(node, seed=new[0], offset=new[1], low=new[2], high=new[3])
        case Pad():
            return dataclasses.replace(node, arg=new[0], value=new[1])
        case Gather():
            return dataclasses.replace(node, arg=new[0], index=new[1])
        case Scatter():
            return dataclasses.replace(node, arg=new[0], updates=new[1], indices=tuple(new[2:]))
        case _:
            return dataclasses.replace(node, arg=new[0])


def rebuilt(fusion: Fusion, nodes: Sequence[Node], replaced: Mapping[Value, Value]) -> Fusion:
    """`fusion` with other nodes, and with what it returns, writes and relies on replaced as given."""
    def new(value: Value) -> Value:
        return replaced.get(value, value)

    return Fusion(fusion.name, fusion.inputs, tuple(nodes), tuple(map(new, fusion.outputs)),
                  tuple(Update(new(u.target), new(u.value)) for u in fusion.updates), fusion.apart, tuple(map(new, fusion.views)))


def exposed(fusion: Fusion) -> set[Value]:
    """The outputs and whatever they are views of: values whose storage a user may hold. A reshape counts as a view."""
    found = set(fusion.outputs)
    for node in reversed(fusion.nodes):
        if node.out in found and isinstance(node, VIEW_NODES):
            found.add(node.arg)
    return found
