"""Ops that are made of others, against torch; the nodes run op by op, and fused on the host."""

from __future__ import annotations

import math

import pytest
import torch

from thunder_fuser.compiler import compile_fusion
from thunder_fuser.errors import IRError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.decompositions import index_of_extremum
from thunder_fuser.ir.dtypes import F32, from_torch
from thunder_fuser.ir.interpreter import evaluate

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def check(x: torch.Tensor, device: str = "cpu", dims: tuple[int | None, ...] = (None, 0, -1)) -> None:
    b = FusionBuilder("extrema")
    value = b.tensor(from_torch(x.dtype), x.shape)
    for dim in dims:
        for op in ("amax", "amin"):
            b.output(index_of_extremum(b, op, value, dim))
    want = [reduce(x, dim) for dim in dims for reduce in (torch.argmax, torch.argmin)]
    fusion = b.build()
    for got in (evaluate(fusion, x), compile_fusion(fusion, {"cpu": "host", "cuda": "cuda"}[device])(x.to(device))):
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(g.cpu(), w, rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.uint8, torch.int64], ids=str)
def test_the_first_of_equal_ones(dtype: torch.dtype, device: str) -> None:
    for shape in ((5, 7), (2, 100), (67, 3, 4), (1, 1)):
        check(torch.randint(0, 9, shape).to(dtype), device)
        check(torch.randint(0, 9, shape).to(dtype).mT, device)


@pytest.mark.parametrize("device", DEVICES)
def test_nan_infinity_and_signed_zero(device: str) -> None:
    x = torch.tensor([[0.0, -0.0, 0.0], [-math.inf, -math.inf, -math.inf], [1.0, math.nan, math.inf], [math.nan, 2.0, math.nan],
                      [math.inf, -1.0, math.inf]])
    for dtype in (torch.float32, torch.float16):
        check(x.to(dtype), device)
    check(torch.tensor([-(2**63), 2**63 - 1, -(2**63), 2**63 - 1]), device)


def test_of_one_number_and_of_nothing() -> None:
    b = FusionBuilder()
    b.output(index_of_extremum(b, "amax", b.tensor(F32, ()), None))
    b.output(index_of_extremum(b, "amin", b.tensor(F32, (0, 3)), 1))
    assert [g.tolist() for g in evaluate(b.build(), torch.tensor(2.0), torch.empty(0, 3))] == [0, []]
    with pytest.raises(IRError, match=r"'argmax' chooses among no elements: shape \[0, 3\], dim 0"):
        index_of_extremum(b, "amax", b.tensor(F32, (0, 3)), 0)
