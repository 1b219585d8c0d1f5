"""THE pipeline: a fusion in, something callable out. Read this first.

    define -> simplify -> layouts -> aliases -> segment -> nests -> schedule -> emit -> compile -> launch

`compile_fusion` is lazy: everything from `layouts` on happens at the first call with a new pattern of strides and
alignments (Thunder guards neither), and is kept in an `Executable`'s bounded table of plans. Each stage's value prints
itself; `Stages` keeps them for reports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thunder_fuser.analysis.alias import AliasInfo, aliases
from thunder_fuser.analysis.domains import Domains
from thunder_fuser.analysis.layout import Layout, layouts
from thunder_fuser.analysis.strides import like
from thunder_fuser.analysis.updates import Overlaps, Write, writes
from thunder_fuser.codegen.kernel import emit, kernel_text
from thunder_fuser.debug.dump import dump
from thunder_fuser.errors import UnsupportedError
from thunder_fuser.executable import Executable
from thunder_fuser.ir.dtypes import real_of
from thunder_fuser.ir.nodes import Fusion, Node, ScalarType, Scatter, Value
from thunder_fuser.passes import simplify
from thunder_fuser.passes.by_value import by_value
from thunder_fuser.runtime.launch_plan import Allocation, KernelCall, LaunchPlan, OutputRecipe
from thunder_fuser.runtime.options import CompileOptions
from thunder_fuser.runtime.source import KernelSource
from thunder_fuser.schedule.kernels import Apart, SegmentPlanner, TooMuchRecomputation
from thunder_fuser.schedule.plan import KernelPlan
from thunder_fuser.schedule.segment import Segments, Target, recompute_cut, reduces, segment
from thunder_fuser.schedule.updates import alignment_of, changes_nothing, copies, marked, unsafe

Scratch = Mapping[Value, tuple[int, ...]]
"""Buffers between kernels of one segment, and their strides."""


@dataclass(frozen=True, slots=True)
class Stages:
    """What each stage made of a fusion for one pattern of input strides and alignments."""

    fusion: Fusion
    layouts: Mapping[Value, Layout]
    aliases: AliasInfo
    segments: Segments
    kernels: tuple[KernelPlan, ...]
    sources: tuple[KernelSource, ...]
    launches: LaunchPlan
    writes: tuple[Write, ...] = ()

    def texts(self) -> dict[str, str]:
        """Each stage's value as text, by its name, in order; sources without the prelude, which all kernels share."""
        layouts = "\n".join(f"{value}: {layout}" for value, layout in self.layouts.items())
        sources = "\n".join(map(kernel_text, self.sources))
        return {"fusion": str(self.fusion), "layouts": layouts, "aliases": str(self.aliases), "segments": str(self.segments),
                "kernels": "\n".join(map(str, self.kernels)), "sources": sources.rstrip(), "launches": str(self.launches).rstrip()}


def compile_fusion(fusion: Fusion, backend: str | None = None, options: CompileOptions | None = None, *, keep_rounding: bool = False,
                   check_inputs: bool = True) -> Executable:
    """A callable for `fusion`: `exe(*inputs) -> list of outputs`.

    `backend` is "cuda", "host", or None for that of the tensors at call time. `keep_rounding` keeps every rounding to a
    16-bit float that eager torch would make. `check_inputs` tells the callable to compare shapes and dtypes at each
    call; leave it out only where the caller guards them.
    """
    simplified = simplify(fusion, keep_rounding=keep_rounding)
    return Executable(simplified, lower, backend=backend, options=options, check_inputs=check_inputs)


def lower(fusion: Fusion, input_strides: Sequence[tuple[int, ...] | None], alignments: Sequence[int],
          overlaps: Overlaps = (), numbers: Sequence[int] = ()) -> tuple[Stages, LaunchPlan]:
    """All stages from layouts to sources, for inputs of the given strides (None for numbers) and pointer alignments in
    bytes (16 at most). `overlaps` are the pairs of inputs that share memory, one of them updated; `numbers` are the tensors
    of rank 0 that come from the CPU to a card, by value."""
    fusion = by_value(fusion, numbers)
    input_strides = [None if k in numbers else s for k, s in enumerate(input_strides)]
    where = layouts(fusion, input_strides)
    info = aliases(fusion, where)
    segments, kernels, placed, scratch = _scheduled(fusion, where, info, writes(fusion, where, overlaps), dict(zip(fusion.inputs, alignments)))
    sources = tuple(emit(k) for k in kernels)
    plan = dataclasses.replace(_launch_plan(fusion, info, segments, scratch, kernels, sources, placed), items=tuple(numbers))
    stages = Stages(fusion, where, info, segments, kernels, sources, plan, placed)
    dump(fusion.name, stages.texts)
    return stages, plan


def _scheduled(fusion: Fusion, where: Mapping[Value, Layout], info: AliasInfo, found: tuple[Write, ...],
               alignment: dict[Value, int]) -> tuple[Segments, tuple[KernelPlan, ...], tuple[Write, ...], Scratch]:
    """Segments, kernels, what is stored straight into inputs (updates themselves where that is safe, else copies of
    them, made when all else has run), and buffers that kernels of one segment share."""
    buffers = [(b.value, b.strides) for b in info.buffers]
    staged = {w.value: like(w.value.shape, w.strides) for w in found if not w.alone}
    bases = _bases(fusion)
    while True:
        direct = [w for w in found if w.value not in staged]
        targets = [*buffers, *staged.items(), *((w.value, w.strides) for w in direct)]
        aligned = {**alignment, **{w.value: alignment_of(w, alignment) for w in direct}}
        aligned |= {base: aligned[out] for base, out in bases.items() if out in aligned}
        segments, kernels, scratch = _kernels(fusion, where, targets, aligned)
        wrong = unsafe(kernels, direct, bases)
        if not wrong:
            break
        staged |= {w.value: like(w.value.shape, w.strides) for w in direct if w.value in wrong}
    last = copies([w for w in found if w.value in staged], staged, fusion, alignment)
    kept = [marked(k, direct, bases) for k in kernels if not changes_nothing(k, direct, bases)]
    return segments, (*kept, *(k for _, k in last)), (*direct, *(w for w, _ in last)), scratch


def _bases(fusion: Fusion) -> dict[Value, Value]:
    """What each scatter writes into, and its result: they are one memory."""
    return {n.arg: n.out for n in fusion.nodes if isinstance(n, Scatter)}


def _kernels(fusion: Fusion, where: Mapping[Value, Layout], outputs: Sequence[Target],
             alignment: dict[Value, int]) -> tuple[Segments, tuple[KernelPlan, ...], Scratch]:
    """Segments, their kernels, and buffers that kernels of one segment share; a segment that would recompute too much, or
    whose rows no schedule takes, is cut further and tried again."""
    producers = fusion.producers()
    forced: list[Value] = []
    apart: set[Value] = set()
    domains = Domains(fusion) if reduces(fusion) else None
    while True:
        segments = segment(fusion, where, outputs, domains, forced, apart)
        try:
            return segments, *_plan_all(fusion, segments, where, producers, SegmentPlanner(fusion, domains, alignment, apart))
        except TooMuchRecomputation as error:
            cut = recompute_cut(error.counts, fusion, forced)
            if cut is None:
                raise UnsupportedError(f"Fusion '{fusion.name}' evaluates its values at too many indices, wherever it is cut.") from None
            forced.append(cut)
        except Apart as error:
            if error.alone:
                forced += [v for v in error.reductions if v not in forced]
            apart |= error.reductions


def _plan_all(fusion: Fusion, segments: Segments, where: Mapping[Value, Layout], producers: Mapping[Value, Node],
              planner: SegmentPlanner) -> tuple[tuple[KernelPlan, ...], Scratch]:
    sources = {v: where[v].strides for v in fusion.inputs if not isinstance(v.type, ScalarType)}
    kernels: list[KernelPlan] = []
    scratch: dict[Value, tuple[int, ...]] = {}
    written: dict[int, dict[Value, tuple[int, ...]]] = {}
    for part in segments.segments:
        visible = {**sources, **{v: s for level, t in written.items() if level < part.level for v, s in t.items() if v in segments.cuts}}
        planned = planner.plan(part, producers, visible)
        kernels += planned.kernels
        scratch |= planned.scratch
        written.setdefault(part.level, {}).update(part.written)
    return tuple(kernels), scratch


def _launch_plan(fusion: Fusion, info: AliasInfo, segments: Segments, scratch: Scratch, kernels: Sequence[KernelPlan], sources: Sequence[KernelSource],
                 placed: Sequence[Write]) -> LaunchPlan:
    """Buffers to allocate, kernels to call, outputs to make, in terms of positions: all that the runtime needs."""
    inputs = {v: k for k, v in enumerate(fusion.inputs)}
    bases = _bases(fusion)
    strides = {b.value: b.strides for b in info.buffers} | {bases.get(v, v): s for part in segments.segments for v, s in part.written} | dict(scratch)
    for write in placed:
        strides.pop(write.value, None)
    places = {v: ("buffer", k) for k, v in enumerate(strides)} | {v: ("input", k) for v, k in inputs.items()}
    places |= {w.value: ("input", inputs[w.of], w.offset * w.value.dtype.size) for w in placed}
    places |= {base: places[out] for base, out in bases.items() if out in places}

    def call(kernel: KernelPlan, source: KernelSource) -> KernelCall:
        arguments = [(places[v], "ptr") for v in kernel.reads]
        for v in kernel.scalars:
            part = real_of(v.dtype).name
            _, index = place = places[v]
            arguments += [(("real", index), part), (("imag", index), part)] if v.dtype.kind == "complex" else [(place, part)]
        arguments += [(places[v], "ptr") for v in kernel.writes]
        return KernelCall(source, kernel.blocks, kernel.threads, tuple(p for p, _ in arguments), tuple(kind for _, kind in arguments), kernel.shared_bytes)

    return LaunchPlan(
        allocations=tuple(Allocation(v.name, v.shape, s, v.dtype.torch) for v, s in strides.items()),
        calls=tuple(call(k, source) for k, source in zip(kernels, sources)),
        outputs=tuple(OutputRecipe("input" if o.of_input else "buffer", o.index, o.view and (o.view.shape, o.view.strides, o.view.offset))
                      for o in info.outputs),
        updated=fusion.updated_inputs())
