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
