"""Gradient rules for prims that Thunder has none for."""

from __future__ import annotations

from collections.abc import Sequence

from thunder.core import prims
from thunder.core.proxies import TensorProxy
from thunder.core.transforms import get_grad, put_grad


def flip(a: TensorProxy, dims: Sequence[int]) -> TensorProxy:
    """The gradient of a flip is the flip of the gradient."""
    out = prims.flip(a, dims)
    put_grad(a, prims.flip(get_grad(out), dims))
    return out


def index_add(a: TensorProxy, index: TensorProxy, value: TensorProxy, dim: int) -> TensorProxy:
    """What was added is passed what arrives where it went."""
    out = prims.index_add(a, index, value, dim)
    gradient = get_grad(out)
    put_grad(a, gradient)
    put_grad(value, prims.take(gradient, index, dim))
    return out
