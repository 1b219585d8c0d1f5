"""What a plan consists of, for people and programs: `Executable.report()`.

Figures are exact counts of the plan: kernels launched, vector widths, least bytes, buffers allocated, views. Times are
measured elsewhere (benchmarks and the demo).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from thunder_fuser.codegen.kernel import kernel_text

if TYPE_CHECKING:
    import torch

    from thunder_fuser.compiler import Stages
    from thunder_fuser.runtime.launch_plan import LaunchPlan
    from thunder_fuser.runtime.options import CompileOptions


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One launch. `vector_bytes` is its widest access; `bytes` what it must read and write, each element once;
    registers and spills (bytes a thread) are None on the host backend."""

    name: str
    schedule: str
    grid: int
    block: int
    vector_bytes: int
    bytes: int
    registers: int | None
    spill_bytes: int | None
    source: str
    plan: str


@dataclass(frozen=True, slots=True)
class BufferReport:
    """Memory allocated by a call: `output` tells whether the user gets it, or it is dropped after the call."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    bytes: int
    output: bool


@dataclass(frozen=True, slots=True)
class ViewReport:
    """An output that costs no kernel: a view of an input or of a buffer, in elements."""

    output: str
    of: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Report:
    """A call of one fusion: see the fields' classes. `str()` is for people, `to_dict()` for programs."""

    fusion: str
    backend: str
    kernels: tuple[KernelReport, ...]
    buffers: tuple[BufferReport, ...]
    views: tuple[ViewReport, ...]
    cuts: tuple[str, ...]
    options: str

    @property
    def bytes(self) -> int:
        """Bytes that all kernels must move."""
        return sum(k.bytes for k in self.kernels)

    @property
    def allocated_bytes(self) -> int:
        return sum(b.bytes for b in self.buffers)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"bytes": self.bytes, "allocated_bytes": self.allocated_bytes}

    @staticmethod
    def make(stages: Stages, plan: LaunchPlan, kernels: list[Any], device: torch.device, options: CompileOptions) -> Report:


        owned = len(stages.aliases.buffers)
        names = [a.name for a in plan.allocations]
        return Report(
            fusion=stages.fusion.name,
            backend="cuda" if device.type == "cuda" else "host",
            kernels=tuple(
                KernelReport(s.name, k.schedule, k.blocks, k.threads, k.vector_bytes(), k.bytes,
                             getattr(loaded, "registers", None), getattr(loaded, "local_bytes", None), kernel_text(s), str(k))
                for k, s, loaded in zip(stages.kernels, stages.sources, kernels)),
            buffers=tuple(
                BufferReport(a.name, a.shape, a.strides, str(a.dtype).removeprefix("torch."), a.bytes, k < owned)
                for k, a in enumerate(plan.allocations)),
            views=tuple(
                ViewReport(value.name, stages.fusion.inputs[o.index].name if o.of_input else names[o.index], o.view.shape, o.view.strides, o.view.offset)
                for value, o in zip(stages.fusion.outputs, stages.aliases.outputs) if o.view is not None),
            cuts=tuple(f"{v}: {why}" for v, why in stages.segments.cuts.items()),
            options=str(options))

    def __str__(self) -> str:
        lines = [f"{self.fusion} on {self.backend}: {len(self.kernels)} kernel{'s' * (len(self.kernels) != 1)}, "
                 f"{self.bytes:,} bytes, {self.allocated_bytes:,} bytes allocated, {len(self.views)} view{'s' * (len(self.views) != 1)}"]
        for k in self.kernels:
            registers = f", {k.registers} registers" if k.registers is not None else ""
            spills = f", SPILLS {k.spill_bytes} bytes a thread" if k.spill_bytes else ""
            lines.append(f"  kernel {k.name} grid={k.grid} block={k.block}: {k.vector_bytes}-byte accesses, {k.bytes:,} bytes{registers}{spills}")
        lines += [f"  buffer {b.name} {b.dtype}{list(b.shape)}: {b.bytes:,} bytes{'' if b.output else ' (dropped after the call)'}" for b in self.buffers]
        lines += [f"  view {v.output} of {v.of}: {list(v.shape)} strides {list(v.strides)} offset {v.offset}" for v in self.views]
        lines += [f"  cut at {c}" for c in self.cuts]
        return "\n".join(lines)
