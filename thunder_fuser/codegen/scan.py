"""The scan schedule as C++: each chunk scanned by thread, warp and block, on top of what came before it. Used by `kernel`."""

from __future__ import annotations

import math

from thunder_fuser.codegen.indexing import IndexPrinter, row_major, unravel
from thunder_fuser.codegen.scope import Names, Scope, to_storage
from thunder_fuser.codegen.stores import write
from thunder_fuser.codegen.writer import SourceWriter
from thunder_fuser.ir.ops import REDUCTIONS, SCANS
from thunder_fuser.maps.exprs import Expr
from thunder_fuser.schedule.plan import ScanPlan


def emit_scan(w: SourceWriter, names: Names, plan: ScanPlan, *, wide_index: bool) -> None:
    """The body of a kernel: threads `part` of all that walk line `line_of_thread`, chunk by chunk."""
    emitter = _Scan(w, names, plan, "long long" if wide_index else "int")
    emitter.line()
    with w.block(f"for ({emitter.counter} first = 0; first < {plan.units}u; first += {plan.threads // plan.columns}u)"):
        emitter.load()
        emitter.within_thread()
        emitter.within_block()
        emitter.store()


class _Scan:
    """One scan kernel."""

    def __init__(self, w: SourceWriter, names: Names, plan: ScanPlan, index_type: str) -> None:
        self.w, self.names, self.plan, self.index_type = w, names, plan, index_type
        (self.stored,) = plan.nest.stores
        self.dtype = self.stored.buffer.dtype
        self.row = REDUCTIONS[SCANS[plan.op].reduction]
        self.identity = self.row.identity.format(T=self.dtype.math)
        self.lines = math.prod(lp.extent for lp in plan.lines)
        self.counter = "unsigned long long" if max(self.lines, plan.units) >= 2**31 else "unsigned"
        self.loops = {loop: names.fresh("i") for loop in (*plan.lines, *plan.steps)}
        lane = plan.steps[-1] if plan.lanes > 1 else None
        self.scope = Scope(w, names, IndexPrinter(self.loops, lane), plan.lanes, plan.access, index_type)

    def combine(self, left: str, right: str) -> str:
        return self.row.combination(self.dtype).format(left, right, T=self.dtype.math)

    def line(self) -> None:
        """Which line this thread works on, and what it carries along it. Threads past the last line go through the motions."""
        w, plan = self.w, self.plan
        w.line(f"const int column = threadIdx.x % {plan.columns}, part = threadIdx.x / {plan.columns};")
        w.line("const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;")
        w.line(f"const {self.counter} line_of_thread = ({self.counter})blockIdx.x * {plan.columns}u + column;")
        w.line(f"const bool in_range = line_of_thread < {self.lines}u;")
        w.line(f"const {self.counter} line = in_range ? line_of_thread : 0u;")
        unravel(w.line, row_major(plan.lines, 1, lane_last=False), self.loops, "line", self.index_type)
        w.line(f"TF_SHARED({self.dtype.math}, totals, {plan.threads // 32 * plan.columns});")
        w.line(f"{self.dtype.math} carry = {self.identity};")

    def load(self) -> None:
        """The elements before the scan; the identity past the end."""
        w, plan, expr = self.w, self.plan, self.stored.expr
        w.line(f"const {self.counter} step_of_thread = first + part;")
        w.line(f"const bool here = in_range && step_of_thread < {plan.units}u;")
        w.line(f"const {self.counter} step = here ? step_of_thread : 0u;")
        unravel(w.line, row_major(plan.steps, plan.lanes, lane_last=True), self.loops, "step", self.index_type)
        w.line(f"{self.dtype.math} values[{plan.lanes}];")
        w.line(f"for (int l = 0; l < {plan.lanes}; ++l) values[l] = {self.identity};")
        with w.block("if (here)"):
            self.scope.load([expr])
            self.scope.reduce([expr])

            def keep(texts: dict[Expr, str]) -> None:
                w.line(f"values[{self.scope.at}] = {self.scope.math(expr, texts)};")

            self.scope.for_each_lane([expr], keep)

    def within_thread(self) -> None:
        if self.plan.lanes > 1:
            self.w.line("#pragma unroll")
            self.w.line(f"for (int l = 1; l < {self.plan.lanes}; ++l) values[l] = {self.combine('values[l - 1]', 'values[l]')};")

    def within_block(self) -> None:
        """`before`: all elements before this thread's. Lanes of a warp are neighbours along the line if a block has one line,
        else they are on lines of their own."""
        w, plan, ctype = self.w, self.plan, self.dtype.math
        w.line(f"{ctype} before = {self.identity};")
        if plan.columns == 1:
            w.line(f"{ctype} upto = values[{plan.lanes - 1}];")
            w.line("#pragma unroll")
            with w.block("for (int d = 1; d < 32; d *= 2)"):
                w.line(f"const {ctype} other = tf::shuffle_up(upto, d);")
                w.line(f"if (lane >= d) upto = {self.combine('other', 'upto')};")
            w.line(f"const {ctype} neighbour = tf::shuffle_up(upto, 1);")
            w.line("if (lane > 0) before = neighbour;")
            w.line("if (lane == 31) totals[warp] = upto;")
        else:
            w.line(f"totals[warp * {plan.columns} + column] = values[{plan.lanes - 1}];")
        w.line("tf::sync();")
        w.line(f"{ctype} chunk = {self.identity};")
        w.line("#pragma unroll")
        with w.block(f"for (int k = 0; k < {plan.threads // 32}; ++k)"):
            w.line(f"if (k == warp) before = {self.combine('chunk', 'before')};")
            w.line(f"chunk = {self.combine('chunk', f'totals[k * {plan.columns} + column]')};")
        w.line(f"before = {self.combine('carry', 'before')};")
        w.line(f"carry = {self.combine('carry', 'chunk')};")
        w.line("tf::sync();")

    def store(self) -> None:
        w, lanes, storage = self.w, self.plan.lanes, self.dtype.storage
        with w.block("if (here)"):
            value = to_storage(self.combine("before", f"values[{self.scope.at}]"), self.dtype)
            if lanes == 1:
                w.line(f"const {storage} result = {value};")
            else:
                w.line(f"tf::Vec<{storage}, {lanes}> result;")
                w.line("#pragma unroll")
                w.line(f"for (int l = 0; l < {lanes}; ++l) result.x[l] = {value};")
            write(self.scope, self.stored, "result")
