"""Cumulative sums: a symbol of Thunder's that is no prim by name, but that nothing decomposes."""

from __future__ import annotations

from typing import Any

import thunder.torch as ltorch
from thunder.core.dtypes import to_dtype, to_torch_dtype
from thunder.core.proxies import TensorProxy

from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import from_torch
from thunder_fuser.ir.nodes import Value
from thunder_fuser.translators.proxies import dtype_of, why_not_dtype, why_not_static, why_not_tensor
from thunder_fuser.translators.registry import translates


def _why_not(a: Any, dim: Any, *, dtype: Any = None) -> str | None:
    reason = why_not_tensor(a) or why_not_static(dim) or (None if dtype is None else why_not_dtype(dtype))
    if reason is not None:
        return reason
    summed = dtype_of(a) if dtype is None else from_torch(to_torch_dtype(to_dtype(dtype)))
    return None if summed.kind in ("bool", "int", "float") else f"'cumsum' in dtype '{summed}' is left to torch"


@translates(ltorch.cumsum.id, _why_not, cheap=False)
def _cumsum(b: FusionBuilder, out: TensorProxy, a: Value, dim: int, *, dtype: Any = None) -> Value:
    """In the result's dtype, to which the elements are converted first: int64 for integers and bool unless told."""
    return b.cumsum(a if a.dtype is dtype_of(out) else b.cast(a, dtype_of(out)), dim, name=out.name)
