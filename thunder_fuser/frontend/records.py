"""A definition as data: the list of what was said, in order.

`definition` appends records, `specialize` replays them with sizes, `translation` prints them as Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thunder_fuser.frontend.rows import OpRow, Result
from thunder_fuser.frontend.values import Symbol


@dataclass(frozen=True, slots=True)
class Record:
    """One call: `method` of the definition, or `row` of its ops, with `arguments` by parameter name.

    `out` is the symbol that it made (None for `add_output`); `result` is what `row` said of it."""

    method: str
    arguments: dict[str, Any]
    out: Symbol | None = None
    row: OpRow | None = None
    result: Result | None = None
