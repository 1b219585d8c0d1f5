"""Kernel plan -> one translation unit of CUDA C++, the same for NVRTC and for the host's compiler.

The text is canonical: identifiers are numbered in order of use and the kernel is named by schedule and content, so that
equal kernels of different fusions are one source. Called by `compiler`.
"""

from __future__ import annotations

import hashlib

from thunder_fuser.codegen.nest import emit_bundle
from thunder_fuser.codegen.prelude import prelude
from thunder_fuser.codegen.rows import emit_rows
from thunder_fuser.codegen.scan import emit_scan
from thunder_fuser.codegen.scope import Names
from thunder_fuser.codegen.writer import SourceWriter
from thunder_fuser.ir.dtypes import DType, real_of
from thunder_fuser.ir.nodes import Value
from thunder_fuser.runtime.source import KernelSource
from thunder_fuser.schedule.plan import KernelPlan

NAME = "KERNEL_NAME"


def emit(plan: KernelPlan) -> KernelSource:
    """The source of a kernel. Parameters: a pointer for each of `plan.reads`, each scalar (a complex one as two), a
    pointer for each of `plan.writes`."""
    names = Names({**{v: f"in{k}" for k, v in enumerate(plan.reads)},
                   **{v: f"number{k}" for k, v in enumerate(plan.scalars)},
                   **{v: f"out{k}" for k, v in enumerate(plan.writes)}}, plan.in_place)
    parameters = [f"const {v.dtype.storage}* {_restrict(plan, v)}{names.buffers[v]}" for v in plan.reads]
    parameters += [p for v in plan.scalars for p in _number(v.dtype, names.buffers[v])]
    parameters += [f"{v.dtype.storage}* {_restrict(plan, v)}{names.buffers[v]}" for v in plan.writes]
    w = SourceWriter()
    blocks = f", {plan.rows.together}" if plan.rows and plan.rows.together > 1 else ""
    cluster = f" __cluster_dims__({plan.rows.cluster}, 1, 1)" if plan.rows and plan.rows.cluster > 1 else ""
    with w.block(f'extern "C" __global__ void{cluster} __launch_bounds__({plan.threads}{blocks})\n{NAME}({", ".join(parameters)})'):
        for v in plan.scalars:
            if v.dtype.kind == "complex":
                w.line(f"const {v.dtype.storage} {names.buffers[v]}({names.buffers[v]}_re, {names.buffers[v]}_im);")
        if plan.rows is not None:
            emit_rows(w, names, plan.rows, wide_index=plan.wide_index)
        elif plan.scan is not None:
            emit_scan(w, names, plan.scan, wide_index=plan.wide_index)
        else:
            _emit_bundles(w, names, plan)
    body = w.text()
    name = f"{plan.schedule}_{hashlib.sha256(body.encode()).hexdigest()[:12]}"
    return KernelSource(name, prelude() + "\n" + body.replace(NAME, name))


def _number(dtype: DType, name: str) -> list[str]:
    """The parameters that hand over a number: one, or the two parts of a complex one."""
    if dtype.kind == "complex":
        return [f"const {real_of(dtype).storage} {name}_{part}" for part in ("re", "im")]
    return [f"const {dtype.storage} {name}"]


def kernel_text(source: KernelSource) -> str:
    """The unit without its prelude: what a person wants to read."""
    return source.text[len(prelude()) + 1:]


def _restrict(plan: KernelPlan, value: Value) -> str:
    return "" if value in plan.in_place else "__restrict__ "


def _emit_bundles(w: SourceWriter, names: Names, plan: KernelPlan) -> None:
    if len(plan.bundles) == 1:
        emit_bundle(w, names, plan.bundles[0], "blockIdx.x", wide_index=plan.wide_index)
        return
    turns, counts = plan.turns()
    turn = "blockIdx.x"
    if turns > 1:
        w.line(f"const unsigned turn = blockIdx.x % {sum(counts)}u, round = blockIdx.x / {sum(counts)}u;")
        turn = "turn"
    first = 0
    for k, (bundle, count) in enumerate(zip(plan.bundles, counts)):
        last = k == len(plan.bundles) - 1
        head = "else" if last else f"{'if' if k == 0 else 'else if'} ({turn} < {first + count}u)"
        block = f"{turn} - {first}u" if first else turn
        with w.block(head):
            w.line(f"const unsigned block = {f'round * {count}u + ' if turns > 1 else ''}{block};")
            if turns * count > bundle.blocks:
                w.line(f"if (block >= {bundle.blocks}u) return;")
            emit_bundle(w, names, bundle, "block", wide_index=plan.wide_index)
        first += count
