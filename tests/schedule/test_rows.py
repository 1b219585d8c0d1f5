"""The schedule of rows against torch in float64: norms, softmax and their gradients, every length and layout, one kernel where
one is enough, partial results of walkers, splits and clusters."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch

from thunder_fuser.compiler import Stages, compile_fusion
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, F16, F32, F64, DType
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.nodes import Fusion, Value

TOLERANCE = {F64: 1e-12, F32: 2e-6, BF16: 6e-3, F16: 8e-4}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where `run` runs."""
    global place
    place = request.param
    yield


def run(fusion: Fusion, *inputs: torch.Tensor) -> tuple[list[torch.Tensor], Stages]:
    exe = compile_fusion(fusion)
    outputs = exe(*(x.to(place) if x.is_contiguous() else x.to(place).as_strided(x.shape, x.stride()) for x in inputs))
    return [x.cpu() for x in outputs], exe.stages()


def agrees(fusion: Fusion, *inputs: torch.Tensor) -> Stages:
    """The stages, after every output has been compared with float64 by relative L2 error."""
    outputs, stages = run(fusion, *inputs)
    for got, want in zip(outputs, evaluate(fusion, *inputs, dtype=torch.float64), strict=True):
        assert got.shape == want.shape and got.isfinite().all()
        dtype = next(v.dtype for v in fusion.outputs if v.dtype.torch is got.dtype)
        error = (got.double() - want.double()).norm() / (want.double().norm() + 1e-30)
        assert error <= TOLERANCE[dtype], f"{list(got.shape)} is off by {error:.1e}"
    return stages


def random(value: Value) -> torch.Tensor:
    generator = torch.Generator().manual_seed(math.prod(value.shape))
    return torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.dtype.torch)


def softmax(b: FusionBuilder, x: Value, dims: list[int]) -> Value:
    wide, kept = b.cast(x, F64 if x.dtype is F64 else F32), [d for d in range(len(x.shape)) if d not in dims]
    e = b.exp(b.sub(wide, b.broadcast(b.amax(wide, dims), x.shape, kept)))
    return b.cast(b.div(e, b.broadcast(b.sum(e, dims), x.shape, kept)), x.dtype)


def layer_norm(b: FusionBuilder, x: Value, weight: Value, bias: Value) -> tuple[Value, Value, Value]:
    """The result, mean and 1 / standard deviation, over the last dim."""
    *outer, n = x.shape
    wide, last, rows = b.cast(x, F32), [len(outer)], list(range(len(outer)))
    mean = b.div(b.sum(wide, last), float(n))
    centred = b.sub(wide, b.broadcast(mean, x.shape, rows))
    rstd = b.rsqrt(b.add(b.div(b.sum(b.mul(centred, centred), last), float(n)), 1e-5))
    normal = b.mul(centred, b.broadcast(rstd, x.shape, rows))
    scaled = b.mul(normal, b.broadcast(b.cast(weight, F32), x.shape, last))
    return b.cast(b.add(scaled, b.broadcast(b.cast(bias, F32), x.shape, last)), x.dtype), mean, rstd


def layer_norm_gradient(b: FusionBuilder, x: Value, grad: Value, weight: Value, mean: Value, rstd: Value) -> tuple[Value, Value, Value]:
    rows, n = x.shape
    wide, g, along = b.cast(x, F32), b.cast(grad, F32), lambda v: b.broadcast(v, (rows, n), [0])
    normal = b.mul(b.sub(wide, along(mean)), along(rstd))
    scaled = b.mul(g, b.broadcast(b.cast(weight, F32), x.shape, [1]))
    first, second = (b.div(b.sum(v, [1]), float(n)) for v in (scaled, b.mul(scaled, normal)))
    dx = b.mul(b.sub(b.sub(scaled, along(first)), b.mul(normal, along(second))), along(rstd))
    return b.cast(dx, x.dtype), b.cast(b.sum(b.mul(g, normal), [0]), weight.dtype), b.cast(b.sum(g, [0]), weight.dtype)


LENGTHS = (33, 64, 127, 384, 1000, 1600, 4099, 5120)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [BF16, F32, F64], ids=str)
def test_softmax_of_every_length_is_one_kernel(length: int, dtype: DType) -> None:
    b = FusionBuilder()
    x = b.tensor(dtype, (5, length))
    b.output(softmax(b, x, [1]))
    stages = agrees(b.build(), random(x))
    assert len(stages.kernels) == 1 and stages.kernels[0].rows is not None


@pytest.mark.parametrize("shape,dims", [((3, 40, 50), [1]), ((40, 5, 50), [0, 2]), ((7, 33, 4, 9), [1, 2]), ((2, 3, 70), [2]), ((130, 8), [0])], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_softmax_over_any_dims_and_layout(shape: tuple[int, ...], dims: list[int], transposed: bool) -> None:
    b = FusionBuilder()
    x = b.tensor(F32, shape)
    b.output(softmax(b, x, dims))
    given = random(x)
    if transposed:
        given = given.permute(*reversed(range(len(shape)))).contiguous().permute(*reversed(range(len(shape))))
    assert len(agrees(b.build(), given).kernels) == 1


def test_rows_that_clusters_hold_and_rows_that_nothing_holds() -> None:
    for length in (40_000, 200_000, 600_000):
        b = FusionBuilder()
        x = b.tensor(BF16, (1, length))
        b.output(softmax(b, x, [1]))
        (kernel,) = agrees(b.build(), random(x)).kernels
        assert kernel.rows is not None and kernel.rows.cluster > 1
        assert bool(kernel.rows.resident) == (length < 300_000)


@pytest.mark.parametrize("length", LENGTHS)
def test_layer_norm_and_its_statistics_are_one_kernel(length: int) -> None:
    b = FusionBuilder()
    x, weight, bias = b.tensor(BF16, (3, 7, length)), b.tensor(BF16, (length,)), b.tensor(F32, (length,))
    for value in layer_norm(b, x, weight, bias):
        b.output(value)
    assert len(agrees(b.build(), random(x), random(weight), random(bias)).kernels) == 1


@pytest.mark.parametrize("rows,length", [(300, 512), (33, 40), (1000, 96), (64, 5120), (37, 16384), (101, 333)])
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_gradients_of_a_norm_read_their_inputs_once(rows: int, length: int, dtype: DType) -> None:
    b = FusionBuilder()
    x, grad, weight = b.tensor(dtype, (rows, length)), b.tensor(dtype, (rows, length)), b.tensor(dtype, (length,))
    mean, rstd = b.tensor(F32, (rows,)), b.tensor(F32, (rows,))
    for value in layer_norm_gradient(b, x, grad, weight, mean, rstd):
        b.output(value)
    given = [random(v) for v in (x, grad, weight, mean)]
    stages = agrees(b.build(), *given, random(rstd).abs() + 0.5)
    walking, finishing = stages.kernels
    assert walking.rows is not None and walking.rows.walkers and finishing.rows is not None
    assert {x, grad} <= set(walking.reads) and not {x, grad} & set(finishing.reads)


@pytest.mark.parametrize("shape,dims", [((3000, 64), [0]), ((5000, 33), [0]), ((300, 333), [0, 1]), ((2, 100_003), [1]), ((5, 3000, 33), [1]),
                                        ((1, 70_000), [1]), ((70_000, 1), [0]), ((50, 4096), [0])], ids=str)
def test_sums_split_over_the_grid_are_finished_by_a_second_kernel(shape: tuple[int, ...], dims: list[int]) -> None:
    b = FusionBuilder()
    x = b.tensor(F32, shape)
    b.output(b.mul(b.sum(x, dims), 0.5))
    b.output(b.amax(b.neg(x), dims))
    stages = agrees(b.build(), random(x))
    assert len(stages.kernels) == 2 or stages.kernels[0].rows.split == 1


def test_half_precision_sums_that_overflow_half() -> None:
    b = FusionBuilder()
    x = b.tensor(F16, (4, 5000))
    b.output(b.cast(b.div(b.sum(b.cast(x, F32), [1]), 5000.0), F16))
    b.output(b.sum(x, [1]))
    given = torch.full((4, 5000), 60000.0, dtype=torch.float16)
    (mean, total), _ = run(b.build(), given)
    assert (mean == 60000).all() and total.isinf().all()


def test_residual_and_norm_share_the_sum() -> None:
    b = FusionBuilder()
    x, residual, weight = b.tensor(BF16, (9, 256)), b.tensor(BF16, (9, 256)), b.tensor(BF16, (256,))
    h = b.cast(b.add(b.cast(x, F32), b.cast(residual, F32)), BF16)
    b.output(h)
    b.output(layer_norm(b, h, weight, weight)[0])
    assert len(agrees(b.build(), random(x), random(residual), random(weight)).kernels) == 1


def test_group_norm_through_reshapes() -> None:
    b = FusionBuilder()
    x, weight = b.tensor(F32, (4, 12, 5, 7)), b.tensor(F32, (12,))
    grouped = b.reshape(x, (4, 3, 4, 5, 7))
    mean = b.div(b.sum(grouped, [2, 3, 4]), 140.0)
    centred = b.sub(grouped, b.broadcast(mean, grouped.shape, [0, 1]))
    rstd = b.rsqrt(b.add(b.div(b.sum(b.mul(centred, centred), [2, 3, 4]), 140.0), 1e-5))
    normal = b.reshape(b.mul(centred, b.broadcast(rstd, grouped.shape, [0, 1])), x.shape)
    b.output(b.silu(b.mul(normal, b.broadcast(weight, x.shape, [1]))))
    assert len(agrees(b.build(), random(x), random(weight)).kernels) == 1


def test_sums_along_both_dims_of_a_square() -> None:
    """Rows and columns of one shape are different loops, unless the program adds a matrix to its transpose."""
    b = FusionBuilder()
    x = b.tensor(F64, (48, 48))
    b.output(b.sub(b.sub(x, b.broadcast(b.sum(x, [1]), x.shape, [0])), b.broadcast(b.sum(x, [0]), x.shape, [1])))
    y = b.add(x, b.permute(x, [1, 0]))
    b.output(b.sub(y, b.broadcast(b.sum(y, [1]), y.shape, [1])))
    agrees(b.build(), random(x))


def test_a_reduction_of_rows_results() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (200, 300))
    rows = b.log(b.sum(b.exp(x), [1]))
    b.output(rows)
    b.output(b.div(b.sum(rows, [0]), 200.0))
    agrees(b.build(), random(x))


def test_flipped_and_padded_neighbours_of_a_norm() -> None:
    b = FusionBuilder()
    x = b.tensor(F64, (6, 100))
    part = b.slice(x, [0, 10], [6, 90])
    normal = b.div(part, b.broadcast(b.sum(b.abs(part), [1]), part.shape, [0]))
    b.output(b.flip(normal, [1]))
    b.output(b.pad(normal, [(1, 0, 0), (3, 2, 0)], 1.0))
    b.output(b.div(b.pad(x, [(0, 0, 0), (5, 0, 0)], 0.5), b.broadcast(b.sum(b.pad(x, [(0, 0, 0), (5, 0, 0)], 0.5), [1]), (6, 105), [0])))
    agrees(b.build(), random(x).abs() + 0.1)
