"""Squares and cubes are products, and what they always were."""

from __future__ import annotations

import pytest
import torch

from thunder_fuser.compiler import compile_fusion
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, F16, F32, F64, I32, DType
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.passes.powers import powers

SPECIAL = (0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-30, -3.5, 1e25, 2.0)


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize("exponent", [2.0, 3.0, 2, 3, 4.0, 0.5, -1.0])
def test_as_torch_has_them(dtype: DType, exponent: float) -> None:
    b = FusionBuilder()
    x = b.tensor(dtype, (len(SPECIAL) + 100,))
    b.output(b.pow(x, exponent))
    fusion = b.build()
    given = torch.cat([torch.tensor(SPECIAL, dtype=torch.float64), torch.randn(100, dtype=torch.float64)]).to(dtype.torch)
    (got,), (want,) = compile_fusion(fusion)(given), evaluate(fusion, given)
    tolerance = {F16: 1e-3, BF16: 8e-3, F32: 1e-6, F64: 1e-14}[dtype]
    torch.testing.assert_close(got, want, rtol=tolerance, atol=0, equal_nan=True)
    products = exponent == 2 or (exponent == 3 and dtype.size >= 4)
    assert ("pow(" in str(powers(fusion))) is not products


def test_integers_and_numbers_given_at_a_call_keep_their_powers() -> None:
    b = FusionBuilder()
    x, e = b.tensor(I32, (5,)), b.tensor(F32, (5,))
    b.output(b.pow(x, 2))
    b.output(b.pow(e, e))
    fusion = b.build()
    assert powers(fusion) is fusion
