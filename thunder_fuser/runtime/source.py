"""What the emitter hands to the compilers: one translation unit with one kernel in it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class KernelSource:
    """`text` is the complete translation unit, the same bytes for NVRTC and for the host's C++ compiler; `name` is its
    `extern "C" __global__` entry."""

    name: str
    text: str

    @cached_property
    def digest(self) -> str:
        """sha256 of the name and the text, in hex."""
        return hashlib.sha256(f"{self.name}\0{self.text}".encode()).hexdigest()

    def numbered(self, around: int | None = None, margin: int = 6) -> str:
        """The text with line numbers: all of it, or `margin` lines on either side of line `around` (from 1)."""
        lines = list(enumerate(self.text.splitlines(), start=1))
        if around is not None:
            lines = lines[max(0, around - 1 - margin) : around + margin]
        return "\n".join(f"{number:5d} | {line}" for number, line in lines)
