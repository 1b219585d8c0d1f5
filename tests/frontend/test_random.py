"""Random ops: torch's generator decides where no seed is given, seeds decide where they are, and ranges are kept."""

from __future__ import annotations

import re

import pytest
import torch

from thunder_fuser import DataType, FusionDefinition
from thunder_fuser.errors import IRError
from thunder_fuser.ir.random import sample


def _made(body) -> FusionDefinition:
    with FusionDefinition() as fd:
        for out in body(fd):
            fd.add_output(out)
    return fd


def test_numbers_follow_torchs_generator(device: str) -> None:
    x = torch.zeros(40, 50, device=device)
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x)
        fd.add_output(fd.ops.rand_like(t))
        fd.add_output(fd.ops.randn_like(t))
        fd.add_output(fd.ops.uniform(-3.0, 5.0, [2000], dtype=DataType.Double))
    torch.manual_seed(7)
    first, second = fd.execute([x]), fd.execute([x])
    torch.manual_seed(7)
    again = fd.execute([x])
    for a, b, c in zip(first, second, again):
        assert torch.equal(a, c) and not torch.equal(a, b)
    uniform, normal, wide = (t.double() for t in first)
    assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.03
    assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.08
    assert -3 <= wide.min() and wide.max() < 5 and abs(wide.mean() - 1) < 0.2 and first[2].dtype is torch.float64
    assert [call.partition(" = ")[2] for call in fd.report().torch_calls] == ["draw_seed()"] * 3
    fd.validate([x])


def test_equal_statements_give_different_numbers(device: str) -> None:
    fd = _made(lambda fd: [fd.ops.uniform(0.0, 1.0, [64]), fd.ops.uniform(0.0, 1.0, [64])])
    a, b = fd.execute([], device=device)
    assert not torch.equal(a, b) and a.device.type == device


@pytest.mark.parametrize("op, kind", [("uniform", "uniform"), ("normal", "normal")])
@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Double, DataType.BFloat16], ids=str)
def test_given_seeds_decide(op: str, kind: str, dtype: DataType, device: str) -> None:
    with FusionDefinition() as fd:
        seed, offset, low = fd.define_scalar(None, DataType.Int), fd.define_scalar(None, DataType.Int), fd.define_scalar(None)
        made = getattr(fd.ops, op)(low, 2.5, [5, 7], rng_seed=seed, rng_offset=offset, dtype=dtype)
        fd.add_output(made)
        fd.add_output(fd.ops.permute(fd.ops.neg(made), [1, 0]))
    for seed, offset in ((3, 0), (-(2**63), 2**62), (3, 1)):
        out, turned = fd.execute([seed, offset, -1.5], device=device)
        expected = sample(kind, (5, 7), dtype.ir.torch, seed, offset, -1.5, 2.5, device=torch.device("cpu"))
        torch.testing.assert_close(out.cpu(), expected, rtol=1e-5 if dtype is not DataType.BFloat16 else 2**-7, atol=1e-6)
        assert torch.equal(turned, -out.t())
    assert fd.report().torch_calls == ()


def test_dropout_reads_one_mask(device: str) -> None:
    x = torch.randn(30, 30, device=device)
    with FusionDefinition() as fd:
        t, w = fd.from_pytorch(x), fd.from_pytorch(x)
        kept = fd.ops.lt(fd.ops.rand_like(t), 0.75)
        dropped = fd.ops.mul(fd.ops.where(kept, t, 0.0), 1 / 0.75)
        fd.add_output(fd.ops.matmul(dropped, w))
        fd.add_output(kept)
        fd.add_output(dropped)
    product, kept, dropped = fd.execute([x, x])
    torch.testing.assert_close(dropped, torch.where(kept, x, 0.0) / 0.75)
    torch.testing.assert_close(product, dropped @ x)
    assert 0.6 < kept.double().mean() < 0.9


def test_printed_and_run_again(device: str) -> None:
    fd = _made(lambda fd: [fd.ops.normal(0.0, 2.0, [9], rng_seed=5, rng_offset=1), fd.ops.uniform(0, 1, [3], dtype=DataType.Half)])
    names: dict[str, object] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), names)
    with FusionDefinition(fd.id) as again:
        names[re.match(r"def (\w+)\(", repr(fd))[1]](again)
    assert repr(again) == repr(fd)
    for one, other in zip(fd.execute([], device=device)[:1], again.execute([], device=device)[:1]):
        assert torch.equal(one, other)


def test_refused() -> None:
    with FusionDefinition() as fd:
        t, i = fd.define_tensor([-1]), fd.define_tensor([-1], dtype=DataType.Int)
        for call, sentence in (
            (lambda: fd.ops.uniform(0.0, 1.0, [3], rng_seed=3), "takes rng_seed and rng_offset together or neither"),
            (lambda: fd.ops.uniform(t, 1.0, [3]), "takes numbers or Scalars for its range, got 'T0'"),
            (lambda: fd.ops.normal(0.0, 1.0, [3], rng_seed=0.5, rng_offset=1), "as rng_seed, got '0.5'"),
            (lambda: fd.ops.normal(0.0, 1.0, [3], dtype=DataType.Int), "makes floating dtypes, got 'DataType.Int'"),
            (lambda: fd.ops.rand_like(i), "a tensor of a floating dtype, got 'DataType.Int'"),
        ):
            with pytest.raises(IRError, match=re.escape(sentence)):
                call()
