"""The two programs of nvFuser issue 2613, which should run at one speed: the second has leading views.

    python benchmarks/nvfuser_issue_2613.py

Each program is checked against torch in float64, and the first, given the second's views, against the second bit for
bit. On a GPU the kernel times of both are printed: medians over many launches, measured by CUPTI through
torch.profiler. Without one the programs run on the host backend and no times are printed.
"""

from __future__ import annotations

import statistics

import torch

from thunder_fuser import DataType, FusionDefinition

LAUNCHES = 200


def nvfuser_fusion_id0(fd : FusionDefinition) -> None :
    T0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False, stride_order=[1, 0])
    T1 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False, stride_order=[1, 0])
    T2 = fd.define_tensor(
        shape=[-1, -1, -1, -1], contiguity=[True, False, False, True],
        dtype=DataType.BFloat16, is_cpu=False, stride_order=[3, 1, 2, 0])
    T3 = fd.define_tensor(
        shape=[-1, -1, -1, -1], contiguity=[True, False, False, True],
        dtype=DataType.BFloat16, is_cpu=False, stride_order=[3, 1, 2, 0])
    T4 = fd.define_tensor(
        shape=[-1, -1, -1, -1], contiguity=[True, False, False, True],
        dtype=DataType.BFloat16, is_cpu=False, stride_order=[3, 1, 2, 0])
    T5 = fd.define_tensor(
        shape=[-1, -1, -1, -1], contiguity=[True, False, True, True],
        dtype=DataType.BFloat16, is_cpu=False, stride_order=[3, 1, 2, 0])
    T6 = fd.ops.cast(T3, dtype=DataType.Float)
    T7 = fd.ops.neg(T6)
    T8 = fd.ops.cast(T7, dtype=DataType.BFloat16)
    T9 = fd.ops.cat([T8, T2], dim=-1)
    S10 = fd.define_scalar(2, dtype=DataType.Int)
    S11 = fd.define_scalar(16, dtype=DataType.Int)
    S12 = fd.define_scalar(1024, dtype=DataType.Int)
    S13 = fd.define_scalar(32, dtype=DataType.Int)
    V14 = fd.define_vector([S10, S11, S12, S13], dtype=DataType.Int)
    T15 = fd.ops.broadcast_in_dim(T0, shape=V14, broadcast_dims=[2, 3])
    T16 = fd.ops.cast(T5, dtype=DataType.Float)
    T17 = fd.ops.cast(T15, dtype=DataType.Float)
    T18 = fd.ops.mul(T16, T17)
    S19 = fd.define_scalar(2, dtype=DataType.Int)
    S20 = fd.define_scalar(16, dtype=DataType.Int)
    S21 = fd.define_scalar(1024, dtype=DataType.Int)
    S22 = fd.define_scalar(32, dtype=DataType.Int)
    V23 = fd.define_vector([S19, S20, S21, S22], dtype=DataType.Int)
    T24 = fd.ops.broadcast_in_dim(T1, shape=V23, broadcast_dims=[2, 3])
    T25 = fd.ops.cast(T9, dtype=DataType.Float)
    T26 = fd.ops.cast(T24, dtype=DataType.Float)
    T27 = fd.ops.mul(T25, T26)
    T28 = fd.ops.add(T18, T27)
    T29 = fd.ops.cast(T28, dtype=DataType.BFloat16)
    T30 = fd.ops.cat([T29, T4], dim=-1)
    fd.add_output(T30)


def nvfuser_fusion_id1(fd : FusionDefinition) -> None :
    T0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False, stride_order=[1, 0])
    T1 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16, is_cpu=False, stride_order=[1, 0])
    T2 = fd.define_tensor(
        shape=[-1, -1, -1], contiguity=[True, True, True],
        dtype=DataType.BFloat16, is_cpu=False, stride_order=[2, 1, 0])
    S3 = fd.define_scalar(2, dtype=DataType.Int)
    S4 = fd.define_scalar(1024, dtype=DataType.Int)
    S5 = fd.define_scalar(1, dtype=DataType.Int)
    S6 = fd.define_scalar(18, dtype=DataType.Int)
    S7 = fd.define_scalar(32, dtype=DataType.Int)
    V8 = fd.define_vector([S3, S4, S5, S6, S7], dtype=DataType.Int)
    T9 = fd.ops.reshape(T2, new_shape=V8)
    T10 = fd.ops.permute(T9, dims=[0, 2, 3, 1, 4])
    T11 = fd.ops.slice(T10, start_indices=[0, 0, 0, 0, 0], end_indices=[2, 1, 16, 1024, 32], strides=[1, 1, 1, 1, 1])
    S12 = fd.define_scalar(2, dtype=DataType.Int)
    S13 = fd.define_scalar(16, dtype=DataType.Int)
    S14 = fd.define_scalar(1024, dtype=DataType.Int)
    S15 = fd.define_scalar(32, dtype=DataType.Int)
    V16 = fd.define_vector([S12, S13, S14, S15], dtype=DataType.Int)
    T17 = fd.ops.reshape(T11, new_shape=V16)
    T18 = fd.ops.slice(T17, start_indices=[0, 0, 0, 0], end_indices=[2, 16, 1024, 16], strides=[1, 1, 1, 1])
    T19 = fd.ops.slice(T17, start_indices=[0, 0, 0, 16], end_indices=[2, 16, 1024, 32], strides=[1, 1, 1, 1])
    T20 = fd.ops.slice(T17, start_indices=[0, 0, 0, 0], end_indices=[2, 16, 1024, 0], strides=[1, 1, 1, 1])

    T17 = fd.ops.segment_set(T17)
    T18 = fd.ops.segment_set(T18)
    T19 = fd.ops.segment_set(T19)
    T20 = fd.ops.segment_set(T20)

    T21 = fd.ops.cast(T19, dtype=DataType.Float)
    T22 = fd.ops.neg(T21)
    T23 = fd.ops.cast(T22, dtype=DataType.BFloat16)
    T24 = fd.ops.cat([T23, T18], dim=-1)
    S25 = fd.define_scalar(2, dtype=DataType.Int)
    S26 = fd.define_scalar(16, dtype=DataType.Int)
    S27 = fd.define_scalar(1024, dtype=DataType.Int)
    S28 = fd.define_scalar(32, dtype=DataType.Int)
    V29 = fd.define_vector([S25, S26, S27, S28], dtype=DataType.Int)
    T30 = fd.ops.broadcast_in_dim(T0, shape=V29, broadcast_dims=[2, 3])
    T31 = fd.ops.cast(T17, dtype=DataType.Float)
    T32 = fd.ops.cast(T30, dtype=DataType.Float)
    T33 = fd.ops.mul(T31, T32)
    S34 = fd.define_scalar(2, dtype=DataType.Int)
    S35 = fd.define_scalar(16, dtype=DataType.Int)
    S36 = fd.define_scalar(1024, dtype=DataType.Int)
    S37 = fd.define_scalar(32, dtype=DataType.Int)
    V38 = fd.define_vector([S34, S35, S36, S37], dtype=DataType.Int)
    T39 = fd.ops.broadcast_in_dim(T1, shape=V38, broadcast_dims=[2, 3])
    T40 = fd.ops.cast(T24, dtype=DataType.Float)
    T41 = fd.ops.cast(T39, dtype=DataType.Float)
    T42 = fd.ops.mul(T40, T41)
    T43 = fd.ops.add(T33, T42)
    T44 = fd.ops.cast(T43, dtype=DataType.BFloat16)
    T45 = fd.ops.cat([T44, T20], dim=-1)
    fd.add_output(T45)


def define(program) -> FusionDefinition:
    """A definition of one of the two programs."""
    with FusionDefinition() as fd:
        program(fd)
    return fd


def packed_inputs(device: str) -> list[torch.Tensor]:
    """Random inputs of the second program: sine, cosine and the packed projections."""
    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.bfloat16, device=device)

    return [random(1024, 32), random(1024, 32), random(2, 1024, 576)]


def views_of(packed: list[torch.Tensor]) -> list[torch.Tensor]:
    """The inputs of the first program, as views of the second's packed tensor."""
    cos, sin, qkv = packed
    strides = (589824, 32, 576, 1)
    first, whole = qkv.as_strided((2, 16, 1024, 16), strides), qkv.as_strided((2, 16, 1024, 32), strides)
    second, empty = qkv.as_strided((2, 16, 1024, 16), strides, 16), qkv.as_strided((2, 16, 1024, 0), strides)
    return [cos, sin, first, second, empty, whole]


def reference(views: list[torch.Tensor]) -> torch.Tensor:
    """What the first program computes, in float64."""
    cos, sin, first, second, empty, whole = (t.double() for t in views)
    return torch.cat([whole * cos + torch.cat([-second, first], -1) * sin, empty], -1)


def check(device: str) -> None:
    """Raises AssertionError if a program is wrong, or if the two differ in one bit."""
    packed = packed_inputs(device)
    views = views_of(packed)
    (plain,), (meta,) = define(nvfuser_fusion_id0).execute(views), define(nvfuser_fusion_id1).execute(packed)
    expected = reference(views)
    for out in (plain, meta):
        torch.testing.assert_close(out.double(), expected, rtol=2**-8, atol=2**-8)
    assert torch.equal(plain.view(torch.int16), meta.view(torch.int16)), "the two programs differ"


def kernel_microseconds(fd: FusionDefinition, inputs: list[torch.Tensor]) -> tuple[int, float]:
    """Kernels per call, and the median over calls of the time that they take together."""
    for _ in range(10):
        fd.execute(inputs)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        for _ in range(LAUNCHES):
            fd.execute(inputs)
        torch.cuda.synchronize()
    kernels = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    kernels.sort(key=lambda e: e.time_range.start)
    each = len(kernels) // LAUNCHES
    calls = [kernels[i : i + each] for i in range(0, each * LAUNCHES, each)] if each else []
    return each, statistics.median(sum(e.time_range.elapsed_us() for e in call) for call in calls) if calls else 0.0


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    check(device)
    print(f"both programs are right on {device} and agree bit for bit")
    if device == "cpu":
        print("no GPU: no times")
        return
    packed = packed_inputs(device)
    for program, inputs in ((nvfuser_fusion_id0, views_of(packed)), (nvfuser_fusion_id1, packed)):
        kernels, time = kernel_microseconds(define(program), inputs)
        print(f"{program.__name__}: {kernels} kernel(s), {time:.2f} us")


if __name__ == "__main__":
    main()
