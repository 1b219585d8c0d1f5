"""Runs one kernel of every schedule and compares with torch: what NVIDIA's compute-sanitizer is put around.

    compute-sanitizer --tool memcheck python -m tests.sanitize        (and racecheck, initcheck, synccheck)

Extents are primes and inputs start at odd places, so that tails, guards and narrow accesses run too. On the host backend
(`python -m tests.sanitize host`) it runs in the tests. Kernels are compiled with line information.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from thunder_fuser import config
from thunder_fuser.compiler import compile_fusion
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.decompositions import index_of_extremum, variance
from thunder_fuser.ir.dtypes import BF16, C64, F32, F64, I8, I64, DType
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.nodes import Fusion, Value

Build = Callable[[FusionBuilder], None]
PROGRAMS: dict[str, Build] = {}


def program(build: Build) -> Build:
    PROGRAMS[build.__name__] = build
    return build


def rows(b: FusionBuilder, size: int, dtype: DType = F32, count: int = 37) -> Value:
    return b.tensor(dtype, (count, size))


@program
def pointwise(b: FusionBuilder) -> None:
    x = rows(b, 1031, BF16)
    b.output(b.cast(b.mul(b.exp(b.cast(x, F32)), 2.0), BF16))
    b.output(b.broadcast(b.neg(b.tensor(F32, (131,))), (17, 131), (1,)))


@program
def transposed(b: FusionBuilder) -> None:
    x, y = rows(b, 517, F32, 211), rows(b, 211, F32, 517)
    b.output(b.add(b.permute(x, [1, 0]), y))


@program
def pieces(b: FusionBuilder) -> None:
    x, y = rows(b, 127), rows(b, 63)
    b.output(b.pad(b.cat([x, b.neg(y), b.flip(x, [1])], 1), [(1, 2, 0), (-3, 5, 0)], 0.5))


@program
def divided(b: FusionBuilder) -> None:
    b.output(b.neg(b.reshape(b.permute(b.reshape(b.tensor(I64, (2310,)), (22, 105)), [1, 0]), (33, 70))))


@program
def reductions(b: FusionBuilder) -> None:
    for size in (3, 29, 257, 4099, 70001):
        b.output(b.sum(rows(b, size, F32, 7), [1]))
        b.output(b.reduce("amax", rows(b, 5, F32, size), [0]))
    b.output(b.sum(b.tensor(BF16, (13, 311, 11)), [1]))
    b.output(b.sum(b.tensor(F64, (19, 23, 29)), [0, 2]))
    b.output(b.sum(b.tensor(F32, (100003,)), [0]))


@program
def normalised(b: FusionBuilder) -> None:
    for size in (61, 1031, 8209):
        x = rows(b, size, F32, 11)
        top = b.broadcast(b.reduce("amax", x, [1]), (11, size), (0,))
        e = b.exp(b.sub(x, top))
        b.output(b.div(e, b.broadcast(b.sum(e, [1]), (11, size), (0,))))
    x = rows(b, 131, F32, 523)  # by columns
    b.output(b.sub(x, b.broadcast(b.mul(b.sum(x, [0]), 1 / 523), (523, 131), (1,))))


@program
def norm_backward(b: FusionBuilder) -> None:
    """A row's sums, and sums over all rows of the same values."""
    x, g = rows(b, 257, F32, 1031), rows(b, 257, F32, 1031)
    b.output(b.mul(g, b.broadcast(b.sum(b.mul(x, g), [1]), (1031, 257), (0,))))
    b.output(b.sum(b.mul(x, g), [0]))
    b.output(b.sum(g, [0]))


@program
def moments(b: FusionBuilder) -> None:
    x = rows(b, 1031)
    for value in variance(b, x, [1], 1)[:1]:
        b.output(value)
    b.output(index_of_extremum(b, "amax", x, 1))


@program
def scans(b: FusionBuilder) -> None:
    for size in (31, 4099):
        b.output(b.scan("cumsum", rows(b, size), 1))
        b.output(b.scan("cumsum", rows(b, 33, F32, size), 0))


@program
def indexed(b: FusionBuilder) -> None:
    table, index, updates = rows(b, 67, F32, 101), b.tensor(I64, (211,)), rows(b, 67, F32, 211)
    within = b.remainder(index, 101)
    b.output(b.index_select(table, within, 0))
    b.output(b.scatter_slices(table, within, updates, 0, accumulate=True))


@program
def random_numbers(b: FusionBuilder) -> None:
    x = rows(b, 1031)
    keep = b.lt(b.random("uniform", x.shape, F32, 7, 3), 0.9)
    b.output(b.where(keep, x, 0.0))


@program
def narrow_and_complex(b: FusionBuilder) -> None:
    b.output(b.add(rows(b, 257, I8), 1))
    b.output(b.mul(rows(b, 127, C64), rows(b, 127, C64)))


def inputs(fusion: Fusion, device: str, shift: int) -> list[torch.Tensor]:
    """Small integers as values, exactly as long as they must be, `shift` elements into their memory."""
    generator = torch.Generator().manual_seed(shift)
    made = []
    for value in fusion.inputs:
        span = value.type.numel + shift
        flat = torch.randint(0 if value.dtype.kind == "bool" else -3, 4, (span,), generator=generator).to(value.dtype.torch).to(device)
        made.append(flat[shift:].view(value.shape))
    return made


def check(name: str, backend: str) -> list[str]:
    """Runs a program, aligned and not; the names of its kernels. Raises `AssertionError` where torch's values are others."""
    b = FusionBuilder(name)
    PROGRAMS[name](b)
    fusion = b.build()
    exe = compile_fusion(fusion, backend)
    kernels: set[str] = set()
    for shift in (0, 1):
        given = inputs(fusion, "cuda" if backend == "cuda" else "cpu", shift)
        for got, want in zip(exe(*given), evaluate(fusion, *given), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)
        kernels.update(s.name for s in exe.stages().sources)
    return sorted(kernels)


def main(backend: str) -> None:
    with config.override(lineinfo=True):
        for name in PROGRAMS:
            print(f"{name}: {', '.join(check(name, backend))}", flush=True)
    if backend == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cuda")
