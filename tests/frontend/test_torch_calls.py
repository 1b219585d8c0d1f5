"""Ops that torch runs between fusions: where a definition is cut, what runs, and that the values are torch's."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F

from thunder_fuser import DataType, FusionDefinition
from thunder_fuser.errors import IRError, UnsupportedError


def _close(out: torch.Tensor, expected: torch.Tensor, bits: int = 18) -> None:
    torch.testing.assert_close(out.double(), expected.double(), rtol=2.0**-bits, atol=2.0**-bits * float(expected.abs().max() if expected.numel() else 1))


def test_a_definition_is_cut_around_a_product(device: str) -> None:
    x, w, bias = torch.randn(5, 7, device=device), torch.randn(7, 3, device=device), torch.randn(3, device=device)
    with FusionDefinition() as fd:
        a, b, c = (fd.from_pytorch(t) for t in (x, w, bias))
        product = fd.ops.matmul(fd.ops.relu(a), b)
        fd.add_output(fd.ops.sigmoid(fd.ops.add(product, fd.ops.broadcast_in_dim(c, [a.size(0), 3], [1]))))
    for _ in range(2):
        (out,) = fd.execute([x, w, bias])
        _close(out, torch.sigmoid(torch.relu(x.double()) @ w.double() + bias.double()))
    report = fd.report()
    assert len(report.fusions) == 2 and [len(f.kernels) for f in report.fusions] == [1, 1]
    assert report.torch_calls == ("T4 = matmul(T3, T1)",)
    assert "torch " in str(report) and len(report.to_dict()["steps"]) == 3
    # the broadcast bias lands in the kernel that reads it
    assert [v.name for v in fd.fusion.fusions[0].inputs] == ["T0"]


def test_nothing_but_a_product_is_no_fusion(device: str) -> None:
    x, w = torch.randn(2, 5, 7, device=device), torch.randn(3, 7, device=device)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.linear(fd.from_pytorch(x), fd.from_pytorch(w)))
    (out,) = fd.execute([x, w])
    assert torch.equal(out, F.linear(x, w)) and fd.report().fusions == () and fd.report().kernels == ()


@pytest.mark.parametrize("left, right", [
    ((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (2, 4, 3)),
    ((0, 4), (4, 5)), ((3, 0), (0, 5)),
])
def test_matmul_shapes(left: tuple[int, ...], right: tuple[int, ...], device: str, run) -> None:
    x, y = torch.randn(left, device=device), torch.randn(right, device=device)
    out, moved = run(lambda fd, a, b: [fd.ops.matmul(a, b), fd.ops.add(fd.ops.matmul(a, b), 1.0)], x, y)
    assert torch.equal(out, x @ y) and torch.equal(moved, x @ y + 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_linear_with_bias(dtype: torch.dtype, device: str, run_one) -> None:
    x, w, b = (torch.randn(s, device=device).to(dtype) for s in ((6, 8), (4, 8), (4,)))
    out = run_one(lambda fd, x, w, b: fd.ops.linear(x, w, b), x, w, b)
    assert out.dtype is dtype and torch.equal(out, F.linear(x, w, b))


def test_chain_of_products_with_values_kept_across_them(device: str) -> None:
    """A value of the first fusion is read by the last one, and one is returned beside."""
    x, w = torch.randn(6, 6, device=device), torch.randn(6, 6, device=device) / 3
    with FusionDefinition() as fd:
        a, b = fd.from_pytorch(x), fd.from_pytorch(w)
        first = fd.ops.tanh(a)
        second = fd.ops.matmul(first, b)
        third = fd.ops.mul(second, first)
        fourth = fd.ops.matmul(third, b)
        fd.add_output(fd.ops.add(fourth, first))
        fd.add_output(second)
        fd.add_output(third)
        fd.add_output(second)
        fd.add_output(third)
        fd.add_output(a)
    outs = fd.execute([x, w])
    t = torch.tanh(x.double())
    s = t @ w.double()
    for out, expected in zip(outs, (s * t @ w.double() + t, s, s * t, s, s * t, x)):
        _close(out, expected)
    assert len({o.data_ptr() for o in outs}) == 6
    assert len(fd.report().fusions) == 3 and len(fd.report().torch_calls) == 2


def test_sizes_and_numbers_cross_the_calls(device: str) -> None:
    with FusionDefinition() as fd:
        t, w = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
        scale, n = fd.define_scalar(None, DataType.Double), fd.define_scalar(None, DataType.Int)
        product = fd.ops.matmul(fd.ops.mul(t, scale), w)
        rows = product.size(0)
        twice = fd.ops.mul(scale, 2.0)
        folded = fd.ops.reshape(product, [fd.ops.mul(rows, product.size(1))])
        fd.add_output(fd.ops.mul(folded, twice))
        fd.add_output(fd.ops.add(fd.ops.pad(fd.ops.matmul(t, w), [0, n]), twice))
        fd.add_output(fd.ops.full(product.shape(), 2, DataType.Int))
    for shape, n in (((3, 4), 1), ((2, 5), 2)):
        x, w = torch.randn(shape, device=device), torch.randn(shape[1], 6, device=device)
        a, b, c = fd.execute([x, w, 0.5, n])
        _close(a, (0.5 * x @ w).reshape(-1))
        _close(b, F.pad(x @ w, (0, n)) + 1)
        assert torch.equal(c, torch.full_like(x @ w, 2, dtype=torch.int64))


def test_sorts(device: str) -> None:
    x = torch.randperm(60, device=device).reshape(5, 12).float()
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x)
        k = fd.define_scalar(None, DataType.Int)
        values, places = fd.ops.topk(fd.ops.neg(t), k, 1, True, True)
        fd.add_output(fd.ops.add(values, 1.0))
        fd.add_output(places)
        fd.add_output(fd.ops.argsort(t, 0, descending=True, stable=True))
        for made in fd.ops.sort(t, -1):
            fd.add_output(made)
    for k in (3, 1, 12):
        values, places, order, ordered, positions = fd.execute([x, k])
        expected = torch.topk(-x, k, 1)
        assert torch.equal(values, expected.values + 1) and torch.equal(places, expected.indices)
        assert torch.equal(order, torch.argsort(x, 0, descending=True))
        assert torch.equal(ordered, x.sort(-1).values) and torch.equal(positions, x.sort(-1).indices)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_forward_and_backward(causal: bool, device: str) -> None:
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    q, k, v, g = (torch.randn(2, 3, 8, 16, device=device).to(dtype) for _ in range(4))
    with FusionDefinition() as fd:
        tq, tk, tv, tg = (fd.from_pytorch(t) for t in (q, k, v, g))
        out, sums, seed, offset = fd.ops.sdpfa_fwd(tq, tk, tv, dropout_p=0.0, is_causal=causal, scale=0.3)
        grads = fd.ops.sdpfa_bwd(tg, tq, tk, tv, out, sums, 0.0, causal, seed, offset, 0.3)
        fd.add_output(out)
        for grad in grads:
            fd.add_output(grad)
    outs = fd.execute([q, k, v, g])
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    expected = F.scaled_dot_product_attention(*wide, is_causal=causal, scale=0.3)
    for got, want in zip(outs, (expected, *torch.autograd.grad(expected, wide, g.double()))):
        _close(got, want.detach(), bits=16 if device == "cpu" else 6)


def test_attention_backward_takes_the_seeds_as_inputs(device: str) -> None:
    if device == "cuda":
        pytest.skip("the seeds of a real forward are needed")
    q, k, v, g = (torch.randn(1, 2, 4, 8) for _ in range(4))
    out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
    inputs = [g, q, k, v, out, sums, torch.zeros(2, dtype=torch.uint64), torch.zeros((), dtype=torch.uint64)]
    with FusionDefinition() as fd:
        symbols = [fd.define_tensor([-1] * t.ndim, dtype=DataType.UInt64 if t.dtype is torch.uint64 else DataType.Float) for t in inputs]
        for grad in fd.ops.sdpfa_bwd(*symbols[:6], None, None, *symbols[6:], None):
            fd.add_output(grad)
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    expected = torch.autograd.grad(F.scaled_dot_product_attention(*wide), wide, g.double())
    for got, want in zip(fd.execute(inputs), expected):
        _close(got, want, bits=14)


def test_grouped_product(device: str, run_one) -> None:
    x, w = torch.randn(6, 16, device=device).bfloat16(), torch.randn(2, 16, 8, device=device).bfloat16()
    ends = torch.tensor([2, 6], dtype=torch.int32, device=device)
    out = run_one(lambda fd, x, w, ends: fd.ops.grouped_mm(x, w, ends), x, w, ends)
    _close(out, torch.cat([x[:2] @ w[0], x[2:] @ w[1]]), bits=6)


def test_strides_of_a_call_reach_torch_as_they_are(device: str, run) -> None:
    x, w = torch.randn(7, 5, device=device).t(), torch.randn(1, 3, device=device).expand(7, 3)
    (out,) = run(lambda fd, x, w: [fd.ops.add(fd.ops.matmul(x, w), 0.5)], x, w)
    _close(out, x.double() @ w.double() + 0.5)


def test_no_gradients_are_recorded(device: str, run) -> None:
    x = torch.randn(3, 3, device=device, requires_grad=True)
    out, = run(lambda fd, x: fd.ops.matmul(x, x), x)
    assert not out.requires_grad and torch.equal(out, (x @ x).detach())


def test_printed_definition_runs_again(device: str) -> None:
    x = torch.randn(4, 6, device=device)
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x)
        values, places = fd.ops.topk(fd.ops.matmul(t, fd.ops.permute(t, [1, 0])), 2, sorted=True)
        fd.add_output(values)
        fd.add_output(places)
    assert "    T3, T4 = fd.ops.topk(T2, k=2, sorted=True)\n" in repr(fd)
    names: dict[str, object] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), names)
    with FusionDefinition(fd.id) as again:
        names[re.match(r"def (\w+)\(", repr(fd))[1]](again)
    assert repr(again) == repr(fd)
    for out, expected in zip(again.execute([x]), fd.execute([x])):
        assert torch.equal(out, expected)


def test_what_cannot_be_is_said_with_the_statement(device: str) -> None:
    with FusionDefinition() as fd:
        a, b = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.matmul(a, b))
    with pytest.raises(IRError, match=re.escape("in 'T2 = fd.ops.matmul(T0, T1)'")):
        fd.execute([torch.randn(2, 3, device=device), torch.randn(2, 3, device=device)])
    with FusionDefinition() as fd:
        t, h = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1], dtype=DataType.Half)
        for body, error, sentence in (
            (lambda: fd.ops.matmul(t, h), IRError, "'matmul' takes tensors of one dtype, got DataType.Float and DataType.Half"),
            (lambda: fd.ops.linear(t, fd.define_tensor([2, 2, 2])), IRError, "a weight of one or two dims, got 3"),
            (lambda: fd.ops.sdpfa_fwd(t, t, t), IRError, "'sdpfa_fwd' takes tensors of four dims"),
            (lambda: fd.ops.topk(t, 2, 5), IRError, "'topk' has dim [5], out of range for rank 2"),
            (lambda: fd.ops.grouped_mm(t, t, t, alpha=2.0), UnsupportedError, "'grouped_mm' with scales, alpha"),
            (lambda: fd.ops.matmul(t, 2.0), IRError, "'matmul' takes a TensorView, got '2.0'"),
        ):
            with pytest.raises(error, match=re.escape(sentence)):
                body()


def test_a_tensor_of_seeds_does_not_enter_a_fusion() -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1], dtype=DataType.UInt64)
        with pytest.raises(UnsupportedError, match="UInt64"):
            fd.add_output(fd.ops.neg(t))
