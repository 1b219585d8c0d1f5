"""Reads at computed indices against torch: gathers of inputs and of computed values, in reductions, behind pads and cats."""

from __future__ import annotations

import pytest
import torch

from thunder_fuser.compiler import compile_fusion
from thunder_fuser.errors import IndexRangeError, IRError
from thunder_fuser.executable import Executable
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, F32, I32, I64, from_torch
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.maps.exprs import Load

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool]


def run(build, *inputs: torch.Tensor | float, device: str = "cpu") -> tuple[list[torch.Tensor], Executable]:
    """Compiles the program of `build(builder, *values)` and compares what it computes with the interpreter, to the bit."""
    b = FusionBuilder("indexed")
    values = [b.tensor(from_torch(x.dtype), x.shape) for x in inputs]
    made = build(b, *values)
    for value in made if isinstance(made, list) else [made]:
        b.output(value)
    fusion = b.build()
    exe = compile_fusion(fusion, {"cpu": "host", "cuda": "cuda"}[device], keep_rounding=True)
    got = exe(*(x.to(device) for x in inputs))
    for g, w in zip(got, evaluate(fusion, *inputs), strict=True):
        torch.testing.assert_close(g.cpu(), w, rtol=0, atol=0, equal_nan=True)
        assert g.stride() == w.stride()
    return got, exe


def widths(exe: Executable, name: str) -> set[int]:
    """How many elements each load of input `name` takes at a time."""
    plans = [n for k in exe.stages().kernels for b in k.bundles for n in b.nests]
    return {v.width for p in plans for a, v in p.access.items() if isinstance(a, Load) and a.buffer.name == name}


def layouts(x: torch.Tensor) -> list[torch.Tensor]:
    """The same values with other memory: transposed, at an odd offset, in every second place, expanded."""
    odd = torch.zeros(x.numel() + 3, dtype=x.dtype)[3:].view(x.shape)
    apart = torch.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)[..., ::2]
    return [x, x.mT.contiguous().mT, odd.copy_(x), apart.copy_(x), x[:1].expand(x.shape)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_elements_along_each_dim(device: str, dtype: torch.dtype) -> None:
    x = torch.randint(0, 100, (5, 7)).to(dtype)
    for dim, shape in ((0, (11, 7)), (1, (1, 13))):  # shorter than x along the other dim, too
        index = torch.randint(0, x.shape[dim], shape)
        ((got,), _) = run(lambda b, x, i, dim=dim: b.gather(x, i, dim), x, index, device=device)
        assert torch.equal(got.cpu(), torch.gather(x, dim, index))


@pytest.mark.parametrize("device", DEVICES)
def test_any_layout_of_what_is_read_and_of_the_index(device: str) -> None:
    x = torch.randn(5, 7)
    for k, given in enumerate(layouts(x)):
        index = torch.randint(0, 5, (3, 6))
        where = (index, index.mT.contiguous().mT, index.int(), index[:, :1].expand(3, 6), layouts(index)[2])[k]
        ((got,), _) = run(lambda b, x, i: b.gather(x, i, 0), given, where, device=device)
        assert torch.equal(got.cpu(), torch.gather(given, 0, where.long()))


@pytest.mark.parametrize("device", DEVICES)
def test_rows_of_an_embedding_are_read_in_vectors(device: str) -> None:
    table, tokens = torch.randn(50, 256).bfloat16(), torch.randint(0, 50, (64, 33))
    (got,), exe = run(lambda b, w, t: b.reshape(b.index_select(w, b.reshape(t, (64 * 33,)), 0), (64, 33, 256)), table, tokens, device=device)
    assert torch.equal(got.cpu(), torch.nn.functional.embedding(tokens, table))
    assert widths(exe, "t0") == {8} and len(exe.stages().kernels) == 1
    # where each element has an index of its own, neighbours lie anywhere
    index = torch.randint(0, 50, (2112, 256))
    assert widths(run(lambda b, w, i: b.gather(w, i, 0), table, index, device=device)[1], "t0") == {1}


@pytest.mark.parametrize("device", DEVICES)
def test_moves_and_arithmetic_on_either_side(device: str) -> None:
    x, index = torch.randn(6, 10), torch.randint(0, 6, (4, 5))

    def program(b, x, i):
        computed = b.neg(b.permute(b.slice(x, (0, 0), (6, 10), (1, 2)), (1, 0)))  # 5 x 6
        flat = b.reshape(computed, (30,))
        number = b.add(b.reshape(b.permute(i, (1, 0)), (20,)), b.mul(b.iota(20, I64), 1))
        taken = b.index_select(flat, number, 0)
        return [b.flip(b.reshape(taken, (4, 5)), (1,)), b.index_select(computed, b.reshape(b.slice(i, (0, 0), (1, 5)), (5,)), 1),
                b.gather(b.gather(computed, b.broadcast(b.iota(5, I64), (5, 5), (0,)), 1), b.slice(i, (0, 0), (4, 5)), 0)]

    run(program, x, index % 5, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("columns", [3, 64, 1000])
def test_in_reductions(device: str, columns: int) -> None:
    """The index may be reduced over, or a reduction may be read at an index, or make one."""
    x = torch.randint(-8, 8, (columns, columns)).float()
    index = torch.randint(0, columns, (columns, columns))

    def program(b, x, i):
        rows = b.sum(x, (1,))
        column = b.reshape(b.slice(i, (0, 0), (columns, 1)), (columns,))
        largest = b.remainder(b.cast(b.amax(x, (1,)), I64), columns)
        picked = b.gather(x, b.broadcast(column, (columns, 1), (0,)), 1)  # as a cross entropy does with its targets
        return [b.sum(b.gather(x, i, 1), (1,)), b.index_select(rows, column, 0), b.index_select(rows, largest, 0),
                b.sum(picked, (0, 1)), b.sub(b.reshape(picked, (columns,)), rows)]

    run(program, x, index, device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_pads_and_cats_check_no_index_outside_of_their_piece(device: str) -> None:
    """Where a pad has its value, or a cat another piece, an index is not even read."""
    x, index = torch.randn(4, 6), torch.randint(0, 4, (5, 6))

    def program(b, x, i):
        low, high = b.gather(x, i, 0), b.gather(x, b.sub(3, i), 0)
        both = b.reshape(b.cat([low, high], 1), (4, 15))
        return [b.pad(low, [(2, 1, 1), (3, 0, 2)], 7.0), b.reshape(b.cat([low, high], 0), (60,)), b.pad(both, [(0, 0, 2), (1, 1, 3)], 1.0)]

    run(program, x, index, device=device)


def test_an_index_out_of_range_is_an_error_with_its_number() -> None:
    b = FusionBuilder()
    x, i = b.tensor(F32, (4, 64)), b.tensor(I32, (3,))
    b.output(b.pad(b.index_select(x, i, 0), [(1, 1, 0), (0, 0, 0)]))
    exe = compile_fusion(b.build(), "host")
    table = torch.randn(4, 64)
    for bad in (4, -1, 2**31 - 1, -(2**31)):
        with pytest.raises(IndexRangeError, match=f"met the index {bad}, which is out of range for size 4"):
            exe(table, torch.tensor([0, bad, 3], dtype=torch.int32))
    got = exe(table, torch.tensor([3, 0, 3], dtype=torch.int32))[0]  # a kernel that has failed runs again
    assert torch.equal(got[1:-1], table[[3, 0, 3]])


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_to_read(device: str) -> None:
    for shape, index, dim in (((0, 3), (0, 3), 0), ((4, 3), (0, 3), 0), ((4, 0), (2, 0), 0), ((4, 3), (3, 0), 0)):
        run(lambda b, x, i, dim=dim: b.gather(x, i, dim), torch.randn(shape), torch.zeros(index, dtype=torch.int64), device=device)
    b = FusionBuilder()
    with pytest.raises(IRError, match="'gather' reads elements of dim 0, which has size 0"):
        b.gather(b.tensor(F32, (0, 3)), b.tensor(I64, (1, 3)), 0)


def test_illegal_gathers_are_refused_in_a_sentence() -> None:
    b = FusionBuilder()
    x, i = b.tensor(BF16, (4, 3)), b.tensor(I64, (4, 4))
    for build, message in [
        (lambda: b.gather(x, x, 0), "'gather' takes an index of an integer dtype, got 'bf16'"),
        (lambda: b.gather(x, i, 0), r"'gather' takes an index within shape \[4, 3\] but for dim 0, got \[4, 4\]"),
        (lambda: b.gather(x, b.reshape(i, (16,)), 0), r"'gather' takes an index of rank 2, got shape \[16\]"),
        (lambda: b.gather(x, i, 2), "Dim 2 is out of range for rank 2"),
    ]:
        with pytest.raises(IRError, match=message):
            build()
