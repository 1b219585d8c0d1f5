"""Indexed reads and writes under `thunder.jit`: claimed, fused with what is around them, and right."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.executors.jitted import backward, calls, forward, gradients, jit, operators, rand, same
from thunder_fuser.errors import IndexRangeError


def fused(fn, *args):
    """Runs `fn` compiled and compares with eager torch; everything must be in one fusion."""
    jitted = jit(fn)
    same(jitted(*args), fn(*args), rtol=1e-6, atol=1e-6)
    assert operators(forward(jitted)) == [] and len(calls(forward(jitted))) == 1
    return jitted


def test_reads_at_indices_fuse_with_what_is_around_them():
    x, i = rand(5, 8), torch.tensor([4, 0, -1, 2])
    fused(lambda x, i: torch.index_select(x * 2.0, 0, i.abs()) + 1.0, x, i)
    fused(lambda x, i: x[i].sum(1), x, i)
    fused(lambda w, t: functional.embedding(t.abs(), w).tanh(), x, i)
    fused(lambda x, i: torch.take_along_dim(x, i[:, None] + 1, 1).exp(), x[:4], i)
    fused(lambda x, i: torch.gather(x, 1, i.abs()[None]), x, i)


def test_flips_and_steps_fuse():
    x = rand(6, 9)
    fused(lambda x: torch.flip(x, (0, 1)) * 2.0, x)
    fused(lambda x: x[1::2, 2:8:3] + 1.0, x)
    fused(lambda x: torch.index_select(torch.flip(x, (0,)), 1, torch.arange(0, 9, 2)) - 1.0, x)


def test_an_index_out_of_range_is_an_error_and_no_fallback():
    jitted = jit(lambda x, i: torch.index_select(x, 0, i) * 2.0, fuser_fallback="torch")
    with pytest.raises(IndexRangeError, match="met the index 5, which is out of range for size 5"):
        jitted(rand(5, 8), torch.tensor([0, 5]))


def test_places_of_extrema_fuse():
    x = rand(5, 70)
    fused(lambda x: torch.argmax(x, 1) + torch.argmin(x * 2.0, 1), x)
    fused(lambda x: (torch.argmax(x), torch.argmin(x.abs(), 0, keepdim=True)), x)
    fused(lambda x: torch.gather(x, 1, torch.argmax(x, 1, keepdim=True)) - 1.0, x)


@pytest.mark.parametrize("fn", [
    lambda x, i: torch.index_select(x, 0, i) * x[:3],
    lambda x, i: functional.embedding(i, x, padding_idx=2).tanh(),
    lambda x, i: torch.gather(x, 1, i[None].expand(2, 3)).exp(),
    lambda x, i: torch.take_along_dim(x, i[:, None].expand(3, 8)[:, :8], 0) * 2.0,
    lambda x, i: torch.index_add(x, 0, i, x[:3] * 2.0),
    lambda x, i: torch.scatter_add(x, 0, i[None].expand(1, 3), x[1:2, :3] * 3.0),
    lambda x, i: torch.scatter(x, 0, i[None].expand(1, 3), x[1:2, :3] * 3.0),
    lambda x, i: torch.cumsum(x * x, 1)[i],
    lambda x, i: x[i, i] * torch.argmin(x, 1)[:3],
], ids=["index_select", "embedding", "gather", "take_along_dim", "index_add", "scatter_add", "scatter", "cumsum", "advanced"])
def test_gradients(fn):
    x, i = rand(5, 8, grad=True), torch.tensor([4, 2, 4])
    jitted = jit(fn)
    (outs, grads), (want_outs, want_grads) = gradients(jitted, [x, i]), gradients(fn, [x, i])
    same(outs, want_outs, rtol=1e-6, atol=1e-6)
    same(grads, want_grads, rtol=1e-6, atol=1e-6)
    assert operators(forward(jitted)) == [] and operators(backward(jitted)) == []


def test_writes_fuse_with_what_is_around_them():
    x, i = rand(5, 8), torch.tensor([4, 0, 2])
    fused(lambda x, i: torch.index_put(x * 2.0, (i,), x[:3] + 1.0, True).sum(1), x, i)
    fused(lambda x, i: torch.index_copy(x, 0, i, x[1:4].exp()) - 1.0, x, i)
    fused(lambda i: functional.one_hot(i, 6) * 2, i)


def test_cumulative_sums_fuse():
    x = rand(5, 70)
    fused(lambda x: torch.cumsum(x * 2.0, 1) + torch.cumsum(x, 0), x)
    fused(lambda x: (x > 0).cumsum(1) - 1, x)
