"""Programs stay right under the executor: distinct outputs, strides, in-place writes, random numbers, autocast."""

from __future__ import annotations

import pytest
import thunder
import torch
import torch.nn.functional as F

from tests.executors.jitted import backward, fusions, gradients, jit, rand, same


def test_equal_outputs_of_a_forward_are_two_tensors(device):
    jitted = jit(lambda x: (x + 1.0, x + 1.0))
    x = rand(5, device=device)
    a, b = jitted(x)
    same((a, b), (x + 1.0, x + 1.0))
    a.zero_()
    same(b, x + 1.0)


def test_one_value_returned_twice_and_views_returned_twice(device):
    def f(x):
        y = x * 2.0
        return y, y, y.reshape(6), y.reshape(6), y.reshape(6)[1:]

    x = rand(2, 3, device=device, grad=True)
    for given, wanted in zip(gradients(jit(f), (x,)), gradients(f, (x,))):
        same(given, wanted, rtol=1e-6, atol=1e-6)


def test_equal_gradients_are_one_tensor(device):
    jitted = jit(lambda x, r: torch.tanh(x + r))
    x, r = rand(8, device=device, grad=True), rand(8, device=device, grad=True)
    _, grads = gradients(jitted, (x, r))
    (fusion,) = fusions(backward(jitted))
    assert len(fusion.output) == 1
    same(*grads, rtol=0, atol=0)


def test_a_gradient_and_its_view_share_memory_but_not_with_the_input(device):
    jitted = jit(lambda x, w: (x * 3.0).sum(0) + w)
    x, w = rand(4, 5, device=device, grad=True), rand(5, device=device, grad=True)
    for given, wanted in zip(gradients(jitted, (x, w)), gradients(lambda x, w: (x * 3.0).sum(0) + w, (x, w))):
        same(given, wanted, rtol=1e-6, atol=1e-6)


def test_an_input_returned_as_it_is(device):
    def f(x):
        return x, x * 2.0, x.reshape(-1).reshape(x.shape)

    x = rand(2, 3, device=device, grad=True)
    for given, wanted in zip(gradients(jit(f), (x,)), gradients(f, (x,))):
        same(given, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("make", [
    lambda x: x.t().contiguous().t(),
    lambda x: torch.empty(13, 9, dtype=x.dtype, device=x.device)[2:9, 3:8].copy_(x),
    lambda x: x[:1].expand(7, 5),
    lambda x: torch.empty(36, dtype=x.dtype, device=x.device)[1:].view(7, 5).copy_(x),
], ids=["transposed", "a window", "stride 0", "misaligned"])
def test_strides_not_seen_before_reuse_the_trace(make, device):
    def f(x):
        y = x.transpose(0, 1)[:, 1:] * 2.0
        return torch.cat((y, -y), 1).reshape(-1), x.transpose(0, 1)[1:]

    jitted = jit(f)
    plain = rand(7, 5, device=device)
    same(jitted(plain), f(plain))
    x = make(plain)
    given, wanted = jitted(x), f(x)
    same(given, wanted)
    assert [g.stride() for g in given] == [w.stride() for w in wanted]
    assert thunder.cache_misses(jitted) == 1


def test_zero_size_and_empty_pieces(device):
    def f(x, e):
        return torch.cat((x * 2.0, e), -1), x[..., 0:0] + 1.0, torch.cat((x[..., 1:], x[..., :0], -x[..., :1]), -1)

    for shape in ((3, 4), (0, 4), (1, 1)):
        x, e = rand(*shape, device=device, grad=True), rand(shape[0], 0, device=device)
        for given, wanted in zip(gradients(jit(f), (x, e)), gradients(f, (x, e))):
            same(given, wanted)


def test_numbers_are_constants_and_guarded(device):
    f = lambda x, a, b: (x * a + b, x if b else -x)  # noqa: E731
    jitted = jit(f)
    x = rand(3, device=device)
    for a, b in ((2, 0.5), (3, 0.5), (2, -0.0), (True, 0)):
        same(jitted(x, a, b), f(x, a, b), rtol=1e-6, atol=1e-6)


def test_symbolic_values_are_left_to_torch_and_right():
    jitted = jit(lambda x, a: x * a + 1.0, cache="symbolic values", debug_options=None)
    for shape, a in (((3,), 2.0), ((5,), 3.0)):
        x = rand(*shape)
        same(jitted(x, a), x * a + 1.0)


def test_dropout_is_left_to_torch(device):
    f = lambda x: F.dropout(x * 2.0, 0.5) + 1.0  # noqa: E731
    x = rand(64, device=device, grad=True)
    (out,), (grad,) = gradients(jit(f, debug_options=None), (x,), [torch.ones(64, device=device)])
    kept = out != 1.0
    same(out[kept], (x * 4.0 + 1.0)[kept], rtol=1e-6, atol=1e-6)
    same(grad, torch.where(kept, 4.0, 0.0))
    assert 10 < kept.sum() < 54


def test_random_numbers_are_never_merged():
    jitted = jit(lambda x: (torch.rand_like(x) + 1.0, torch.rand_like(x) + 1.0), debug_options=None)
    a, b = jitted(rand(32))
    assert not torch.equal(a, b)


def test_in_place_programs_stay_right(device):
    def f(x, y):
        y.add_(x * 2.0)
        z = y * 3.0
        y.mul_(2.0)
        return z + y, y.reshape(-1)

    def g(x, y):
        view = x.reshape(-1)
        view.mul_(2.0)
        return x + 1.0, y * x

    for fn in (f, g):
        x, y = rand(2, 3, device=device), rand(2, 3, device=device) + 1.0
        x2, y2 = x.clone(), y.clone()
        same(jit(fn, debug_options=None)(x, y), fn(x2, y2), rtol=1e-6, atol=1e-6)
        same((x, y), (x2, y2), rtol=1e-6, atol=1e-6)


def test_batch_norm_updates_its_statistics(device):
    torch.manual_seed(0)
    ours, theirs = (torch.nn.BatchNorm1d(4, device=device) for _ in range(2))
    jitted = jit(ours, debug_options=None)
    x = rand(6, 4, device=device, grad=True)
    for given, wanted in zip(gradients(jitted, (x,)), gradients(theirs, (x,))):
        same(given, wanted, rtol=1e-4, atol=1e-5)
    same((ours.running_mean, ours.running_var), (theirs.running_mean, theirs.running_var), rtol=1e-5, atol=1e-6)


def test_flip_has_a_gradient(device):
    f = lambda x: x.flip(0, 1) * x  # noqa: E731
    x = rand(3, 4, device=device, grad=True)
    for given, wanted in zip(gradients(jit(f), (x,)), gradients(f, (x,))):
        same(given, wanted, rtol=1e-6, atol=1e-6)


def test_autocast(device):
    linear = torch.nn.Linear(6, 5, device=device)
    f = lambda x: torch.tanh(linear(x)) * 2.0 + x[:, :5]  # noqa: E731
    x = rand(4, 6, device=device, grad=True)

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = linear

        def forward(self, x):
            return torch.tanh(self.linear(x)) * 2.0 + x[:, :5]

    with torch.autocast(device, torch.bfloat16):
        for given, wanted in zip(gradients(jit(Wrapped()), (x,)), gradients(f, (x,))):
            same(given, wanted, rtol=2e-2, atol=2e-2)


def test_no_grad(device):
    jitted = jit(lambda x: torch.tanh(x) * 2.0)
    x = rand(4, device=device, grad=True)
    with torch.no_grad():
        out = jitted(x)
    assert not out.requires_grad
    same(out, torch.tanh(x.detach()) * 2.0, rtol=1e-6, atol=1e-6)
    assert jitted(x).requires_grad


@pytest.mark.parametrize("op", ["amax", "amin"])
def test_gradient_of_an_extremum_counts_ties(op, device):
    """Thunder's formula divides by a sum of bools, which its trace has as a bool."""
    x = torch.tensor([[1.0, 3.0, 3.0, 3.0], [2.0, 2.0, -1.0, 5.0], [7.0, 7.0, 7.0, 7.0]], device=device, requires_grad=True)

    def f(x):
        return getattr(torch, op)(x * 2.0, (1,))

    outs, grads = gradients(jit(f, debug_options=None), (x,))
    eager, expected = gradients(f, (x,))
    same(outs, eager)
    same(grads, expected)
