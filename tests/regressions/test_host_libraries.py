"""A process that compiles for the host for hours does not run out of mapped files: dropped kernels are unloaded."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest
import torch

from thunder_fuser.codegen.prelude import prelude
from thunder_fuser.runtime.compile_pool import CompilePool
from thunder_fuser.runtime.source import KernelSource


def mapped() -> int:
    return sum("thunder_fuser_" in line for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_dropped_kernels_are_unloaded() -> None:
    pool, out = CompilePool(limit=2, workers=1), torch.zeros(1, dtype=torch.int32)
    after = []
    for k in range(8):
        text = f'{prelude()}\nextern "C" __global__ void number(int* out) {{ out[0] = {k}; }}\n'
        launch = pool.host_kernel(KernelSource("number", text)).result().launcher(1, 1, 0, ["ptr"])
        launch(0, out.data_ptr())
        assert out.item() == k
        gc.collect()
        after.append(mapped())
    assert after[-1] == after[3], "libraries pile up"
    launch(0, out.data_ptr())  # one that a launcher holds stays
