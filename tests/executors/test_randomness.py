"""Dropout and random tensors under Thunder: one fusion with its seeds as numbers, torch's generators kept, masks made again."""

from __future__ import annotations

import pytest
import thunder
import torch
from torch.nn import functional

import thunder_fuser
import thunder_fuser.executors
from tests.executors.jitted import backward, calls, forward, fusions, inputs_of, jit, operators, rand
from thunder_fuser.ir.random import sample

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def dropout(x, w):
    return functional.dropout(x * 2, 0.3) * w


def inputs(device: str, dtype: torch.dtype = torch.float32, *shape: int):
    return [t.requires_grad_() for t in (torch.rand(*(shape or (33, 64)), device=device, dtype=dtype) + 0.5 for _ in range(2))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_backward_makes_the_forwards_mask_again(dtype: torch.dtype, device: str) -> None:
    jitted, (x, w) = jit(dropout), inputs(device, dtype)
    out = jitted(x, w)
    mask = out != 0
    assert 0.6 < mask.double().mean() < 0.8
    gradient = torch.randn_like(out)
    out.backward(gradient)
    assert torch.equal(x.grad != 0, mask & (gradient != 0)) and torch.equal(w.grad != 0, mask & (gradient != 0))
    torch.testing.assert_close(out, x * 2 * mask / 0.7 * w, rtol=2e-2 if dtype is torch.bfloat16 else 1e-5, atol=0)
    (fusion,) = fusions(forward(jitted))
    (again,) = fusions(backward(jitted))
    saved = {p.name for p in again.flat_proxy_args} - {p.name for p in fusion.flat_proxy_args}
    assert len(saved) == 1, "the gradient alone: neither mask nor random numbers are kept"
    assert operators(forward(jitted)) == ["draw_random_state"]


@pytest.mark.parametrize("device", DEVICES)
def test_generators(device: str) -> None:
    jitted, (x, w) = jit(dropout), inputs(device)
    torch.manual_seed(3)
    first, second = jitted(x, w), jitted(x, w)
    between = torch.rand(4, device=device)
    torch.manual_seed(3)
    assert torch.equal(jitted(x, w), first)
    state = torch.cuda.get_rng_state() if device == "cuda" else torch.get_rng_state()
    assert torch.equal(jitted(x, w), second) and not torch.equal(first, second)
    assert torch.equal(torch.rand(4, device=device), between), "torch's own numbers go on alike"
    (torch.cuda.set_rng_state if device == "cuda" else torch.set_rng_state)(state)
    assert torch.equal(jitted(x, w), second)
    with torch.random.fork_rng():
        torch.manual_seed(8)
        jitted(x, w)
    torch.manual_seed(4)
    assert not torch.equal(jitted(x, w), first)


@pytest.mark.gpu
def test_thunders_contract_of_seed_and_offset() -> None:
    """The numbers are those of the generator's seed and a fourth of its offset, and the generator is 4 further on after it."""
    jitted = jit(lambda x: x + torch.rand_like(x))
    x = torch.zeros(100, 40, device="cuda")
    torch.cuda.manual_seed(2**63 + 17)
    generator = torch.cuda.default_generators[0]
    generator.set_offset(44)
    got = jitted(x)
    assert generator.get_offset() == 48
    assert torch.equal(got, sample("uniform", x.shape, torch.float32, 17 - 2**63, 11, 0.0, 1.0, device=x.device))


def test_every_random_op_has_numbers_of_its_own() -> None:
    def fn(x):
        return x + torch.rand_like(x), x + torch.rand_like(x), x + torch.randn_like(x), x + torch.randn_like(x) * 0

    jitted, x = jit(fn), torch.zeros(10000)
    a, b, c, d = jitted(x)
    assert not torch.equal(a, b) and abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 0.05
    assert abs(a.mean() - 0.5) < 0.02 and abs(c.mean()) < 0.05 and abs(c.std() - 1) < 0.05 and torch.equal(d, x)
    assert len(fusions(forward(jitted))) == 1 and operators(forward(jitted)) == ["draw_random_state"] * 4


def test_random_tensors_alone_are_torchs() -> None:
    """A region that reads no tensor is no fusion: torch's own numbers, by torch's own op."""
    jitted = jit(lambda: torch.rand(3, 4))
    torch.manual_seed(1)
    got = jitted()
    torch.manual_seed(1)
    assert torch.equal(got, torch.rand(3, 4))


def test_a_mask_read_by_two_regions() -> None:
    """Both sides of an operator that is not fused get the same numbers."""
    def fn(x, w):
        u = torch.rand_like(x)
        return torch.matmul(x * u, w) - torch.matmul(x, w) * 0 + u, u

    jitted = jit(fn)
    x, w = torch.ones(8, 8), torch.eye(8)
    out, u = jitted(x, w)
    torch.testing.assert_close(out, 2 * u)


def test_uniform_as_it_is() -> None:
    jitted = jit(dropout, disable_replace_uniform=True)
    x, w = inputs("cpu")
    torch.manual_seed(0)
    mask = jitted(x, w) != 0
    torch.manual_seed(0)
    assert torch.equal(mask, torch.rand_like(x) < 0.7)


def test_cpu_dropout_without_the_host_backend() -> None:
    jitted = thunder.jit(dropout, executors=[thunder_fuser.executor], fuser_host=False)
    out = jitted(*inputs("cpu"))
    assert 0.6 < (out != 0).double().mean() < 0.8 and not fusions(forward(jitted))


def test_through_torch_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = rand(16, 16), rand(16, 16)
    torch.manual_seed(5)
    want = jit(dropout)(x, w)
    jitted = jit(dropout, fuser_fallback="torch")
    monkeypatch.setattr("thunder_fuser.executors.program._compile", _fail)
    monkeypatch.setattr("thunder_fuser.executors.program._programs", type(thunder_fuser.executors.program._programs)())
    torch.manual_seed(5)
    with pytest.warns(RuntimeWarning, match="runs through torch: ValueError: no."):
        got = jitted(x, w)
    torch.testing.assert_close(got, want)
    assert torch.equal(got != 0, want != 0)


def _fail(*_, **__):
    raise ValueError("no")


def test_without_fuel_the_numbers_are_the_same() -> None:
    executor, x, w = thunder_fuser.executor, rand(16, 16), rand(16, 16)
    torch.manual_seed(5)
    want = jit(dropout)(x, w)
    executor.set_fuel(0)
    try:
        torch.manual_seed(5)
        got = jit(dropout)(x, w)
    finally:
        executor.set_fuel(thunder.extend.FUEL_LEVEL.UNLIMITED)
    torch.testing.assert_close(got, want)
    assert torch.equal(got != 0, want != 0)


def test_seeds_in_tensors_are_another_plan() -> None:
    """What a captured call hands over: the same numbers for the same seeds."""
    jitted, x, w = jit(dropout), rand(16, 16), rand(16, 16)
    want = jitted(x, w)
    (call,) = calls(forward(jitted)).values()
    (bsym,) = fusions(forward(jitted))
    assert len(inputs_of(bsym)) == 4
    names = [p.name for p in bsym.args]
    given = {"x": x, "w": w}
    numbers = {n: k for k, n in enumerate(names) if n not in given}
    as_numbers = [given.get(n, 7 + numbers.get(n, 0)) for n in names]
    as_tensors = [torch.tensor(v) if isinstance(v, int) else v for v in as_numbers]
    assert torch.equal(call(*as_numbers)[0], call(*as_tensors)[0]) and want.shape == x.shape


@pytest.mark.gpu
def test_replays_of_a_graph_differ() -> None:
    jitted = jit(dropout)
    x, w = (t.detach().cuda() for t in inputs("cpu"))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        jitted(x, w)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = jitted(x, w)
    masks = []
    for _ in range(4):
        graph.replay()
        masks.append(out != 0)
    torch.cuda.synchronize()
    assert all(0.6 < m.double().mean() < 0.8 for m in masks)
    assert all(not torch.equal(a, b) for i, a in enumerate(masks) for b in masks[:i])
    torch.cuda.manual_seed(1)
    graph.replay()
    again = out.clone()
    torch.cuda.manual_seed(1)
    graph.replay()
    assert torch.equal(out, again)
