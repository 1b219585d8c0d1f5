"""Ops that are made of others, written once: functions of a builder. Called by the translators and the front end.

What they emit fuses like anything else; no later stage knows them.
"""

from __future__ import annotations

from collections.abc import Sequence

from thunder_fuser.errors import IRError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import I32, I64, DType
from thunder_fuser.ir.nodes import Value


def index_of_extremum(b: FusionBuilder, op: str, arg: Value, dim: int | None = None, *, name: str | None = None) -> Value:
    """`torch.argmax` (op "amax") or `argmin` ("amin") along `dim`, or of the flattened tensor: the first place, in i64, of
    the extremum, or of a NaN if there is one. Raises `IRError` for a choice among nothing."""
    rank = len(arg.shape)
    dims = tuple(range(rank)) if dim is None else (dim % rank,) if rank else ()
    if not rank:
        return b.full((), 0, I64, name=name)
    if any(arg.shape[d] == 0 for d in dims):
        raise IRError(f"'arg{op[1:]}' chooses among no elements: shape {list(arg.shape)}, dim {dim}.")
    kept = [d for d in range(rank) if d not in dims]
    found = b.eq(arg, b.broadcast(b.reduce(op, arg, dims), arg.shape, kept))
    if arg.dtype.kind == "float":
        found = b.logical_or(found, b.isnan(arg))  # a NaN, which the extremum is then too, equals nothing
    # Fewer than 2^31 places are told apart by the cheaper integers.
    total = arg.type.numel if dim is None else arg.shape[dims[0]]
    small = total < 2**31
    place = _places(b, arg.shape, dims, I32 if small else I64)
    first = b.amin(b.where(found, place, b.full(arg.shape, total - 1, place.dtype)), dims, name=None if small else name)
    return b.cast(first, I64, name=name) if small else first


def _places(b: FusionBuilder, shape: Sequence[int], dims: Sequence[int], dtype: DType) -> Value:
    """The row-major number of each element among those of `dims`."""
    if len(dims) == 1:
        return b.broadcast(b.iota(shape[dims[0]], dtype), shape, dims)
    total = 1
    for n in shape:
        total *= n
    return b.reshape(b.iota(total, dtype), shape)
