"""Prims that read at indices which the program computes: all are the IR's one `gather`, with the index broadcast.

What torch does with an index out of range is kept: `take_along_dim` takes it modulo the size, the others fail.
"""

from __future__ import annotations

import math
from typing import Any

from thunder.core.prims import PrimIDs
from thunder.core.proxies import TensorProxy

from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import I32, I64
from thunder_fuser.ir.nodes import Value
from thunder_fuser.translators.proxies import dtype_of, why_not_static, why_not_tensor
from thunder_fuser.translators.registry import translates


def why_not_index(index: Any) -> str | None:
    """Why a tensor proxy is no index: torch itself takes int32 and int64 alone."""
    reason = why_not_tensor(index)
    if reason is None and dtype_of(index) not in (I32, I64):
        return f"an index of dtype '{dtype_of(index)}' is left to torch"
    return reason


def _why_not(a: Any, index: Any, dim: Any) -> str | None:
    reason = why_not_tensor(a) or why_not_index(index) or why_not_static(dim)
    if reason is None and not a.shape:
        return "indexing a tensor of rank 0 is left to torch"
    if reason is None and a.shape[dim] == 0 and math.prod(index.shape):
        return "an index into nothing is left to torch, which refuses it"
    return reason


@translates(PrimIDs.TAKE, _why_not)
def _take(b: FusionBuilder, out: TensorProxy, a: Value, index: Value, dim: int) -> Value:
    """`index_select`; an index of rank 0 is one of a single number."""
    return b.index_select(a, b.reshape(index, (out.shape[dim],)), dim, name=out.name)


@translates(PrimIDs.GATHER, _why_not)
def _gather(b: FusionBuilder, out: TensorProxy, a: Value, index: Value, dim: int) -> Value:
    return b.gather(a, index, dim, name=out.name)


@translates(PrimIDs.TAKE_ALONG_AXIS, _why_not)
def _take_along_axis(b: FusionBuilder, out: TensorProxy, a: Value, index: Value, dim: int) -> Value:
    size = a.shape[dim]
    return b.gather(a, b.remainder(index, size) if size else index, dim, name=out.name)


def _why_not_embedding(a: Any, weight: Any, *, max_norm: Any = None, **kwargs: Any) -> str | None:
    if max_norm is not None:
        return "'embedding' with max_norm writes into its weight"
    return _why_not(weight, a, 0)


@translates(PrimIDs.EMBEDDING, _why_not_embedding)
def _embedding(b: FusionBuilder, out: TensorProxy, a: Value, weight: Value, **kwargs: Any) -> Value:
    """Rows of `weight`; the other arguments are about its gradient."""
    rows = b.index_select(weight, b.reshape(a, (a.type.numel,)), 0)
    return b.reshape(rows, out.shape, name=out.name)
