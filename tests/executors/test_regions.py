"""What becomes one fusion, and what is left to torch."""

from __future__ import annotations

import pytest
import torch

from tests.executors.jitted import backward, calls, forward, fusions, gradients, jit, rand, same


def test_names_are_numbered_across_forward_and_backward():
    jitted = jit(lambda x, w: (torch.sin(x) * 2.0 @ w).tanh() * 3.0)
    gradients(jitted, (rand(3, 4, grad=True), rand(4, 5, grad=True)))
    names = [b.sym.name for t in (forward(jitted), backward(jitted)) for b in fusions(t)]
    assert names == [f"TFuser{i}" for i in range(len(names))] and len(names) >= 4


@pytest.mark.parametrize("fusion_type, expected", [("consecutive", 2), ("dataflow", 1)])
def test_fusion_type(fusion_type, expected, device):
    def f(x, y):
        a = (x * 2.0).sum(0)
        b = torch.sort(y)[0]
        return a * 3.0, b

    jitted = jit(f, fusion_type=fusion_type)
    x, y = rand(4, 5, device=device), rand(7, device=device)
    same(jitted(x, y), f(x, y), rtol=1e-6, atol=1e-6)
    assert len(fusions(forward(jitted))) == expected


def test_an_unknown_fusion_type_is_refused():
    with pytest.raises(ValueError, match="Unknown fusion type"):
        jit(lambda x: x * 2.0, fusion_type="sideways")(rand(3))


def test_forward_and_backward_are_never_one_fusion(device):
    jitted = jit(lambda x: torch.tanh(x) * x, fusion_type="dataflow")
    x = rand(9, device=device, grad=True)
    for given, wanted in zip(gradients(jitted, (x,)), gradients(lambda x: torch.tanh(x) * x, (x,))):
        same(given, wanted, rtol=1e-5, atol=1e-6)
    assert len(fusions(forward(jitted))) == len(fusions(backward(jitted))) == 1


def test_a_lone_view_is_left_to_torch_and_two_are_a_fusion_without_kernels(device):
    x = rand(4, 6, device=device)
    lone = jit(lambda x: x.transpose(0, 1))
    same(lone(x), x.transpose(0, 1))
    assert not fusions(forward(lone))
    two = jit(lambda x: x.transpose(0, 1)[1:])
    out = two(x)
    same(out, x.transpose(0, 1)[1:])
    assert out.stride() == x.transpose(0, 1)[1:].stride() and out.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    ((call),) = calls(forward(two)).values()
    report = call.last_used.report()
    assert not report.kernels and report.allocated_bytes == 0


def test_a_region_that_reads_no_tensor_is_left_to_torch(device):
    jitted = jit(lambda x: (x, torch.full((3,), 2.0, device=x.device) * 3.0))
    x = rand(2, device=device)
    same(jitted(x)[1], torch.full((3,), 6.0, device=device))
    assert not fusions(forward(jitted))
