"""Removal of nodes that no output needs."""

from __future__ import annotations

from thunder_fuser.ir.nodes import Fusion, Node, operand_values


def dce(fusion: Fusion) -> Fusion:
    """Drops nodes that no output needs. Inputs stay, used or not: they are the signature.

        fusion f(x: f32[4])              fusion f(x: f32[4])
          a = neg x                        b = exp x
          b = exp x               =>       return b
          c = add a, b
          return b
    """
    needed = set(fusion.outputs)
    kept: list[Node] = []
    for node in reversed(fusion.nodes):
        if node.out in needed:
            kept.append(node)
            needed.update(operand_values(node))
    if len(kept) == len(fusion.nodes):
        return fusion
    return Fusion(fusion.name, fusion.inputs, tuple(reversed(kept)), fusion.outputs)
