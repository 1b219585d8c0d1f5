"""In-place copies, and the prims by which Thunder says which tensors have changed with one.

`copy_(a, x)` writes a into x and answers with x. `update_aliases((x, v))` gives new names to tensors of one memory, so that
a trace's data flow shows the order of reads and writes; it moves nothing.
"""

from __future__ import annotations

from typing import Any

from thunder.core.prims import PrimIDs
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import BoundSymbol

from thunder_fuser.translators.memory import Memories
from thunder_fuser.translators.proxies import why_not_tensor
from thunder_fuser.translators.registry import TRANSLATIONS, Translation


def _why_not_copy(copy_from: Any, copy_to: Any, *, grad_enabled: bool) -> str | None:
    return why_not_tensor(copy_from) or why_not_tensor(copy_to)


def _copy(memories: Memories, bsym: BoundSymbol) -> None:
    source, target = bsym.args[0].name, bsym.args[1].name
    memories.write(target, memories.read(source))
    if isinstance(bsym.output, TensorProxy):
        memories.define_in(bsym.output.name, target, memories.place(target))


def _why_not_update(tensors: Any) -> str | None:
    return next(filter(None, map(why_not_tensor, tensors)), None)


def _update_aliases(memories: Memories, bsym: BoundSymbol) -> None:
    for old, new in zip(bsym.args[0], bsym.output):
        if new is not None:
            memories.define_in(new.name, old.name, memories.place(old.name))


TRANSLATIONS[PrimIDs.COPY_] = Translation(_copy, _why_not_copy, cheap=False, memory=True)
TRANSLATIONS[PrimIDs.UPDATE_ALIASES] = Translation(_update_aliases, _why_not_update, view=True, cheap=False, memory=True)
