"""Random programs made mostly of views, and the check that a recipe of buffers and views stands for eager torch."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from tests.analysis.strided import factorings, strided, tensor
from thunder_fuser.analysis.alias import AliasInfo, aliases
from thunder_fuser.analysis.layout import layouts
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, F32
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.nodes import Fusion, Value


def all_values(fusion: Fusion, *inputs: torch.Tensor | float) -> dict[Value, torch.Tensor]:
    """Every value of a fusion as eager torch makes it, views as views."""
    values = (*fusion.inputs, *(node.out for node in fusion.nodes))
    return dict(zip(values, evaluate(Fusion(fusion.name, fusion.inputs, fusion.nodes, values), *inputs)))


def run_recipe(info: AliasInfo, inputs: list[torch.Tensor | float], values: dict[Value, torch.Tensor]) -> list[torch.Tensor]:
    """The outputs made by a recipe, its buffers filled from `values`."""
    buffers = []
    for buffer in info.buffers:
        memory = torch.empty_strided(buffer.value.shape, buffer.strides, dtype=buffer.value.dtype.torch)
        buffers.append(memory.copy_(values[buffer.value]))
    outs = []
    for plan in info.outputs:
        source = (inputs if plan.of_input else buffers)[plan.index]
        view = plan.view
        outs.append(source if view is None else
                    source.as_strided(view.shape, view.strides, source.storage_offset() + view.offset))
    return outs


def sharing(tensors: list[torch.Tensor]) -> list[int]:
    """For each element of all tensors, one after the other: the first element that lies in the same place."""
    first: dict[tuple[int, int], int] = {}
    places = []
    for t in tensors:
        reach = t.storage_offset() + 1 + sum(max(n - 1, 0) * s for n, s in zip(t.shape, t.stride()))
        where = torch.arange(reach).as_strided(t.shape, t.stride(), t.storage_offset())
        places += [(t.untyped_storage()._cdata, i) for i in where.flatten().tolist()]
    return [first.setdefault(place, i) for i, place in enumerate(places)]


def check(fusion: Fusion, inputs: list[torch.Tensor | float], original: Fusion | None = None) -> AliasInfo:
    """Runs the recipe of `fusion` and compares values, strides and sharing of storage with what eager makes of
    `original`, which is `fusion` if not given."""
    original = original or fusion
    table = layouts(fusion, [t.stride() if isinstance(t, torch.Tensor) else None for t in inputs])
    info = aliases(fusion, table)
    eager = all_values(original, *inputs)
    want = [eager[v] for v in original.outputs]
    got = run_recipe(info, inputs, all_values(fusion, *inputs))
    pieces = {b.value for b in info.buffers if table[b.value].base is not b.value}
    for g, w, plan in zip(got, want, info.outputs):
        torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True)
        if plan.of_input or info.buffers[plan.index].value not in pieces:
            assert g.stride() == w.stride(), str(info)
        elif plan.view is None:
            assert g.stride() == torch.empty_like(w).stride(), str(info)
    tensors = [t for t in inputs if isinstance(t, torch.Tensor)]
    assert sharing([*tensors, *got]) == sharing([*tensors, *want]), str(info)
    return info


@st.composite
def programs(draw: st.DrawFn, rounding: bool = False) -> tuple[Fusion, list[torch.Tensor]]:
    """Mostly views, of strided inputs and of computed values; several of them returned. With `rounding`, every other
    step is a cast to or from bf16, and the numbers are so small that none of them rounds."""
    b = FusionBuilder()
    spec = draw(strided(max_rank=3))
    live = [b.tensor(F32, spec[0])]
    if draw(st.booleans()):
        live = [_compute(draw, b, live[0])]
    for _ in range(draw(st.integers(0, 7))):
        x = draw(st.sampled_from(live))
        if rounding and draw(st.booleans()):
            live.append(_cast(draw, b, x))
        else:
            live.append(draw(st.sampled_from(STEPS))(draw, b, x))
    for v in live[:-4:-1] + draw(st.lists(st.sampled_from(live), max_size=2)):
        b.output(v, shared=v is live[0])
    x = tensor(spec, offset=1)
    if rounding:
        x.as_strided((x.untyped_storage().nbytes() // 4,), (1,), 0).remainder_(2).add_(1)
    return b.build(), [x]


def _slice(draw: st.DrawFn, b: FusionBuilder, x: Value) -> Value:
    starts, stops = [], []
    for n in x.shape:
        half = n // 2
        start, stop = draw(st.sampled_from([(0, n), (0, n), (0, n - half), (half, n), (half, n), (0, n - 1), (1, n), (n, n)]))
        starts.append(min(start, n))
        stops.append(max(stop, starts[-1]))
    return b.slice(x, starts, stops, [draw(st.sampled_from([1, 1, 1, 2])) for _ in x.shape])


def _reshape(draw: st.DrawFn, b: FusionBuilder, x: Value) -> Value:
    return b.reshape(x, draw(st.sampled_from(factorings(x.type.numel, 3))))


def _permute(draw: st.DrawFn, b: FusionBuilder, x: Value) -> Value:
    return b.permute(x, draw(st.permutations(range(len(x.shape)))))


def _squeeze(draw: st.DrawFn, b: FusionBuilder, x: Value) -> Value:
    return b.squeeze(x, [d for d, n in enumerate(x.shape) if n == 1][:1])


def _broadcast(draw: st.DrawFn, b: FusionBuilder, x: Value) -> Value:
    if len(x.shape) > 3:
        return b.copy(x)
    at = draw(st.integers(0, len(x.shape)))
    shape = (*x.shape[:at], draw(st.integers(1, 2)), *x.shape[at:])
    return b.broadcast(x, shape, [d + (d >= at) for d in range(len(x.shape))])


def _compute(draw: st.DrawFn, b: FusionBuilder, x: Value) -> Value:
    return draw(st.sampled_from([
        lambda: b.neg(x), lambda: b.add(x, b.flip(x, ())), lambda: b.mul(x, 2.0), lambda: _cast(draw, b, x),
        lambda: b.cast(x, x.dtype), lambda: b.copy(x),
        lambda: b.flip(x, range(len(x.shape))), lambda: b.cat([x, b.copy(x)], 0) if x.shape else b.neg(x),
        lambda: b.pad(x, [(1, 0, 0) for _ in x.shape]), lambda: b.pad(x, [(0, 0, 0) for _ in x.shape])]))()


def _cast(draw: st.DrawFn, b: FusionBuilder, x: Value) -> Value:
    return b.cast(x, BF16 if x.dtype is F32 else F32)


STEPS = [_slice, _slice, _slice, _reshape, _permute, _squeeze, _broadcast, _compute]
