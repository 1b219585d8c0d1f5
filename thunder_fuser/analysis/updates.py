"""Where the updates of a fusion write, and whether what the program relies on holds for a call.

Called by the compiler once for each pattern of input strides, after `layout`. Torch's own rules decide what may be written
into: no element of the target may have two indices.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from thunder_fuser.analysis.layout import Layouts
from thunder_fuser.errors import UnsupportedError
from thunder_fuser.ir.nodes import VIEW_NODES, Fusion, Value

Overlaps = Collection[tuple[int, int]]  # positions of two inputs that share memory at a call, in either order


@dataclass(frozen=True, slots=True)
class Write:
    """All elements of `value` go to the memory of input `of`: `strides` and `offset` (from its first element) in elements.

    `alone`: no other input that lies in this memory is read or written."""

    value: Value
    of: Value
    strides: tuple[int, ...]
    offset: int
    alone: bool

    def __str__(self) -> str:
        return f"{self.value} -> {self.of}{list(self.strides)}" + (f"+{self.offset}" if self.offset else "") + ("" if self.alone else " shared")


def writes(fusion: Fusion, layouts: Layouts, overlaps: Overlaps = ()) -> tuple[Write, ...]:
    """What the updates of `fusion` write, in order; those that change nothing left out. Raises `UnsupportedError` for a target
    that is no memory of an input or overlaps itself, for a view that is none, and for inputs that share memory and must not."""
    inputs = {v: k for k, v in enumerate(fusion.inputs)}
    targets = [layouts[u.target].base for u in fusion.updates]
    _check(fusion, layouts)
    _check_apart(fusion, targets, {frozenset((fusion.inputs[a], fusion.inputs[b])) for a, b in overlaps})
    found = []
    for update, of in zip(fusion.updates, targets):
        layout = layouts[update.target]
        if of not in inputs:
            raise UnsupportedError(f"'{update.target}' of fusion '{fusion.name}' is no view for the strides given, so it cannot be updated.")
        if overlaps_itself(update.target.shape, layout.strides):
            raise UnsupportedError(f"'{update.target}' of fusion '{fusion.name}' has several elements in one place of memory (strides "
                                   f"{list(layout.strides)}), so it cannot be updated: clone it first.")
        alone = targets.count(of) == 1 and not any(inputs[of] in pair for pair in overlaps)
        if update.target.type.numel and update.value is not update.target:
            found.append(Write(update.value, of, layout.strides, layout.offset, alone))
    return tuple(found)


def _check_apart(fusion: Fusion, targets: list[Value], shared: set[frozenset[Value]]) -> None:
    for value, count in fusion.apart if shared else ():
        for target in targets[:count]:
            if frozenset((value, target)) in shared:
                raise UnsupportedError(f"Inputs '{value}' and '{target}' of fusion '{fusion.name}' share memory, and the first is used after "
                                       "the second was updated.")


def _check(fusion: Fusion, layouts: Layouts) -> None:
    made = fusion.producers()
    for value in fusion.views:
        node = made.get(value)
        if isinstance(node, VIEW_NODES) and value.type.numel and layouts[value].base is not layouts[node.arg].base:
            raise UnsupportedError(f"'{value}' of fusion '{fusion.name}' is no view of '{node.arg}' for the strides given, and one of them is updated.")


def overlaps_itself(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two indices may lead to one element. Never wrongly False."""
    if math.prod(shape) < 2:
        return False
    reach = 0  # of the dims with smaller strides
    for stride, size in sorted((stride, n) for n, stride in zip(shape, strides) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False
