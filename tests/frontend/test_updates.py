"""`add_output(value, alias_input)`: the value is written into the input, at the end, whatever reads it."""

from __future__ import annotations

import re

import pytest
import torch

from thunder_fuser import DataType, FusionDefinition
from thunder_fuser.errors import InputError, IRError


def test_a_hidden_output_and_a_returned_one(device: str) -> None:
    x = torch.randn(4, 5, device=device)
    before, version = x.clone(), x._version
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x)
        moved = fd.ops.add(t, 1.0)
        fd.add_output(moved, alias_input=t)
        fd.add_output(fd.ops.mul(moved, t))
    (out,) = fd.execute([x])
    assert torch.equal(x, before + 1) and torch.equal(out, (before + 1) * before) and x._version == version + 1
    again = x.clone()
    fd.validate([x])
    assert torch.equal(x, again + 1)


def test_the_value_returned_too_is_a_tensor_of_its_own(device: str) -> None:
    x = torch.randn(6, device=device)
    before = x.clone()
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x)
        made = fd.ops.neg(t)
        fd.add_output(made, t)
        fd.add_output(made)
    (out,) = fd.execute([x])
    assert torch.equal(x, -before) and torch.equal(out, -before) and out.data_ptr() != x.data_ptr()


def test_two_inputs_change_places(device: str) -> None:
    x, y = torch.randn(3, 4, device=device), torch.randn(3, 4, device=device)
    a, b = x.clone(), y.clone()
    with FusionDefinition() as fd:
        s, t = fd.from_pytorch(x), fd.from_pytorch(y)
        fd.add_output(fd.ops.mul(s, 2.0), t)
        fd.add_output(fd.ops.add(t, s), s)
    assert fd.execute([x, y]) == []
    assert torch.equal(y, a * 2) and torch.equal(x, a + b)


@pytest.mark.parametrize("make", [
    lambda d: torch.randn(5, 4, device=d).t(), lambda d: torch.randn(8, 11, device=d)[::2, 1:6], lambda d: torch.randn(0, 5, device=d),
    lambda d: torch.randn(21, device=d)[1:].view(4, 5),
])
def test_strides_of_the_input(make, device: str) -> None:
    x = make(device)
    before = x.clone()
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], contiguity=True)
        fd.add_output(fd.ops.exp(t), t)
        fd.add_output(fd.ops.permute(t, [1, 0]))
    (view,) = fd.execute([x])
    torch.testing.assert_close(x, before.exp())
    assert torch.equal(view, x.t())  # a view of the input shows what was written


def test_inputs_that_share_memory(device: str) -> None:
    base = torch.randn(9, device=device)
    expected = base.clone()
    expected[1:] = (base[1:] + base[:-1]).clone()
    with FusionDefinition() as fd:
        s, t = fd.define_tensor([-1]), fd.define_tensor([-1])
        fd.add_output(fd.ops.add(s, t), s)
    fd.execute([base[1:], base[:-1]])
    assert torch.equal(base, expected)


def test_updates_come_after_torch(device: str) -> None:
    """The product reads the weight before the step; the step's gradient comes from a product too."""
    x, w, m = torch.randn(6, 4, device=device), torch.randn(4, 3, device=device), torch.zeros(4, 3, device=device)
    before = w.double()
    with FusionDefinition() as fd:
        a, b, c = (fd.from_pytorch(t) for t in (x, w, m))
        made = fd.ops.matmul(a, b)
        gradient = fd.ops.matmul(fd.ops.permute(a, [1, 0]), fd.ops.tanh(made))
        momentum = fd.ops.add(fd.ops.mul(c, 0.9), gradient)
        fd.add_output(momentum, c)
        fd.add_output(fd.ops.sub(b, fd.ops.mul(momentum, 0.1)), b)
        fd.add_output(made)
        fd.add_output(fd.ops.matmul(a, b))
    first, last = fd.execute([x, w, m])
    made = x.double() @ before
    momentum = x.double().t() @ made.tanh()
    for got, want in ((first, made), (last, made), (m, momentum), (w, before - 0.1 * momentum)):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)
    fd.validate([x, w, m])


def test_printed_and_run_again(device: str) -> None:
    x = torch.randn(3, device=device)
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x)
        fd.add_output(fd.ops.neg(t), t)
    assert repr(fd).endswith("    fd.add_output(T1, T0)")
    names: dict[str, object] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), names)
    with FusionDefinition() as again:
        names[re.match(r"def (\w+)\(", repr(fd))[1]](again)
    before = x.clone()
    again.execute([x])
    assert torch.equal(x, -before)


def test_what_cannot_be_written_into(device: str) -> None:
    with FusionDefinition() as fd:
        t, s = fd.define_tensor([-1]), fd.define_tensor([-1])
        fd.add_output(fd.ops.neg(t), s)
    with pytest.raises(IRError, match=re.escape("writes a value of shape [4] into T1 of shape [3]")):
        fd.execute([torch.randn(4, device=device), torch.randn(3, device=device)])
    negated = torch.randn(3, device=device, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    with pytest.raises(InputError, match="conjugates or negates"):
        fd.execute([torch.randn(3, device=device), negated])
    x = torch.randn(3, device=device)
    fd.execute([negated, x])
    assert torch.equal(x, -negated)


@pytest.mark.parametrize("through_torch", [False, True])
@pytest.mark.parametrize("kind", ["input", "view", "result"])
def test_the_second_of_a_tensor_returned_twice_holds_what_was_there_before(kind: str, through_torch: bool, device: str) -> None:
    x, y = torch.randn(5, 5, device=device), torch.randn(5, 5, device=device)
    before = x.clone()
    with FusionDefinition() as fd:
        s, t = fd.from_pytorch(x), fd.from_pytorch(y)
        new = fd.ops.topk(t, 5, 0, True, True)[0] if through_torch else fd.ops.neg(t)
        returned = {"input": lambda: s, "view": lambda: fd.ops.permute(s, [1, 0]), "result": lambda: fd.ops.neg(s)}[kind]()
        fd.add_output(returned)
        fd.add_output(returned)
        fd.add_output(new, alias_input=s)
    first, second = fd.execute([x, y])
    written = y.sort(0, descending=True).values if through_torch else -y
    held = {"input": before, "view": before.t(), "result": -before}[kind]
    assert torch.equal(x, written) and torch.equal(second, held) and second.data_ptr() != first.data_ptr()
    if kind == "result":
        assert torch.equal(first, held)
    if kind == "input":
        assert first.data_ptr() == x.data_ptr()
