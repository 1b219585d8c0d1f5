"""What a definition's last call ran: the fusions' reports and the torch calls between them.

Made by `FusionDefinition.report()`. Figures are sums over the fusions; what torch moves and allocates is not among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thunder_fuser.report import BufferReport, KernelReport, Report, ViewReport


@dataclass(frozen=True, slots=True)
class DefinitionReport:
    """`steps` in the order they run: a `Report` for a fusion, the text of a call for torch."""

    steps: tuple[Report | str, ...]

    @property
    def fusions(self) -> tuple[Report, ...]:
        return tuple(s for s in self.steps if isinstance(s, Report))

    @property
    def torch_calls(self) -> tuple[str, ...]:
        return tuple(s for s in self.steps if isinstance(s, str))

    @property
    def kernels(self) -> tuple[KernelReport, ...]:
        return tuple(k for f in self.fusions for k in f.kernels)

    @property
    def buffers(self) -> tuple[BufferReport, ...]:
        return tuple(b for f in self.fusions for b in f.buffers)

    @property
    def views(self) -> tuple[ViewReport, ...]:
        return tuple(v for f in self.fusions for v in f.views)

    @property
    def cuts(self) -> tuple[str, ...]:
        return tuple(c for f in self.fusions for c in f.cuts)

    @property
    def bytes(self) -> int:
        """Bytes that all kernels of the fusions must move."""
        return sum(f.bytes for f in self.fusions)

    @property
    def allocated_bytes(self) -> int:
        return sum(f.allocated_bytes for f in self.fusions)

    def to_dict(self) -> dict[str, Any]:
        return {"steps": [s if isinstance(s, str) else s.to_dict() for s in self.steps], "bytes": self.bytes,
                "allocated_bytes": self.allocated_bytes}

    def __str__(self) -> str:
        return "\n".join(str(s) if isinstance(s, Report) else f"torch {s}" for s in self.steps)
