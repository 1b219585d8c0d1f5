"""Removal of nodes that no output needs."""

from __future__ import annotations

import dataclasses

from thunder_fuser.ir.nodes import Fusion, Node, operand_values


def dce(fusion: Fusion) -> Fusion:
    """Drops nodes that no output needs. Inputs stay, used or not: they are the signature.

    Before:

        fusion f(x: f32[4]) {
          a: f32[4] = neg(x)
          b: f32[4] = exp(x)
          c: f32[4] = add(a, b)
          return b
        }

    After:

        fusion f(x: f32[4]) {
          b: f32[4] = exp(x)
          return b
        }
    """
    needed = set(fusion.roots())
    kept: list[Node] = []
    for node in reversed(fusion.nodes):
        if node.out in needed:
            kept.append(node)
            needed.update(operand_values(node))
    if len(kept) == len(fusion.nodes):
        return fusion
    return dataclasses.replace(fusion, nodes=tuple(reversed(kept)))
