"""The fewest bytes that any implementation of a fusion has to move: a yardstick for reports and benchmarks."""

from __future__ import annotations

import math

from thunder_fuser.analysis.alias import AliasInfo
from thunder_fuser.analysis.layout import Layout, Layouts
from thunder_fuser.ir.nodes import VIEW_NODES, Gather, TensorType, Value, operand_values


def least_bytes(info: AliasInfo, layouts: Layouts) -> int:
    """Bytes of the input elements that the buffers depend on, each read once, and of the buffers, each written once.

    What is read of an input is estimated by the views that computing nodes take of it: the distinct ones add up, but to
    no more than the input itself holds. A view counts its distinct elements: stride 0 repeats one. Outputs that are
    inputs or views of them cost nothing, nor do nodes that no buffer needs."""
    read = _views_read(info, layouts)
    total = sum(buffer.value.type.numel * buffer.value.dtype.size for buffer in info.buffers)
    for value, regions in read.items():
        held = _distinct(value.shape, layouts[value].strides)
        total += min(sum(regions.values()), held) * value.dtype.size
    return total


def _views_read(info: AliasInfo, layouts: Layouts) -> dict[Value, dict[object, int]]:
    """For each input: the regions of it that are read (offset, and size and stride of each dim), and their sizes."""
    inputs = {v for v in info.fusion.inputs if isinstance(v.type, TensorType)}
    needed = {buffer.value for buffer in info.buffers}
    read: dict[Value, dict[object, int]] = {v: {} for v in inputs}
    for node in reversed(info.fusion.nodes):
        if node.out not in needed:
            continue
        of_input = layouts[node.out].base in inputs if node.out in layouts else False
        if of_input and isinstance(node, VIEW_NODES):
            continue  # whoever reads this view has been counted
        for arg in operand_values(node):
            needed.add(arg)
            layout = layouts.get(arg)
            if layout is not None and layout.base in inputs:
                held = _distinct(arg.shape, layout.strides)
                indexed = isinstance(node, Gather) and arg is node.arg
                read[layout.base][_region(arg.shape, layout)] = min(held, node.out.type.numel) if indexed else held
    return read


def _region(shape: tuple[int, ...], layout: Layout) -> object:
    """The same for views of the same elements that differ in the order of dims or in repetition."""
    return layout.offset, tuple(sorted((s, n) for n, s in zip(shape, layout.strides) if s and n != 1))


def _distinct(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    return math.prod(n for n, stride in zip(shape, strides) if stride or n == 0)
