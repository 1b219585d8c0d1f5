"""`validate`: right results pass in every dtype and through long sums, wrong ones do not."""

from __future__ import annotations

import pytest
import torch

from thunder_fuser import DataType, FusionDefinition


def _defined(body, *tensors: torch.Tensor) -> FusionDefinition:
    with FusionDefinition() as fd:
        made = body(fd, *(fd.from_pytorch(t) for t in tensors))
        for out in made if isinstance(made, list) else [made]:
            fd.add_output(out)
    return fd


BODIES = {
    "pointwise": lambda fd, x: fd.ops.mul(fd.ops.exp(x), fd.ops.sin(x)),
    "sum": lambda fd, x: fd.ops.sum(x, [1]),
    "softmax": lambda fd, x: [fd.ops.div(fd.ops.exp(x), fd.ops.broadcast_in_dim(fd.ops.sum(fd.ops.exp(x), [1]), x.shape(), [0]))],
    "product": lambda fd, x: fd.ops.add(fd.ops.matmul(x, fd.ops.permute(x, [1, 0])), 1.0),
    "rounded": lambda fd, x: fd.ops.cast(fd.ops.cast(fd.ops.tanh(x), DataType.BFloat16), DataType.Float),
    "comparison": lambda fd, x: [fd.ops.gt(x, 0.0), fd.ops.cast(x, DataType.Int)],
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_right_results_pass(name: str, dtype: torch.dtype, device: str) -> None:
    x = torch.randn(7, 1031, device=device).to(dtype)
    fd = _defined(BODIES[name], x)
    fd.validate([x])
    fd.manual_validate([x], fd.execute([x]))


@pytest.mark.parametrize("dtype, off", [(torch.float64, 1e-12), (torch.float32, 1e-4), (torch.bfloat16, 0.1)], ids=str)
@pytest.mark.parametrize("name", ["pointwise", "sum", "softmax"])
def test_wrong_results_do_not(name: str, dtype: torch.dtype, off: float, device: str) -> None:
    x = torch.rand(7, 33, device=device).to(dtype)
    fd = _defined(BODIES[name], x)
    (out,) = fd.execute([x])
    wrong = out.double()
    wrong.view(-1)[3] *= 1 + off
    with pytest.raises(AssertionError, match="Output 0"):
        fd.validate([x], [wrong])


def test_other_ways_to_be_wrong() -> None:
    x = torch.tensor([1.0, float("nan"), float("inf"), -2.0])
    fd = _defined(lambda fd, x: [fd.ops.neg(x), fd.ops.gt(x, 0.0)], x)
    fd.validate([x])
    for references, sentence in (
        ([-x], "The fusion has 2 outputs, got 1 references."),
        ([-x.nan_to_num(), x > 0], "Output 0"),
        ([-x, x <= 0], "Output 1"),
        ([-x[:2], x > 0], "Output 0"),
    ):
        with pytest.raises(AssertionError, match=sentence):
            fd.validate([x], references)


def test_a_definition_of_sums_and_products_in_one(device: str) -> None:
    """Numbers, vectors and results of several steps all reach the reference."""
    with FusionDefinition() as fd:
        t, w = fd.define_tensor([-1, -1], dtype=DataType.BFloat16), fd.define_tensor([-1, -1], dtype=DataType.BFloat16)
        a, v = fd.define_scalar(None), fd.define_vector(2)
        made = fd.ops.linear(fd.ops.cast(fd.ops.mul(t, a), DataType.BFloat16), w)
        fd.add_output(fd.ops.reshape(fd.ops.silu(made), v))
        fd.add_output(made)
        fd.add_output(made)
    x, w = (torch.randn(s, device=device).bfloat16() for s in ((6, 40), (8, 40)))
    fd.validate([x, w, 0.25, [8, 6]])
