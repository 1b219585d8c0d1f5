"""A definition as data: the list of what was said, in order, and what `execute` needs to know of it.

`definition` appends records, `specialize` replays them with sizes, `translation` prints them as Python.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from thunder_fuser.frontend.inputs import Input
from thunder_fuser.frontend.rows import OpRow, Result
from thunder_fuser.frontend.values import Symbol, TensorView


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


@dataclass(frozen=True, slots=True)
class Statements:
    """A complete definition. `updates` are (input, value) pairs: the value is written into the input at the end of a call.
    `static` are the indices of scalars that sizes depend on."""

    name: str
    records: Sequence[Record]
    inputs: Sequence[Input]
    outputs: Sequence[TensorView]
    updates: Sequence[tuple[TensorView, TensorView]]
    static: Set[int]

    @property
    def calls_torch(self) -> bool:
        return any(r.row is not None and r.row.torch is not None for r in self.records)
