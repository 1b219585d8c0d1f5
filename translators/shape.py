"""Prims that move elements and compute nothing: views, pads, cats, flips, copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.core.prims import PrimIDs
from thunder.core.proxies import TensorProxy

from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.nodes import Operand, Value
from thunder_fuser.translators.proxies import why_not_number, why_not_static, why_not_tensor
from thunder_fuser.translators.registry import translates


def _why_not(a: Any, *sizes: Any) -> str | None:
    """The rule of most of them: a tensor, then arguments made of sizes."""
    return why_not_tensor(a) or why_not_static(*sizes)


@translates(PrimIDs.VIEW, _why_not, view=True)
@translates(PrimIDs.RESHAPE, _why_not, view=True)
def _reshape(b: FusionBuilder, out: TensorProxy, a: Value, shape: Sequence[int]) -> Value:
    return b.reshape(a, shape, name=out.name)


@translates(PrimIDs.TRANSPOSE, _why_not, view=True)
def _transpose(b: FusionBuilder, out: TensorProxy, a: Value, permutation: Sequence[int]) -> Value:
    return b.permute(a, permutation, name=out.name)


def _why_not_slice(a: Any, start_indices: Any, end_indices: Any, strides: Any = None) -> str | None:
    return why_not_tensor(a) or why_not_static(start_indices, end_indices, () if strides is None else strides)


@translates(PrimIDs.SLICE, _why_not_slice, view=True)
def _slice(b: FusionBuilder, out: TensorProxy, a: Value, start_indices: Sequence[int], end_indices: Sequence[int],
           strides: Sequence[int] | None = None) -> Value:
    return b.slice(a, start_indices, end_indices, strides, name=out.name)


@translates(PrimIDs.SQUEEZE, _why_not, view=True)
def _squeeze(b: FusionBuilder, out: TensorProxy, a: Value, dims: Sequence[int]) -> Value:
    return b.squeeze(a, dims, name=out.name)


@translates(PrimIDs.BROADCAST_IN_DIM, _why_not, view=True)
def _broadcast_in_dim(b: FusionBuilder, out: TensorProxy, a: Value, shape: Sequence[int],
                      broadcast_dimensions: Sequence[int]) -> Value:
    return b.broadcast(a, shape, broadcast_dimensions, name=out.name)


@translates(PrimIDs.SHALLOW_COPY, _why_not, view=True)
def _shallow_copy(b: FusionBuilder, out: TensorProxy, a: Value) -> Value:
    """Another name for the same elements: the fusion returns the value under both."""
    return a


def _why_not_pad(a: Any, padding_value: Any, padding_config: Any) -> str | None:
    return why_not_tensor(a) or why_not_number(padding_value) or why_not_static(padding_config)


@translates(PrimIDs.PAD, _why_not_pad)
def _pad(b: FusionBuilder, out: TensorProxy, a: Value, padding_value: Operand,
         padding_config: Sequence[tuple[int, int, int]]) -> Value:
    return b.pad(a, padding_config, padding_value, name=out.name)


def _why_not_cat(tensors: Any, dim: Any) -> str | None:
    return next(filter(None, map(why_not_tensor, tensors)), None) or why_not_static(dim)


@translates(PrimIDs.CAT, _why_not_cat)
def _cat(b: FusionBuilder, out: TensorProxy, tensors: Sequence[Value], dim: int) -> Value:
    return b.cat(tensors, dim, name=out.name)


@translates(PrimIDs.FLIP, _why_not)
def _flip(b: FusionBuilder, out: TensorProxy, a: Value, dims: Sequence[int]) -> Value:
    return b.flip(a, dims, name=out.name)


def _why_not_clone(a: Any, **kwargs: Any) -> str | None:
    given = ", ".join(name for name, value in kwargs.items() if value is not None)
    return why_not_tensor(a) or (f"'clone' with {given} is not supported" if given else None)


@translates(PrimIDs.CLONE, _why_not_clone)
def _clone(b: FusionBuilder, out: TensorProxy, a: Value, **kwargs: None) -> Value:
    return b.copy(a, name=out.name)


@translates(PrimIDs.STRIDE_ORDER, _why_not)
def _stride_order(b: FusionBuilder, out: TensorProxy, a: Value, order: Sequence[int]) -> Value:
    """Thunder ranks each dim's stride, 0 for the smallest; the IR lists dims from outermost to innermost."""
    return b.copy(a, sorted(range(len(order)), key=lambda d: -order[d]), name=out.name)
