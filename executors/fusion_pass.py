"""The fusion pass: a joint trace in, the same trace with claimed regions as fusions out. Called by the executor.

flatten -> common subexpressions -> group -> link -> seeds -> link -> recompute -> link -> fuse. Each step walks the trace once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from thunder.core.proxies import Proxy
from thunder.core.pytree import tree_flatten
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace

from thunder_fuser.executors.cse import eliminate
from thunder_fuser.executors.inplace import written_inputs
from thunder_fuser.executors.random import draws_from_generator, with_seed
from thunder_fuser.executors.recompute import recompute
from thunder_fuser.executors.regions import Region, group, items_of, link, unfused, worth_fusing
from thunder_fuser.translators import results


def fuse_trace(trace: TraceCtx, fuse: Callable[[Region, int], BoundSymbol], has_fuel: Callable[[], bool]) -> TraceCtx:
    """`fuse(region, counter)` makes the symbol of a region; `has_fuel()` is asked before each one."""
    start = time.perf_counter_ns()
    returned = {p.name for p in tree_flatten(trace.output)[0] if isinstance(p, Proxy)}
    joint = isinstance(trace.output, dict) and "fw_flat_out" in trace.output
    items = eliminate(list(items_of(trace.bound_symbols)), returned)
    fused: list[BoundSymbol] = []
    counter = 0
    for entry in link(recompute(link(_seeded(trace, link(group(trace, items)))))):
        if isinstance(entry, Region) and joint and not entry.place.backward:
            _return_written(entry)
        if not isinstance(entry, Region):
            fused.append(entry)
        elif worth_fusing(entry) and has_fuel():
            fused.append(fuse(entry, counter))
            counter += 1
        else:
            fused.extend(unfused([p for p in entry.prims if not entry.repeated.issuperset(out.name for out in results(p)) or not results(p)]))
    result = from_trace(trace)
    result.bound_symbols = fused
    milliseconds = (time.perf_counter_ns() - start) // 1000000
    result.set_provenance(TraceProvenance(f"Fusion by thunder_fuser (took {milliseconds} milliseconds)"))
    return result


def _seeded(trace: TraceCtx, grouped: Sequence[BoundSymbol | Region]) -> list[BoundSymbol | Region]:
    """`grouped` with the random prims of regions that will be fusions given seeds."""
    result: list[BoundSymbol | Region] = []
    for entry in grouped:
        if isinstance(entry, Region) and any(map(draws_from_generator, entry.prims)) and worth_fusing(entry):
            made: list[BoundSymbol] = []
            for prim in entry.prims:
                if draws_from_generator(prim):
                    drawn, prim = with_seed(trace, prim)
                    result.append(drawn)
                made.append(prim)
            entry.prims = made
        result.append(entry)
    return result


def _return_written(region: Region) -> None:
    """Adds the inputs that a region writes into to its outputs: Thunder puts into the forward what the forward needs a result
    of, and would leave a region that does nothing but write to the backward."""
    known = {p.name for p in region.outputs}
    region.outputs += [proxy for proxy, _ in written_inputs(region.prims) if proxy.name not in known]
