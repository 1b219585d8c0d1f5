"""Values that only an update uses, so that they can be written where the update says and nowhere else."""

from __future__ import annotations

import dataclasses
from collections import Counter

from thunder_fuser.ir.nodes import VIEW_NODES, Copy, Fusion, Update, Value, operand_values


def own_updates(fusion: Fusion) -> Fusion:
    """Gives each update a value of its own: a copy, where something else uses the value too or it is a view or an input.

    Before:

        fusion f(x: f32[4]) {
          a: f32[4] = neg(x)
          update x = a
          return a
        }

    After:

        fusion f(x: f32[4]) {
          a: f32[4] = neg(x)
          a.new: f32[4] = copy(a)
          update x = a.new
          return a
        }

    An update of an input by itself stays as it is.
    """
    if not fusion.updates:
        return fusion
    uses = Counter(v for node in fusion.nodes for v in operand_values(node)) + Counter(fusion.roots())
    views = set(fusion.inputs) | {n.out for n in fusion.nodes if isinstance(n, VIEW_NODES)}
    names = {v.name for v in (*fusion.inputs, *(n.out for n in fusion.nodes))}
    copies: list[Copy] = []
    updates: list[Update] = []
    for update in fusion.updates:
        value = update.value
        if value is not update.target and (uses[value] > 1 or value in views):
            own = Value(_fresh(f"{value.name}.new", names), value.type)
            copies.append(Copy(own, value))
            value = own
        updates.append(Update(update.target, value))
    if not copies:
        return fusion
    return dataclasses.replace(fusion, nodes=(*fusion.nodes, *copies), updates=tuple(updates))


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
