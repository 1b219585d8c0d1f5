"""The interpreter against torch spelled out by hand, and against itself in float64 on random programs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings

from tests.support.programs import programs
from thunder_fuser.errors import InputError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, BOOL, F16, F32, F64, I32, I64, U8
from thunder_fuser.ir.interpreter import evaluate


@settings(max_examples=150, deadline=None)
@given(programs())
def test_exact_programs_are_the_same_in_float64(program) -> None:
    fusion, inputs = program
    for wide, eager in zip(evaluate(fusion, *inputs, dtype=torch.float64), evaluate(fusion, *inputs), strict=True):
        assert wide.shape == eager.shape and (wide.dtype is torch.float64 or wide.dtype is eager.dtype)
        assert torch.equal(wide, eager.to(wide.dtype))
