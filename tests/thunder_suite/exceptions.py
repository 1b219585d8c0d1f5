"""What of Thunder's suite does not pass, and why: the table in `exceptions.txt`, one line a group of tests.

    KIND  PATTERN  REASON

PATTERN is a regular expression for the whole name of a test. KIND says what becomes of it:
    thunder   fails with Thunder's torch executor too, which the baseline run holds
    nvfuser   asks for what nvFuser's executor looks like inside
    differs   this executor's answer is another one on purpose
    cuda      makes CUDA tensors whatever device it is for
    cpu       counts torch's calls on CPU tensors, so they are left to torch, as they are unless the host backend is asked for
    torch     one of its regions cannot be fused, and must give torch's answer through torch
The first three must fail, the fourth where there is no GPU: a line that is no longer true is an error. The last two must pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch

FAILS = ("thunder", "nvfuser", "differs")
KNOBS = {"cpu": {"host": False}, "torch": {"fallback": "torch"}}
TABLE = Path(__file__).parent / "exceptions.txt"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the table."""

    kind: str
    pattern: re.Pattern[str]
    reason: str

    def fails(self, baseline: bool) -> bool:
        """Whether its tests must fail, with this executor or with torch's."""
        if self.kind == "cuda":
            return not torch.cuda.is_available()
        return self.kind == "thunder" if baseline else self.kind in FAILS


def entries() -> list[Entry]:
    """The table. Raises `ValueError` for a line that is no entry."""
    found = []
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith("#"):
            kind, pattern, reason = line.split(maxsplit=2)
            if kind not in (*FAILS, "cuda", *KNOBS):
                raise ValueError(f"'{kind}' is not a kind of exception: {line}")
            found.append(Entry(kind, re.compile(pattern), reason))
    return found


def entry_of(name: str, table: list[Entry]) -> Entry | None:
    """The line that a test falls under."""
    return next((e for e in table if e.pattern.fullmatch(name)), None)
