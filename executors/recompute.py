"""Values that a region computes again instead of reading them from memory. Called by the fusion pass.

A region's input that another region makes costs a store and a load; where it follows cheaply from less, it is made
again where it is used. So the backward of a rotary embedding reads cos and sin as given, not their float32 broadcasts.

For each input the pass walks back through cheap prims of the region that makes it, and takes the set of values with
the fewest bytes to move: one already read here is free, one that memory holds anyway costs a load, any other one a
store and a load. Equal costs recompute what would be stored for this region alone, which saves memory. Sets are small,
each prim is seen once a region: linear in the size of the regions involved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from thunder.core.proxies import Proxy, TensorProxy
from thunder.core.symbol import BoundSymbol

from thunder_fuser.executors.inplace import written_names
from thunder_fuser.executors.regions import Region
from thunder_fuser.translators import is_cheap, is_view, results

# A value that needs more sources than this is read instead.
MAX_SOURCES = 8

Sources = frozenset[str]


def recompute(grouped: Sequence[BoundSymbol | Region]) -> list[BoundSymbol | Region]:
    """The same regions, with prims of their producers repeated in them where that moves fewer bytes.

    Takes linked regions; the result is to be linked again."""
    producers = _Producers(grouped)
    result: list[BoundSymbol | Region] = []
    for entry in reversed(grouped):
        result.append(_Consumer(entry, producers).rebuilt() if isinstance(entry, Region) else entry)
    return result[::-1]


class _Producers:
    """Who makes each value, and which values memory holds whatever a region decides."""

    def __init__(self, grouped: Sequence[BoundSymbol | Region]) -> None:
        self.prims: dict[str, BoundSymbol] = {}
        self.regions: dict[str, int] = {}
        self.order: dict[str, int] = {}
        self.in_memory: set[str] = set()
        for i, entry in enumerate(grouped):
            if isinstance(entry, Region):
                for prim in entry.prims:
                    for proxy in results(prim):
                        self.prims[proxy.name] = prim
                        self.regions[proxy.name] = i
                        self.order[proxy.name] = len(self.order)
            else:
                self.in_memory.update(p.name for p in entry.flat_proxy_args)
        self.written = written_names([b for entry in grouped for b in (entry.prims if isinstance(entry, Region) else [entry])])


def _viewed_by_outputs(region: Region) -> set[str]:
    """Values that outputs of the region are views of. Made again they would have to be written; as inputs they cost nothing."""
    viewed = {p.name for p in region.outputs}
    for prim in reversed(region.prims):
        if is_view(prim) and any(p.name in viewed for p in results(prim)):
            viewed.update(a.name for a in prim.flat_proxy_args)
    return viewed


class _Consumer:
    """One region on its way to reading less."""

    def __init__(self, region: Region, producers: _Producers) -> None:
        self.region = region
        self.producers = producers
        made = {out.name for p in region.prims for out in results(p)}
        self.external: dict[str, Proxy] = {a.name: a for p in region.prims for a in p.flat_proxy_args if a.name not in made}
        returned = _viewed_by_outputs(region)
        self.wanted = [n for n in self.external if n in producers.prims and is_cheap(producers.prims[n]) and n not in returned]
        self.free = set(self.external) - set(self.wanted)
        self.proxies: dict[str, Proxy] = dict(self.external)
        self.sources: dict[str, Sources | None] = {}

    def rebuilt(self) -> Region:
        repeated, read = self._choose()
        # What is read now is free for the values that were found too dear before: a second look.
        self.free |= {name for name in read if self._is_leaf(name)}
        self.sources.clear()
        repeated, read = self._choose()
        self.producers.in_memory |= read
        prims = sorted(repeated.values(), key=lambda p: self.producers.order[p.output.name])
        return Region(self.region.place, [*prims, *self.region.prims], frozenset(repeated))

    def _choose(self) -> tuple[dict[str, BoundSymbol], set[str]]:
        """The prims to repeat, by result, and the names of the values that are read then."""
        for name in self.wanted:
            self._walk(name)
        repeated: dict[str, BoundSymbol] = {}
        stack = [n for n in self.wanted if not self._is_read(n)]
        read = set(self.external) - set(stack)
        while stack:
            prim = self.producers.prims[stack.pop()]
            if prim.output.name in repeated:
                continue
            repeated[prim.output.name] = prim
            for arg in prim.flat_proxy_args:
                if self._is_read(arg.name):
                    read.add(arg.name)
                else:
                    stack.append(arg.name)
        return repeated, read

    def _is_read(self, name: str) -> bool:
        return self.sources.get(name) in (None, frozenset((name,)))

    def _is_leaf(self, name: str) -> bool:
        """Whether nothing cheaper can stand for a value: no prim that may be repeated makes it."""
        prim = self.producers.prims.get(name)
        return prim is None or not is_cheap(prim) or self._held(name)

    def _walk(self, name: str) -> None:
        """Fills `sources` for a value and all that it follows from, operands first."""
        home = self.producers.regions[name]
        stack = [name]
        while stack:
            current = stack[-1]
            if current in self.sources:
                stack.pop()
                continue
            prim = self.producers.prims.get(current)
            if prim is None or current in self.free or self.producers.regions[current] != home or not is_cheap(prim):
                self.sources[current] = None if current in self.producers.written else frozenset((current,))
                stack.pop()
                continue
            self.proxies.update((a.name, a) for a in (prim.output, *prim.flat_proxy_args))
            waiting = [a.name for a in prim.flat_proxy_args if a.name not in self.sources]
            if waiting:
                stack.extend(waiting)
                continue
            self.sources[current] = self._best(current, prim)
            stack.pop()

    def _best(self, name: str, prim: BoundSymbol) -> Sources | None:
        """The cheapest set that gives a value, out of the value itself and what its operands follow from."""
        itself = None if name in self.producers.written else frozenset((name,))
        operands = [self.sources[a.name] for a in prim.flat_proxy_args]
        if any(s is None for s in operands):
            return itself
        union: Sources = frozenset().union(*operands)
        cost, limit = sum(map(self._bytes, union)), self._bytes(name)
        if len(union) > MAX_SOURCES or cost > limit or (cost == limit and self._held(name)):
            return itself
        return union

    def _bytes(self, name: str) -> int:
        """Bytes to move if the region reads this value."""
        proxy = self.proxies[name]
        if name in self.free or not isinstance(proxy, TensorProxy):
            return 0
        size = math.prod(proxy.shape) * proxy.dtype.bytes
        return size if self._held(name) else 2 * size

    def _held(self, name: str) -> bool:
        """Whether memory holds a value whatever this region does."""
        return name not in self.producers.prims or name in self.producers.in_memory
