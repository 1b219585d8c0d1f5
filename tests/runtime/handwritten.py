"""Kernels written by hand, with the prelude before them, and one way to run them on either backend."""

from __future__ import annotations

import torch

from thunder_fuser.codegen.prelude import prelude
from thunder_fuser.ir.dtypes import DType
from thunder_fuser.runtime.compile_pool import POOL
from thunder_fuser.runtime.source import KernelSource


def source(name: str, body: str) -> KernelSource:
    return KernelSource(name, prelude() + body)


COPY = source(
    "copy_bf16",
    r"""
extern "C" __global__ void __launch_bounds__(128) copy_bf16(const tf::bfloat16* a, tf::bfloat16* o, long long n) {
  const long long i = (blockIdx.x * 128ll + threadIdx.x) * 8;
  if (i + 8 <= n) {
    tf::store_stream(o + i, tf::convert<tf::bfloat16>(tf::convert<float>(tf::load_stream<8>(a + i))));
  } else {
    for (long long j = i; j < n; ++j) o[j] = a[j];
  }
}
""",
)

# Sums of rows: `{first}` and `{second}` are the two barriers it needs.
_ROW_SUM = r"""
extern "C" __global__ void __launch_bounds__(256) {name}(const float* a, float* o, int n, float scale) {{
  TF_SHARED(float, parts, 8);
  TF_SHARED(float, total, 1);
  float s = 0.0f;
  for (int i = threadIdx.x; i < n; i += 256) s += a[(long long)blockIdx.x * n + i];
  for (int d = 16; d > 0; d /= 2) s += tf::shuffle_down(s, d);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = s;
  {first};
  if (threadIdx.x < 32) {{
    float t = threadIdx.x < 8 ? parts[threadIdx.x] : 0.0f;
    for (int d = 16; d > 0; d /= 2) t += tf::shuffle_xor(t, d);
    if (threadIdx.x == 0) total[0] = t;
  }}
  {second};
  if (threadIdx.x == 255) o[blockIdx.x] = total[0] * scale;
}}
"""
ROW_SUM = source("row_sum", _ROW_SUM.format(name="row_sum", first="tf::sync()", second="tf::sync()"))
ROW_SUM_FIRST_MISSING = source("first_missing", _ROW_SUM.format(name="first_missing", first="", second="tf::sync()"))
ROW_SUM_SECOND_MISSING = source("second_missing", _ROW_SUM.format(name="second_missing", first="tf::sync()", second=""))

# Reverses rows of 64 through one dynamic shared buffer, `rounds` times; `{last}` keeps a round's reads from the next's writes.
_REVERSE = r"""
extern "C" __global__ void __launch_bounds__(64) {name}(const int* a, int* o, int rounds) {{
  TF_DYNAMIC_SHARED(memory);
  int* row = reinterpret_cast<int*>(memory);
  for (int r = 0; r < rounds; ++r) {{
    row[threadIdx.x] = a[r * 64 + threadIdx.x];
    tf::sync();
    o[r * 64 + threadIdx.x] = row[63 - threadIdx.x];
    {last};
  }}
}}
"""
REVERSE = source("reverse", _REVERSE.format(name="reverse", last="tf::sync()"))
REVERSE_LAST_MISSING = source("last_missing", _REVERSE.format(name="last_missing", last=""))

HISTOGRAM = source(
    "histogram",
    r"""
extern "C" __global__ void __launch_bounds__(128) histogram(const unsigned char* a, long long* counts, double* sums, int n) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) {
    tf::atomic_add(counts + a[i], 1ll);
    tf::atomic_add(sums + a[i], (double)i);
  }
}
""",
)

# Every lane's view of the warp, by each shuffle, for 2-, 4- and 8-byte types.
SHUFFLES = source(
    "shuffles",
    r"""
extern "C" __global__ void __launch_bounds__(64) shuffles(const tf::half* a, int* b, double* o) {
  const unsigned t = threadIdx.x;
  const double wide = (double)b[t] + 0.5;
  o[t] = tf::shuffle_down(wide, 3);
  o[64 + t] = tf::shuffle_up(b[t], 5);
  o[128 + t] = tf::convert<double>(tf::shuffle_xor(a[t], 9));
  o[192 + t] = (double)tf::shuffle((long long)b[t], (int)(t * 7) % 32);
  o[256 + t] = tf::ballot(b[t] % 3 == 0);
}
""",
)

DEADLOCK = source(
    "deadlock",
    r"""
extern "C" __global__ void deadlock(float* o) {
  if (threadIdx.x < 40) o[threadIdx.x] = tf::shuffle_down(1.0f, 1);
  else o[threadIdx.x] = 2.0f;
}
""",
)

# Four blocks of a cluster, each with a part of the sum, each reading all four parts.
CLUSTER = source(
    "cluster_sum",
    r"""
extern "C" __global__ void __cluster_dims__(4) __launch_bounds__(32) cluster_sum(const int* a, int* o) {
  TF_SHARED(int, part, 1);
  int s = a[blockIdx.x * 32 + threadIdx.x];
  for (int d = 16; d > 0; d /= 2) s += tf::shuffle_xor(s, d);
  if (threadIdx.x == 0) part[0] = s;
  tf::cluster_sync();
  int total = 0;
  for (unsigned r = 0; r < 4; ++r) total += *tf::cluster_peer(part, (tf::cluster_rank() + r) % 4);
  tf::cluster_sync();
  o[blockIdx.x * 32 + threadIdx.x] = total;
}
""",
)

# Two passes over the grid, twice: each block writes its number, then reads what the others wrote.
GRID = source(
    "grid_rounds",
    r"""
extern "C" __global__ void __launch_bounds__(32) grid_rounds(int* board, int* o, unsigned* counter) {
  for (int round = 1; round <= 2; ++round) {
    if (threadIdx.x == 0) board[blockIdx.x] = round * (int)(blockIdx.x + 1);
    tf::grid_sync(counter);
    int total = 0;
    for (int b = 0; b < (int)gridDim.x; ++b) total += ((volatile int*)board)[b];
    tf::grid_sync(counter);
    o[(blockIdx.x * 32 + threadIdx.x) * 2 + round - 1] = total;
  }
}
""",
)

BLOCKS = source(
    "extents",
    r"""
extern "C" __global__ void extents(int* o) {
  const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  o[b * blockDim.x * blockDim.y * blockDim.z + t] += b * 1000 + t;
}
""",
)

SCALARS = source(
    "scalars",
    r"""
extern "C" __global__ void scalars(double* o, bool b, signed char c, short s, int i, long long l, float f, double d) {
  o[0] = b; o[1] = c; o[2] = s; o[3] = i; o[4] = (double)l; o[5] = f; o[6] = d;
}
""",
)

VECTORS = source(
    "vectors",
    r"""
template <int N, class T>
__device__ void each(const T* a, T* o) {
  tf::store(o, tf::load<N>(a));
  tf::store_stream(o + N, tf::load_stream<N>(a));
  tf::store(o + 2 * N, tf::load_keep<N>(a));
  tf::store(o + 3 * N, tf::load_stream_coherent<N>(a));
}
extern "C" __global__ void vectors(const unsigned char* a, unsigned char* o) {
  each<1>(a, o);
  each<3>(a, o + 256);
  each<8>(a, o + 512);
  each<16>(a, o + 768);
  each<2>((const tf::half*)a, (tf::half*)(o + 1024));
  each<8>((const float*)a, (float*)(o + 1280));
  each<4>((const double*)a, (double*)(o + 1536));
}
""",
)

ALL = (COPY, ROW_SUM, REVERSE, HISTOGRAM, SHUFFLES, CLUSTER, GRID, BLOCKS, SCALARS, VECTORS)


def conversions(from_: DType, to: list[DType]) -> KernelSource:
    """One kernel that converts its input to every dtype of `to`."""
    parameters = "".join(f", {t.storage}* o{i}" for i, t in enumerate(to))
    body = "".join(f"    o{i}[i] = tf::convert<{t.storage}>(a[i]);\n" for i, t in enumerate(to))
    name = f"convert_{from_.name}"
    return source(
        name,
        f'extern "C" __global__ void {name}(const {from_.storage}* a, int n{parameters}) {{\n'
        f"  const int i = blockIdx.x * 256 + threadIdx.x;\n  if (i < n) {{\n{body}  }}\n}}\n",
    )


def run(kernel: KernelSource, grid: object, block: object, *args: object, kinds: str = "", **launch: object) -> None:
    """Launch on the device of the tensors in `args`; `kinds` names the other arguments' kinds in order, `launch` is
    `shared` (bytes) and `cooperative`."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    device = tensors[0].device
    scalars = iter(kinds.split())
    arg_kinds = ["ptr" if isinstance(a, torch.Tensor) else next(scalars) for a in args]
    launcher = POOL.kernel(kernel, device).result().launcher(
        grid, block, launch.pop("shared", 0), arg_kinds, **launch
    )
    values = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in args]
    if device.type == "cuda":
        launcher(torch.cuda.current_stream(device).cuda_stream, *values)
        torch.cuda.synchronize(device)
    else:
        launcher(0, *values)
