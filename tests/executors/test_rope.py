"""The main job end to end: qkv_split_rope, forward and backward, through `thunder.jit`."""

from __future__ import annotations

import pytest
import torch

from tests.executors.jitted import backward, calls, forward, fusions, gradients, inputs_of, jit, operators, same
from tests.support.rope import CONFIGS

CONFIG = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def errors(given, exact):
    return [(g.double() - e).norm().item() for g, e in zip(given, exact)]


@pytest.mark.parametrize("name, dtype", [
    *((name, torch.bfloat16) for name in CONFIGS), ("grouped queries", torch.float16), ("partial rotary", torch.float32)], ids=str)
def test_as_accurate_as_eager(name, dtype, device):
    config = CONFIGS[name]
    f, inputs = config.function(), config.inputs(device, dtype)
    eager = [t for group in gradients(f, inputs) for t in group]
    exact = [t for group in gradients(f, [x.detach().double().requires_grad_(x.requires_grad) for x in inputs]) for t in group]
    given = [t for group in gradients(jit(f), inputs) for t in group]
    for g, e in zip(given, eager):
        assert g.shape == e.shape and g.dtype == e.dtype
        assert g.stride() == e.stride()
    for ours, theirs, size in zip(errors(given, exact), errors(eager, exact), exact):
        assert ours <= 1.02 * theirs + 1e-6 * size.norm().item()


@CONFIG
@pytest.mark.parametrize("fusion_type", ["consecutive", "dataflow"])
def test_one_fusion_each_way_and_a_backward_that_reads_only_what_it_must(config, fusion_type, device):
    jitted = jit(config.function(), fusion_type=fusion_type)
    inputs = config.inputs(device)
    gradients(jitted, inputs)
    (first,), (second,) = fusions(forward(jitted)), fusions(backward(jitted))
    assert operators(forward(jitted)) == operators(backward(jitted)) == []
    cotangents = {p.name for b in backward(jitted).bound_symbols for p in b.flat_proxy_outs
                  if b.sym.name == "unpack_sequence" and b.args[0].name == "cotangents"}
    assert inputs_of(first) == {"qkv", "cos", "sin"}
    assert inputs_of(second) == {"cos", "sin"} | cotangents and len(cotangents) == 3
    assert [t.name for t in forward(jitted).output[1][0]] == ["cos", "sin"]


@CONFIG
def test_one_kernel_each_way(config, device):
    jitted = jit(config.function())
    gradients(jitted, config.inputs(device))
    for trace in (forward(jitted), backward(jitted)):
        (call,) = calls(trace).values()
        assert len(call.last_used.report().kernels) == 1


@CONFIG
def test_every_rounding_kept_is_eager_to_the_bit(config):
    f, inputs = config.function(), config.inputs()
    for given, wanted in zip(gradients(jit(f, fuser_keep_rounding=True), inputs), gradients(f, inputs)):
        same(given, wanted)


def test_v_is_a_view_where_it_is_one_in_torch(device):
    for name in ("multi-head", "one group"):
        inputs = CONFIGS[name].inputs(device, grad=False)
        q, k, v = jit(CONFIGS[name].function())(*inputs)
        assert v.untyped_storage().data_ptr() == inputs[0].untyped_storage().data_ptr()
        assert q.untyped_storage().data_ptr() != k.untyped_storage().data_ptr()


def test_the_trace_shows_the_fusion_with_its_prims():
    jitted = jit(CONFIGS["tiny"].function())
    jitted(*CONFIGS["tiny"].inputs())
    text = str(forward(jitted))
    assert "= TFuser0(qkv, cos, sin)" in text and "# t" in text and "prims.cat(" in text and "ltorch" not in text


def test_in_a_module_between_two_projections(device):
    config = CONFIGS["grouped queries"]
    width = (config.heads + 2 * config.groups) * config.size

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = torch.nn.Linear(16, width, bias=False)
            self.out = torch.nn.Linear(config.heads * config.size, 16)
            self.split = config.function()

        def forward(self, x, cos, sin):
            q, k, v = self.split(self.qkv(x), cos, sin)
            mixed = q * k + v
            return self.out(mixed.transpose(1, 2).reshape(*x.shape[:2], -1)) + x

    torch.manual_seed(0)
    module = Attention().to(device)
    _, cos, sin = config.inputs(device, torch.float32)
    x = torch.randn(config.batch, config.tokens, 16, device=device, requires_grad=True)
    jitted = jit(module)
    leaves = [x, *module.parameters()]
    given = torch.autograd.grad(jitted(x, cos, sin).square().sum(), leaves)
    wanted = torch.autograd.grad(module(x, cos, sin).square().sum(), leaves)
    same(given, wanted, rtol=1e-5, atol=1e-5)
    assert operators(forward(jitted)).count("linear") == 2
