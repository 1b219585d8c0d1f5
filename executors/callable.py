"""What a trace calls: `FusionCallable`, one for each fusion in it.

Thunder calls it with the fusion's inputs and unpacks the sequence that it returns. Its attributes are those that
people know from other fusion executors of Thunder: `last_used`, `last_inputs`, `store_inputs`, `cache_info`,
`cache_clear`, `name`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder_fuser.errors import InputError
from thunder_fuser.executable import Executable
from thunder_fuser.executors.program import Program
from thunder_fuser.ir.nodes import Fusion
from thunder_fuser.report import Report


class FusionCallable:
    """A named use of a `Program`. Strides and alignment are the program's to look at, call by call."""

    def __init__(self, name: str, program: Program, summary: str) -> None:
        self.name = name
        self.program = program
        self.store_inputs = False
        self.last_inputs: tuple[Any, ...] | None = None
        self._summary = summary

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        """The outputs, in the trace's order. What could not be compiled for these strides runs through torch; a
        failed launch is never caught."""
        program = self.program
        if self.store_inputs:
            self.last_inputs = inputs
        if program.leaves:
            program.check_leaves(inputs)
        try:
            return program.target.call(*inputs)
        except Exception as error:
            program.after(error, inputs)
            return program.target.call(*inputs)

    @property
    def fusion(self) -> Fusion:
        """The fusion in the engine's IR; equal regions of a process share the first one's names."""
        return self.program.fusion

    @property
    def last_used(self) -> Any:
        """The executable that the last call used, or None before the first one."""
        return self.program._runner

    def report(self) -> Report:
        """What the last call ran: kernels, vector widths, bytes, buffers allocated, views. Raises `InputError` before the
        first call, and where the region runs through torch."""
        if not isinstance(self.last_used, Executable):
            reason = self.program.fallback_reason
            raise InputError(f"Fusion '{self.name}' has nothing to report: {f'it runs through torch: {reason}' if reason else 'call it first.'}")
        return self.last_used.report()

    def cache_info(self) -> Any:
        """Hits, misses and size of the executable's cache of plans (one a combination of shapes, strides and alignment)."""
        info = getattr(self.last_used, "cache_info", None)
        return info() if info is not None else None

    def cache_clear(self) -> None:
        """Forgets the executable; the next call compiles again."""
        self.program.clear()

    def __repr__(self) -> str:
        state = self.program.fallback_reason
        return f"<{self.name}: {self._summary}{f'; runs through torch: {state}' if state else ''}>"
