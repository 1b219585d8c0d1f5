"""Text for terminals: colours where they show, aligned tables, lines cut at the screen's edge. Used by all commands."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence


def _styled(code: str, text: str) -> str:
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        return f"\033[{code}m{text}\033[0m"
    return text


def bold(text: str) -> str:
    return _styled("1", text)


def dim(text: str) -> str:
    return _styled("2", text)


def good(text: str) -> str:
    return _styled("32", text)


def bad(text: str) -> str:
    return _styled("1;31", text)


def clipped(text: str) -> str:
    """`text` cut to the terminal's width; whole where the output is not a terminal."""
    width = shutil.get_terminal_size().columns
    return text if not sys.stdout.isatty() or len(text) <= width else text[: width - 1] + "…"


def table(rows: Sequence[Sequence[str]], *, left: int = 1, indent: str = "") -> list[str]:
    """Lines of a table with the first row as its header; the first `left` columns start at the left, the others end
    at the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        cells = [cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))]
        line = indent + "  ".join(cells).rstrip()
        lines.append(dim(line) if number == 0 else line)
    return lines
