"""Large and odd programs: what lowering does grows with the program, not with its square or its depth.

Counted in calls of the functions that do the work, not in seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch

from thunder_fuser.compiler import compile_fusion, lower
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, F32, F64, I8, I64
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.nodes import Fusion, ScalarType, Value

Build = Callable[[FusionBuilder, int], Value | None]


def made(build: Build, n: int) -> Fusion:
    b = FusionBuilder()
    last = build(b, n)
    if last is not None:
        b.output(last)
    return b.build()


def strides(fusion: Fusion) -> list:
    return [None if isinstance(v.type, ScalarType) else torch.empty(v.shape, device="meta").stride() for v in fusion.inputs]


def calls_of(fusion: Fusion) -> int:
    """Python calls that lowering makes: a measure of its work that does not depend on the machine."""
    count = 0

    def profile(frame, event: str, arg) -> None:
        nonlocal count
        count += event == "call"

    given = strides(fusion)
    sys.setprofile(profile)
    try:
        lower(fusion, given, [16] * len(given))
    finally:
        sys.setprofile(None)
    return count


def agrees(fusion: Fusion) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randint(-3, 4, v.shape, generator=generator).to(v.dtype.torch) for v in fusion.inputs]
    exe = compile_fusion(fusion, "host")
    for got, want in zip(exe(*inputs), evaluate(fusion, *inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def chain(b: FusionBuilder, n: int) -> Value:
    y = b.tensor(F32, (64,))
    for k in range(n):
        y = b.neg(y) if k % 2 else b.add(y, float(k % 5))
    return y


def outputs_side_by_side(b: FusionBuilder, n: int) -> None:
    x = b.tensor(F32, (64,))
    for k in range(n):
        b.output(b.mul(x, float(k)))


def many_inputs(b: FusionBuilder, n: int) -> Value:
    y, *others = [b.tensor(F32, (7, 5)) for _ in range(n)]
    for x in others:
        y = b.add(y, x)
    return y


def pyramid(b: FusionBuilder, n: int) -> Value:
    """Each value is read at two places of the next: as many paths as 2 ** n, as many places as n."""
    y = b.tensor(F64, (n + 40,))
    for _ in range(n):
        size = y.shape[0]
        y = b.mul(b.add(b.slice(y, [1], [size]), b.slice(y, [0], [size - 1])), 0.5)
    return y


def nested_cats(b: FusionBuilder, n: int) -> Value:
    x = y = b.tensor(F32, (3, 5))
    for k in range(n):
        y = b.cat([y, b.neg(x) if k % 2 else x], 0)
    return y


def cats_with_work_between(b: FusionBuilder, n: int) -> Value:
    x = y = b.tensor(F32, (3, 5))
    for _ in range(n):
        y = b.neg(b.cat([y, x], 0))
    return y


@pytest.mark.parametrize("build,n", [(chain, 1000), (outputs_side_by_side, 200), (many_inputs, 100), (nested_cats, 60)],
                         ids=lambda x: getattr(x, "__name__", str(x)))
def test_work_grows_with_the_program(build: Build, n: int) -> None:
    small, large = calls_of(made(build, n)), calls_of(made(build, 4 * n))
    assert large < 4.8 * small, f"{n} ops take {small} calls, {4 * n} take {large}"


@pytest.mark.parametrize("build,n", [(chain, 10_000), (outputs_side_by_side, 1000), (many_inputs, 600)], ids=lambda x: getattr(x, "__name__", str(x)))
def test_large_programs_lower(build: Build, n: int) -> None:
    fusion = made(build, n)
    _, plan = lower(fusion, strides(fusion), [16] * len(fusion.inputs))
    assert 1 <= len(plan.calls) <= n // 8 and len(plan.outputs) == len(fusion.outputs)


@pytest.mark.parametrize("build,n", [(chain, 900), (outputs_side_by_side, 60), (many_inputs, 120), (pyramid, 60), (nested_cats, 40), (nested_cats, 100),
                                     (cats_with_work_between, 60)], ids=lambda x: getattr(x, "__name__", str(x)))
def test_large_programs_run(build: Build, n: int) -> None:
    agrees(made(build, n))


def many_pieces(b: FusionBuilder, n: int) -> Value:
    return b.cat([b.neg(b.tensor(F32, (3, 2))) for _ in range(n)], 0)


def many_pairs(b: FusionBuilder, n: int) -> None:
    """Outputs of inputs of their own, which nothing but a kernel has in common."""
    for _ in range(n // 2):
        b.output(b.add(b.tensor(F32, (64,)), b.tensor(F32, (64,))))


MAX_PARAMETERS = 32764 // 8  # pointers that fit the arguments of a kernel: 32,764 bytes since CUDA 12.1


@pytest.mark.parametrize("build", [many_inputs, many_pieces, many_pairs], ids=lambda f: f.__name__)
def test_no_kernel_takes_more_pointers_than_fit(build: Build) -> None:
    fusion = made(build, 5000)
    stages, _ = lower(fusion, strides(fusion), [16] * len(fusion.inputs))
    assert max(s.text.split("{")[0].count("*") for s in stages.sources) < MAX_PARAMETERS


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16])
def test_more_elements_than_an_int_counts(dtype: torch.dtype) -> None:
    """Offsets past 2 ** 31, in a pointwise kernel, in a transposing one, and in a reduction."""
    size = (1 << 31) // 64 + 5
    b = FusionBuilder()
    x = b.tensor(I8 if dtype is torch.int8 else BF16, (64, size))
    y = b.add(x, 1.0 if dtype is torch.bfloat16 else 1)
    b.output(y)
    b.output(b.reduce("amax", y, [1]))
    b.output(b.slice(b.flip(y, [0, 1]), [0, size - 7], [64, size]))
    given = torch.zeros(64, size, dtype=dtype, device="cuda")
    given[:, -9:] = torch.arange(64 * 9, device="cuda").view(64, 9).remainder(100).to(dtype)
    given[::7, :3] = 101
    out, most, ends = compile_fusion(b.build(), "cuda")(given)
    for k in range(0, 64, 9):
        assert torch.equal(out[k], given[k] + 1)
    assert torch.equal(most, given.amax(1) + 1)
    assert torch.equal(ends, (given[:, :7] + 1).flip([0, 1]))


def test_boxes_past_the_cap_are_guarded() -> None:
    """Sixty turned pieces of a row have more borders than a kernel has boxes."""
    def rolls(b: FusionBuilder, n: int) -> Value:
        y = b.tensor(F32, (997,))
        for k in range(n):
            at = (k * 37 + 11) % 996 + 1
            y = b.cat([b.slice(y, [at], [997]), b.slice(y, [0], [at])], 0)
        return y

    agrees(made(rolls, 30))
    agrees(made(rolls, 100))


def test_pure_movement_is_cut_where_it_multiplies() -> None:
    """Nothing is computed here, yet evaluated at more and more places: some of it has to be written between kernels."""
    def rolls(b: FusionBuilder, n: int) -> Value:
        y = b.tensor(F32, (31, 37))
        for k in range(n):
            d = k % 2
            size = y.shape[d]
            at = (k * 7 + 3) % (size - 1) + 1
            y = b.cat([b.slice(y, [at if e == d else 0 for e in range(2)], [31, 37]),
                       b.slice(y, [0, 0], [at if e == d else n for e, n in enumerate((31, 37))])], d)
        return y

    agrees(made(rolls, 60))


def test_coprime_factorings() -> None:
    def turned(b: FusionBuilder, n: int) -> Value:
        y = b.tensor(I64, (210,))
        for shape in [(2, 105), (3, 70), (5, 42), (7, 30), (6, 35), (10, 21), (14, 15)][:n]:
            y = b.add(y, b.reshape(b.permute(b.reshape(y, shape), [1, 0]), (210,)))
        return y

    agrees(made(turned, 7))


def test_rank_eight() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (2, 3, 2, 3, 2, 3, 2, 3))
    y = b.flip(b.reshape(b.permute(x, [7, 0, 5, 2, 3, 4, 1, 6]), (6, 6, 6, 6)), [0, 3])
    y = b.reshape(b.add(y, 1.0), (2, 3, 2, 3, 2, 3, 2, 3))
    b.output(b.cat([y, x], 3))
    agrees(b.build())


def test_reshapes_that_do_not_factor_are_cut_before_their_indices_explode() -> None:
    """Each reshape divides an index that has divisions in it: unchecked, the text of an address doubles with each."""
    def turned(b: FusionBuilder, n: int, work: bool) -> Value:
        y = b.tensor(F64, (12, 12))
        for _ in range(n):
            moved = b.reshape(b.permute(b.reshape(y, (16, 9)), [1, 0]), (12, 12))
            y = b.mul(b.add(y, moved), 0.5) if work else moved
        return y

    for work in (True, False):
        fusion = made(lambda b, n: turned(b, n, work), 30)  # noqa: B023
        stages, _ = lower(fusion, strides(fusion), [16])
        assert 2 <= len(stages.kernels) <= 30 and max(len(s.text) for s in stages.sources) < 100_000
        agrees(fusion)
