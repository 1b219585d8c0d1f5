"""Prims that write at indices which the program computes: all are the IR's one `scatter`.

Sums of floats are added up in any order, so they are left to torch under `torch.use_deterministic_algorithms`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from thunder.core.prims import PrimIDs
from thunder.core.proxies import TensorProxy

from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.decompositions import embedding_gradient, index_put
from thunder_fuser.ir.nodes import Operand, TensorType, Value
from thunder_fuser.translators.indexing import why_not_index
from thunder_fuser.translators.proxies import dtype_of, why_not_number, why_not_static, why_not_tensor
from thunder_fuser.translators.registry import translates


def _why_not_sum(a: TensorProxy) -> str | None:
    """Why updates of such a tensor are not added up."""
    kind = dtype_of(a).kind
    if kind not in ("int", "float"):
        return f"sums of dtype '{dtype_of(a)}' at computed places are left to torch"
    if kind == "float" and torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled():
        return "sums of floats at computed places are made in any order, and torch is to be deterministic"
    return None


def _why_not(a: Any, index: Any, updates: Any, dim: Any) -> str | None:
    reason = why_not_tensor(a) or why_not_index(index) or why_not_tensor(updates) or why_not_static(dim)
    if reason is None and not a.shape:
        return "indexing a tensor of rank 0 is left to torch"
    if reason is None and a.shape[dim] == 0 and math.prod(index.shape):
        return "an index into nothing is left to torch, which refuses it"
    return reason


def _why_not_add(a: Any, index: Any, value: Any, dim: Any) -> str | None:
    return _why_not(a, index, value, dim) or _why_not_sum(a)


def _why_not_scatter(a: Any, index: Any, src: Any, dim: Any) -> str | None:
    if isinstance(src, TensorProxy):
        return _why_not(a, index, src, dim)
    return _why_not(a, index, a, dim) or why_not_number(src)


def _like_index(b: FusionBuilder, updates: Value, index: Value) -> Value:
    """The part of the updates that the index covers."""
    if updates.shape == index.shape:
        return updates
    return b.slice(updates, [0] * len(index.shape), index.shape)


@translates(PrimIDs.SCATTER, _why_not_scatter, cheap=False)
def _scatter(b: FusionBuilder, out: TensorProxy, a: Value, index: Value, src: Operand, dim: int) -> Value:
    tensor = isinstance(src, Value) and isinstance(src.type, TensorType)
    updates = _like_index(b, src, index) if tensor else b.full(index.shape, src, a.dtype)
    return b.scatter(a, index, updates, dim, name=out.name)


@translates(PrimIDs.SCATTER_ADD, _why_not_add, cheap=False)
def _scatter_add(b: FusionBuilder, out: TensorProxy, a: Value, index: Value, value: Value, dim: int) -> Value:
    return b.scatter(a, index, _like_index(b, value, index), dim, accumulate=True, name=out.name)


@translates(PrimIDs.INDEX_ADD, _why_not_add, cheap=False)
def _index_add(b: FusionBuilder, out: TensorProxy, a: Value, index: Value, value: Value, dim: int) -> Value:
    return b.scatter_slices(a, b.reshape(index, (value.shape[dim],)), value, dim, accumulate=True, name=out.name)


@translates(PrimIDs.INDEX_COPY, _why_not, cheap=False)
def _index_copy(b: FusionBuilder, out: TensorProxy, a: Value, index: Value, value: Value, dim: int) -> Value:
    return b.scatter_slices(a, b.reshape(index, (value.shape[dim],)), value, dim, name=out.name)


def _why_not_index_put(a: Any, indices: Any, values: Any, accumulate: Any) -> str | None:
    if not indices:
        return "'index_put' without an index is left to torch"
    reason = why_not_tensor(a) or why_not_tensor(values) or next(filter(None, map(why_not_index, indices)), None)
    if reason is None and any(n == 0 for n in a.shape[:len(indices)]) and math.prod(values.shape):
        return "an index into nothing is left to torch, which refuses it"
    return reason or (_why_not_sum(a) if accumulate else None)


@translates(PrimIDs.INDEX_PUT, _why_not_index_put, cheap=False)
def _index_put(b: FusionBuilder, out: TensorProxy, a: Value, indices: Sequence[Value], values: Value, accumulate: bool) -> Value:
    return index_put(b, a, indices, values, accumulate=accumulate, name=out.name)


def _why_not_embedding_backward(grad: Any, indices: Any, num_weights: Any, padding_idx: Any, scale_grad_by_freq: Any, sparse: Any) -> str | None:
    if sparse:
        return "a sparse gradient is left to torch"
    reason = why_not_tensor(grad) or why_not_index(indices) or why_not_static(num_weights, padding_idx)
    if reason is None and num_weights == 0 and math.prod(indices.shape):
        return "an index into nothing is left to torch, which refuses it"
    return reason or _why_not_sum(grad)


@translates(PrimIDs.EMBEDDING_BACKWARD, _why_not_embedding_backward, cheap=False)
def _embedding_backward(b: FusionBuilder, out: TensorProxy, grad: Value, indices: Value, num_weights: int, padding_idx: int,
                        scale_grad_by_freq: bool, sparse: bool) -> Value:
    return embedding_gradient(b, grad, indices, num_weights, padding_idx, scale_by_frequency=bool(scale_grad_by_freq), name=out.name)
