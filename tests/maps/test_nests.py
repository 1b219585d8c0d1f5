"""Which boxes are walked together: those of equal extents that share loads, when there is work enough for a card."""

from __future__ import annotations

import math
from unittest import mock

import pytest

from thunder_fuser.codegen.kernel import kernel_text
from thunder_fuser.compiler import lower
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, F32
from thunder_fuser.ir.nodes import Fusion
from thunder_fuser.maps import nests
from thunder_fuser.maps.exprs import Select
from thunder_fuser.maps.nests import Nest, build
from thunder_fuser.maps.pullback import Pullback


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[d + 1:]) for d in range(len(shape)))


def made(fusion: Fusion) -> list[Nest]:
    pulled = Pullback(fusion.producers(), {v: row_major(v.shape) for v in fusion.inputs})
    return build(pulled, [(v, row_major(v.shape)) for v in fusion.outputs])


def rope(tokens: int, size: int, *, cast: bool = True) -> Fusion:
    """x * cos + rotate_half(x) * sin over the last dim."""
    b = FusionBuilder("rope")
    x, cos, sin = b.tensor(BF16, (32, tokens, size), "x"), b.tensor(BF16, (tokens, size), "cos"), b.tensor(BF16, (tokens, size), "sin")
    wide = b.cast(x, F32) if cast else x
    zeros, whole = [0, 0, 0], [32, tokens, size]
    low = b.slice(wide, zeros, [32, tokens, size // 2])
    high = b.slice(wide, [0, 0, size // 2], whole)
    turned = b.cat([b.neg(high), low], -1)
    spread = [b.broadcast(b.cast(t, F32), whole, [1, 2]) for t in (cos, sin)]
    b.output(b.cast(b.add(b.mul(wide, spread[0]), b.mul(turned, spread[1])), BF16))
    return b.build()


def test_the_halves_of_a_rotation_load_each_element_once() -> None:
    (nest,) = made(rope(4096, 128))
    assert [a.extent for a in nest.axes] == [32, 4096, 64] and len(nest.stores) == 2
    loads = [(ld.buffer.name, ld.address.const) for ld in nest.loads()]
    assert sorted(loads) == [("cos", 0), ("cos", 64), ("sin", 0), ("sin", 64), ("x", 0), ("x", 64)]
    assert not any(ld.guards for ld in nest.loads()) and not any(isinstance(e, Select) for e in nest.exprs())


def test_no_choice_is_left_in_the_code_of_a_rotation() -> None:
    fusion = rope(4096, 128)
    stages, plan = lower(fusion, [row_major(v.shape) for v in fusion.inputs], [16] * 3)
    (source,) = stages.sources
    text = kernel_text(source)
    assert "?" not in text and text.count("tf::load_keep<8>") == 6 and text.count("tf::store<8>") == 2
    assert stages.kernels[0].vector_bytes() == 16 and len(plan.calls) == 1


def test_small_boxes_stay_apart() -> None:
    """Threads are worth more than loads where there are too few of both to fill a card."""
    small = rope(8, 16)
    assert len(made(small)) == 2
    with mock.patch.object(nests, "BUSY_POINTS", 0):
        assert len(made(small)) == 1


@pytest.fixture
def always_busy():
    with mock.patch.object(nests, "BUSY_POINTS", 0):
        yield


def pieces(shapes: list[int], *, shared: bool) -> Fusion:
    b = FusionBuilder()
    x = b.tensor(F32, (max(shapes),), "x")
    for k, n in enumerate(shapes):
        source = x if shared else b.tensor(F32, (max(shapes),), f"x{k}")
        b.output(b.add(b.slice(source, [0], [n]), float(k)))
    return b.build()


def test_boxes_that_share_nothing_stay_apart(always_busy: None) -> None:
    assert len(made(pieces([8, 8], shared=False))) == 2
    assert len(made(pieces([8, 8], shared=True))) == 1


def test_boxes_of_other_extents_stay_apart(always_busy: None) -> None:
    assert [len(n.stores) for n in made(pieces([8, 7, 8], shared=True))] == [2, 1]


def test_a_thread_holds_no_more_stores_than_it_can(always_busy: None) -> None:
    assert [len(n.stores) for n in made(pieces([8] * 19, shared=True))] == [nests.MAX_STORES, nests.MAX_STORES, 3]


def test_a_little_sharing_is_not_worth_it(always_busy: None) -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (8,))
    first = second = x
    for _ in range(4):
        first, second = b.add(first, b.tensor(F32, (8,))), b.add(second, b.tensor(F32, (8,)))
    b.output(first)
    b.output(second)
    assert len(made(b.build())) == 2
