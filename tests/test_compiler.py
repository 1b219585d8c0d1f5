"""The whole pipeline on the host backend, against the reference interpreter: random programs, and what each schedule is for."""

from __future__ import annotations

from unittest import mock

import torch
from hypothesis import HealthCheck, given, settings

from tests.support.programs import programs
from thunder_fuser.compiler import compile_fusion
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import F32
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.maps import nests

SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def agrees(fusion, inputs, **options):
    """Runs `fusion` and compares values to the bit, dtypes, strides, and who shares storage with whom."""
    exe = compile_fusion(fusion, "host", **options)
    before = [t.clone() if isinstance(t, torch.Tensor) else t for t in inputs]
    got, want = exe(*inputs), evaluate(fusion, *inputs)
    for given_, kept in zip(inputs, before):
        if isinstance(kept, torch.Tensor):
            torch.testing.assert_close(given_, kept, rtol=0, atol=0, equal_nan=True)
    for g, w in zip(got, want):
        torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True)
    return exe


@settings(max_examples=150, **SETTINGS)
@given(programs())
def test_random_programs(case):
    agrees(*case)


@settings(max_examples=100, **SETTINGS)
@given(programs())
def test_random_programs_with_boxes_walked_together(case):
    with mock.patch.object(nests, "BUSY_POINTS", 0):
        agrees(*case)


@settings(max_examples=50, **SETTINGS)
@given(programs(specials=True))
def test_random_programs_with_nan_and_inf(case):
    agrees(*case, keep_rounding=True)


def test_equal_computations_that_are_returned_are_distinct_tensors():
    b = FusionBuilder()
    x = b.tensor(F32, (3, 4))
    b.output(b.neg(x))
    b.output(b.slice(b.neg(x), (0, 0), (3, 2)))
    x_ = torch.randn(3, 4)
    first, second = compile_fusion(b.build(), "host")(x_)
    assert first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr()
    assert torch.equal(first, -x_) and torch.equal(second, -x_[:, :2])
