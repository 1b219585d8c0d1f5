"""Reductions over dims that meta ops cut or dilate: the reduced axis is walked whole, with guards."""

from __future__ import annotations

import pytest
import torch

from thunder_fuser.compiler import compile_fusion
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.parser import parse

WIDTHS = [(0, 0, 1), (1, 0, 1), (-1, 2, 2), (2, 3, 0), (-2, 1, 0), (0, 0, 2), (-3, -3, 3)]
CASES = [(n, w) for n in (1, 4, 5) for w in WIDTHS if w[0] + n + (n - 1) * w[2] + w[1] > 0]


@pytest.mark.parametrize("reduction", ["sum", "prod", "amax", "amin"])
@pytest.mark.parametrize("size,widths", CASES, ids=str)
def test_reduction_over_a_padded_dim(reduction: str, size: int, widths: tuple[int, int, int]) -> None:
    low, high, interior = widths
    padded = low + size + (size - 1) * interior + high
    fusion = parse(f"""fusion padded(x: i32[3, {size}, 2]) {{
      y: i32[3, {padded}, 2] = pad(x, 3, widths=[(0, 0, 0), {widths}, (0, 0, 0)])
      z: i32[3, 2] = {reduction}(y, dims=[1])
      return z
    }}""")
    x = torch.randint(-5, 6, (3, size, 2), generator=torch.Generator().manual_seed(size)).int()
    assert torch.equal(compile_fusion(fusion, "host")(x)[0], evaluate(fusion, x)[0])
