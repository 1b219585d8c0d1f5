"""Shape ops, copies, factories and reductions of `fd.ops` against torch, bit for bit where nothing is added up."""

from __future__ import annotations

import pytest
import torch

from thunder_fuser import DataType, FusionDefinition

CASES = {
    "set": ((3, 5), lambda fd, t: fd.ops.set(t), lambda t: t.clone()),
    "segment_set": ((3, 5), lambda fd, t: fd.ops.neg(fd.ops.segment_set(t)), lambda t: -t),
    "reshape": ((4, 6), lambda fd, t: fd.ops.reshape(t, new_shape=[2, 12]), lambda t: t.reshape(2, 12)),
    "reshape with -1": ((4, 6), lambda fd, t: fd.ops.reshape(t, [3, -1]), lambda t: t.reshape(3, -1)),
    "reshape of nothing": ((0, 6), lambda fd, t: fd.ops.reshape(t, [3, 0, 2]), lambda t: t.reshape(3, 0, 2)),
    "permute": ((2, 3, 5), lambda fd, t: fd.ops.permute(t, dims=[2, 0, 1]), lambda t: t.permute(2, 0, 1)),
    "slice": ((7, 9), lambda fd, t: fd.ops.slice(t, [1, 2], [6, 9]), lambda t: t[1:6, 2:9]),
    "strided slice": ((7, 9), lambda fd, t: fd.ops.slice(t, [1, 2], [7, 9], [3, 2]), lambda t: t[1:7:3, 2:9:2]),
    "slice beyond": ((7, 9), lambda fd, t: fd.ops.slice(t, [8, 2], [99, 99]), lambda t: t[8:99, 2:99]),
    "slice normalised": (
        (7, 9), lambda fd, t: fd.ops.slice(t, [1, 0], [2, 9], manual_normalization=True), lambda t: t[1:2]),
    "squeeze": ((3, 1, 5, 1), lambda fd, t: fd.ops.squeeze(t, dims=[1, -1]), lambda t: t.squeeze((1, 3))),
    "squeeze expanded": (
        (3, 1), lambda fd, t: fd.ops.squeeze(fd.ops.expand(t, [3, 4]), [1], squeeze_expanded=True), lambda t: t[:, 0]),
    "broadcast": (
        (3, 5), lambda fd, t: fd.ops.broadcast(t, [True, False, True, False]), lambda t: t[None, :, None, :]),
    "broadcast_in_dim": (
        (3, 1), lambda fd, t: fd.ops.broadcast_in_dim(t, shape=[2, 3, 4], broadcast_dims=[1, 2]), lambda t: t.expand(2, 3, 4)),
    "expand": ((1, 3, 1), lambda fd, t: fd.ops.expand(t, [4, -1, 2]), lambda t: t.expand(4, 3, 2)),
    "expand to nothing": ((1, 3), lambda fd, t: fd.ops.expand(t, [0, 3]), lambda t: t.expand(0, 3)),
    "pad": ((3, 5), lambda fd, t: fd.ops.pad(t, [1, 2]), lambda t: torch.nn.functional.pad(t, (1, 2))),
    "pad two dims": (
        (3, 5), lambda fd, t: fd.ops.pad(t, [0, 1, 2, 0], 1.5), lambda t: torch.nn.functional.pad(t, (0, 1, 2, 0), value=1.5)),
    "pad cropping": (
        (3, 5), lambda fd, t: fd.ops.pad(t, [-1, 2, 1, -1]), lambda t: torch.nn.functional.pad(t, (-1, 2, 1, -1))),
    "cat": ((3, 5), lambda fd, t: fd.ops.cat([t, fd.ops.neg(t), t], dim=-1), lambda t: torch.cat([t, -t, t], -1)),
    "cat of one": ((3, 5), lambda fd, t: fd.ops.cat([t], 0), lambda t: t.clone()),
    "cat with nothing": (
        (3, 5), lambda fd, t: fd.ops.cat([t, fd.ops.slice(t, [0, 0], [3, 0])], 1), lambda t: t.clone()),
    "select": ((3, 5), lambda fd, t: fd.ops.select(t, -2, dim=1), lambda t: t.select(1, -2)),
    "cast": ((3, 5), lambda fd, t: fd.ops.cast(t, dtype=DataType.BFloat16), lambda t: t.bfloat16()),
    "cast to int": ((3, 5), lambda fd, t: fd.ops.cast(t, DataType.Int32), lambda t: t.int()),
    "cast to bool": ((3, 5), lambda fd, t: fd.ops.cast(t, DataType.Bool), lambda t: t.bool()),
}
LAYOUTS = ["contiguous", "transposed", "offset", "expanded"]


def _make(shape: tuple[int, ...], layout: str, device: str) -> torch.Tensor:
    if layout == "transposed" and len(shape) > 1:
        return torch.randn((*shape[:-2], shape[-1], shape[-2]), device=device).transpose(-1, -2)
    if layout == "offset":
        return torch.randn((*shape[:-1], shape[-1] + 3), device=device)[..., 3:]
    if layout == "expanded":
        return torch.randn((1, *shape[1:]), device=device).expand(shape)
    return torch.randn(shape, device=device)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_shape_op(case: str, layout: str, device: str, run_one) -> None:
    shape, body, reference = CASES[case]
    x = _make(shape, layout, device)
    out, expected = run_one(body, x), reference(x)
    assert out.dtype is expected.dtype and out.shape == expected.shape and torch.equal(out, expected)


def test_stride_order_decides_the_memory(device: str, run_one) -> None:
    x = torch.randn(2, 3, 4, 5, device=device)
    out = run_one(lambda fd, t: fd.ops.stride_order(t, [3, 0, 2, 1]), x)
    assert torch.equal(out, x) and out.stride() == (60, 1, 15, 3)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.neg(fd.from_pytorch(x)), stride_order=[3, 0, 2, 1])
    (out,) = fd.execute([x])
    assert torch.equal(out, -x) and out.stride() == (60, 1, 15, 3)


@pytest.mark.parametrize("fill, dtype, expected", [
    (2.5, DataType.Float, torch.float32), (3, DataType.Int, torch.int64), (1, DataType.Bool, torch.bool),
    (0.1, DataType.BFloat16, torch.bfloat16), (7, DataType.Double, torch.float64)])
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2), (5,)])
def test_full(fill: float, dtype: DataType, expected: torch.dtype, shape: tuple[int, ...], device: str) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.full(list(shape), fill, dtype))
    (out,) = fd.execute([], device=device)
    assert out.device.type == device and torch.equal(out, torch.full(shape, fill, dtype=expected, device=device))


def test_iota(device: str) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.iota(5))
        fd.add_output(fd.ops.iota(4, 3, -2, DataType.Int32))
        fd.add_output(fd.ops.iota(3, fd.define_scalar(0.5), fd.define_scalar(0.25), DataType.Float))
        fd.add_output(fd.ops.iota(0))
    outs = fd.execute([], device=device)
    for out, expected in zip(outs, [[0, 1, 2, 3, 4], [3, 1, -1, -3], [0.5, 0.75, 1.0], []]):
        assert out.tolist() == expected
    assert [o.dtype for o in outs] == [torch.int64, torch.int32, torch.float32, torch.int64]


@pytest.mark.parametrize("arguments, keywords", [
    ({"dim": 1}, {}), ({"dim": -1}, {"keepdim": True}), ({"dim": (0, 2)}, {}), ({"dim": (0, 2)}, {"keepdim": True}), ({}, {})])
def test_sum(arguments: dict, keywords: dict, device: str, run_one) -> None:
    x = torch.randn(3, 7, 5, device=device)
    given = {"dims": list(arguments["dim"])} if isinstance(arguments.get("dim"), tuple) else arguments
    out = run_one(lambda fd, t: fd.ops.sum(t, **given, **keywords), x)
    expected = x.double().sum(**arguments, **keywords)
    assert out.dtype is torch.float32 and out.shape == expected.shape
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name, reference", [("max", torch.amax), ("min", torch.amin), ("prod", torch.prod)])
def test_other_reductions(name: str, reference: object, device: str, run) -> None:
    x = torch.rand(3, 7, 5, device=device) + 0.5
    one, kept = run(lambda fd, t: [getattr(fd.ops, name)(t, 1), getattr(fd.ops, name)(t, dim=-1, keepdim=True)], x)
    torch.testing.assert_close(one.double(), reference(x.double(), 1), rtol=1e-5, atol=0)
    torch.testing.assert_close(kept.double(), reference(x.double(), -1, keepdim=True), rtol=1e-5, atol=0)


def test_sum_dtypes(device: str, run) -> None:
    x = torch.rand(4, 6, device=device).bfloat16()
    kept, wide = run(lambda fd, t: [fd.ops.sum(t, [1]), fd.ops.sum(t, [1], False, DataType.Float)], x)
    assert kept.dtype is torch.bfloat16 and wide.dtype is torch.float32
    torch.testing.assert_close(wide.double(), x.double().sum(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(kept.double(), x.double().sum(1), rtol=2**-7, atol=0)
    (counted,) = run(lambda fd, t: fd.ops.sum(t, 1), torch.rand(4, 6, device=device) > 0.5)
    assert counted.dtype is torch.int64


def test_sum_over_nothing_is_zero(device: str, run_one) -> None:
    out = run_one(lambda fd, t: fd.ops.sum(t, 1), torch.randn(3, 0, device=device))
    assert torch.equal(out, torch.zeros(3, device=device))


def test_cat_promotes(device: str, run_one) -> None:
    x, y = torch.randn(5, 3, device=device).bfloat16(), torch.randn(2, 3, device=device).half()
    out = run_one(lambda fd, x, y: fd.ops.cat([x, y], 0), x, y)
    assert out.dtype is torch.float32 and torch.equal(out, torch.cat([x.float(), y.float()]))


@pytest.mark.parametrize("dtype", [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64])
def test_reshape_across_a_cat_of_every_dtype(dtype: torch.dtype, device: str, run_one) -> None:
    x = torch.randint(0, 9, (4, 6), device=device).to(dtype)
    def body(fd: FusionDefinition, t: object) -> object:
        joined = fd.ops.cat([fd.ops.slice(t, [0, 0], [4, 3]), fd.ops.slice(t, [0, 1], [4, 4])], 1)
        return fd.ops.reshape(fd.ops.permute(joined, [1, 0]), [4, 6])

    assert torch.equal(run_one(body, x), torch.cat([x[:, :3], x[:, 1:4]], 1).t().reshape(4, 6))


def test_sizes_are_usable_in_shapes(device: str) -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1, -1], dtype=DataType.Float)
        rows, columns = t.size(0), fd.ops.size(t, -1)
        fd.add_output(fd.ops.reshape(t, [fd.ops.mul(rows, columns)]))
        fd.add_output(fd.ops.broadcast_in_dim(t, shape=[2, *t.shape()], broadcast_dims=[1, 2]))
        fd.add_output(fd.ops.slice(t, [0, 0], [rows, fd.ops.div(columns, 2)]))
        fd.add_output(fd.ops.pad(t, [0, rows]))
        fd.add_output(fd.ops.full(t.shape(), 1.0, DataType.Float))
        fd.add_output(fd.ops.expand(fd.ops.broadcast(fd.ops.iota(columns), [True, False]), t.shape()))
    for shape in ((3, 8), (1, 5), (0, 4)):
        x = torch.randn(shape, device=device)
        flat, twice, left, padded, ones, ramp = fd.execute([x])
        assert torch.equal(flat, x.reshape(-1)) and torch.equal(twice, x.expand(2, *shape))
        assert torch.equal(left, x[:, : shape[1] // 2])
        assert torch.equal(padded, torch.nn.functional.pad(x, (0, shape[0]))) and torch.equal(ones, torch.ones_like(x))
        assert torch.equal(ramp, torch.arange(shape[1], device=device).expand(shape))


def test_scalar_inputs_that_decide_sizes_specialise(device: str) -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1, -1], dtype=DataType.Float)
        n = fd.define_scalar(None, DataType.Int)
        shape = fd.define_vector(2)
        fd.add_output(fd.ops.slice(t, [0, 0], [fd.ops.add(n, 1), t.size(1)]))
        fd.add_output(fd.ops.reshape(t, shape))
        fd.add_output(fd.ops.add(t, n))
    x = torch.randn(4, 6, device=device)
    for n, shape in ((1, [8, 3]), (2, [2, 12]), (9, [24, 1])):
        cut, folded, moved = fd.execute([x, n, shape])
        assert torch.equal(cut, x[: n + 1]) and torch.equal(folded, x.reshape(shape)) and torch.equal(moved, x + n)


def test_constant_vector_of_scalars(device: str) -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1], dtype=DataType.Float)
        v = fd.define_vector([fd.define_scalar(2, dtype=DataType.Int), -1], dtype=DataType.Int)
        fd.add_output(fd.ops.reshape(t, new_shape=v))
        fd.add_output(fd.ops.full([v[0], 3], 1, DataType.Int))
    x = torch.randn(10, device=device)
    folded, ones = fd.execute([x])
    assert torch.equal(folded, x.reshape(2, 5)) and ones.shape == (2, 3)


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (1, 1), (0, 3), (2, 3, 5), (7, 1)])
@pytest.mark.parametrize("diagonal", [-2, 0, 1, 9])
def test_triu(shape: tuple[int, ...], diagonal: int, device: str, run_one) -> None:
    x = torch.randn(shape, device=device)
    x.view(-1)[:1] = float("nan")
    out = run_one(lambda fd, x: fd.ops.triu(x, diagonal), x)
    assert torch.equal(out.nan_to_num(7.0), torch.triu(x, diagonal).nan_to_num(7.0))


def test_triu_of_a_diagonal_given_at_the_call(device: str) -> None:
    x = torch.randint(0, 9, (5, 6), device=device)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.triu(fd.from_pytorch(x), fd.define_scalar(None, DataType.Int)))
    for diagonal in (0, -1, 3):
        assert torch.equal(fd.execute([x, diagonal])[0], torch.triu(x, diagonal))
