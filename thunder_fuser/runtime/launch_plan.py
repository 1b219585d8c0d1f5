"""What a call does, in terms of positions: allocate, launch, make outputs. Printed as the Python that runs it.

`compiler` makes a `LaunchPlan`; `Plan` binds it to loaded kernels and a device, and turns it into one straight-line
Python function, because the interpreter's loops and attribute look-ups would cost more than the launches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder_fuser.runtime.source import KernelSource

Place = tuple[str, int] | tuple[str, int, int]
"""("input" | "buffer", position, bytes from its first element if any), or a part of a complex number: ("real" | "imag", position
of the input)."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory for one buffer: the value it holds, shape, strides in elements, dtype."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        if 0 in self.shape:
            return 0
        return (1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides))) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One launch: where each parameter comes from, and its kind ("ptr" for a pointer, else a number's dtype)."""

    source: KernelSource
    blocks: int
    threads: int
    arguments: tuple[Place, ...]
    kinds: tuple[str, ...]
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class OutputRecipe:
    """An output: an input or buffer itself, or a view (shape, strides, offset from its first element)."""

    kind: str
    index: int
    view: tuple[tuple[int, ...], tuple[int, ...], int] | None


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Everything a call does. `str()` is the Python function that does it. `updated` are the inputs that are written into:
    autograd must be told, by the version that torch counts for each tensor. `items` are tensors on the CPU whose one element
    is handed over as a number."""

    allocations: tuple[Allocation, ...]
    calls: tuple[KernelCall, ...]
    outputs: tuple[OutputRecipe, ...]
    updated: tuple[int, ...] = ()
    items: tuple[int, ...] = ()

    def python(self, inputs: int, tensors: Sequence[int], device: torch.device) -> str:
        """The source of `run(in0, in1, ..., p0, ...)`, given the inputs and the addresses of those that are tensors: a list
        of outputs, by the names that `bind` provides."""
        cuda = device.type == "cuda"
        names = ", ".join([*(f"in{k}" for k in range(inputs)), *(f"p{k}" for k in tensors)])
        lines = [f"def run({names}):", *(f"    in{k} = in{k}.item()" for k in self.items)]
        for k, a in enumerate(self.allocations):
            lines.append(f"    out{k} = empty({a.shape}, {a.strides}, dtype{k})")
        if self.calls and cuda:
            lines.append(f"    stream = current_stream({device.index})")
        for k, call in enumerate(self.calls):
            arguments = ["stream" if cuda else "0"]
            for (kind, index, *start), what in zip(call.arguments, call.kinds):
                if kind == "buffer":
                    arguments.append(f"out{index}.data_ptr()")
                elif kind != "input":
                    arguments.append(f"in{index}.{kind}")
                else:
                    arguments.append(f"{'p' if what == 'ptr' else 'in'}{index}" + "".join(f" + {n}" for n in start))
            lines.append(f"    kernel{k}({', '.join(arguments)})  # {call.source.name} grid={call.blocks} block={call.threads}")
        if self.updated:
            lines.append(f"    increment_version([{', '.join(f'in{k}' for k in self.updated)}])")
        lines.append(f"    return [{', '.join(self._output(o) for o in self.outputs)}]")
        return "\n".join(lines) + "\n"

    def _output(self, output: OutputRecipe) -> str:
        name = f"{'in' if output.kind == 'input' else 'out'}{output.index}"
        if output.view is None:
            return name
        shape, strides, offset = output.view
        start = str(offset)
        if output.kind == "input":
            start = f"{name}.storage_offset()" + (f" + {offset}" if offset else "")
        return f"as_strided({name}, {shape}, {strides}, {start})"

    def bind(self, inputs: int, tensors: Sequence[int], device: torch.device, launchers: Sequence[Callable[..., None]]) -> Callable[..., list[Any]]:
        """The function of `python`, with kernels and allocator bound for `device`."""
        namespace: dict[str, Any] = {f"kernel{k}": launcher for k, launcher in enumerate(launchers)}
        namespace |= {f"dtype{k}": a.dtype for k, a in enumerate(self.allocations)}
        namespace |= {"as_strided": torch.as_strided, "current_stream": torch._C._cuda_getCurrentRawStream if device.type == "cuda" else None,
                      "empty": _allocator(device), "increment_version": torch._C._increment_version}
        exec(compile(self.python(inputs, tensors, device), "<thunder_fuser launch plan>", "exec"), namespace)
        return namespace["run"]

    def __str__(self) -> str:
        used = [i for c in self.calls for kind, i, *_ in c.arguments if kind != "buffer"]
        used += [*(o.index for o in self.outputs if o.kind == "input"), *self.updated]
        tensors = sorted({i for c in self.calls for (kind, i, *_), what in zip(c.arguments, c.kinds) if kind == "input" and what == "ptr"})
        return self.python(max(used, default=-1) + 1, tensors, torch.device("cpu"))


def _allocator(device: torch.device) -> Callable[..., torch.Tensor]:
    """empty(shape, strides, dtype) on `device` (the current one for CUDA), by the quickest way torch has."""
    if device.type == "cuda":
        return torch._C._dynamo.guards._empty_strided_cuda
    return torch._C._dynamo.guards._empty_strided_cpu
