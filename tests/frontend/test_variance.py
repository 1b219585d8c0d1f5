"""`var`, `var_mean` and `welford` against torch in float64, where corrections leave something to divide by and where not."""

from __future__ import annotations

import pytest
import torch

from thunder_fuser import DataType, FusionDefinition
from thunder_fuser.errors import IRError, UnsupportedError

SHAPES = [((5, 37), [1]), ((5, 37), [0]), ((3, 4, 70), [0, -1]), ((2, 1), [1]), ((3, 0), [1]), ((0, 3), [1]), ((4, 600), [0, 1])]


@pytest.mark.parametrize("correction", [0, 1, 0.5, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64], ids=str)
@pytest.mark.parametrize("shape, dims", SHAPES, ids=str)
def test_against_torch(shape, dims, dtype, correction, device: str, run) -> None:
    x = (torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else torch.float32, device=device) * 3 + 20).to(dtype)
    got = run(lambda fd, x: [*fd.ops.var_mean(x, dims, correction), fd.ops.var(x, dims, correction, keepdim=True), *fd.ops.welford(x, dims)], x)
    wide = x.to(torch.complex128 if dtype.is_complex else torch.float64)
    var, mean = torch.var_mean(wide, dims, correction=correction)
    count = wide.numel() // max(mean.numel(), 1) if mean.numel() else 0
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.complex64: 1e-5}.get(dtype, 1e-2)
    real = dtype.to_real() if dtype.is_complex else dtype
    for out, want, kind in zip(got[:4], (var, mean, torch.var(wide, dims, correction=correction, keepdim=True), mean), (real, dtype, real, dtype)):
        assert out.dtype is kind
        torch.testing.assert_close(out.to(want.dtype), want, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert (got[5] == count).all() or not got[5].numel()
    if count:
        squares = torch.var(wide, dims, correction=0) * count
        torch.testing.assert_close(got[4].double(), squares, rtol=tolerance, atol=tolerance)


def test_equal_elements_without_anything_to_divide_by_are_nan(device: str, run_one) -> None:
    x = torch.full((2, 3), 4.0, device=device)
    assert run_one(lambda fd, x: fd.ops.var(x, [1], 3), x).isnan().all() and torch.var(x, 1, correction=3).isnan().all()


def test_large_offsets_cost_no_precision(device: str, run_one) -> None:
    x = torch.randn(4, 5000, device=device) + 1e4
    torch.testing.assert_close(run_one(lambda fd, x: fd.ops.var(x, [1]), x).double(), x.double().var(1), rtol=1e-4, atol=0)


def test_refused() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Int)
        with pytest.raises(UnsupportedError, match="cast it to a float first"):
            fd.ops.var(x, [0])
        with pytest.raises(IRError, match="a number as correction"):
            fd.ops.var_mean(fd.ops.cast(x, DataType.Float), [0], correction="1")
