"""The stores of a nest as C++: every result for every lane first, then the accesses. Used by the nest and reduction emitters."""

from __future__ import annotations

from collections.abc import Sequence

from thunder_fuser.codegen.scope import Scope, widths
from thunder_fuser.ir.dtypes import F32
from thunder_fuser.maps.exprs import Convert, Expr, children, fetched_in, topological
from thunder_fuser.maps.nests import Store


class Results:
    """Evaluates what `stores` write, then writes it, as often as asked.

    A result that is a float rounded to 16 bits for the store alone stays a float until then: the conversion takes two
    lanes an instruction."""

    def __init__(self, scope: Scope, stores: Sequence[Store]) -> None:
        self.scope, self.stores = scope, stores
        roots = [s.expr for s in stores]
        used = {id(c) for e in topological(roots) for c in children(e)}
        self._roots = [e.arg if scope.lanes > 1 and isinstance(e, Convert) and _packs(e) and id(e) not in used else e for e in roots]

    def load(self) -> None:
        """The loads outside of reductions."""
        addresses = [s.address for s in self.stores]
        self.scope.load([*self._roots, *(f.value for f in fetched_in(addresses))])
        self.scope.fetch(addresses)

    def evaluate(self) -> None:
        """Serial reductions and arithmetic."""
        scope, w = self.scope, self.scope.w
        scope.reduce(self._roots)
        self._names = [scope.names.fresh("s") for _ in self.stores]
        for root, name in zip(self._roots, self._names):
            ctype = root.dtype.storage
            w.line(f"tf::Vec<{ctype}, {scope.lanes}> {name};" if scope.lanes > 1 else f"{ctype} {name};")

        def keep(texts: dict[Expr, str]) -> None:
            for root, name in zip(self._roots, self._names):
                w.line(f"{name}{'.x[l]' if scope.lanes > 1 else ''} = {texts[root]};")

        scope.for_each_lane(self._roots, keep)

    def pack(self) -> None:
        """Rounds what was kept wide."""
        for k, (store, root) in enumerate(zip(self.stores, self._roots)):
            if root is not store.expr:
                packed, ctype = self.scope.names.fresh("s"), store.buffer.dtype.storage
                self.scope.w.line(f"const tf::Vec<{ctype}, {self.scope.lanes}> {packed} = tf::convert<{ctype}>({self._names[k]});")
                self._names[k] = packed

    def write(self) -> None:
        """One access, or a few, for each store."""
        for store, name in zip(self.stores, self._names):
            write(self.scope, store, name)


def write(scope: Scope, store: Store, name: str) -> None:
    """Stores what is called `name`: one value, or a vector of the scope's lanes."""
    w, lanes, vector = scope.w, scope.lanes, scope.access[store]
    base = scope.names.buffers[store.buffer]

    def one(value: str, address: str) -> str:
        return f"tf::scatter_add({base} + ({address}), {value});" if store.accumulate else f"{base}[{address}] = {value};"

    if lanes == 1:
        w.line(one(name, scope.printer.text(store.address)))
    elif vector.width <= 1:
        w.line("#pragma unroll")
        w.line(f"for (int l = 0; l < {lanes}; ++l) {one(f'{name}.x[l]', scope.printer.text(store.address, per_lane=True))}")
    else:
        call = "scatter_add" if store.accumulate else "store"
        w.line(f"tf::{call}<{widths(lanes, vector, store.buffer.dtype)}>({base} + ({scope.printer.text(store.address)}), {name});")


def _packs(convert: Convert) -> bool:
    return not convert.bits and convert.arg.dtype is F32 and convert.dtype.kind == "float" and convert.dtype.size == 2
