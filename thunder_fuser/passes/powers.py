"""Squares and cubes as products. Run by the compiler, see `passes.PASSES`."""

from __future__ import annotations

from thunder_fuser.ir.nodes import Constant, Fusion, Node, Pointwise, Value
from thunder_fuser.passes.rewrite import rebuilt


def powers(fusion: Fusion) -> Fusion:
    """Writes x ** 2 and x ** 3 of floats as products, as torch's own kernels do: a general power costs some forty times as
    much, and is not more exact.

    Before:

        fusion f(x: f32[4]) {
          a: f32[4] = pow(x, 3.0)
          return a
        }

    After:

        fusion f(x: f32[4]) {
          a.square: f32[4] = mul(x, x)
          a: f32[4] = mul(a.square, x)
          return a
        }

    Cubes of 16-bit floats stay, whose square would be rounded on the way."""
    nodes: list[Node] = []
    for node in fusion.nodes:
        exponent = _exponent(node)
        if exponent == 2:
            nodes.append(Pointwise(node.out, "mul", (node.args[0], node.args[0])))
        elif exponent == 3 and node.out.dtype.size >= 4:
            square = Value(f"{node.out.name}.square", node.out.type)
            nodes += [Pointwise(square, "mul", (node.args[0], node.args[0])), Pointwise(node.out, "mul", (square, node.args[0]))]
        else:
            nodes.append(node)
    return fusion if len(nodes) == len(fusion.nodes) and all(a is b for a, b in zip(nodes, fusion.nodes)) else rebuilt(fusion, nodes, {})


def _exponent(node: Node) -> float | None:
    """The exponent, if a node raises a float tensor to a number that is known."""
    if isinstance(node, Pointwise) and node.op == "pow" and node.out.dtype.kind == "float":
        base, exponent = node.args
        if isinstance(base, Value) and isinstance(exponent, Constant):
            return float(exponent.value)
    return None
