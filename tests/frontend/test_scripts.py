"""Definitions as owners of nvFuser scripts write them, start to end, each against torch in float64."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from thunder_fuser import DataType, FusionDefinition


def _close(out: torch.Tensor, expected: torch.Tensor, bits: int = 17) -> None:
    assert out.shape == expected.shape
    torch.testing.assert_close(out.double(), expected.double(), rtol=2.0**-bits, atol=2.0**-bits * max(1.0, float(expected.double().abs().max())))


def test_bias_and_activation_broadcast_over_rows(device: str) -> None:
    x, bias = torch.randn(2, 5, 7, device=device), torch.randn(7, device=device)
    with FusionDefinition() as fd:
        t0 = fd.define_tensor(shape=[-1, -1, -1], contiguity=[True, True, True], dtype=DataType.Float)
        t1 = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float)
        t2 = fd.ops.broadcast(t1, [True, True, False])
        t3 = fd.ops.add(t0, t2)
        half = fd.define_scalar(0.5)
        root = fd.define_scalar(2.0**-0.5)
        t4 = fd.ops.mul(fd.ops.mul(t3, half), fd.ops.add(fd.ops.erf(fd.ops.mul(t3, root)), 1.0))
        fd.add_output(t4)
    _close(fd.execute([x, bias])[0], F.gelu(x.double() + bias.double()))


def test_softmax_of_open_sizes(device: str) -> None:
    with FusionDefinition() as fd:
        t0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16)
        wide = fd.ops.cast(t0, DataType.Float)
        top = fd.ops.max(wide, dims=[1], keep_dim=False, dtype=DataType.Null)
        shape = fd.ops.shape(t0)
        shifted = fd.ops.exp(fd.ops.sub(wide, fd.ops.broadcast_in_dim(top, shape=shape, broadcast_dims=[0])))
        total = fd.ops.sum(shifted, dims=[1], keep_dim=True)
        fd.add_output(fd.ops.cast(fd.ops.div(shifted, total), DataType.BFloat16))
    for rows, columns in ((3, 33), (1, 1), (5, 700)):
        x = torch.randn(rows, columns, device=device).bfloat16()
        _close(fd.execute([x])[0], x.double().softmax(1), bits=8)


def test_layer_norm_with_statistics_returned(device: str) -> None:
    x, w, b = torch.randn(6, 40, device=device) + 3, torch.randn(40, device=device), torch.randn(40, device=device)
    with FusionDefinition() as fd:
        t0, t1, t2 = (fd.from_pytorch(t) for t in (x, w, b))
        eps = fd.define_scalar(1e-5, dtype=DataType.Double)
        count = fd.ops.cast(fd.ops.size(t0, 1), DataType.Double)
        mean = fd.ops.div(fd.ops.sum(t0, dims=[1], keep_dim=True), count)
        centred = fd.ops.sub(t0, mean)
        var = fd.ops.div(fd.ops.sum(fd.ops.mul(centred, centred), dims=[1], keep_dim=True), count)
        inverse = fd.ops.rsqrt(fd.ops.add(var, eps))
        normal = fd.ops.mul(centred, inverse)
        full = t0.shape()
        scaled = fd.ops.mul(normal, fd.ops.broadcast_in_dim(t1, shape=full, broadcast_dims=[1]))
        fd.add_output(fd.ops.add(scaled, fd.ops.broadcast_in_dim(t2, shape=full, broadcast_dims=[1])))
        fd.add_output(fd.ops.squeeze(mean, [1]))
        fd.add_output(fd.ops.squeeze(inverse, [1]))
    out, mean, inverse = fd.execute([x, w, b])
    d = x.double()
    _close(out, F.layer_norm(d, (40,), w.double(), b.double()), bits=14)
    _close(mean, d.mean(1))
    _close(inverse, (d.var(1, correction=0) + 1e-5).rsqrt(), bits=14)


def test_mlp_of_two_products_with_their_epilogues(device: str) -> None:
    x = torch.randn(4, 16, device=device)
    weights = [torch.randn(s, device=device) / 4 for s in ((32, 16), (32,), (8, 32), (8,))]
    with FusionDefinition() as fd:
        t, w0, b0, w1, b1 = (fd.from_pytorch(v) for v in (x, *weights))
        hidden = fd.ops.relu(fd.ops.linear(t, w0, b0))
        fd.add_output(fd.ops.sigmoid(fd.ops.linear(hidden, w1, b1)))
        fd.add_output(fd.ops.gt(hidden, fd.define_scalar(0.0)))
    out, mask = fd.execute([x, *weights])
    w0, b0, w1, b1 = (w.double() for w in weights)
    hidden = F.linear(x.double(), w0, b0).relu()
    _close(out, F.linear(hidden, w1, b1).sigmoid())
    assert torch.equal(mask, F.linear(x, weights[0], weights[1]) > 0)


def test_heads_split_off_a_packed_product_and_attended(device: str) -> None:
    heads, size, tokens = 2, 8, 5
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    x, w = torch.randn(3, tokens, 12, device=device).to(dtype), (torch.randn(3 * heads * size, 12, device=device) / 3).to(dtype)
    with FusionDefinition() as fd:
        t, weight = fd.from_pytorch(x), fd.from_pytorch(w)
        packed = fd.ops.reshape(fd.ops.linear(t, weight), [t.size(0), tokens, 3, heads, size])
        q, k, v = (fd.ops.squeeze(fd.ops.slice(packed, [0, 0, i, 0, 0], [3, tokens, i + 1, heads, size]), [2]) for i in range(3))
        q, k, v = (fd.ops.permute(part, [0, 2, 1, 3]) for part in (q, k, v))
        out, *_ = fd.ops.sdpfa_fwd(q, k, v, is_causal=fd.define_scalar(True))
        fd.add_output(fd.ops.reshape(fd.ops.permute(out, [0, 2, 1, 3]), [t.size(0), tokens, heads * size]))
    (out,) = fd.execute([x, w])
    q, k, v = F.linear(x.double(), w.double()).view(3, tokens, 3, heads, size).permute(2, 0, 3, 1, 4)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(3, tokens, -1)
    _close(out, expected, bits=15 if device == "cpu" else 5)


def test_pieces_cut_padded_and_joined(device: str) -> None:
    x = torch.randn(4, 10, device=device)
    with FusionDefinition() as fd:
        t0 = fd.from_pytorch(x)
        left = fd.ops.slice(t0, start_indices=[0, 0], end_indices=[4, 6], strides=[1, 1])
        right = fd.ops.slice(t0, start_indices=[0, 6], end_indices=[4, 10])
        padded = fd.ops.pad(right, [1, 1], fd.define_scalar(-2.5))
        joined = fd.ops.cat([padded, left, fd.ops.neg(padded)], dim=1)
        fd.add_output(joined)
        fd.add_output(fd.ops.pad(joined, [-2, 3, 1, 0]))
    joined, padded = fd.execute([x])
    piece = F.pad(x[:, 6:], (1, 1), value=-2.5)
    expected = torch.cat([piece, x[:, :6], -piece], 1)
    assert torch.equal(joined, expected) and torch.equal(padded, F.pad(expected, (-2, 3, 1, 0)))


def test_expanded_and_squeezed_again(device: str) -> None:
    x = torch.randn(3, 1, 4, device=device)
    with FusionDefinition() as fd:
        t0 = fd.from_pytorch(x)
        wide = fd.ops.expand(t0, [-1, 5, -1])
        fd.add_output(fd.ops.mul(wide, 3.0))
        fd.add_output(fd.ops.squeeze(fd.ops.cos(t0), dims=[1]))
        fd.add_output(fd.ops.sum(wide, dims=[1]))
    tripled, thin, total = fd.execute([x])
    assert torch.equal(tripled, x.expand(3, 5, 4) * 3) and thin.shape == (3, 4)
    _close(thin, x.double().squeeze(1).cos())
    _close(total, x.double().expand(3, 5, 4).sum(1))


def test_causal_mask_of_iotas_and_where(device: str) -> None:
    x = torch.randn(2, 6, 6, device=device)
    with FusionDefinition() as fd:
        t0 = fd.define_tensor(shape=[-1, -1, -1], contiguity=True, dtype=DataType.Float)
        n = fd.ops.size(t0, 2)
        row = fd.ops.broadcast(fd.ops.iota(n, fd.define_scalar(0), fd.define_scalar(1), dtype=DataType.Int), [False, True])
        column = fd.ops.broadcast(fd.ops.iota(n, dtype=DataType.Int32), [True, False])
        seen = fd.ops.broadcast_in_dim(fd.ops.ge(row, column), shape=t0.shape(), broadcast_dims=[1, 2])
        fd.add_output(fd.ops.where(seen, t0, fd.define_scalar(float("-inf"))))
    for size in (6, 1, 9):
        x = torch.randn(2, size, size, device=device)
        mask = torch.ones(size, size, device=device, dtype=torch.bool).tril()
        assert torch.equal(fd.execute([x])[0], x.masked_fill(~mask, float("-inf")))


def test_sizes_given_as_numbers_and_vectors(device: str) -> None:
    with FusionDefinition() as fd:
        t0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        rows, columns, fill = fd.define_scalar(dtype=DataType.Int), fd.define_scalar(dtype=DataType.Int), fd.define_scalar(dtype=DataType.Double)
        shape = fd.define_vector([rows, columns], dtype=DataType.Int)
        fd.add_output(fd.ops.reshape(t0, new_shape=shape))
        fd.add_output(fd.ops.full(shape, fill, DataType.Double))
        fd.add_output(fd.ops.add(fd.ops.full(shape=[2, 3], fill_value=rows, dtype=DataType.Int), columns))
    x = torch.randn(4, 6, device=device)
    for rows, columns in ((3, 8), (24, 1)):
        folded, filled, numbers = fd.execute([x, rows, columns, 0.1])
        assert torch.equal(folded, x.reshape(rows, columns))
        assert torch.equal(filled, torch.full((rows, columns), 0.1, dtype=torch.float64, device=device))
        assert torch.equal(numbers, torch.full((2, 3), rows + columns, device=device))


def test_running_mean_updated_in_place(device: str) -> None:
    x, running = torch.randn(8, 3, 5, device=device), torch.zeros(3, device=device)
    with FusionDefinition() as fd:
        t0, r = fd.from_pytorch(x), fd.from_pytorch(running)
        mean = fd.ops.div(fd.ops.sum(t0, [0, 2]), fd.ops.mul(t0.size(0), t0.size(2)))
        fd.add_output(fd.ops.add(fd.ops.mul(r, 0.9), fd.ops.mul(mean, 0.1)), alias_input=r)
        fd.add_output(fd.ops.sub(t0, fd.ops.broadcast_in_dim(mean, t0.shape(), [1])))
    expected = torch.zeros(3, device=device, dtype=torch.float64)
    for _ in range(3):
        (out,) = fd.execute([x, running])
        expected = expected * 0.9 + x.double().mean((0, 2)) * 0.1
        _close(running, expected)
        _close(out, x.double() - x.double().mean((0, 2), keepdim=True))


def test_embedding_and_cross_entropy_by_gather(device: str) -> None:
    ids, table = torch.randint(0, 11, (4, 6), device=device), torch.randn(11, 8, device=device)
    targets = torch.randint(0, 8, (24, 1), device=device)
    with FusionDefinition() as fd:
        i, w, y = fd.from_pytorch(ids), fd.from_pytorch(table), fd.from_pytorch(targets)
        logits = fd.ops.reshape(fd.ops.embedding_fwd(i, w), [24, 8])
        top = fd.ops.max(logits, [1], keep_dim=True)
        log_sum = fd.ops.add(fd.ops.log(fd.ops.sum(fd.ops.exp(fd.ops.sub(logits, top)), [1], keep_dim=True)), top)
        picked = fd.ops.take_along_axis(logits, y, 1)
        fd.add_output(fd.ops.div(fd.ops.sum(fd.ops.sub(log_sum, picked), [0, 1]), 24.0))
    (loss,) = fd.execute([ids, table, targets])
    _close(loss, F.cross_entropy(F.embedding(ids, table.double()).view(24, 8), targets.view(-1)))


def test_tensors_of_every_stride_under_one_contiguous_claim(device: str) -> None:
    with FusionDefinition() as fd:
        t0 = fd.define_tensor(shape=[-1, -1, -1], contiguity=[True, True, True], dtype=DataType.Float, stride_order=[2, 1, 0])
        t1 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        fd.add_output(fd.ops.matmul(fd.ops.sin(t0), t1))
        fd.add_output(fd.ops.sum(fd.ops.mul(t0, t0), [1]))
    w = torch.randn(6, 4, device=device)
    for x in (torch.randn(2, 3, 6, device=device), torch.randn(6, 3, 2, device=device).permute(2, 1, 0), torch.randn(6, device=device).expand(2, 3, 6),
              torch.randn(2, 1, 6, device=device).expand(2, 3, 6), torch.randn(5, 7, 13, device=device)[::3, 2:5, 1:12:2],
              torch.randn(37, device=device)[1:].view(2, 3, 6)):
        for right in (w, torch.randn(4, 6, device=device).t(), torch.randn(6, 1, device=device).expand(6, 4)):
            product, squares = fd.execute([x, right])
            _close(product, x.double().sin() @ right.double())
            _close(squares, x.double().square().sum(1))
    assert len(fd.calls().known) == 1


def test_top_tokens_sampled_from(device: str) -> None:
    logits = torch.randn(3, 50, device=device)
    with FusionDefinition() as fd:
        t0, k = fd.from_pytorch(logits), fd.define_scalar(None, DataType.Int)
        values, places = fd.ops.topk(fd.ops.div(t0, 0.7), k, dim=1, largest=True, sorted=True)
        weights = fd.ops.exp(fd.ops.sub(values, fd.ops.max(values, [1], keep_dim=True)))
        fd.add_output(fd.ops.div(weights, fd.ops.sum(weights, [1], keep_dim=True)))
        fd.add_output(places)
    for k in (1, 5):
        chances, places = fd.execute([logits, k])
        expected = torch.topk(logits.double() / 0.7, k, 1)
        _close(chances, expected.values.softmax(1))
        assert torch.equal(places, expected.indices)
