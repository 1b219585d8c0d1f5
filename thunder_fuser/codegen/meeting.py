"""Where the partial results of threads meet: shuffles, shared memory, a cluster's blocks. Used by the rows emitter.

Every order is fixed, so that results repeat bit for bit, and every thread that reads a result has it.
"""

from __future__ import annotations

from collections.abc import Mapping

from thunder_fuser.codegen.scope import Names, combine, identity
from thunder_fuser.codegen.writer import SourceWriter
from thunder_fuser.maps.exprs import Accumulate
from thunder_fuser.schedule.plan import RowPlan

FEW_WARPS = 8  # whose results one thread reads one after the other


def meet_along_row(w: SourceWriter, names: Names, plan: RowPlan, arrays: Mapping[Accumulate, str]) -> None:
    """Threads side by side along a row: element 0 of each array becomes the row's in this block, in every thread."""
    threads = plan.threads
    _shuffle(w, arrays, min(threads, 32))
    if threads <= 32:
        return
    warps = threads // 32
    shared = {acc: names.fresh("shared") for acc in arrays}
    for acc, name in shared.items():
        w.line(f"TF_SHARED({acc.dtype.math}, {name}, {warps * plan.columns});")
    with w.block("if (threadIdx.x % 32 == 0)"):
        for acc, name in shared.items():
            w.line(f"{name}[threadIdx.x / 32] = {arrays[acc]}[0];")
    w.line("tf::sync();")
    if warps <= FEW_WARPS:
        for acc, name in shared.items():
            w.line(f"{arrays[acc]}[0] = {name}[column * {warps}u];")
            w.line("#pragma unroll")
            other = f"{name}[column * {warps}u + k]"
            w.line(f"for (int k = 1; k < {warps}; ++k) {arrays[acc]}[0] = {combine(acc, f'{arrays[acc]}[0]', other)};")
        return
    for acc, name in shared.items():
        w.line(f"{arrays[acc]}[0] = threadIdx.x % 32 < {warps} ? {name}[column * {warps}u + threadIdx.x % 32] : {identity(acc)};")
    _shuffle(w, arrays, 32)


def meet_across_cluster(w: SourceWriter, names: Names, plan: RowPlan, arrays: Mapping[Accumulate, str]) -> None:
    """Blocks of a cluster: each writes its result into every other's memory, then reads its own."""
    size, slots = plan.cluster, {acc: names.fresh("of_blocks") for acc in arrays}
    for acc, name in slots.items():
        w.line(f"TF_SHARED({acc.dtype.math}, {name}, {size * plan.columns});")
    with w.block(f"if (part < {size})"):
        for acc, name in slots.items():
            w.line(f"*tf::cluster_peer(&{name}[column * {size}u + slice], part) = {arrays[acc]}[0];")
    w.line("tf::cluster_sync();")
    for acc, name in slots.items():
        mine = f"{arrays[acc]}[0]"
        w.line(f"{mine} = {name}[column * {size}u];")
        w.line("#pragma unroll")
        w.line(f"for (int k = 1; k < {size}; ++k) {mine} = {combine(acc, mine, f'{name}[column * {size}u + k]')};")


def meet_across_rows(w: SourceWriter, names: Names, plan: RowPlan, arrays: Mapping[Accumulate, str], memory: list[str]) -> None:
    """Threads above each other, lanes across rows: a tree in shared memory, in which all reductions of the kernel take turns
    (many would not fit beside each other). `memory` names it once it is declared."""
    threads, columns, lanes = plan.threads, plan.columns, plan.lanes
    if threads == 1:
        return
    if not memory:
        memory.append(names.fresh("shared"))
        widest = max(acc.dtype.size for acc in plan.nest.exprs() if isinstance(acc, Accumulate))
        w.line(f"TF_SHARED({'double' if widest > 4 else 'float'}, {memory[0]}, {threads * columns * lanes});")
    else:
        w.line("tf::sync();")
    slot = f"({{part}} * {columns} + column) * {lanes} + l"
    lane_loop = f"for (int l = 0; l < {lanes}; ++l)"
    for k, (acc, array) in enumerate(arrays.items()):
        name, ctype = names.fresh("shared"), acc.dtype.math
        if k:
            w.line("tf::sync();")
        w.line(f"{ctype}* const {name} = ({ctype}*){memory[0]};")
        w.line(f"{lane_loop} {name}[{slot.format(part='part')}] = {array}[l];")
        w.line("tf::sync();")
        w.line("#pragma unroll")
        with w.block(f"for (int half = {threads // 2}; half > 0; half /= 2)"):
            with w.block("if (part < half)"):
                mine, other = f"{name}[{slot.format(part='part')}]", f"{name}[{slot.format(part='(part + half)')}]"
                w.line(f"{lane_loop} {mine} = {combine(acc, mine, other)};")
            w.line("tf::sync();")
        w.line(f"{lane_loop} {array}[l] = {name}[{slot.format(part='0')}];")


def _shuffle(w: SourceWriter, arrays: Mapping[Accumulate, str], threads: int) -> None:
    if threads == 1:
        return
    w.line("#pragma unroll")
    with w.block(f"for (int distance = {threads // 2}; distance > 0; distance /= 2)"):
        for acc, name in arrays.items():
            w.line(f"{name}[0] = {combine(acc, f'{name}[0]', f'tf::shuffle_xor({name}[0], distance)')};")
