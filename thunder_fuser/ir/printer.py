"""Fusion -> text."""

from __future__ import annotations

from thunder_fuser.ir.nodes import Fusion


def print_fusion(fusion: Fusion) -> str:
    """The text form of a fusion, one node a line."""
    lines = [f"fusion {fusion.name}({', '.join(f'{v}: {v.dtype}{list(v.shape)}' for v in fusion.inputs)})"]
    lines += [f"  {n!r}" for n in fusion.nodes]
    return "\n".join([*lines, f"  return {', '.join(map(str, fusion.outputs))}"])
