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

    `out` is the symbol that it made, a tuple of them for an op of several results, None for `add_output`; `result` is
    what `row` said of it, in the same form."""

    method: str
    arguments: dict[str, Any]
    out: Symbol | tuple[Symbol, ...] | None = None
    row: OpRow | None = None
    result: Result | tuple[Result, ...] | None = None

    @property
    def outs(self) -> tuple[Symbol, ...]:
        """Every symbol that it made."""
        return () if self.out is None else self.out if isinstance(self.out, tuple) else (self.out,)
