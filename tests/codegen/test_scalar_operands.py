"""Numbers handed in at call time take the dtype of the tensors that they meet, as literals do."""

from __future__ import annotations

import pytest
import torch

from thunder_fuser.compiler import compile_fusion
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, BOOL, F32, F64, I8, I32, I64, U8, DType
from thunder_fuser.ir.interpreter import evaluate

CASES = [(F32, F64, 0.3), (F32, I64, 3), (F64, F64, 0.3), (BF16, F64, 0.3), (I32, I64, 2**31 + 1), (I8, I64, 300), (U8, I64, -1),
         (I32, F64, 2.7), (F32, BOOL, True), (I64, BOOL, True)]


@pytest.mark.parametrize("dtype,number,value", CASES, ids=[f"{d}-{n}" for d, n, _ in CASES])
def test_scalar_takes_the_tensors_dtype(dtype: DType, number: DType, value: bool | int | float) -> None:
    b = FusionBuilder()
    x, s = b.tensor(dtype, (67,)), b.scalar(number)
    for op in ("add", "sub", "mul", "maximum", "lt", "eq", "minimum"):
        b.output(b.pointwise(op, x, s))
        b.output(b.pointwise(op, s, x))
    b.output(b.where(b.lt(x, 1), s, x))
    fusion = b.build()
    given = (torch.randn(67, generator=torch.Generator().manual_seed(0)) * 3).to(dtype.torch)
    for got, want in zip(compile_fusion(fusion, "host")(given, value), evaluate(fusion, given, value), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_integers_wrap_around() -> None:
    b = FusionBuilder()
    x = b.tensor(I32, (3,))
    y = b.add(x, 1)
    for out in (y, b.lt(x, y), b.mul(x, x), b.neg(x), b.abs(x), b.div(x, 0)):
        b.output(out)
    given = torch.tensor([2**31 - 1, -(2**31), 65_537], dtype=torch.int32)
    got = [t.tolist() for t in compile_fusion(b.build(), "host")(given)]
    assert got[0] == [-(2**31), -(2**31) + 1, 65_538] and got[1] == [False, True, True] and got[2] == [1, 0, 131_073]
    assert got[3] == [-(2**31) + 1, -(2**31), -65_537] and got[4] == [2**31 - 1, -(2**31), 65_537] and got[5] == [-1] * 3
