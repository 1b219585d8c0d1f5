"""Thunder's prims that read at indices, translated, against torch."""

from __future__ import annotations

import pytest
import torch
from thunder.core import prims

from tests.translators.test_region import check, rand, region_of, region_of_prim
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.translators import translate, why_not


def test_index_select_gather_and_take_along_dim():
    x, index = rand(4, 3, 5), torch.tensor([3, 0, 0, 2])
    where = torch.randint(0, 3, (4, 2, 5))
    check(lambda x, i: (torch.index_select(x, 0, i), torch.index_select(x, -1, i), x[i]), x, index)
    check(lambda x, i: (torch.gather(x, 1, i), torch.take_along_dim(x, i, 1)), x, where)
    check(lambda x, i: torch.gather(x, 0, i), x, where[:2])
    check(lambda x, i: torch.index_select(x, 1, i), x, index[1:3].int())


def test_take_along_dim_takes_any_index_modulo_the_size():
    check(lambda x, i: torch.take_along_dim(x, i, 0), rand(4, 3), torch.tensor([[-1, -4, -5], [4, 7, 0]]))


def test_embeddings_of_every_rank():
    for shape in ((), (6,), (2, 3), (2, 0)):
        tokens = torch.randint(0, 10, shape)
        check(lambda w, t: torch.nn.functional.embedding(t, w), rand(10, 4), tokens)
        check(lambda w, t: torch.nn.functional.embedding(t, w, padding_idx=3), rand(10, 4), tokens)


def test_advanced_indexing_wraps_negative_numbers():
    check(lambda x, i, j: (x[i], x[:, j], x[i, j]), rand(4, 3), torch.tensor([-1, 2, -4, 0]), torch.tensor([-3, 2, 0, -1]))


@pytest.mark.parametrize("shape,index", [((0, 3), (0,)), ((4, 0), (2,)), ((4, 3), (0,))])
def test_nothing_to_read(shape, index):
    x, i = torch.empty(shape), torch.zeros(index, dtype=torch.int64)
    check(lambda x, i: torch.index_select(x, 0, i), x, i)
    where = torch.zeros((*index, shape[1]), dtype=torch.int64)
    check(lambda x, i: (torch.take_along_dim(x, i, 0), torch.gather(x, 0, i)), x, where)


def test_an_index_of_rank_zero_is_one_number():
    bsyms, inputs, outputs = region_of_prim(lambda a, i: prims.take(a, i, 1), rand(2, 3), torch.tensor(1))
    x = rand(2, 3)
    (got,) = evaluate(translate(bsyms, inputs, outputs), x, torch.tensor(2))
    assert torch.equal(got, x[:, 2:])


def test_what_is_left_to_torch():
    (bsym,), _, _ = region_of_prim(lambda a, i: prims.take(a, i, 0), rand(4, 3), torch.tensor([1], dtype=torch.uint8))
    assert why_not(bsym) == "an index of dtype 'u8' is left to torch"
    (bsym,), _, _ = region_of_prim(lambda a, i: prims.take_along_axis(a, i, 0), rand(0, 3), torch.zeros(1, 3, dtype=torch.int64))
    assert why_not(bsym) == "an index into nothing is left to torch, which refuses it"


def test_scatters_with_tensors_and_numbers():
    x, index, src = rand(4, 5), torch.tensor([[0, 3, 2, 1, 0], [1, 0, 3, 2, 3]]), rand(3, 6)
    check(lambda x, i, s: (torch.scatter(x, 0, i, s), torch.scatter(x, 0, i, value=2.5)), x, index, src)
    check(lambda x, i, s: torch.scatter_add(x, 0, i, s), torch.arange(20).view(4, 5), index, torch.arange(18).view(3, 6))
    check(lambda x, i: torch.nn.functional.one_hot(i, 5) + x, torch.zeros(2, 5, 5, dtype=torch.int64), index)


def test_index_add_and_index_copy():
    x, rows = torch.arange(20).view(4, 5), torch.tensor([3, 0, 3])
    check(lambda x, i, s: torch.index_add(x, 0, i, s), x, rows, torch.arange(15).view(3, 5))
    check(lambda x, i, s: torch.index_add(x, -1, i, s), x, rows, torch.arange(12).view(4, 3))
    check(lambda x, i, s: torch.index_copy(x, 1, i, s), rand(4, 5), torch.tensor([4, 1]), rand(4, 2))


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(accumulate):
    x, i, j = torch.arange(60).view(3, 4, 5), torch.tensor([0, -1, 1]), torch.tensor([[2], [-4]])
    check(lambda x, i, v: torch.index_put(x, (i,), v, accumulate), x, i, torch.arange(60).view(3, 4, 5))
    check(lambda x, i, j, v: torch.index_put(x, (i, j), v, accumulate), x, i, j, torch.arange(5))


@pytest.mark.parametrize("padding,scaled", [(-1, False), (2, False), (-1, True)])
def test_gradients_of_embeddings(padding, scaled):
    grad, tokens = torch.randint(-4, 5, (2, 6, 3)).float(), torch.randint(0, 2, (2, 6))
    backward = torch.ops.aten.embedding_backward
    fusion = translate(*region_of(lambda g, t: backward(g, t, 4, padding, scaled, False), grad, tokens))
    torch.testing.assert_close(evaluate(fusion, grad, tokens)[0], backward(grad, tokens, 4, padding, scaled, False))


def test_sums_of_floats_are_left_to_torch_where_it_is_to_be_deterministic():
    args = rand(4, 3), torch.tensor([1, 1]), rand(2, 3)
    try:
        torch.use_deterministic_algorithms(True)
        (bsym,), _, _ = region_of_prim(lambda a, i, v: prims.index_add(a, i, v, 0), *args)
        assert why_not(bsym).startswith("sums of floats at computed places are made in any order")
        (bsym,), _, _ = region_of_prim(lambda a, i, v: prims.index_copy(a, i, v, 0), *args)
        assert why_not(bsym) is None
    finally:
        torch.use_deterministic_algorithms(False)
    (bsym,), _, _ = region_of_prim(lambda a, i, v: prims.index_add(a, i, v, 0), *args)
    assert why_not(bsym) is None
    (bsym,), _, _ = region_of_prim(lambda g, i: prims.embedding_backward(g, i, 4, -1, False, True), *args[2:], args[1])
    assert why_not(bsym) == "a sparse gradient is left to torch"
