"""Where a definition is cut into fusions: around the ops that torch runs.

`specialize` asks once for each set of sizes. Torch's calls divide the records into levels: fusion k, the calls that follow it,
fusion k + 1, ... A call is made as early as its operands allow. Any other op is fused as late as its first reader
allows, so that it lands in the kernel that reads it; numbers are computed in every fusion that needs them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from thunder_fuser.frontend.records import Record, Statements
from thunder_fuser.frontend.values import Symbol, TensorView, Vector, symbols_in


@dataclass(frozen=True, slots=True)
class Level:
    """One fusion and the torch calls after it. `records` are the fusion's ops in order."""

    records: tuple[Record, ...]
    calls: tuple[Record, ...]


def operands(record: Record) -> Iterator[Symbol]:
    """The symbols that a record reads, a Vector of known entries as its entries."""
    for symbol in symbols_in(list(record.arguments.values())):
        if isinstance(symbol, Vector) and symbol.elements is not None:
            yield from symbols_in(symbol.elements)
        else:
            yield symbol


def partition(said: Statements) -> tuple[Level, ...]:
    """The levels of a definition, one if torch runs none of its ops. Ops that no output needs are left out. Updates of inputs
    belong to the last fusion, which comes after every torch call."""
    needed = {symbol.index for symbol in said.outputs} | {value.index for _, value in said.updates}
    live: list[Record] = []
    for record in reversed(said.records):
        if record.row is not None and any(s.index in needed for s in record.outs):
            live.append(record)
            needed.update(s.index for s in operands(record))
    live.reverse()
    earliest = _earliest(live)
    fused: defaultdict[int, list[Record]] = defaultdict(list)
    calls: defaultdict[int, list[Record]] = defaultdict(list)
    wanted: defaultdict[int, set[int]] = defaultdict(set)  # symbol -> levels of its readers
    last = max(earliest, default=0)
    if said.updates:
        last += any(r.row.torch is not None and first == last for r, first in zip(live, earliest))
        for _, value in said.updates:
            wanted[value.index].add(last)
    for record, first in zip(reversed(live), reversed(earliest)):
        levels = set().union(*(wanted[s.index] for s in record.outs)) or {first}
        if record.row.torch is not None:
            levels = {first}
            calls[first].append(record)
        else:
            if any(isinstance(s, TensorView) for s in record.outs):
                levels = {min(levels)}
            for level in levels:
                fused[level].append(record)
        for symbol in operands(record):
            wanted[symbol.index] |= levels
    return tuple(Level(tuple(reversed(fused[k])), tuple(reversed(calls[k]))) for k in range(last + 1))


def _earliest(records: Sequence[Record]) -> list[int]:
    """For each record the first level at which its operands exist: results of a torch call exist one level later."""
    ready: dict[int, int] = {}
    first: list[int] = []
    for record in records:
        level = max((ready.get(s.index, 0) for s in operands(record)), default=0)
        first.append(level)
        ready |= dict.fromkeys((s.index for s in record.outs), level + (record.row.torch is not None))
    return first
