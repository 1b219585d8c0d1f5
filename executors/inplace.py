"""What a trace writes into its tensors: which names share memory, what must not be in one region with a write.

Called by the fusion pass and its parts. Within a region an update is made at the end, so a region may not read or write a
tensor after writing into another one of the same memory, unless it makes one from the other itself. What Thunder knows of
shared memory is in its `update_aliases`; what it does not know (a caller's overlapping arguments) the engine finds at the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thunder.core.prims import OpTags, PrimIDs
from thunder.core.proxies import Proxy, TensorProxy
from thunder.core.symbol import BoundSymbol

from thunder_fuser.translators import TRANSLATIONS, is_view, results


def writes_in_place(bsym: BoundSymbol) -> bool:
    """Whether a symbol, or one that it is made of, writes into one of its arguments."""
    if bsym.sym.id is PrimIDs.COPY_ or bsym.sym.name == "copy_":
        return True
    if bsym.sym.id in TRANSLATIONS:
        return False
    return OpTags.IN_PLACE in (bsym.sym.tags or ()) or any(map(writes_in_place, bsym.subsymbols))


def written_names(bsyms: Sequence[BoundSymbol]) -> set[str]:
    """Names of tensors that share memory, as far as can be told, with one that the trace writes into."""
    written = {p.name for b in bsyms if writes_in_place(b) for p in b.flat_proxy_args}
    if not written:
        return written
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = name = parent[parent[name]]
        return name

    for bsym in bsyms:
        if bsym.sym.id in TRANSLATIONS and bsym.sym.id is not PrimIDs.COPY_ and not is_view(bsym):
            continue  # a prim that makes fresh memory
        names = [p.name for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs) if isinstance(p, TensorProxy)]
        for name in names if bsym.sym.name != "python_return" else ():
            parent[root(name)] = root(names[0])
    roots = {root(name) for name in written}
    return {name for name in parent if root(name) in roots}


def aliased_names(bsyms: Iterable[BoundSymbol]) -> set[str]:
    """Names of tensors that are written into, and of what Thunder takes for views of those."""
    return {p.name for b in bsyms if b.sym.id is PrimIDs.UPDATE_ALIASES for p in (*b.flat_proxy_args, *b.flat_proxy_outs)}


def may_be_view(bsym: BoundSymbol, aliased: set[str]) -> bool:
    """Whether torch may answer a symbol with its argument, depending on strides, where its prims copy (`contiguous`), and one
    of the two is written into."""
    if not aliased or not any(s.sym.id is PrimIDs.STRIDE_ORDER for s in bsym.subsymbols):
        return False
    return any(p.name in aliased for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs))


class SharedMemory:
    """Sets of names that may stand for one memory, as far as a trace says so."""

    def __init__(self, bsyms: Iterable[BoundSymbol]) -> None:
        self._parent: dict[str, str] = {}
        for bsym in bsyms:
            if bsym.sym.id is PrimIDs.UPDATE_ALIASES:
                self._join(bsym.flat_proxy_args + bsym.flat_proxy_outs)
            elif bsym.sym.id is PrimIDs.COPY_:
                self._join([bsym.args[1], *results(bsym)])
            elif is_view(bsym):
                self._join([bsym.args[0], *results(bsym)])

    def root(self, name: str) -> str:
        """The same for all names of a set."""
        parent = self._parent
        while parent.get(name, name) != name:
            parent[name] = name = parent.get(parent[name], parent[name])
        return name

    def _join(self, proxies: Sequence[Proxy]) -> None:
        names = [p.name for p in proxies if isinstance(p, TensorProxy)]
        for name in names[1:]:
            self._parent[self.root(name)] = self.root(names[0])


class Hazards:
    """Follows the prims of one region, and says which prim cannot be its next."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self._origin: dict[str, str] = {}  # names that views lead to -> the name that the region starts from
        self._written: dict[str, str] = {}  # set of shared memory -> the one name in it that the region writes into

    def refuses(self, prim: BoundSymbol) -> bool:
        """Whether `prim` touches memory that the region has written into by another name of which it knows no more."""
        if not self._written or prim.sym.id is PrimIDs.UPDATE_ALIASES:
            return False
        for proxy in prim.flat_proxy_args:
            written = self._written.get(self._memory.root(proxy.name))
            if written is not None and written != self._origin.get(proxy.name, proxy.name):
                return True
        return False

    def add(self, prim: BoundSymbol) -> None:
        if prim.sym.id is PrimIDs.UPDATE_ALIASES:
            pairs = zip(prim.args[0], prim.output)
        elif prim.sym.id is PrimIDs.COPY_:
            target = prim.args[1]
            pairs = [(target, prim.output)]
            self._written[self._memory.root(target.name)] = self._origin.get(target.name, target.name)
        elif is_view(prim):
            pairs = [(prim.args[0], prim.output)]
        else:
            return
        for old, new in pairs:
            if isinstance(new, TensorProxy):
                self._origin[new.name] = self._origin.get(old.name, old.name)


def written_inputs(prims: Sequence[BoundSymbol]) -> list[tuple[TensorProxy, bool]]:
    """The tensors from outside that `prims` write into, and whether one is written itself with gradients enabled: not if it
    is a view of it that is written, or if gradients are off."""
    origin: dict[str, TensorProxy] = {}
    made = {p.name for prim in prims for p in results(prim)}
    whole = set()
    found: dict[str, tuple[TensorProxy, bool]] = {}
    for prim in prims:
        if prim.sym.id is PrimIDs.UPDATE_ALIASES:
            pairs = zip(prim.args[0], prim.output)
        elif prim.sym.id is PrimIDs.COPY_:
            target = prim.args[1]
            root = origin.get(target.name, target)
            if root.name not in made:
                direct = target.name == root.name or target.name in whole
                _, before = found.get(root.name, (root, False))
                found[root.name] = (root, before or (direct and bool(prim.kwargs.get("grad_enabled"))))
            pairs = [(target, prim.output)]
        elif is_view(prim):
            origin[prim.output.name] = origin.get(prim.args[0].name, prim.args[0])
            continue
        else:
            continue
        for old, new in pairs:
            if isinstance(new, TensorProxy):
                origin[new.name] = origin.get(old.name, old)
                if old.name not in origin or old.name in whole:
                    whole.add(new.name)
    return list(found.values())
