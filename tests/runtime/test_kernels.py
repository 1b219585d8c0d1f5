"""Kernels written by hand do on each backend what torch does, and NVRTC takes the same text."""

from __future__ import annotations

import pytest
import torch

from tests.runtime import handwritten as kernels
from tests.runtime.handwritten import run
from thunder_fuser import config
from thunder_fuser.errors import LaunchError
from thunder_fuser.runtime.compile_pool import POOL

CPU = torch.device("cpu")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
on_each_device = pytest.mark.parametrize("device", DEVICES)


@pytest.fixture(params=[0, 1, 2, 3])
def seed(request: pytest.FixtureRequest):
    with config.override(host_seed=request.param):
        yield request.param


@pytest.mark.parametrize("kernel", kernels.ALL, ids=lambda k: k.name)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_nvrtc_compiles(kernel, arch):
    if kernel is kernels.CLUSTER and arch == "sm_80":
        pytest.skip("clusters begin with sm_90")
    cubin = POOL.cubin(kernel, arch).result()
    assert cubin[:4] == b"\x7fELF" and kernel.name.encode() in cubin


@on_each_device
@pytest.mark.parametrize("count", [1, 7, 8, 1024, 1031, 123_457])
def test_copy(device, count):
    x = torch.randn(count, device=device).bfloat16()
    x[0] = float("nan")
    out = torch.full((count + 8,), 7.0, device=device, dtype=torch.bfloat16)
    run(kernels.COPY, -(-count // 1024), 128, x, out, count, kinds="i64")
    assert torch.equal(out[1:count], x[1:]) and out[0].isnan() and bool((out[count:] == 7).all())


@on_each_device
@pytest.mark.parametrize("shape", [(1, 1), (3, 31), (5, 1000), (64, 4096)])
def test_row_sum(device, shape, seed):
    x = torch.randn(shape, device=device)
    out = torch.zeros(shape[0], device=device)
    run(kernels.ROW_SUM, shape[0], 256, x, out, shape[1], 0.5, kinds="i32 f32")
    torch.testing.assert_close(out.double(), x.double().sum(1) * 0.5, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kernel", [kernels.ROW_SUM_FIRST_MISSING, kernels.ROW_SUM_SECOND_MISSING], ids=lambda k: k.name)
def test_missing_barrier_shows_in_the_sum(kernel, seed):
    x = torch.randn(16, 500)
    out = torch.zeros(16)
    run(kernel, 16, 256, x, out, 500, 1.0, kinds="i32 f32")
    assert not torch.allclose(out.double(), x.double().sum(1), rtol=1e-4, atol=1e-3)


@on_each_device
def test_dynamic_shared_memory(device, seed):
    x = torch.arange(640, dtype=torch.int32, device=device)
    out = torch.zeros_like(x)
    run(kernels.REVERSE, 1, 64, x, out, 10, kinds="i32", shared=256)
    assert torch.equal(out.view(10, 64), x.view(10, 64).flip(1))


def test_barrier_missing_before_a_buffer_is_used_again(seed):
    x = torch.arange(640, dtype=torch.int32)
    out = torch.zeros_like(x)
    run(kernels.REVERSE_LAST_MISSING, 1, 64, x, out, 10, kinds="i32", shared=256)
    assert not torch.equal(out.view(10, 64), x.view(10, 64).flip(1))


@on_each_device
def test_atomics(device):
    x = torch.randint(0, 50, (10_007,), dtype=torch.uint8, device=device)
    counts = torch.zeros(256, dtype=torch.int64, device=device)
    sums = torch.zeros(256, dtype=torch.float64, device=device)
    run(kernels.HISTOGRAM, 79, 128, x, counts, sums, x.numel(), kinds="i32")
    assert torch.equal(counts, torch.bincount(x.long(), minlength=256))
    weights = torch.arange(x.numel(), device=device, dtype=torch.float64)
    assert torch.equal(sums, torch.bincount(x.long(), weights=weights, minlength=256))


@on_each_device
def test_shuffles(device, seed):
    a = torch.randn(64, device=device).half()
    b = torch.randint(-1000, 1000, (64,), dtype=torch.int32, device=device)
    out = torch.zeros(5, 64, dtype=torch.float64, device=device)
    run(kernels.SHUFFLES, 1, 64, a, b, out)
    lane = torch.arange(64, device=device) % 32
    warp = torch.arange(64, device=device) - lane
    down = torch.where(lane + 3 < 32, lane + 3, lane)
    up = torch.where(lane >= 5, lane - 5, lane)
    assert torch.equal(out[0], b.double()[warp + down] + 0.5)
    assert torch.equal(out[1], b.double()[warp + up])
    assert torch.equal(out[2], a.double()[warp + (lane ^ 9)])
    assert torch.equal(out[3], b.double()[warp + torch.arange(64, device=device) * 7 % 32])
    votes = ((b % 3 == 0).view(2, 32).double() * 2.0 ** torch.arange(32, device=device)).sum(1)
    assert torch.equal(out[4], votes.repeat_interleave(32))


@on_each_device
def test_cluster(device, seed):
    if device == "cuda" and torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("clusters begin with sm_90")
    x = torch.randint(0, 100, (3, 128), dtype=torch.int32, device=device)
    out = torch.zeros_like(x)
    run(kernels.CLUSTER, 12, 32, x, out)
    assert torch.equal(out, x.sum(1, keepdim=True, dtype=torch.int32).expand(3, 128))


@on_each_device
def test_barrier_of_a_grid(device, seed):
    board, out = torch.zeros(12, dtype=torch.int32, device=device), torch.zeros(12 * 32, 2, dtype=torch.int32, device=device)
    counter = torch.zeros(1, dtype=torch.int32, device=device)
    for _ in range(2):  # the counter serves again
        run(kernels.GRID, 12, 32, board.zero_(), out.zero_(), counter, cooperative=True)
        assert torch.equal(out.cpu(), torch.tensor([78, 156], dtype=torch.int32).expand(12 * 32, 2))


def test_a_grid_too_large_for_the_host_is_an_error():
    with pytest.raises(LaunchError, match="more than 16384 threads at once"):
        x = torch.zeros(4)
        run(kernels.GRID, 513, 32, x, x, x, cooperative=True)


@on_each_device
@pytest.mark.parametrize("grid, block", [(5, 3), ((2, 3), (4, 5)), ((3, 2, 4), (7, 2, 3)), ((1,), (1,))])
def test_every_thread_of_every_block_runs_once(device, grid, block, seed):
    def total(extent):
        return extent if isinstance(extent, int) else torch.Size(extent).numel()

    out = torch.zeros(total(grid), total(block), dtype=torch.int32, device=device)
    run(kernels.BLOCKS, grid, block, out)
    expected = torch.arange(total(grid))[:, None] * 1000 + torch.arange(total(block))
    assert torch.equal(out.cpu(), expected.int())


@on_each_device
def test_scalar_arguments(device):
    out = torch.zeros(7, dtype=torch.float64, device=device)
    values = (True, -5, -30_000, -(2**31), 2**40 + 1, -0.3, 1e300)
    run(kernels.SCALARS, 1, 1, out, *values, kinds="b8 i8 i16 i32 i64 f32 f64")
    expected = [float(v) for v in values]
    expected[5] = torch.tensor(-0.3).item()
    assert out.tolist() == expected


@on_each_device
def test_vector_access(device):
    x = torch.randint(0, 255, (64,), dtype=torch.uint8, device=device)
    out = torch.zeros(1792, dtype=torch.uint8, device=device)
    run(kernels.VECTORS, 1, 1, x, out)
    for row, size in zip(out.cpu().view(7, 256), (1, 3, 8, 16, 4, 32, 32)):
        assert torch.equal(row[: 4 * size], x.cpu()[:size].repeat(4)) and not row[4 * size :].any()


def test_only_kernels_that_need_them_run_as_fibers():
    needs = {k.name: POOL.host_kernel(k).result().fibers for k in kernels.ALL}
    assert {name for name, fibers in needs.items() if fibers} == {"row_sum", "reverse", "shuffles", "cluster_sum", "grid_rounds"}


def test_deadlock_is_an_error_and_the_next_launch_runs():
    with pytest.raises(LaunchError, match=r"'deadlock'.*wait for each other"):
        run(kernels.DEADLOCK, 1, 64, torch.zeros(64))
    test_row_sum("cpu", (5, 1000), 0)


@on_each_device
def test_bad_launches(device):
    kernel = POOL.kernel(kernels.COPY, torch.device(device)).result()
    with pytest.raises(LaunchError, match=r"grid \(0,\), expected"):
        kernel.launcher(0, 128, 0, ["ptr", "ptr", "i64"])
    with pytest.raises(LaunchError, match="blocks of"):
        kernel.launcher(1, 2048, 0, ["ptr", "ptr", "i64"])
    with pytest.raises(LaunchError, match="kind 'bf16'"):
        kernel.launcher(1, 128, 0, ["ptr", "ptr", "bf16"])
