"""The calls of a complete definition: which specialisation runs one, made when it is first needed.

`FusionDefinition` holds one `Calls`; definitions that `LruFusionCache` finds equal share it. Specialisations are kept by what
`keys.key_function` reads of the inputs, the last used 64 of them.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder_fuser.compiler import compile_fusion
from thunder_fuser.errors import InputError
from thunder_fuser.executable import Executable
from thunder_fuser.frontend.inputs import call_device, flatten
from thunder_fuser.frontend.keys import key_function
from thunder_fuser.frontend.program import FusionStep, Program
from thunder_fuser.frontend.records import Statements
from thunder_fuser.frontend.report import DefinitionReport
from thunder_fuser.frontend.specialize import specialize
from thunder_fuser.ir.nodes import TensorType

MAX_SPECIALIZATIONS = 64
# What Python and torch raise for arguments of the wrong kind: see then which one does not fit.
MISFITS = (AttributeError, TypeError, RuntimeError, OverflowError, ValueError, struct.error)


@dataclass(frozen=True, slots=True)
class Specialization:
    """A program and what runs it: `run(*inputs)` with the inputs of the definition."""

    program: Program
    executables: tuple[Executable, ...]
    run: Callable[..., list[torch.Tensor]]

    def report(self) -> DefinitionReport:
        """What the last call ran."""
        reports = iter([e.report() for e in self.executables])
        return DefinitionReport(tuple(next(reports) if isinstance(s, FusionStep) else str(s) for s in self.program.steps))


class Calls:
    """Finds or makes the specialisation of a call."""

    def __init__(self, said: Statements) -> None:
        self.said = said
        self.key = key_function(said.inputs, said.static, said.calls_torch)
        self.known: OrderedDict[Hashable, Specialization] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, inputs: Sequence[Any], device: torch.device | str | int | None = None) -> Specialization:
        """The specialisation for `inputs`. Raises `InputError` if one does not fit its declaration, `IRError` and
        `UnsupportedError` for a program that cannot be with these sizes."""
        key = self._key(inputs, device)
        with self._lock:
            found = self.known.get(key)
            if found is not None:
                self.known.move_to_end(key)
                return found
        found = self._make(inputs, device)
        with self._lock:
            self.known[key] = found
            while len(self.known) > MAX_SPECIALIZATIONS:
                self.known.popitem(last=False)
        return found

    def touch(self, key: Hashable) -> None:
        """Marks the specialisation of `key` as the last used."""
        with self._lock:
            if key in self.known:
                self.known.move_to_end(key)

    def made_for(self, inputs: Sequence[Any], device: torch.device | str | int | None = None) -> Specialization | None:
        """The specialisation for `inputs` if there has been a call like it."""
        return self.known.get(self._key(inputs, device))

    def check(self, inputs: Sequence[Any]) -> None:
        """Raises `InputError` for the first input that does not fit its declaration."""
        flatten(self.said.inputs, inputs)
        call_device(self.said.inputs, inputs, None)

    def _key(self, inputs: Sequence[Any], device: torch.device | str | int | None) -> Hashable:
        if not isinstance(inputs, (list, tuple)):
            raise InputError(f"'execute' takes a list of inputs, got '{type(inputs).__name__}'.")
        try:
            key = self.key(*inputs)
            hash(key)
        except MISFITS:
            self.check(inputs)
            raise
        return key if device is None else (key, torch.device(device))

    def _make(self, inputs: Sequence[Any], device: torch.device | str | int | None) -> Specialization:
        flat = flatten(self.said.inputs, inputs)
        place = call_device(self.said.inputs, inputs, device)
        program = specialize(self.said, flat, place)
        backend = "host" if place.type == "cpu" else "cuda"
        executables = tuple(compile_fusion(f, backend, check_inputs=False) for f in program.fusions)
        run = program.bind(executables)
        placed = all(any(isinstance(v.type, TensorType) for v in f.inputs) for f in program.fusions)
        return Specialization(program, executables, run if placed or place.type == "cpu" else _on(place, run))


def _on(device: torch.device, run: Callable[..., Any]) -> Callable[..., Any]:
    """`run` with `device` current: fusions without tensor inputs run there."""
    def guarded(*inputs: Any) -> Any:
        with torch.cuda.device(device):
            return run(*inputs)
    return guarded

