"""Which Thunder prims have a translation: prim id -> how it becomes IR, and when it cannot.

Filled by `pointwise`, `shape`, `indexing`, `scatter`, `scan` and `reduction`; read by `region` and by the executor's claims.

A translation is called as `translate(builder, out, *args, **kwargs) -> Value`, with the prim's own arguments, tensors
replaced by IR values, and `out` the proxy of its result. A checker is called as `why_not(*args, **kwargs)` with
proxies; it answers with the reason why this call cannot be translated, or None, and has no side effects: Thunder asks
several times for each symbol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thunder.core.prims import PrimIDs
from thunder.core.proxies import Proxy
from thunder.core.symbol import BoundSymbol

Translate = Callable[..., Any]
Checker = Callable[..., "str | None"]


@dataclass(frozen=True, slots=True)
class Translation:
    """`view`: torch answers this prim with a view of its argument. `cheap`: worth computing twice instead of storing.
    `memory`: the prim is about memory, not values: `translate` is called with the region's `Memories` and the symbol.
    `takes_cpu_scalars`: rank-0 tensors on the CPU may stand beside operands on another device."""

    translate: Translate
    why_not: Checker
    view: bool = False
    cheap: bool = True
    memory: bool = False
    takes_cpu_scalars: bool = False


TRANSLATIONS: dict[PrimIDs, Translation] = {}


def translates(prim: PrimIDs, why_not: Checker, *, view: bool = False, cheap: bool = True) -> Callable[[Translate], Translate]:
    """Registers the decorated function as the translation of `prim`."""
    def register(translate: Translate) -> Translate:
        TRANSLATIONS[prim] = Translation(translate, why_not, view, cheap)
        return translate

    return register


def why_not(bsym: BoundSymbol) -> str | None:
    """Why a prim has no translation with these arguments, or None if it has one. Composites have none of their own."""
    translation = TRANSLATIONS.get(bsym.sym.id)
    if translation is None:
        return f"'{bsym.sym.name}' has no translation"
    return translation.why_not(*bsym.args, **bsym.kwargs)


def is_view(bsym: BoundSymbol) -> bool:
    """Whether torch answers this prim with a view of its argument."""
    translation = TRANSLATIONS.get(bsym.sym.id)
    return translation is not None and translation.view


def results(bsym: BoundSymbol) -> tuple[Proxy, ...]:
    """The proxies of what a prim gives: one, or several where its output is a tuple. Thunder puts None for what nobody needs."""
    output = bsym.output
    return tuple(p for p in (output if isinstance(output, (tuple, list)) else (output,)) if isinstance(p, Proxy))


def is_cheap(bsym: BoundSymbol) -> bool:
    """Whether computing this prim again costs less than a round trip of its result through memory."""
    translation = TRANSLATIONS.get(bsym.sym.id)
    return translation is not None and translation.cheap
