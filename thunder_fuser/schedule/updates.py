"""Which updates may be stored straight into their input, and the kernels that copy the others there at the end.

Called by the compiler. A store into memory that is read may come too early for someone. It is safe where every load of
that input, in any kernel, has run before, or is made by the same thread, at the very address that it stores to.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from thunder_fuser.analysis.updates import Write
from thunder_fuser.ir import nodes as ir
from thunder_fuser.maps.exprs import Accumulate, Load, topological
from thunder_fuser.maps.nests import Store
from thunder_fuser.schedule.kernels import SegmentPlanner
from thunder_fuser.schedule.plan import KernelPlan, RowPlan
from thunder_fuser.schedule.segment import Segment

Bases = Mapping[ir.Value, ir.Value]
"""What a scatter writes into, and its result: two values in one memory."""


def unsafe(kernels: Sequence[KernelPlan], direct: Iterable[Write], bases: Bases) -> list[ir.Value]:
    """The values of those `direct` writes that must not be stored straight into their input by `kernels`."""
    return [write.value for write in direct if not _is_safe(kernels, write, bases)]


def _is_safe(kernels: Sequence[KernelPlan], write: Write, bases: Bases) -> bool:
    stores = [k for k, kernel in enumerate(kernels) if any(bases.get(v, v) is write.value for v in kernel.writes)]
    if any(write.of in kernel.reads for kernel in kernels[min(stores, default=0) + 1:]):
        return False
    first = kernels[stores[0]] if stores else None
    if first is None or write.of not in first.reads:
        return True
    if first.rows is not None and not _alone_with_rows(first.rows, write):
        return False
    for nest in first.nests:
        stored = {store.address + write.offset for store in nest.stores if bases.get(store.buffer, store.buffer) is write.value}
        for load in nest.loads():
            if load.buffer is write.of and load.address not in stored:
                return False
    return True


def _alone_with_rows(rows: RowPlan, write: Write) -> bool:
    """Whether no thread but the one that stores a row's result reads what it is stored over."""
    along = set(rows.nest.reduced)
    of_elements = [s.expr for s in rows.nest.stores if not along.isdisjoint(s.address.axes())] + [c.expr for c in rows.nest.columns]
    of_elements += [e.body for e in rows.nest.exprs() if isinstance(e, Accumulate)]
    return all(not along.isdisjoint(ld.address.axes()) for ld in topological(of_elements) if isinstance(ld, Load) and ld.buffer is write.of)


def copies(staged: Sequence[Write], strides: Mapping[ir.Value, tuple[int, ...]], fusion: ir.Fusion,
           alignment: Mapping[ir.Value, int]) -> list[tuple[Write, KernelPlan]]:
    """One kernel for each of `staged`, in order, that copies its value, held in a buffer of the `strides` given, to its
    place. The write that comes with a kernel is of that kernel's target, a value of its own."""
    found = []
    for write in staged:
        held = write.value
        target = ir.Value(f"{held.name}.copy", held.type)
        segment = Segment(((target, write.strides),), 0)
        place = dataclasses.replace(write, value=target)
        planner = SegmentPlanner(fusion, None, {**alignment, target: alignment_of(place, alignment)}, frozenset())
        planned = planner.plan(segment, {target: ir.Copy(target, held)}, {held: strides[held]})
        found += [(place, plan) for plan in planned.kernels]
    return found


def alignment_of(write: Write, alignment: Mapping[ir.Value, int]) -> int:
    """Bytes by which the address of the target's first element is aligned, 16 at most."""
    return math.gcd(16, alignment[write.of], write.offset * write.value.dtype.size)


def marked(kernel: KernelPlan, direct: Sequence[Write], bases: Bases) -> KernelPlan:
    """`kernel`, told which of its buffers are one memory, read and written."""
    both = [(v, w.of) for v in kernel.writes for w in direct if bases.get(v, v) is w.value and w.of in kernel.reads]
    return dataclasses.replace(kernel, in_place=frozenset(v for pair in both for v in pair)) if both else kernel


def changes_nothing(kernel: KernelPlan, direct: Sequence[Write], bases: Bases) -> bool:
    """Whether a kernel only stores, straight into an input, what lies there: the base of a scatter in place."""
    if not direct:
        return False
    places = {w.value: w for w in direct}

    def is_idle(store: Store) -> bool:
        write = places.get(bases.get(store.buffer))
        load = store.expr
        return (write is not None and isinstance(load, Load) and load.buffer is write.of and not load.guards
                and load.address == store.address + write.offset)

    return all(is_idle(store) for nest in kernel.nests for store in nest.stores)
