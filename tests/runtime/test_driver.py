"""The CUDA driver's side: what a launch hands over (against a stub of libcuda), and on a GPU attributes, graphs, errors."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from tests.runtime import handwritten as kernels
from thunder_fuser.errors import LaunchError
from thunder_fuser.runtime import driver
from thunder_fuser.runtime.compile_pool import POOL
from thunder_fuser.runtime.host import toolchain

HERE = Path(__file__).parent


@pytest.mark.parametrize("script", ["launch_on_stub.py", "calls_on_stub.py"])
def test_what_a_launch_hands_to_the_driver(tmp_path, script):
    stub = [toolchain.compiler(), "-x", "c", "-w", "-shared", "-fPIC", str(HERE / "stub_driver.c")]
    subprocess.run([*stub, "-o", str(tmp_path / "libcuda.so.1"), "-ldl"], check=True)
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run([sys.executable, str(HERE / script)], capture_output=True, text=True, env=env, check=False)
    assert ended.stdout == "launches are right\n", ended.stderr


@pytest.mark.gpu
def test_attributes():
    kernel = POOL.cuda_kernel(kernels.ROW_SUM, torch.device("cuda")).result()
    assert 10 <= kernel.registers <= 64 and kernel.shared_bytes >= 36 and kernel.local_bytes == 0
    assert kernel.max_threads == 256  # its __launch_bounds__


@pytest.mark.gpu
def test_more_than_48_kib_of_dynamic_shared_memory():
    x = torch.arange(64, dtype=torch.int32, device="cuda")
    out = torch.zeros_like(x)
    kernels.run(kernels.REVERSE, 1, 64, x, out, 1, kinds="i32", shared=100_000)
    assert torch.equal(out, x.flip(0))
    with pytest.raises(LaunchError, match="driver could not give 'reverse' 10000000 bytes"):
        kernels.run(kernels.REVERSE, 1, 64, x, out, 1, kinds="i32", shared=10_000_000)


@pytest.mark.gpu
def test_a_cubin_that_is_none_is_refused_in_the_drivers_words():
    with pytest.raises(LaunchError, match="driver could not load kernel 'k'"):
        driver.load(b"\x7fELF" + bytes(2000), "k", 0)
    cubin = POOL.cubin(kernels.COPY, driver.arch(0)).result()
    with pytest.raises(LaunchError, match="could not find kernel 'other'"):
        driver.load(cubin, "other", 0)


@pytest.mark.gpu
def test_launches_are_captured_and_replayed():
    x = torch.randn(4, 500, device="cuda")
    out = torch.zeros(4, device="cuda")
    kernel = POOL.cuda_kernel(kernels.ROW_SUM, x.device).result()
    launch = kernel.launcher(4, 256, 0, ["ptr", "ptr", "i32", "f32"])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(torch.cuda.current_stream().cuda_stream, x.data_ptr(), out.data_ptr(), 500, 1.0)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(out.double(), x.double().sum(1), rtol=1e-5, atol=1e-4)


@pytest.mark.gpu
def test_loading_under_capture_is_one_sentence():
    fresh = kernels.source("fresh", 'extern "C" __global__ void fresh(int* o) { o[0] = 1; }')
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.zeros(1, device="cuda")
        with pytest.raises(LaunchError, match="'fresh' is not loaded yet and a CUDA graph is being captured"):
            POOL.cuda_kernel(fresh, torch.device("cuda"))


@pytest.mark.gpu
def test_another_thread_loads_while_a_graph_is_captured():
    x = torch.randn(4, 500, device="cuda")
    out = torch.zeros(4, device="cuda")
    launch = POOL.cuda_kernel(kernels.ROW_SUM, x.device).result().launcher(4, 256, 0, ["ptr", "ptr", "i32", "f32"])
    cubin = POOL.cubin(kernels.COPY, driver.arch(0)).result()
    loaded: list[object] = []
    thread = threading.Thread(target=lambda: loaded.append(driver.load(cubin, kernels.COPY.name, 0)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        thread.start()
        thread.join()
        launch(torch.cuda.current_stream().cuda_stream, x.data_ptr(), out.data_ptr(), 500, 1.0)
    assert len(loaded) == 1
    graph.replay()
    torch.testing.assert_close(out.double(), x.double().sum(1), rtol=1e-5, atol=1e-4)


@pytest.mark.gpu
def test_cooperative_launch():
    out = torch.zeros(2, 32, dtype=torch.int32, device="cuda")
    launch = POOL.cuda_kernel(kernels.BLOCKS, out.device).result().launcher(2, 32, 0, ["ptr"], cooperative=True)
    launch(torch.cuda.current_stream().cuda_stream, out.data_ptr())
    assert torch.equal(out.cpu(), torch.arange(2)[:, None] * 1000 + torch.arange(32).int())
    huge = POOL.cuda_kernel(kernels.BLOCKS, out.device).result().launcher(1_000_000, 32, 0, ["ptr"], cooperative=True)
    with pytest.raises(LaunchError, match="could not launch 'extents' with grid"):
        huge(torch.cuda.current_stream().cuda_stream, out.data_ptr())
