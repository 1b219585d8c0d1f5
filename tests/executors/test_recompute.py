"""What the backward reads, and that repeating prims never changes a value or reads what was overwritten."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.executors import jitted as support
from tests.executors.jitted import backward, forward, fusions, gradients, inputs_of, jit, same


def rand(*shape, **options):
    return support.rand(*shape, **{"grad": True} | options)


def saved(jitted):
    """Names of the tensors kept for the backward."""
    return {p.name for p in forward(jitted).output[1][0]}


def check(f, *inputs, **tolerance):
    jitted = jit(f, debug_options=None)
    for given, wanted in zip(gradients(jitted, inputs), gradients(f, inputs)):
        same(given, wanted, **(tolerance or {"rtol": 2e-5, "atol": 2e-5}))
    return jitted


def test_relu_saves_no_mask_when_its_input_is_there():
    jitted = check(lambda x: F.relu(x) * x, rand(6, 5))
    assert saved(jitted) == {"x"}


def test_a_mask_follows_from_what_other_values_make_the_backward_read_anyway():
    """In float32 the mask alone is smaller than x; but x is read for tanh."""
    jitted = check(lambda x, w, b: F.relu(x * w + b) + torch.tanh(x * 2.0), rand(64, 8), rand(8), rand(8))
    assert saved(jitted) == {"x", "w", "b"}


def test_norms_read_their_input_once():
    """Thunder's traces know the input under several names."""
    jitted = check(lambda x, w, b: F.relu(F.layer_norm(x, (32,), w, b)), rand(8, 32), rand(32), rand(32))
    assert [p.name for p in forward(jitted).output[1][0] if p.numel == 256] == ["x"]


def test_gelu_of_a_sum_saves_what_it_was_given(device):
    jitted = check(lambda x, b: F.gelu(x + b, approximate="tanh"), rand(16, 8, dtype=torch.bfloat16, device=device),
                   rand(8, dtype=torch.bfloat16, device=device), rtol=2e-2, atol=2e-2)
    assert saved(jitted) == {"x", "b"}
    (fusion,) = fusions(backward(jitted))
    assert len(inputs_of(fusion)) == 3


def test_a_wide_cast_is_made_again_from_the_narrow_value():
    x, y = rand(8, 8, dtype=torch.bfloat16), rand(8, 8, dtype=torch.bfloat16)
    jitted = check(lambda x, y: (x.float() * y.float()).tanh().to(x.dtype), x, y, rtol=2e-2, atol=2e-2)
    assert saved(jitted) == {"x", "y"}


def test_an_output_is_read_rather_than_two_inputs():
    """The sum is in memory anyway: one tensor to read instead of two."""
    jitted = check(lambda x, r: (lambda h: (h, torch.tanh(h)))(x + r), rand(32, 8), rand(32, 8))
    assert len(saved(jitted)) == 1 and not saved(jitted) & {"x", "r"}


def test_reductions_are_saved_not_repeated():
    def rms(x, w):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w

    jitted = check(rms, rand(6, 32), rand(32))
    sizes = sorted(p.numel for p in forward(jitted).output[1][0])
    assert {"x", "w"} <= saved(jitted) and sizes == [6, 32, 192]


def test_what_a_matmul_needs_is_kept_and_shared():
    """silu's input comes from a matmul and its output goes into one."""
    def mlp(x, a, b):
        return F.silu(x @ a) @ b

    jitted = check(mlp, rand(6, 8), rand(8, 16), rand(16, 4), rtol=1e-4, atol=1e-4)
    assert len([b for b in forward(jitted).bound_symbols if b.sym.name == "matmul"]) == 2


def test_a_chain_of_layers(device):
    def f(x, *weights):
        for w in weights:
            x = x + torch.tanh(F.silu(x) @ w)
        return x

    check(lambda x, a, b, c: f(x, a, b, c), *(rand(4, 4, device=device) for _ in range(4)), rtol=1e-4, atol=1e-4)


def test_a_tensor_written_in_place_is_never_a_source():
    """The backward of the product needs x as it was; x is overwritten before it runs."""
    def f(x, y):
        a = torch.tanh(x * 2.0) * y
        x.mul_(3.0)
        return a * torch.sigmoid(x)

    y = rand(5)
    ours, theirs = rand(5, grad=False), rand(5, grad=False)
    jitted = jit(f, debug_options=None)
    (given,), (grad,) = gradients(jitted, (ours, y), [torch.ones(5)])
    (wanted,), (expected,) = gradients(f, (theirs, y), [torch.ones(5)])
    same((given, grad, ours), (wanted, expected, theirs), rtol=1e-5, atol=1e-6)


def test_nothing_between_forward_fusions_is_written_that_follows_from_less():
    def f(x, w):
        wide = x.to(torch.float32) * 2.0
        return wide.to(torch.bfloat16) @ w, wide

    def g(x, w):
        wide = x.float() * 2.0
        y = wide.to(torch.bfloat16) @ w
        return y.float() + wide

    jitted = jit(g)
    x, w = rand(4, 4, dtype=torch.bfloat16, grad=False), rand(4, 4, dtype=torch.bfloat16, grad=False)
    same(jitted(x, w), g(x, w), rtol=2e-2, atol=2e-2)
    first, second = fusions(forward(jitted))
    assert len(first.output) == 1 and "x" in inputs_of(second)
    same(jit(f)(x, w)[1], f(x, w)[1])


def test_what_memory_holds_is_read_and_a_view_of_it_stays_a_view():
    """tanh(x) is an operand of the product: its transpose for the weight's gradient costs nothing, made again it would."""
    jitted = check(lambda x, w: torch.tanh(x) @ w, rand(3, 4), rand(4, 4))
    assert not [b for b in fusions(backward(jitted)) if "x" in inputs_of(b)]
    assert all("tanh" not in str(b) for b in fusions(backward(jitted)))


def test_checkpointing_still_recomputes(device):
    def block(x, w):
        return torch.tanh(torch.tanh(x) @ w).sin()

    f = lambda x, w: torch.utils.checkpoint.checkpoint(block, x, w, use_reentrant=False)  # noqa: E731
    jitted = check(f, rand(3, 4, device=device), rand(4, 4, device=device))
    assert saved(jitted) == {"x", "w"}


def test_repeated_values_never_leave_the_fusion_that_repeats_them():
    def f(x, w):
        wide = x.float() * 2.0
        return wide, (wide.to(x.dtype) @ w).float() * wide

    jitted = check(f, rand(4, 4, dtype=torch.bfloat16), rand(4, 4, dtype=torch.bfloat16), rtol=5e-2, atol=5e-2)
    made = [p.name for t in (forward(jitted), backward(jitted)) for b in fusions(t) for p in b.flat_proxy_outs]
    assert len(made) == len(set(made))
