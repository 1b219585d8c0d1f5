"""The reduction schedule as C++: partial results along the threads of a block, a tree in shared memory, an epilogue."""

from __future__ import annotations

import math

from thunder_fuser.codegen.indexing import IndexPrinter, row_major, unravel
from thunder_fuser.codegen.scope import Names, Scope, combine, together
from thunder_fuser.codegen.stores import Results
from thunder_fuser.codegen.writer import SourceWriter
from thunder_fuser.ir.ops import REDUCTIONS
from thunder_fuser.maps.exprs import Accumulate, topological
from thunder_fuser.schedule.plan import Loop, ReductionPlan


def emit_reduction(w: SourceWriter, names: Names, plan: ReductionPlan, *, wide_index: bool) -> None:
    """The body of a kernel: threads `part` of `threads` along the reduction, for output unit `unit`."""
    index_type = "long long" if wide_index else "int"
    along_reduction = plan.lane_is_reduced
    threads, columns = plan.threads, plan.columns
    if along_reduction:
        w.line(f"const int column = threadIdx.x / {threads}, part = threadIdx.x % {threads};")
    else:
        w.line(f"const int column = threadIdx.x % {columns}, part = threadIdx.x / {columns};")
    units = plan.units
    unit_type = _counter(units)
    w.line(f"const {unit_type} unit_of_thread = ({unit_type})blockIdx.x * {columns}u + column;")
    w.line(f"const bool in_range = unit_of_thread < {units}u;")
    w.line(f"const {unit_type} unit = in_range ? unit_of_thread : 0u;")
    loop_names = {loop: f"i{k}" for k, loop in enumerate(plan.loops)}
    unravel(w.line, row_major(plan.loops, plan.lanes, lane_last=not along_reduction), loop_names, "unit", index_type)
    lane = plan.loops[-1] if not along_reduction and plan.loops else None
    lanes = 1 if along_reduction else plan.lanes
    printer = IndexPrinter(loop_names, lane if lanes > 1 else None)
    epilogue = Scope(w, names, printer, lanes, plan.access, index_type)
    roots = [s.expr for s in plan.nest.stores]
    _declare_shared(w, plan, lanes)
    for group in together([e for e in topological(roots, into_reductions=False) if isinstance(e, Accumulate)]):
        epilogue.accumulated |= _emit_group(w, names, plan, group, loop_names, lanes, index_type)
    with w.block("if (in_range && part == 0)"):
        results = Results(epilogue, plan.nest.stores)
        results.load()
        results.evaluate()
        results.pack()
        results.write()


def _emit_group(w: SourceWriter, names: Names, plan: ReductionPlan, group: list[Accumulate], loop_names: dict[Loop, str],
                out_lanes: int, index_type: str) -> dict[Accumulate, str]:
    """Reductions over the same axes; returns the arrays that hold them, by output lane, in the threads of part 0."""
    lanes = plan.lanes
    arrays = {acc: names.fresh("acc") for acc in group}
    for acc, name in arrays.items():
        w.line(f"{acc.dtype.math} {name}[{lanes}];")
        w.line(f"for (int l = 0; l < {lanes}; ++l) {name}[l] = {REDUCTIONS[acc.op].identity.format(T=acc.dtype.math)};")
    loops = _loops_of(plan, group[0])
    vectorised = plan.lane_is_reduced and bool(loops) and loops[-1] is plan.reduced[-1]
    total = math.prod(lp.extent for lp in loops) // (lanes if vectorised else 1)
    inner_names = {loop: names.fresh("r") for loop in loops}
    w.line("#pragma unroll 4")
    with w.block(f"for ({_counter(total)} step = part; step < {total}u; step += {plan.threads}u)"):
        unravel(w.line, row_major(loops, lanes, lane_last=vectorised), inner_names, "step", index_type)
        lane = loops[-1] if vectorised else (plan.loops[-1] if not plan.lane_is_reduced and plan.loops else None)
        printer = IndexPrinter({**loop_names, **inner_names}, lane if lanes > 1 else None)
        inner = Scope(w, names, printer, lanes, plan.access, index_type)
        inner.accumulated = dict(arrays)
        inner.accumulate(group)
    for acc, name in arrays.items():
        if plan.lane_is_reduced and lanes > 1:
            w.line(f"for (int l = 1; l < {lanes}; ++l) {name}[0] = {combine(acc, f'{name}[0]', f'{name}[l]')};")
        _emit_tree(w, plan, acc, name, names.fresh("shared"), out_lanes)
    return arrays


def _counter(total: int) -> str:
    """A type that counts to `total` and a step beyond: what repeats an element (stride 0) may be longer than its memory."""
    return "unsigned" if total < 2**31 else "unsigned long long"


def _loops_of(plan: ReductionPlan, acc: Accumulate) -> list[Loop]:
    """The plan's reduced loops that make up the axes of one reduction, or its axes one by one if some were merged away."""
    own = set(acc.axes)
    loops = [lp for lp in plan.reduced if own.issuperset(lp.axes)]
    if math.prod(lp.extent for lp in loops) != math.prod(a.extent for a in acc.axes):
        return [Loop((a,)) for a in acc.axes]
    return loops


def _declare_shared(w: SourceWriter, plan: ReductionPlan, out_lanes: int) -> None:
    """One array, in which all reductions of the kernel take turns: many of them would not fit beside each other."""
    if plan.threads > 1:
        w.line(f"TF_SHARED(double, shared, {plan.threads * plan.columns * out_lanes});")


def _emit_tree(w: SourceWriter, plan: ReductionPlan, acc: Accumulate, name: str, shared: str, out_lanes: int) -> None:
    """Halves the parts that are left, in shared memory, until part 0 has the whole."""
    threads, columns = plan.threads, plan.columns
    if threads == 1:
        return
    ctype = acc.dtype.math
    w.line("tf::sync();")
    w.line(f"{ctype}* const {shared} = ({ctype}*)shared;")
    slot = f"({{part}} * {columns} + column) * {out_lanes} + l"
    w.line(f"for (int l = 0; l < {out_lanes}; ++l) {shared}[{slot.format(part='part')}] = {name}[l];")
    w.line("tf::sync();")
    w.line("#pragma unroll")
    with w.block(f"for (int half = {threads // 2}; half > 0; half /= 2)"):
        with w.block("if (part < half)"):
            mine, other = f"{shared}[{slot.format(part='part')}]", f"{shared}[{slot.format(part='(part + half)')}]"
            w.line(f"for (int l = 0; l < {out_lanes}; ++l) {mine} = {combine(acc, mine, other)};")
        w.line("tf::sync();")
    w.line(f"for (int l = 0; l < {out_lanes}; ++l) {name}[l] = {shared}[{slot.format(part='part')}];")
