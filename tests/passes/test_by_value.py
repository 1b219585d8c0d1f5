"""Tensors of rank 0 on the CPU beside tensors on a card: handed over as numbers, with the tensor's dtype and rounding."""

from __future__ import annotations

import pytest
import torch

from thunder_fuser.compiler import compile_fusion, lower
from thunder_fuser.errors import InputError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import DTYPES, F32, DType
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.nodes import Fusion
from thunder_fuser.ir.verify import verify
from thunder_fuser.passes.by_value import by_value
from thunder_fuser.runtime.compile_pool import POOL

VALUES = {"bool": True, "int": 93, "float": -0.3, "float8": 1.7, "complex": 0.1 - 0.7j}


def _fusion(dtype: DType) -> Fusion:
    """What a rank-0 tensor takes part in: comparisons, choices, casts, an output of its own."""
    b = FusionBuilder()
    x, s = b.tensor(dtype, (3, 5), name="x"), b.tensor(dtype, (), name="s")
    spread = b.broadcast(s, (3, 5), ())
    for out in (b.where(b.eq(x, spread), x, spread), b.cast(spread, DTYPES["c128"]), s, b.cat([x, spread], 1)):
        b.output(out)
    if dtype.kind in ("int", "float", "complex"):
        b.output(b.mul(x, spread))
    return b.build()


def _tensors(dtype: DType) -> tuple[torch.Tensor, torch.Tensor]:
    x = (torch.arange(15).reshape(3, 5) % 4).to(dtype.torch)
    return x, torch.tensor(VALUES[dtype.kind]).to(dtype.torch)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_the_plan_for_a_number_computes_what_the_tensor_would(dtype: DType) -> None:
    """The plan that a card would run, bound to host kernels."""
    fusion = _fusion(dtype)
    verify(by_value(fusion, [1]))
    _, plan = lower(fusion, [(5, 1), ()], [16, 16], numbers=[1])
    assert "    in1 = in1.item()\n" in plan.python(2, [0, 1], torch.device("cuda", 0))
    assert all((kind, index) != ("input", 1) or what != "ptr" for c in plan.calls for (kind, index, *_), what in zip(c.arguments, c.kinds))
    x, s = _tensors(dtype)
    launchers = [POOL.host_kernel(c.source).result().launcher(c.blocks, c.threads, 0, c.kinds) for c in plan.calls]
    outs = plan.bind(2, [0, 1], torch.device("cpu"), launchers)(x, s, x.data_ptr(), s.data_ptr())
    for out, want in zip(outs, evaluate(fusion, x, s), strict=True):
        assert out.dtype is want.dtype and out.data_ptr() != s.data_ptr()
        same = (out.view(torch.uint8), want.view(torch.uint8)) if dtype.kind == "float8" and out.dtype is dtype.torch else (out, want)
        assert torch.equal(*same)


def test_no_numbers_no_change() -> None:
    fusion = _fusion(F32)
    assert by_value(fusion, []) is fusion


@pytest.mark.gpu
@pytest.mark.parametrize("check_inputs", [True, False])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_on_the_card(dtype: DType, check_inputs: bool) -> None:
    exe = compile_fusion(_fusion(dtype), check_inputs=check_inputs)
    x, s = _tensors(dtype)
    for given in ((x.cuda(), s), (x.cuda(), s.cuda()), (x.cuda(), s)):
        for out, want in zip(exe(*given), evaluate(exe.fusion, x, s), strict=True):
            assert out.is_cuda
            eight_bits = out.dtype.itemsize == 1
            assert torch.equal(out.cpu().view(torch.uint8), want.view(torch.uint8)) if eight_bits else torch.equal(out.cpu(), want)
    assert exe.cache_info()["plans_made"] == 2


@pytest.mark.gpu
def test_only_rank_0_may_be_on_the_cpu() -> None:
    b = FusionBuilder()
    b.output(b.add(b.tensor(F32, (1,)), b.tensor(F32, (1,))))
    with pytest.raises(InputError, match="expected one device"):
        compile_fusion(b.build())(torch.ones(1).cuda(), torch.ones(1))
