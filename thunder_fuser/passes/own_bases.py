"""Memory of its own for what a scatter writes into."""

from __future__ import annotations

import dataclasses
from collections import Counter

from thunder_fuser.ir.nodes import Copy, Fusion, Node, Scatter, Value, operand_values
from thunder_fuser.passes.rewrite import rebuilt


def own_bases(fusion: Fusion) -> Fusion:
    """Makes the argument of each scatter a copy that nothing else reads: a kernel writes it into the memory of the scatter's
    result, and another one the updates on top.

    Before:

        fusion f(x: f32[4], i: i64[2], u: f32[2]) {
          a: f32[4] = scatter(x, u, i, dims=[0])
          return a
        }

    After:

        fusion f(x: f32[4], i: i64[2], u: f32[2]) {
          a.base: f32[4] = copy(x)
          a: f32[4] = scatter(a.base, u, i, dims=[0])
          return a
        }
    """
    uses = Counter(v for node in fusion.nodes for v in operand_values(node))
    uses.update(fusion.roots())
    copies = {node.out for node in fusion.nodes if isinstance(node, Copy) and uses[node.out] == 1}
    nodes: list[Node] = []
    for node in fusion.nodes:
        if isinstance(node, Scatter) and node.arg not in copies:
            base = Value(f"{node.out.name}.base", node.arg.type)
            nodes.append(Copy(base, node.arg))
            node = dataclasses.replace(node, arg=base)
        nodes.append(node)
    return fusion if len(nodes) == len(fusion.nodes) else rebuilt(fusion, nodes, {})
