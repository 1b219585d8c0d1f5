"""Whatever the schedule, every element is written exactly once: bundles, turns, tiles, lanes, tails, repeats.

Counted by the kernels themselves: the stores of the generated text are made to count instead of to write.
"""

from __future__ import annotations

import contextlib
import math
import re
from unittest import mock

import pytest
import torch

from thunder_fuser.codegen.kernel import emit
from thunder_fuser.compiler import Stages, lower
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, F32, I8, DType
from thunder_fuser.ir.nodes import Fusion
from thunder_fuser.runtime.compile_pool import POOL
from thunder_fuser.runtime.source import KernelSource
from thunder_fuser.schedule import pointwise
from thunder_fuser.schedule.plan import KernelPlan

COUNTING = """
namespace tf {
template <int N, int W = N, class T> TF_FN void count(T* p, Vec<T, N>) { for (int l = 0; l < N; ++l) ++*(unsigned char*)(p + l); }
struct Counted { void* at; template <class T> TF_FN_MEMBER Counted of(T* p) { return Counted{p}; }
  template <class V> void operator=(V) { ++*(unsigned char*)at; } };
}
"""


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[d + 1:]) for d in range(len(shape)))


def lowered(fusion: Fusion, strides: list[tuple[int, ...]] | None = None) -> Stages:
    return lower(fusion, strides or [row_major(v.shape) for v in fusion.inputs], [16] * len(fusion.inputs))[0]


def stored(plan: KernelPlan) -> dict:
    """How often each element of each buffer is stored to: the kernel's text with counters in place of its stores."""
    source = emit(plan)
    head, _, body = source.text.rpartition('extern "C"')
    body = body.replace("tf::store<", "tf::count<")
    body = re.sub(r"(\bout\d+)\[([^\]]*)\] = ", r"tf::Counted::of(\1 + (\2)) = ", body)
    text = head + COUNTING + 'extern "C"' + body.replace(source.name, "counting")
    kernel = POOL.host_kernel(KernelSource("counting", text)).result()
    memory = {v: torch.zeros(_span(v, plan) * v.dtype.size, dtype=torch.uint8) for v in (*plan.reads, *plan.writes)}
    launch = kernel.launcher(plan.blocks, plan.threads, 0, ["ptr"] * len(memory))
    launch(0, *(memory[v].data_ptr() for v in (*plan.reads, *plan.writes)))
    return {v: memory[v].view(-1, v.dtype.size) for v in plan.writes}


def _span(value, plan: KernelPlan) -> int:
    """Elements from the buffer's first to its last."""
    if value in plan.writes:
        return value.type.numel
    nests = [plan.rows.nest] if plan.rows else [n.nest for b in plan.bundles for n in b.nests]
    return 1 + max(ld.address.hi for n in nests for ld in n.loads() if ld.buffer is value)


def covers(stages: Stages) -> list[KernelPlan]:
    counts: dict = {}
    for plan in stages.kernels:
        for value, elements in stored(plan).items():
            counts[value] = counts.get(value, 0) + elements.to(torch.int64)
    for value, elements in counts.items():
        assert bool((elements[:, 0] == 1).all()), f"{value}: stored {elements[:, 0].min()} to {elements[:, 0].max()} times"
        assert not elements[:, 1:].any()
    return list(stages.kernels)


@contextlib.contextmanager
def large_card(threads: int = 0):
    """As if the tensors were large enough for the widest vectors."""
    with mock.patch.object(pointwise, "SMALL", threads):
        yield


@pytest.mark.parametrize("shape", [(1,), (7,), (16,), (1000,), (1001,), (3, 5), (33, 64), (129, 8), (5, 1, 257), (2, 3, 4, 5), (4099,)], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16, I8], ids=str)
def test_pointwise_lanes_and_tails(shape: tuple[int, ...], dtype: DType) -> None:
    b = FusionBuilder()
    x = b.tensor(dtype, shape)
    b.output(b.neg(x))
    with large_card():
        (plan,) = covers(lowered(b.build()))
    (nest,) = plan.bundles[0].nests
    assert nest.units * nest.lanes >= math.prod(shape) > (nest.units - 1) * nest.lanes
    assert nest.tail == (math.prod(shape) % nest.lanes if nest.lanes > 1 else 0)


def halves(rows: int, heads: int, size: int) -> Fusion:
    """Rotated part, passed-through part: boxes of one buffer whose rows share granules."""
    b = FusionBuilder()
    x, rotary = b.tensor(BF16, (heads, rows, size)), size * 2 // 5
    part = b.slice(x, [0, 0, 0], [heads, rows, rotary])
    low, high = b.slice(part, [0, 0, 0], [heads, rows, rotary // 2]), b.slice(part, [0, 0, rotary // 2], [heads, rows, rotary])
    turned = b.cat([b.neg(high), low], -1)
    b.output(b.cat([turned, b.slice(x, [0, 0, rotary], [heads, rows, size])], -1))
    return b.build()


@pytest.mark.parametrize("rows,heads,size", [(64, 8, 80), (64, 3, 80), (7, 5, 80), (128, 16, 40), (33, 2, 20), (256, 8, 160)])
@pytest.mark.parametrize("busy", [0, 1 << 20])
@pytest.mark.parametrize("packed", [False, True])
def test_bundles_of_boxes(rows: int, heads: int, size: int, busy: int, packed: bool) -> None:
    """`packed`: heads side by side in memory, as a projection has them."""
    with large_card(), mock.patch("thunder_fuser.maps.nests.BUSY_POINTS", busy):
        covers(lowered(halves(rows, heads, size), [(size, heads * size, 1)] if packed else None))


def test_bundles_share_blocks_and_walk_tiles() -> None:
    """The cases above do meet bundles of several nests, and tiles; here they are asked for."""
    with large_card():
        (plan,) = covers(lowered(halves(64, 8, 80), [(80, 640, 1)]))
    assert any(len(bundle.nests) > 1 and bundle.tile is not None for bundle in plan.bundles), str(plan)


@pytest.mark.parametrize("sizes", [(64, 64, 64), (640, 64, 64), (33, 5, 1), (4096, 128, 128), (7, 700, 70)], ids=str)
def test_turns_of_pieces_of_one_buffer(sizes: tuple[int, ...]) -> None:
    b = FusionBuilder()
    pieces = [b.neg(b.tensor(F32, (n, 48))) for n in sizes]
    b.output(b.cat(pieces, 0))
    with large_card():
        plans = covers(lowered(b.build()))
    rounds, counts = plans[0].turns()
    assert all(rounds * n >= bundle.blocks for n, bundle in zip(counts, plans[0].bundles))


def test_stores_repeat_where_nothing_depends_on_an_axis() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (6, 32))
    b.output(b.neg(b.broadcast(x, (6, 5, 32), [0, 2])))
    b.output(b.exp(b.broadcast(x, (100, 6, 32), [1, 2])))
    with large_card():
        (plan,) = covers(lowered(b.build()))
    repeats = [math.prod(r.extent for r in n.repeats) for bundle in plan.bundles for n in bundle.nests]
    assert sorted(repeats) == [1, 5], "100 steps are too many for one thread"


@pytest.mark.parametrize("dims", [[0], [1], [0, 1], [2], [0, 2], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("shape", [(3, 40, 5), (64, 33, 8), (1, 257, 2), (50, 2, 100)], ids=str)
def test_reductions(shape: tuple[int, ...], dims: list[int]) -> None:
    b = FusionBuilder()
    x = b.tensor(F32, shape)
    b.output(b.sum(x, dims))
    covers(lowered(b.build()))


def test_transposed_and_expanded_inputs() -> None:
    b = FusionBuilder()
    x, y = b.tensor(F32, (40, 24)), b.tensor(F32, (40, 24))
    b.output(b.add(x, y))
    for strides in [[(24, 1), (1, 40)], [(1, 40), (1, 40)], [(0, 1), (1, 0)], [(48, 2), (0, 0)], [(25, 1), (26, 1)]]:
        with large_card():
            covers(lowered(b.build(), strides))
