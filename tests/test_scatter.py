"""Writes at computed indices against torch: any update of a place is kept, or all are added up."""

from __future__ import annotations

import pytest
import torch

from thunder_fuser.compiler import compile_fusion
from thunder_fuser.errors import IndexRangeError, IRError, UnsupportedError
from thunder_fuser.executable import Executable
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.decompositions import embedding_gradient, index_put
from thunder_fuser.ir.dtypes import BF16, BOOL, F32, I64, from_torch
from thunder_fuser.ir.parser import parse
from thunder_fuser.maps.nests import Store

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SUMS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def compiled(build, *inputs: torch.Tensor, device: str = "cpu") -> tuple[Executable, list[torch.Tensor]]:
    b = FusionBuilder("scattered")
    made = build(b, *(b.tensor(from_torch(x.dtype), x.shape) for x in inputs))
    for value in made if isinstance(made, list) else [made]:
        b.output(value)
    fusion = b.build()
    assert str(parse(str(fusion))) == str(fusion)
    return compile_fusion(fusion, {"cpu": "host", "cuda": "cuda"}[device]), [x.to(device) for x in inputs]


def run(build, *inputs: torch.Tensor, device: str = "cpu") -> list[torch.Tensor]:
    exe, given = compiled(build, *inputs, device=device)
    return [x.cpu() for x in exe(*given)]


def widths(exe: Executable) -> set[int]:
    plans = [n for k in exe.stages().kernels if k.schedule == "scatter" for b in k.bundles for n in b.nests]
    return {v.width for p in plans for a, v in p.access.items() if isinstance(a, Store)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", SUMS, ids=str)
def test_sums_of_many_updates_of_one_place(dtype: torch.dtype, device: str) -> None:
    x, updates = torch.randint(0, 9, (5, 7)).to(dtype), torch.randint(0, 9, (31, 6)).to(dtype)
    index = torch.randint(0, 5, (31, 6))
    (got,) = run(lambda b, x, i, u: b.scatter(x, i, u, 0, accumulate=True), x, index, updates, device=device)
    torch.testing.assert_close(got, x.double().scatter_add(0, index, updates.double()).to(dtype), rtol=0, atol=0)
    index = torch.randint(0, 7, (5, 40))
    updates = torch.randint(0, 9, (40, 5)).to(dtype).mT
    (got,) = run(lambda b, x, i, u: b.scatter(x, i, u, 1, accumulate=True), x, index.int(), updates, device=device)
    torch.testing.assert_close(got, x.double().scatter_add(1, index, updates.double()).to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sums_of_sixteen_bit_floats_are_rounded_once(dtype: torch.dtype, device: str) -> None:
    """A thousand small numbers on top of a large one: added up in 16 bits none of them would be seen."""
    updates, index = torch.rand(1000, 8).to(dtype), torch.zeros(1000, dtype=torch.int64)
    x = torch.full((2, 8), 512.0).to(dtype)
    (got,) = run(lambda b, x, i, u: b.scatter_slices(x, i, u, 0, accumulate=True), x, index, updates, device=device)
    want = x.double().index_add(0, index, updates.double())
    torch.testing.assert_close(got.double(), want, rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.uint8, torch.int64, torch.float64], ids=str)
def test_updates_of_different_places(dtype: torch.dtype, device: str) -> None:
    x, updates = torch.randint(0, 2, (6, 64)).to(dtype), torch.randint(0, 2, (4, 64)).to(dtype)
    index = torch.stack([torch.randperm(6)[:4] for _ in range(64)], 1)
    rows = torch.tensor([5, 0, 3, 2])
    got = run(lambda b, x, i, u, r: [b.scatter(x, i, u, 0), b.scatter_slices(x, r, u, 0)], x, index, updates, rows, device=device)
    assert torch.equal(got[0], x.scatter(0, index, updates)) and torch.equal(got[1], x.index_copy(0, rows, updates))


def test_one_of_several_updates_of_a_place_is_kept() -> None:
    updates = torch.arange(24.0).view(12, 2)
    (got,) = run(lambda b, x, i, u: b.scatter_slices(x, i, u, 0), torch.zeros(3, 2), torch.ones(12, dtype=torch.int64), updates)
    assert got[0].tolist() == got[2].tolist() == [0.0, 0.0] and all(got[1, d] in updates[:, d] for d in range(2))


@pytest.mark.parametrize("device", DEVICES)
def test_whole_rows_are_written_in_vectors(device: str) -> None:
    x, updates, rows = torch.zeros(100, 256), torch.randn(1024, 256), torch.randint(0, 100, (1024,))
    exe, given = compiled(lambda b, x, r, u: b.scatter_slices(x, r, u, 0, accumulate=True), x, rows, updates, device=device)
    torch.testing.assert_close(exe(*given)[0].cpu(), x.index_add(0, rows, updates))
    assert widths(exe) == {4}


@pytest.mark.parametrize("device", DEVICES)
def test_what_comes_before_and_after(device: str) -> None:
    """Updates and indices are computed on the way; the result is read again, also at other places, and twice scattered."""
    x, updates, index = torch.randint(-4, 4, (6, 10)).float(), torch.randint(-4, 4, (3, 4, 5)).float(), torch.randint(0, 3, (4, 5))

    def program(b, x, u, i):
        joined = b.cat([b.reshape(u, (12, 5)), b.neg(b.reshape(u, (12, 5)))], 1)  # 12 x 10
        number = b.pad(b.mul(i, 2), [(8, 0, 0), (5, 0, 0)], 1)  # 12 x 10, each below 6
        first = b.scatter(b.mul(x, 3.0), number, joined, 0, accumulate=True)
        columns = b.add(b.broadcast(b.iota(6, I64), (6, 2), (0,)), b.broadcast(b.iota(2, I64), (6, 2), (1,)))
        second = b.scatter(first, columns, b.slice(first, (0, 3), (6, 5)), 1)
        return [b.sum(first, (1,)), second, b.add(b.permute(second, (1, 0)), b.permute(first, (1, 0))), x]

    got = run(program, x, updates, index, device=device)
    joined = torch.cat([updates.view(12, 5), -updates.view(12, 5)], 1)
    number = torch.nn.functional.pad(index * 2, (5, 0, 8, 0), value=1)
    first = (x * 3).scatter_add(0, number, joined)
    second = first.scatter(1, torch.arange(6)[:, None] + torch.arange(2), first[:, 3:5])
    for g, w in zip(got, (first.sum(1), second, (second + first).mT, x), strict=True):
        assert torch.equal(g, w)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_of_one_and_of_several_indices(device: str, accumulate: bool) -> None:
    x = torch.randint(0, 9, (5, 7, 3)).float()
    for given in (x, x.permute(2, 0, 1).contiguous().permute(1, 2, 0), x[:1].expand(5, 7, 3)):
        for places in ([torch.tensor([[4, -5], [-2, 1]])], [torch.tensor([1, -1, 0]), torch.tensor([-7, 6, 2])],
                       [torch.tensor(2), torch.tensor(-1), torch.tensor(0)]):
            values = torch.randint(0, 9, (*places[0].shape, *x.shape[len(places):])).float()
            (got,) = run(lambda b, x, v, *i: index_put(b, x, i, v, accumulate=accumulate), given, values, *places, device=device)
            want = given.index_put(tuple(places), values, accumulate=accumulate)
            assert torch.equal(got, want) and got.stride() == want.stride()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_gradient_of_an_embedding(device: str, dtype: torch.dtype) -> None:
    tokens, grad = torch.randint(0, 9, (4, 11)), torch.randint(-4, 5, (4, 11, 6)).to(dtype)
    for padding, scaled in ((-1, False), (3, False), (-1, True), (0, True)):
        (got,) = run(lambda b, g, t, p=padding, s=scaled: embedding_gradient(b, g, t, 10, p, scale_by_frequency=s), grad, tokens, device=device)
        want = torch.ops.aten.embedding_backward(grad.double(), tokens, 10, padding, scaled, False)
        torch.testing.assert_close(got, want.to(dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_to_write_and_nothing_to_write_into(device: str) -> None:
    x, none = torch.randn(4, 3), torch.zeros(0, 3, dtype=torch.int64)
    (got,) = run(lambda b, x, i, u: b.scatter(x, i, u, 0, accumulate=True), x, none, torch.empty(0, 3), device=device)
    assert torch.equal(got, x)
    (got,) = run(lambda b, x, i, u: b.scatter(x, i, u, 0), torch.empty(0, 3), none, torch.empty(0, 3), device=device)
    assert got.shape == (0, 3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", ["from elsewhere", "from itself", "changed first", "returned too", "a view"])
def test_in_place(device: str, case: str) -> None:
    """`x.index_add_`: straight into x where nothing reads it too late, and then without copying x onto itself."""
    x, rows, u = torch.randint(-4, 4, (6, 64)).float(), torch.tensor([5, 0, 5]), torch.randint(-4, 4, (3, 64)).float()
    b = FusionBuilder("cache")
    cache, index, new = b.tensor(F32, (6, 64)), b.tensor(I64, (3,)), b.tensor(F32, (3, 64))
    target = b.slice(cache, (0, 0), (6, 64)) if case == "a view" else cache
    updates = {"from itself": lambda: b.mul(b.slice(cache, (0, 0), (3, 64)), 2.0)}.get(case, lambda: new)()
    base = b.mul(cache, 3.0) if case == "changed first" else target
    made = b.scatter_slices(base, index, updates, 0, accumulate=True)
    b.update(target, made)
    b.output(b.sum(made, (1,)))
    if case == "returned too":
        b.output(made)
    exe = compile_fusion(b.build(), {"cpu": "host", "cuda": "cuda"}[device])
    want = (x * 3 if case == "changed first" else x).index_add(0, rows, x[:3] * 2 if case == "from itself" else u)
    given = x.clone().to(device)
    got = [g.cpu() for g in exe(given, rows.to(device), u.to(device))]
    assert torch.equal(given.cpu(), want) and torch.equal(got[0], want.sum(1)) and all(torch.equal(g, want) for g in got[1:])


def test_a_cache_is_written_without_reading_it() -> None:
    b = FusionBuilder("cache")
    cache, index, new = b.tensor(BF16, (100, 64)), b.tensor(I64, (3,)), b.tensor(BF16, (3, 64))
    b.update(cache, b.scatter_slices(cache, index, new, 0))
    exe = compile_fusion(b.build(), "host")
    given, new = torch.randn(100, 64).bfloat16(), torch.randn(3, 64).bfloat16()
    want = given.index_copy(0, torch.tensor([7, 99, 0]), new)
    exe(given, torch.tensor([7, 99, 0]), new)
    assert torch.equal(given, want)
    assert [k.schedule for k in exe.stages().kernels] == ["scatter"] and exe.stages().launches.allocations == ()


def test_an_index_out_of_range_is_an_error() -> None:
    exe, _ = compiled(lambda b, x, i, u: b.scatter(x, i, u, 0, accumulate=True), torch.zeros(4, 3), torch.zeros(1, 3, dtype=torch.int64), torch.ones(1, 3))
    for bad in (4, -1):
        with pytest.raises(IndexRangeError, match=f"met the index {bad}, which is out of range for size 4"):
            exe(torch.zeros(4, 3), torch.tensor([[0, bad, 1]]), torch.ones(1, 3))
    exe, _ = compiled(lambda b, x, i, u: index_put(b, x, [i], u), torch.zeros(4), torch.zeros(2, dtype=torch.int64), torch.ones(2))
    with pytest.raises(IndexRangeError, match="met the index -1, which is out of range for size 4"):  # -5, counted from the end
        exe(torch.zeros(4), torch.tensor([0, -5]), torch.ones(2))


def test_sums_of_floats_are_refused_where_torch_is_to_be_deterministic() -> None:
    zeros = torch.zeros(2, dtype=torch.int64)
    floats, given = compiled(lambda b, x, i, u: b.scatter(x, i, u, 0, accumulate=True), torch.zeros(4), zeros, torch.ones(2))
    whole, numbers = compiled(lambda b, x, i, u: b.scatter(x, i, u, 0, accumulate=True), zeros, zeros, zeros)
    try:
        torch.use_deterministic_algorithms(True)
        whole(*numbers)
        with pytest.raises(UnsupportedError, match="Fusion 'scattered' adds floats at computed places in any order, but"):
            floats(*given)
    finally:
        torch.use_deterministic_algorithms(False)
    assert floats(*given)[0].tolist() == [2.0, 0.0, 0.0, 0.0]


def test_illegal_scatters_are_refused_in_a_sentence() -> None:
    b = FusionBuilder()
    x, i, u = b.tensor(F32, (4, 3)), b.tensor(I64, (5, 3)), b.tensor(F32, (5, 3))
    flags = b.tensor(BOOL, (4, 3))
    for build, message in [
        (lambda: b.scatter(x, i, u, 1), r"'scatter' takes updates within shape \[4, 3\] but for dims \[1\], got \[5, 3\]"),
        (lambda: b.scatter(x, u, u, 0), "'scatter' takes indices of an integer dtype, got 'f32'"),
        (lambda: b.scatter(x, i, b.cast(u, BF16), 0), "'scatter' takes updates of dtype 'f32', got 'bf16'"),
        (lambda: b.scatter(x, [i, i], u, [0]), r"'scatter' takes an index for each of dims \[0\], got 2"),
        (lambda: b.scatter(x, b.slice(i, (0, 0), (2, 3)), u, 0), r"'scatter' takes indices of the updates' shape \[5, 3\], got \[2, 3\]"),
        (lambda: b.scatter(flags, b.slice(i, (0, 0), (4, 3)), flags, 0, accumulate=True), "'scatter' accumulates integers and floats of 32"),
        (lambda: b.scatter(b.slice(x, (0, 0), (0, 3)), i, u, 0), "'scatter' writes to dim 0, which has size 0"),
    ]:
        with pytest.raises(IRError, match=message):
            build()
