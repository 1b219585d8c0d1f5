"""What was decided about a kernel: frozen, printable, and all that codegen knows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from thunder_fuser.ir.nodes import Value
from thunder_fuser.maps.affine import Affine, Axis
from thunder_fuser.maps.exprs import Load, axes_of
from thunder_fuser.maps.nests import Nest, Store
from thunder_fuser.maps.rows import RowNest

Access = Load | Store
MAX_TURN = 32  # blocks of a round in which bundles take turns


@dataclass(frozen=True, slots=True)
class Loop:
    """Adjacent axes walked as one: its value times `coef` of the innermost axis is what they add to every address."""

    axes: tuple[Axis, ...]

    @property
    def extent(self) -> int:
        return math.prod(a.extent for a in self.axes)

    @property
    def inner(self) -> Axis:
        return self.axes[-1]

    def coef(self, index: Affine) -> int:
        return index.coef(self.inner)

    def __str__(self) -> str:
        return "*".join(map(str, self.axes)) + f":{self.extent}"


@dataclass(frozen=True, slots=True)
class Vector:
    """How one access moves the lanes of a thread: `width` elements an instruction; 1 is lane by lane, 0 one element
    for all lanes. `limit` says what kept it from 16 bytes."""

    width: int
    limit: str = ""


def access_lines(accesses: Mapping[Access, Vector]) -> str:
    """Each access and how it moves its lanes, a line each."""
    text = ""
    for access, vector in accesses.items():
        kind = ("add to" if access.accumulate else "store") if isinstance(access, Store) else "load "
        width = {0: "one element", 1: "lane by lane"}.get(vector.width, f"{vector.width} elements")
        text += f"\n  {kind} {access.buffer}[{access.address}]: {width}" + (f" ({vector.limit})" if vector.limit else "")
    return text


@dataclass(frozen=True, slots=True, eq=False)
class NestPlan:
    """One nest, ordered: threads walk `loops` (outermost first; lanes along the last), each repeats its stores over
    `repeats`, loops on which nothing read depends. `shared` leading loops are common to the bundle."""

    nest: Nest
    loops: tuple[Loop, ...]
    repeats: tuple[Loop, ...]
    lanes: int
    access: dict[Access, Vector]

    @property
    def units(self) -> int:
        """Threads' worth of work: points / lanes / repeats, rounded up."""
        if not self.loops:
            return 1
        return math.prod(lp.extent for lp in self.loops[:-1]) * -(-self.loops[-1].extent // self.lanes)

    @property
    def tail(self) -> int:
        """Lanes of the last unit that are in range; 0 if all are."""
        return self.loops[-1].extent % self.lanes if self.loops else 0

    def __str__(self) -> str:
        head = f"nest {' '.join(map(str, self.loops)) or 'one point'}, {self.lanes} lanes"
        if self.repeats:
            head += f", stores repeated over {' '.join(map(str, self.repeats))}"
        return head + access_lines(self.access)


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """Nests that walk the same outer rows, side by side in a block: `warps[k]` warps for nest k, a unit a thread.

    Rows are taken in order, or in tiles of (x, y) along the last two outer loops, so that memory which is near along
    either is touched close in time."""

    nests: tuple[NestPlan, ...]
    warps: tuple[int, ...]
    rows: int
    rows_per_block: int
    tile: tuple[int, int] | None = None

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.rows_per_block)


@dataclass(frozen=True, slots=True, eq=False)
class RowPlan:
    """Threads over the rows of a nest and along each row.

    A block works on `columns` row units at once, with `threads` along each; a cluster of `cluster` blocks, or `split`
    blocks that each leave a partial result, share a row. Lanes lie along the row (then a row unit is a row), or across
    `lanes` neighbouring rows. `resident` loads stay in registers from the first pass over a row to the last.
    With `walkers`, that many clusters go over all rows in turn, adding up the nest's columns."""

    nest: RowNest
    kept: tuple[Loop, ...]
    reduced: tuple[Loop, ...]
    lanes: int
    lane_is_reduced: bool
    threads: int
    columns: int
    access: dict[Access, Vector]
    cluster: int = 1
    split: int = 1
    resident: frozenset[Load] = frozenset()
    walkers: int = 0
    together: int = 1  # blocks of a processor that the compiler must leave registers for
    stages: int = 0  # rows that a walker has under way in shared memory; 1: the next one, in registers; 0: none
    partials: tuple[Value, ...] = ()  # of the nest's columns, one row a walker

    @property
    def units(self) -> int:
        """Row units in all."""
        rows = math.prod(lp.extent for lp in self.kept)
        return rows if self.lane_is_reduced else rows // self.lanes

    @property
    def row_units(self) -> int:
        """Units along one row."""
        length = math.prod(lp.extent for lp in self.reduced)
        return length // self.lanes if self.lane_is_reduced else length

    @property
    def stride(self) -> int:
        """Threads along a row, of all blocks that share it."""
        return self.threads * self.cluster * self.split

    @property
    def steps(self) -> int:
        """Units of a row that a thread takes, at most."""
        return -(-self.row_units // self.stride)

    @property
    def blocks(self) -> int:
        clusters = self.walkers or -(-self.units // self.columns)
        return clusters * self.cluster * self.split

    @property
    def staged(self) -> list[Load]:
        """Loads that go through shared memory: those that differ from row to row."""
        rows = set(self.nest.kept)
        return [ld for ld in self.nest.loads() if ld in self.resident and not rows.isdisjoint(axes_of(ld))] if self.stages > 1 else []

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return self.stages * self.steps * self.threads * self.columns * self.lanes * sum(ld.dtype.size for ld in self.staged)

    def __str__(self) -> str:
        where = "along" if self.lane_is_reduced else "across"
        kept, reduced = " ".join(map(str, self.kept)) or "one", " ".join(map(str, self.reduced))
        line = (f"rows {kept} along {reduced}: {self.threads} threads x {self.columns} rows a block, "
                f"{self.lanes} lanes {where} rows, {self.steps} steps")
        line += f", clusters of {self.cluster}" if self.cluster > 1 else ""
        line += f", rows split in {self.split}" if self.split > 1 else ""
        line += f", {len(self.resident)} loads held" if self.resident else ""
        line += f", {self.walkers} walkers" if self.walkers else ""
        line += f" with {self.stages} rows under way" if self.stages else ""
        return line + access_lines(self.access)


@dataclass(frozen=True, slots=True, eq=False)
class ScanPlan:
    """Blocks of `columns` lines, each walked in chunks: `threads / columns` threads take `lanes` neighbours each along `steps`,
    whose order is that of the scan. The nest's one store is of the element before the scan, by row `op` of `ops.SCANS`."""

    nest: Nest
    op: str
    lines: tuple[Loop, ...]
    steps: tuple[Loop, ...]
    lanes: int
    threads: int
    columns: int
    access: dict[Access, Vector]

    @property
    def units(self) -> int:
        """Threads' worth of work along one line."""
        return math.prod(lp.extent for lp in self.steps) // self.lanes

    @property
    def blocks(self) -> int:
        return -(-math.prod(lp.extent for lp in self.lines) // self.columns)

    def __str__(self) -> str:
        return (f"{self.op} along {' '.join(map(str, self.steps)) or 'nothing'} for {' '.join(map(str, self.lines)) or 'one line'}: "
                f"{self.threads // self.columns} threads x {self.columns} lines a block, {self.lanes} lanes")


@dataclass(frozen=True, slots=True, eq=False)
class KernelPlan:
    """One launch: bundles side by side on the grid, rows, or one scan."""

    schedule: str  # "pointwise" | "boxes" | "rows" | "columns" | "scatter" | "scan"
    bundles: tuple[Bundle, ...]
    rows: RowPlan | None
    threads: int
    reads: tuple[Value, ...]
    scalars: tuple[Value, ...]
    writes: tuple[Value, ...]
    wide_index: bool
    bytes: int = field(default=0)
    in_place: frozenset[Value] = frozenset()  # of `reads` and `writes`, those that are one memory
    scan: ScanPlan | None = None

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return self.rows.shared_bytes if self.rows else 0

    @property
    def nests(self) -> list[Nest | RowNest]:
        whole = self.rows or self.scan
        return [whole.nest] if whole else [p.nest for b in self.bundles for p in b.nests]

    @property
    def blocks(self) -> int:
        whole = self.rows or self.scan
        if whole:
            return whole.blocks
        rounds, counts = self.turns()
        return rounds * sum(counts)

    def turns(self) -> tuple[int, list[int]]:
        """How bundles take turns on the grid: rounds, and blocks of each bundle a round, chosen to leave the fewest blocks
        without work. Bundles that write parts of one buffer are mixed, so that neighbouring parts are written close in
        time; others run one after the other (one round)."""
        blocks = [b.blocks for b in self.bundles]
        best = (1, blocks)
        if not self._write_together():
            return best
        for smallest in range(1, MAX_TURN // len(blocks) + 1):
            rounds = -(-min(blocks) // smallest)
            counts = [-(-n // rounds) for n in blocks]
            if sum(counts) <= MAX_TURN and (best[0] == 1 or rounds * sum(counts) < best[0] * sum(best[1])):
                best = (rounds, counts)
        return best

    def _write_together(self) -> bool:
        written = [{s.buffer for n in b.nests for s in n.nest.stores} for b in self.bundles]
        return len(written) > 1 and sum(map(len, written)) > len(set().union(*written))

    def vector_bytes(self) -> int:
        """The widest access that the kernel makes, in bytes."""
        whole = self.rows or self.scan
        plans = [whole] if whole else [n for b in self.bundles for n in b.nests]
        return max((max(v.width, 1) * (a.dtype if isinstance(a, Load) else a.buffer.dtype).size
                    for p in plans for a, v in p.access.items()), default=0)

    def __str__(self) -> str:
        lines = [f"kernel {self.schedule} grid={self.blocks} block={self.threads} index={'64' if self.wide_index else '32'} bits"]
        if self.in_place:
            lines[0] += f", in place: {' '.join(sorted(v.name for v in self.in_place))}"
        whole = self.rows or self.scan
        if whole:
            lines.append("  " + str(whole).replace("\n", "\n  "))
        for bundle in self.bundles:
            tiles = f" in tiles of {bundle.tile[0]} x {bundle.tile[1]}" if bundle.tile else ""
            lines.append(f"  bundle of {bundle.blocks} blocks x {bundle.rows_per_block} rows{tiles}")
            lines += [f"    {warps} warps: " + str(n).replace("\n", "\n    ") for warps, n in zip(bundle.warps, bundle.nests)]
        return "\n".join(lines)
