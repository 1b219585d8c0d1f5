"""Random prims. Thunder's own draw from a generator when they run; a fusion takes seed and offset as inputs instead, so that a
region of the backward can make the forward's numbers again.

`UNIFORM` and `RANDN` are therefore claimed but not translated: the executor puts `uniform_philox` and `normal_philox` in
their places, and what draws the seeds before the region.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.core.dtypes import to_torch_dtype
from thunder.core.prims import PrimIDs
from thunder.core.proxies import NumberProxy, TensorProxy
from thunder.core.symbol import Symbol

from thunder_fuser.errors import UnsupportedError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import I64, from_torch
from thunder_fuser.ir.nodes import Operand, Value
from thunder_fuser.translators.proxies import MAX_RANK, dtype_of, python_type, why_not_dtype, why_not_number, why_not_static
from thunder_fuser.translators.registry import TRANSLATIONS, Translation, translates

NORMAL = "thunder_fuser.normal_philox"
FROM_GENERATOR = (PrimIDs.UNIFORM, PrimIDs.RANDN)
FROM_SEED = (PrimIDs.UNIFORM_PHILOX, NORMAL)


def _normal_meta(shape: Sequence[int], *, device: Any, dtype: Any, seed: Any, offset: Any) -> TensorProxy:
    return TensorProxy(shape=tuple(shape), device=device, dtype=dtype)


# What `uniform_philox` is to `uniform`, for `randn`.
normal_philox = Symbol("normal_philox", meta=_normal_meta, id=NORMAL, is_prim=True)


def _why_not_shape(shape: Any, dtype: Any) -> str | None:
    reason = why_not_static(shape) or why_not_dtype(dtype)
    if reason is None and len(shape) > MAX_RANK:
        return f"rank {len(shape)} is above {MAX_RANK}"
    if reason is None and from_torch(to_torch_dtype(dtype)).kind != "float":
        return f"random numbers of dtype '{dtype}' are left to torch"
    return reason


def _why_not_seed(value: Any) -> str | None:
    if isinstance(value, TensorProxy):
        return None if dtype_of(value) is I64 and value.numel() == 1 else f"'{value.name}' is no int64 tensor of one element"
    return None if isinstance(value, (int, NumberProxy)) and python_type(value) is int else f"'{value}' is no integer"


def _why_not_uniform(shape: Any, minval: Any, maxval: Any, *, device: Any, dtype: Any) -> str | None:
    return _why_not_shape(shape, dtype) or why_not_number(minval) or why_not_number(maxval)


def _why_not_normal(shape: Any, *, device: Any, dtype: Any) -> str | None:
    return _why_not_shape(shape, dtype)


def _why_not_uniform_philox(shape: Any, minval: Any, maxval: Any, *, device: Any, dtype: Any, seed: Any, offset: Any) -> str | None:
    return _why_not_uniform(shape, minval, maxval, device=device, dtype=dtype) or _why_not_seed(seed) or _why_not_seed(offset)


def _why_not_normal_philox(shape: Any, *, device: Any, dtype: Any, seed: Any, offset: Any) -> str | None:
    return _why_not_shape(shape, dtype) or _why_not_seed(seed) or _why_not_seed(offset)


def _drawn(b: FusionBuilder, out: TensorProxy, *args: Any, **kwargs: Any) -> Value:
    raise UnsupportedError(f"'{out.name}' draws from a generator, expected a seed and an offset.")


TRANSLATIONS[PrimIDs.UNIFORM] = Translation(_drawn, _why_not_uniform, cheap=False)
TRANSLATIONS[PrimIDs.RANDN] = Translation(_drawn, _why_not_normal, cheap=False)


@translates(PrimIDs.UNIFORM_PHILOX, _why_not_uniform_philox)
def _uniform(b: FusionBuilder, out: TensorProxy, shape: Any, minval: Operand, maxval: Operand, *, device: Any, dtype: Any,
             seed: Operand, offset: Operand) -> Value:
    return b.random("uniform", out.shape, dtype_of(out), seed, offset, minval, maxval, name=out.name)


@translates(NORMAL, _why_not_normal_philox)
def _normal(b: FusionBuilder, out: TensorProxy, shape: Any, *, device: Any, dtype: Any, seed: Operand, offset: Operand) -> Value:
    return b.random("normal", out.shape, dtype_of(out), seed, offset, 0.0, 1.0, name=out.name)
