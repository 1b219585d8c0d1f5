"""Fusion -> text, one node a line; `parser` reads it back.

    fusion rms(t0: bf16[64, 128], s: f64) {
      t1: f32[64, 128] = cast(t0)
      t2: f32[64, 128] = mul(t1, t1)
      t3: f32[64] = sum(t2, dims=[1])
      return t3
    }

Types stand at the binder only, operands come before attributes, and nothing but the program decides the text. Called by
`str(fusion)`, the dumps, the verifier's messages and generated sources, which open with their program.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thunder_fuser.ir.nodes import Fusion, Node, Pointwise, Random, Reduce, ScalarType, Scan, Type, Value, operands

_OPERANDS = frozenset({"out", "op", "arg", "args", "index", "indices", "updates", "value", "start", "step", "seed", "offset", "low", "high"})


def print_fusion(fusion: Fusion) -> str:
    """The text form of a fusion, without a newline at its end."""
    lines = [print_header(fusion), *(f"  {print_node(node)}" for node in fusion.nodes)]
    return "\n".join([*lines, *(f"  {line}" for line in print_effects(fusion)), f"  {print_return(fusion)}", "}"])


def print_header(fusion: Fusion) -> str:
    return f"fusion {fusion.name}({', '.join(map(_binder, fusion.inputs))}) {{"


def print_effects(fusion: Fusion) -> list[str]:
    """What a call does to its inputs, and what it relies on for that: the lines between the nodes and the return."""
    lines = [f"update {u.target} = {u.value}" for u in fusion.updates]
    lines += [f"apart {value}, {count}" for value, count in fusion.apart]
    return lines + ([f"views {', '.join(v.name for v in fusion.views)}"] if fusion.views else [])


def print_return(fusion: Fusion) -> str:
    return f"return {', '.join(v.name for v in fusion.outputs)}".rstrip()


def print_node(node: Node) -> str:
    """`t3: f32[64] = sum(t2, dims=[1])`."""
    given = [*map(repr, operands(node))]
    for name in attribute_names(type(node)):
        value = getattr(node, name)
        if not is_default(name, value):
            given.append(f"{name}={list(value) if isinstance(value, tuple) else int(value)}")
    return f"{_binder(node.out)} = {node_name(node)}({', '.join(given)})"


def print_type(type_: Type) -> str:
    """`f32[4, 8]` for a tensor, `f32[]` for one of rank 0, `f64` for a number."""
    return f"{type_.dtype}" if isinstance(type_, ScalarType) else f"{type_.dtype}{list(type_.shape)}"


def node_name(node: Node) -> str:
    """What a node is called in text: its op, or its class in lower case."""
    return node.op if isinstance(node, (Pointwise, Random, Reduce, Scan)) else type(node).__name__.lower()


def attribute_names(cls: type) -> tuple[str, ...]:
    """The fields of a node class that are printed as name=value."""
    return tuple(f.name for f in dataclasses.fields(cls) if f.name not in _OPERANDS)


def is_default(name: str, value: Any) -> bool:
    """Whether an attribute is left out of the text: steps of 1, a copy in its argument's own order, and what is not so."""
    return value is None or value is False or (name == "steps" and all(s == 1 for s in value))


def _binder(value: Value) -> str:
    return f"{value.name}: {print_type(value.type)}"
