"""A specialised definition: its fusions and the torch calls between them, as one straight line of Python.

`specialize` makes a `Program` for the sizes of a call, `FusionDefinition` binds it to executables and runs it. `str()` is
the Python function that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from thunder_fuser.executable import Executable
from thunder_fuser.ir.nodes import Fusion


@dataclass(frozen=True, slots=True)
class Variable:
    """A tensor of the program, by its name there."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FusionStep:
    """One fusion: the expressions of its arguments, and the names that its results get."""

    fusion: Fusion
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TorchStep:
    """One op that torch runs: `call(*arguments)`, tensors among them as `Variable`s."""

    op: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.outputs)} = {self.op}({', '.join(map(repr, self.arguments))})"

    @property
    def names(self) -> list[str]:
        """The variables that it reads."""
        return [a.name for a in self.arguments if isinstance(a, Variable)]


Step: TypeAlias = FusionStep | TorchStep


@dataclass(frozen=True, slots=True)
class Program:
    """What `execute` runs. `parameters` name the inputs of the definition, a Vector's as a list of names; `tensors` are
    those that are tensors, `updated` those that are written into."""

    parameters: tuple[str | list[str], ...]
    tensors: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    updated: tuple[str, ...] = ()

    @property
    def fusions(self) -> tuple[Fusion, ...]:
        return tuple(s.fusion for s in self.steps if isinstance(s, FusionStep))

    @property
    def calls(self) -> tuple[TorchStep, ...]:
        return tuple(s for s in self.steps if isinstance(s, TorchStep))

    def __str__(self) -> str:
        return f"def run({', '.join(self._heads())}):\n" + "".join(f"    {line}\n" for line in self._lines())

    def bind(self, executables: Sequence[Executable]) -> Callable[..., list[torch.Tensor]]:
        """The function of `str`, given what runs each fusion: it takes the definition's inputs and returns its outputs."""
        namespace: dict[str, Any] = {f"fusion{k}": run for k, run in enumerate(executables)}
        namespace |= {step.op: step.call for step in self.calls}
        exec(compile(str(self), "<thunder_fuser definition>", "exec"), namespace)
        return namespace["run"]

    def _heads(self) -> list[str]:
        return [p if isinstance(p, str) else f"vector{k}" for k, p in enumerate(self.parameters)]

    def _lines(self) -> list[str]:
        lines = [f"{', '.join(p)}, = vector{k}" for k, p in enumerate(self.parameters) if isinstance(p, list) and p]
        lines += [f"if {name}.requires_grad: {name} = {name}.detach()" for name in self.tensors if name not in self.updated]
        last = self._last_reads()
        fusions = 0
        for position, step in enumerate(self.steps):
            if isinstance(step, FusionStep):
                call = f"fusion{fusions}.call({', '.join(step.arguments)})"  # looked up each time: an executable finds quicker ones
                fusions += 1
                if position == len(self.steps) - 1 and step.outputs == self.outputs:
                    return [*lines, f"return {call}"]
                lines.append(f"{_targets(step.outputs)} = {call}" if step.outputs else call)
            else:
                lines.append(str(step))
            dropped = last.get(position)
            if dropped and position < len(self.steps) - 1:
                lines.append(f"del {', '.join(dropped)}")
        return [*lines, f"return [{', '.join(self.outputs)}]"]

    def _last_reads(self) -> dict[int, list[str]]:
        """Results by the step after which nothing reads them: memory is given back there, as in eager code."""
        made = {name: k for k, step in enumerate(self.steps) for name in step.outputs}
        for k, step in enumerate(self.steps):
            for name in step.arguments if isinstance(step, FusionStep) else step.names:
                if name in made:
                    made[name] = k
        kept = {o.partition(".")[0] for o in self.outputs}
        last: dict[int, list[str]] = {}
        for name, k in made.items():
            if name not in kept:
                last.setdefault(k, []).append(name)
        return last


def _targets(names: Sequence[str]) -> str:
    return ", ".join(names) + "," * (len(names) == 1)

