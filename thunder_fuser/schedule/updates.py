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
from thunder_fuser.maps.exprs import Load
from thunder_fuser.schedule.kernels import plan_segment
from thunder_fuser.schedule.plan import KernelPlan
from thunder_fuser.schedule.segment import Segment


def unsafe(kernels: Sequence[KernelPlan], direct: Iterable[Write]) -> list[ir.Value]:
    """The values of those `direct` writes that must not be stored straight into their input by `kernels`."""
    return [write.value for write in direct if not _is_safe(kernels, write)]


def _is_safe(kernels: Sequence[KernelPlan], write: Write) -> bool:
    stores = [k for k, kernel in enumerate(kernels) if write.value in kernel.writes]
    if any(write.of in kernel.reads for kernel in kernels[min(stores, default=0) + 1:]):
        return False
    first = kernels[stores[0]] if stores else None
    if first is None or write.of not in first.reads:
        return True
    for nest in first.nests:
        stored = {store.address + write.offset for store in nest.stores if store.buffer is write.value}
        for load in nest.loads():
            if load.buffer is write.of and load.address not in stored:
                return False
    return True


def copies(staged: Sequence[Write], strides: Mapping[ir.Value, tuple[int, ...]], fusion: ir.Fusion,
           alignment: Mapping[ir.Value, int]) -> list[tuple[Write, KernelPlan]]:
    """One kernel for each of `staged`, in order, that copies its value, held in a buffer of the `strides` given, to its
    place. The write that comes with a kernel is of that kernel's target, a value of its own."""
    found = []
    for write in staged:
        held = write.value
        target = ir.Value(f"{held.name}.copy", held.type)
        segment = Segment(((target, write.strides),), False, 0)
        place = dataclasses.replace(write, value=target)
        plans = plan_segment(segment, fusion, {target: ir.Copy(target, held)}, {held: strides[held]},
                             {**alignment, target: alignment_of(place, alignment)})
        found += [(place, plan) for plan in plans]
    return found


def alignment_of(write: Write, alignment: Mapping[ir.Value, int]) -> int:
    """Bytes by which the address of the target's first element is aligned, 16 at most."""
    return math.gcd(16, alignment[write.of], write.offset * write.value.dtype.size)


def marked(kernel: KernelPlan, direct: Iterable[Write]) -> KernelPlan:
    """`kernel`, told which of its buffers are one memory, read and written."""
    both = [w for w in direct if w.value in kernel.writes and w.of in kernel.reads]
    return dataclasses.replace(kernel, in_place=frozenset(v for w in both for v in (w.value, w.of))) if both else kernel
