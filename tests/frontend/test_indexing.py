"""`fd.ops` that read at indices, against torch."""

from __future__ import annotations

import pytest
import torch

from thunder_fuser import DataType, FusionDefinition
from thunder_fuser.errors import IRError, UnsupportedError


def test_reads(device: str, run) -> None:
    x, i = torch.randn(5, 7, device=device), torch.tensor([4, 0, 2], device=device)
    where = torch.randint(0, 5, (2, 7), device=device)
    got = run(lambda fd, x, i, w: [fd.ops.index_select(x, i, 0), fd.ops.index_select(x, i, dim=-1), fd.ops.gather(x, w, 0),
                                   fd.ops.take_along_axis(x, fd.ops.broadcast(i, [True, False]), dim=1), fd.ops.embedding_fwd(w, x)],
              x, i, where)
    want = [x[i], x[:, i], torch.gather(x, 0, where), torch.take_along_dim(x, i[None], 1), x[where]]
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))


def test_writes(device: str, run) -> None:
    x, i = torch.randint(0, 9, (5, 7), device=device).float(), torch.tensor([4, 0, 4], device=device)
    where, src = torch.stack([torch.randperm(5, device=device)[:2] for _ in range(7)], 1), torch.randn(3, 7, device=device)
    got = run(lambda fd, x, i, w, s: [fd.ops.scatter(x, w, s, 0), fd.ops.scatter(x, w, 2.5, dim=0), fd.ops.index_put_accumulate(x, i, s)],
              x, i, where, src)
    want = [x.scatter(0, where, src), x.scatter(0, where, 2.5), x.index_add(0, i, src)]
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w)


def test_refusals() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1])
        i = fd.define_tensor(shape=[-1], dtype=DataType.Int)
        for build, error, message in [
            (lambda: fd.ops.gather(x, i, 0), IRError, "'gather' takes an index of rank 2, got rank 1"),
            (lambda: fd.ops.index_select(x, x, 0), IRError, "'index_select' takes an index of integers, got dtype 'DataType.Float'"),
            (lambda: fd.ops.index_select(x, i, 2), IRError, "out of range for rank 2"),
            (lambda: fd.ops.embedding_fwd(i, i), IRError, "'embedding_fwd' takes a weight of rank 2, got rank 1"),
            (lambda: fd.ops.scatter(x, fd.ops.broadcast(i, [False, True]), i, 0), IRError, "'scatter' takes a src of rank 2 and dtype"),
            (lambda: fd.ops.index_put_accumulate(x, i, i), IRError, "'index_put_accumulate' takes a value of rank 2 and dtype"),
            (lambda: fd.ops.embedding_fwd(i, x, max_norm=1.0), UnsupportedError, "'embedding_fwd' with max_norm is not supported"),
        ]:
            with pytest.raises(error, match=message):
                build()
        fd.add_output(x)


def test_scans(device: str, run) -> None:
    x, n = torch.randint(-3, 4, (5, 7), device=device).float(), torch.randint(-3, 4, (5, 7), device=device).int()
    got = run(lambda fd, x, n: [fd.ops.cumsum(x, 1), fd.ops.cumprod(x, dim=0), fd.ops.cummax(x, -1), fd.ops.cummin(n, 0), fd.ops.cumsum(n, 0)], x, n)
    want = [x.cumsum(1), x.cumprod(0), x.cummax(1).values, n.cummin(0).values, n.cumsum(0)]
    assert all(torch.equal(g, w) and g.dtype is w.dtype for g, w in zip(got, want, strict=True))
