"""Random programs by the thousand, with every limit of the scheduler turned down now and then: `pytest --long`.

Small limits make small programs meet what large ones meet: guards, many kernels, long reductions, wide vectors, tiles.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.support.budget import within
from tests.support.programs import programs
from thunder_fuser import config
from thunder_fuser.compiler import compile_fusion
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.script import script
from thunder_fuser.maps import nests, pullback
from thunder_fuser.schedule import groups, kernels, pointwise, rows, scan, segment

LIMITS = [
    ((nests,), "BUSY_POINTS", (0, 0, 1 << 20)),
    ((nests,), "MAX_STORES", (8, 2)),
    ((pullback,), "MAX_BOXES", (48, 1, 2, 4)),
    ((pointwise,), "SMALL", (0, 0, 132 * 512)),
    ((pointwise,), "MAX_REPEATS", (64, 2)),
    ((pointwise,), "MAX_STATEMENTS", (1024, 8)),
    ((groups, kernels, segment), "SERIAL", (32, 1, 0, 4)),
    ((segment,), "READ_TWICE", (1 << 20, 0, 64)),
    ((rows, segment), "PROCESSORS", (132, 2, 1)),
    ((rows, segment), "RESIDENT", (64 * 1024, 256)),
    ((rows,), "HELD_BY_BLOCK", (48 * 1024, 64)),
    ((rows,), "MAX_SUMS", (64, 8)),
    ((rows,), "STAGES", (4, 1, 2)),
    ((segment,), "MAX_COST", (384, 3, 8)),
    ((segment,), "MAX_TARGETS", (16, 2)),
    ((kernels,), "MAX_RECOMPUTE", (16, 16, 0)),
    ((kernels,), "MAX_NESTS", (24, 2)),
    ((scan,), "LONG", (64, 1)),
    ((scan,), "THREADS", (256, 32, 64)),
]
SIZES = (3, 1, 2, 5, 7, 8, 16, 17, 33, 64, 0, 4)
SHORT = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@st.composite
def limits(draw: st.DrawFn) -> dict[str, int]:
    return {name: draw(st.sampled_from(choices)) for _, name, choices in LIMITS}


@contextlib.contextmanager
def limited(chosen: dict[str, int], host_seed: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for modules, name, _ in LIMITS:
            for module in modules:
                stack.enter_context(mock.patch.object(module, name, chosen[name]))
        boxes = chosen["MAX_BOXES"]
        stack.enter_context(mock.patch.dict(pullback.Pullback.boxes.__kwdefaults__, max_boxes=boxes))
        stack.enter_context(config.override(host_seed=host_seed))
        yield


@st.composite
def large_programs(draw: st.DrawFn, **options):
    large = draw(st.booleans())
    return draw(programs(max_nodes=30 if large else 10, max_rank=6 if large else 4, sizes=SIZES, **options))


@contextlib.contextmanager
def reproducible(case, keep_rounding: bool) -> Iterator[None]:
    """A failure prints a script, which meets the case on its own if no limit was turned down."""
    try:
        yield
    except Exception:
        note(script(*case, keep_rounding=keep_rounding))
        raise


def same_bits(case, chosen, keep_rounding: bool, seed: int) -> None:
    note(f"{chosen} keep_rounding={keep_rounding} host_seed={seed}")
    with reproducible(case, keep_rounding):
        _same_bits(case, chosen, keep_rounding, seed)


def _same_bits(case, chosen, keep_rounding: bool, seed: int) -> None:
    fusion, inputs = case
    with limited(chosen, seed):
        got = compile_fusion(fusion, "host", keep_rounding=keep_rounding)(*inputs)
    for g, w in zip(got, evaluate(fusion, *inputs), strict=True):
        torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True)


def no_worse_than_eager(case, chosen, keep_rounding: bool, seed: int) -> None:
    """Against float64: at most four times eager's error, and some units in the last place of the largest value."""
    note(f"{chosen} keep_rounding={keep_rounding}")
    with reproducible(case, keep_rounding):
        _no_worse_than_eager(case, chosen, keep_rounding, seed)


def _no_worse_than_eager(case, chosen, keep_rounding: bool, seed: int) -> None:
    fusion, inputs = case
    with limited(chosen, seed):
        got = compile_fusion(fusion, "host", keep_rounding=keep_rounding)(*inputs)
    eager, exact = evaluate(fusion, *inputs), evaluate(fusion, *inputs, dtype=torch.float64)
    for g, e, x in zip(got, eager, exact, strict=True):
        if not isinstance(g, torch.Tensor) or not g.numel():
            continue
        if not g.is_floating_point():
            assert torch.equal(g, e) or torch.equal(g, x)
            continue
        scale = float(x.abs().max()) * torch.finfo(g.dtype).eps
        assert float((g.double() - x).abs().max()) <= 4 * float((e.double() - x).abs().max()) + 8 * scale + 1e-30


@settings(max_examples=120, **SHORT)
@given(large_programs(), limits(), st.booleans(), st.integers(0, 5))
@within(seconds=90)
def test_exact(case, chosen, keep_rounding, seed):
    same_bits(case, chosen, keep_rounding, seed)


@settings(max_examples=80, **SHORT)
@given(large_programs(exact=False), limits(), st.booleans(), st.integers(0, 5))
@within(seconds=60)
def test_inexact(case, chosen, keep_rounding, seed):
    no_worse_than_eager(case, chosen, keep_rounding, seed)


@pytest.mark.long
@settings(max_examples=4000, **SHORT)
@given(large_programs(), limits(), st.booleans(), st.integers(0, 5))
def test_exact_long(case, chosen, keep_rounding, seed):
    same_bits(case, chosen, keep_rounding, seed)


@pytest.mark.long
@settings(max_examples=2000, **SHORT)
@given(large_programs(specials=True), limits(), st.integers(0, 5))
def test_nan_and_inf_long(case, chosen, seed):
    same_bits(case, chosen, True, seed)


@pytest.mark.long
@settings(max_examples=2000, **SHORT)
@given(large_programs(exact=False), limits(), st.booleans(), st.integers(0, 5))
def test_inexact_long(case, chosen, keep_rounding, seed):
    no_worse_than_eager(case, chosen, keep_rounding, seed)
