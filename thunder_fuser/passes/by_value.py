"""Tensors of rank 0 that are handed over as numbers: torch lets one on the CPU stand beside tensors on a GPU.

Called by `compiler.lower` with the inputs that a call has on the CPU. A fusion never writes into these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from thunder_fuser.ir.dtypes import number_of
from thunder_fuser.ir.nodes import Full, Fusion, ScalarType, Value


def by_value(fusion: Fusion, positions: Collection[int]) -> Fusion:
    """`fusion` with a number in place of each input at `positions`, of rank 0: a `full` node makes the tensor of it, in its
    own dtype, so that promotion and rounding are the tensor's."""
    if not positions:
        return fusion
    inputs = list(fusion.inputs)
    made = []
    for k in sorted(positions):
        tensor = inputs[k]
        inputs[k] = Value(f"{tensor.name}.item", ScalarType(number_of(tensor.dtype)))
        made.append(Full(tensor, inputs[k]))
    return dataclasses.replace(fusion, inputs=tuple(inputs), nodes=(*made, *fusion.nodes))
