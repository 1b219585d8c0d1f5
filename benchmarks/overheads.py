"""What the engine costs on the host: first call, repeated calls, regions of views.

usage: python benchmarks/overheads.py [OUT.json]

First call: the engine's own share of the first call of qkv_split_rope's forward, from Thunder's prims to a loaded
kernel (translate, passes, planning, emission, compiler, load), imports and Thunder's tracing left out; cold with an
empty cache folder, warm with one that has the kernel. Repeated calls: the fusion's callable back to back, 3 inputs, 2
outputs and a view. FusionDefinition: `execute` beside the callable of its executable, 3 inputs and one kernel. Views:
a region of views beside the torch views that it stands for. On the GPU if there is one, else on the host backend,
where the numbers mean little. Microseconds and milliseconds, medians.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time

import thunder
import torch

import thunder_fuser
from thunder_fuser import FusionDefinition, config
from thunder_fuser.runtime.compile_pool import POOL
from thunder_fuser.runtime.native.extension import EXTENSION

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def rotate(x, cos, sin):
    half = x.size(-1) // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x * cos + turned * sin).to(x.dtype)


def rope(qkv, cos, sin, heads=32, size=128):
    batch, tokens, _ = qkv.shape
    q, k, v = qkv.view(batch, tokens, heads, 3, size).permute(0, 2, 3, 1, 4).unbind(2)
    return rotate(q, cos, sin), rotate(k, cos, sin), v


def views(x):
    y = x.view(x.shape[0], x.shape[1], 4, -1)
    return y.transpose(1, 2), y[:, :, 1:3], x.unsqueeze(1)


def callables(jitted):
    """The fusion callables of a jitted function's last trace."""
    return [v for k, v in sorted(thunder.last_traces(jitted)[-1].python_ctx().items()) if k.startswith("TFuser")]


def definition():
    """A definition of one kernel, and its inputs."""
    with FusionDefinition() as fd:
        x, y, z = (fd.define_tensor(shape=[-1, -1]) for _ in range(3))
        fd.add_output(fd.ops.relu(fd.ops.add(fd.ops.mul(x, y), z)))
    return fd, [torch.randn(4, 8, device=DEVICE) for _ in range(3)]


def once_ms(program, inputs):
    """One first call of a program, ending with the kernel loaded; the launch itself is synchronised away."""
    program._fusion = None
    program.clear()
    POOL._forget()
    start = time.perf_counter()
    program.runner(*inputs)
    milliseconds = (time.perf_counter() - start) * 1e3
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return milliseconds


def each_us(fn, *inputs, calls=2000, rounds=7):
    """Median over rounds of the mean host time of a call, issued back to back."""
    found = []
    for _ in range(rounds):
        fn(*inputs)
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            fn(*inputs)
        found.append((time.perf_counter() - start) / calls * 1e6)
    return statistics.median(found)


def main() -> None:
    result = {"device": torch.cuda.get_device_name() if DEVICE == "cuda" else "host backend"}
    # one token, so that the GPU never keeps the host waiting
    qkv = torch.randn(1, 1, 3 * 32 * 128, device=DEVICE, dtype=torch.bfloat16)
    cos, sin = (torch.randn(1, 128, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    if DEVICE == "cpu":
        os.environ.setdefault("THUNDER_FUSER_COMPILED_LAUNCH", "host")
    jitted = thunder.jit(rope, executors=[thunder_fuser.executor], fuser_host=DEVICE == "cpu")
    with torch.no_grad():
        jitted(qkv, cos, sin)
        (fusion,) = callables(jitted)
        inputs = [{"qkv": qkv, "cos": cos, "sin": sin}[v.name] for v in fusion.fusion.inputs]
        cold = []
        for _ in range(5):
            with tempfile.TemporaryDirectory() as folder, config.override(cache_dir=folder):
                cold.append(once_ms(fusion.program, inputs))
                warm = [once_ms(fusion.program, inputs) for _ in range(5)]
        result["first_call_cold_ms"] = statistics.median(cold)
        result["first_call_warm_ms"] = statistics.median(warm)
        result["compiled_calls"] = EXTENSION.wait()
        result["call_us"] = each_us(fusion, *inputs)
        result["calls_served_by"] = "compiled code" if fusion.last_used.compiled_calls else "Python"
        result["call_views"] = len(fusion.last_used.report().views)
        result["through_thunder_us"] = each_us(jitted, qkv, cos, sin)
        fd, given = definition()
        fd.execute(given)
        (executable,) = fd.calls().find(given).executables
        result["definition_executable_us"] = each_us(lambda *inputs: executable.call(*inputs), *given)
        result["definition_us"] = each_us(fd.execute, given)
        x = torch.randn(4, 8, 64, device=DEVICE)
        of_views = thunder.jit(views, executors=[thunder_fuser.executor], fuser_host=DEVICE == "cpu")
        of_views(x)
        found = callables(of_views)
        result["view_fusions"] = len(found)
        if found:
            result["views_us"] = each_us(found[0], x)
            result["torch_views_us"] = each_us(views, x)
    for key, value in result.items():
        print(f"{key:24} {value:.2f}" if isinstance(value, float) else f"{key:24} {value}")
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
