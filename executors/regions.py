"""Regions: which claimed prims run as one fusion, what goes in and what comes out.

The fusion pass makes `Item`s of a trace, groups them here, and links the groups at the end. Symbols are found by the
names of their values throughout: comparing Thunder's bound symbols is slow, and quadratic over a trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunder.core.compile_data import get_compile_option
from thunder.core.prims import PrimIDs
from thunder.core.proxies import Proxy, TensorProxy
from thunder.core.symbol import BoundSymbol, BoundSymbolTag, has_tags
from thunder.core.trace import TraceCtx, from_trace
from thunder.executors.data_dependent_partition import Node, fuse_bound_symbols

from thunder_fuser.executors.claims import device_of, why_not
from thunder_fuser.executors.inplace import Hazards, SharedMemory, aliased_names, may_be_view, writes_in_place
from thunder_fuser.executors.random import as_operator, keeps_uniform
from thunder_fuser.translators import FROM_GENERATOR, FROM_SEED, flatten, is_view, results


@dataclass(frozen=True, slots=True)
class Place:
    """What all prims of a region share."""

    device: str
    backward: bool


@dataclass(slots=True)
class Item:
    """One symbol of a trace; `place` is None for one that is not claimed."""

    bsym: BoundSymbol
    place: Place | None


@dataclass(slots=True)
class Region:
    """Claimed prims in trace order. `inputs` and `outputs` are filled by `link`.

    `repeated` names the values that another region makes too, and returns: here they never leave the region."""

    place: Place
    prims: list[BoundSymbol]
    repeated: frozenset[str] = frozenset()
    inputs: list[Proxy] = field(default_factory=list)
    outputs: list[Proxy] = field(default_factory=list)


def items_of(bsyms: Iterable[BoundSymbol]) -> Iterator[Item]:
    """A trace's symbols, claimed composites flattened to prims. Backward prims carry Thunder's tag for it."""
    bsyms = list(bsyms)
    aliased = aliased_names(bsyms)
    unclaimed = FROM_GENERATOR if keeps_uniform() else ()
    for bsym in bsyms:
        if why_not(bsym) is not None or may_be_view(bsym, aliased) or (unclaimed and any(p.sym.id in unclaimed for p in flatten([bsym]))):
            yield Item(bsym, None)
            continue
        backward = has_tags(bsym, {BoundSymbolTag.BACKWARD})
        for prim in flatten([bsym]):
            if backward and BoundSymbolTag.BACKWARD not in prim.tags:
                prim = prim.from_bsym(tags=prim.tags | {BoundSymbolTag.BACKWARD})
            yield Item(prim, Place(device_of(prim), backward))


def group(trace: TraceCtx, items: Sequence[Item]) -> list[BoundSymbol | Region]:
    """Items as regions and single symbols, in an order in which producers come first.

    Thunder's option `fusion_type` says how: "consecutive" joins neighbours, "dataflow" whatever data flow allows.
    A region never mixes devices, nor forward with backward."""
    fusion_type = get_compile_option("fusion_type", "Choose the type of fusion to use")
    in_place = any(writes_in_place(item.bsym) for item in items)  # data flow alone does not order reads and writes
    if fusion_type in (None, "consecutive") or in_place:
        return _consecutive(items)
    return _dataflow(trace, items)


def _consecutive(items: Sequence[Item]) -> list[BoundSymbol | Region]:
    grouped: list[BoundSymbol | Region] = []
    memory = SharedMemory(item.bsym for item in items)
    hazards = Hazards(memory)
    for item in items:
        last = grouped[-1] if grouped else None
        if item.place is None:
            grouped.append(item.bsym)
            continue
        if isinstance(last, Region) and last.place == item.place and not hazards.refuses(item.bsym):
            last.prims.append(item.bsym)
        else:
            hazards = Hazards(memory)
            grouped.append(Region(item.place, [item.bsym]))
        hazards.add(item.bsym)
    return grouped


def _dataflow(trace: TraceCtx, items: Sequence[Item]) -> list[BoundSymbol | Region]:
    places = {id(item.bsym): item.place for item in items}
    flat = from_trace(trace)
    flat.bound_symbols = [item.bsym for item in items]

    def mergeable(a: Node, b: Node) -> bool:
        place = places[id(a.group_bsyms[0])]
        return place is not None and place == places[id(b.group_bsyms[0])]

    grouped: list[BoundSymbol | Region] = []
    for bsyms in fuse_bound_symbols(flat, mergeable):
        place = places[id(bsyms[0])]
        grouped.extend(bsyms if place is None else [Region(place, list(bsyms))])
    return grouped


def link(grouped: Sequence[BoundSymbol | Region]) -> list[BoundSymbol | Region]:
    """Finds each region's inputs (by first use) and outputs (by production) and drops prims that nobody needs."""
    needed: set[str] = set()
    linked: list[BoundSymbol | Region] = []
    for entry in reversed(grouped):
        if isinstance(entry, Region):
            entry = _linked(entry, needed)
            if not entry.prims:
                continue
            needed.update(p.name for p in entry.inputs)
        else:
            needed.update(p.name for p in entry.flat_proxy_args)
        linked.append(entry)
    return linked[::-1]


def _linked(region: Region, needed: set[str]) -> Region:
    returned = {out.name for p in region.prims for out in results(p) if out.name not in region.repeated} & needed
    live = set(returned)
    prims: list[BoundSymbol] = []
    for prim in reversed(region.prims):
        if prim.sym.id is PrimIDs.COPY_ or any(out.name in live for out in results(prim)):
            prims.append(prim)
            live.update(a.name for a in prim.flat_proxy_args)
    prims.reverse()
    made = {out.name for p in prims for out in results(p)}
    inputs = {a.name: a for p in prims for a in p.flat_proxy_args if a.name not in made}
    outputs = [out for p in prims for out in results(p) if out.name in returned]
    return Region(region.place, prims, region.repeated, list(inputs.values()), outputs)


def worth_fusing(region: Region) -> bool:
    """A lone view costs torch less than a fusion's call, and a region without tensors to read has no device to run on."""
    if not any(isinstance(p, TensorProxy) for p in region.inputs):
        return False
    views = [p for p in region.prims if p.sym.id not in (PrimIDs.SHALLOW_COPY, PrimIDs.UPDATE_ALIASES)]
    return len(views) > 1 or any(not is_view(p) for p in views)


def unfused(prims: Sequence[BoundSymbol]) -> list[BoundSymbol]:
    """Prims for torch to run. The few that torch's executor only knows as operators of torch are wrapped into those."""
    import thunder.torch as ltorch
    from thunder.executors.torchex import ex as torch_executor

    def runnable(prim: BoundSymbol) -> BoundSymbol:
        if prim.sym.id in FROM_SEED:
            return as_operator(prim)
        composite: Any = getattr(ltorch, prim.sym.name, None)
        if prim.sym.python_impl is not None or torch_executor.can_execute(prim) or composite is None:
            return prim
        wrapped = composite.bind(*prim.args, **prim.kwargs, output=prim.output, subsymbols=(prim,))
        wrapped.tags |= prim.tags
        return wrapped

    return [runnable(p) for p in prims]
