"""The executor that Thunder knows as "thunder_fuser": importing this module registers it.

    jitted = thunder.jit(f, executors=[thunder_fuser.executor])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from thunder.core import prims
from thunder.core.prims import PrimIDs
from thunder.core.proxies import Proxy, unvariableify
from thunder.core.symbol import BoundSymbol, BoundSymbolTag
from thunder.core.trace import TraceCtx
from thunder.extend import FUEL_LEVEL, FusionExecutor, register_executor

from thunder_fuser import __version__, config
from thunder_fuser.executors import gradients, options
from thunder_fuser.executors.callable import FusionCallable
from thunder_fuser.executors.claims import checker
from thunder_fuser.executors.fusion_pass import fuse_trace
from thunder_fuser.executors.program import program_for
from thunder_fuser.translators import TRANSLATIONS, flatten

# Fusions are called TFuser0, TFuser1, ...: Thunder reads the digits, and names are global in a trace.
PREFIX = "TFuser"

GRADIENTS = {
    PrimIDs.FLIP: gradients.flip,
    PrimIDs.INDEX_ADD: gradients.index_add,
    PrimIDs.ARGMIN: prims.argmin,  # has none, as argmax in Thunder
}


class ThunderFuserExecutor(FusionExecutor):
    """Claims the prims that have a translation and turns regions of them into fusions."""

    def __init__(self) -> None:
        super().__init__("thunder_fuser", version=__version__)
        fuel = config.get("fuel")
        self.set_fuel(FUEL_LEVEL.UNLIMITED if fuel is None else fuel)
        for prim in TRANSLATIONS:
            self.register_supported(prim, checker(prim), grad_transform=GRADIENTS.get(prim))

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        """Called by Thunder once a compilation, with forward and backward in one trace."""
        return fuse_trace(trace, self.fuse, self.get_fuel)

    def fuse(self, region: Any, fusion_counter: int) -> BoundSymbol:
        """The fusion symbol of a region. Called by our pass, and again by other executors' passes for each fusion that
        they find, so it neither translates nor compiles."""
        inputs, outputs = _proxies(region.inputs), _proxies(region.outputs)
        prims = flatten(getattr(region, "prims", None) or region.bound_symbols)
        backward = any(BoundSymbolTag.BACKWARD in prim.tags for prim in prims)
        name = f"{PREFIX}{fusion_counter}"
        program = program_for(name, prims, inputs, outputs, shared=backward, options=options.current())
        call = FusionCallable(name, program, f"{len(prims)} prims, {len(inputs)} inputs, {len(outputs)} outputs")
        bsym = self.register_temporary_operation(name, call, inputs=inputs, outputs=outputs, bsyms=prims)
        if backward:
            bsym.tags.add(BoundSymbolTag.BACKWARD)
        self.opmap[name] = bsym.sym  # Thunder looks a pickled trace's symbols up here
        return bsym

    def get_fuel(self, amount: int = 1, /) -> bool:
        """Takes optimisation fuel for one fusion; False if there is none left, and then the region stays with torch."""
        if self._fuel is FUEL_LEVEL.UNLIMITED:
            return True
        if self._fuel < amount:
            return False
        self._fuel -= amount
        return True

    def set_fuel(self, value: int | FUEL_LEVEL) -> None:
        """How many fusions may still be made: a search over it finds the one that goes wrong."""
        if not isinstance(value, FUEL_LEVEL) and value < 0:
            raise ValueError(f"Optimisation fuel is {value}, expected 0 or more.")
        self._fuel = value


def _proxies(values: Iterable[Any]) -> list[Proxy]:
    """Thunder hands regions over with their proxies wrapped as variables."""
    return [unvariableify(v) for v in values if v is not None]


executor = ThunderFuserExecutor()
register_executor(executor)
