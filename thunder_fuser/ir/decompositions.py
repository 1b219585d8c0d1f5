"""Ops that are made of others, written once: functions of a builder. Called by the translators and the front end.

What they emit fuses like anything else; no later stage knows them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from thunder_fuser.errors import IRError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import F32, I32, I64, DType
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
    return b.reshape(b.iota(math.prod(shape), dtype), shape)


def index_put(b: FusionBuilder, arg: Value, indices: Sequence[Value], values: Value, *, accumulate: bool = False,
              name: str | None = None) -> Value:
    """`torch.index_put`: `indices`, of one shape S, are about the first dims of arg, and count from the end where negative;
    `values` have the shape S + what is left of arg's. Other indices out of range fail."""
    k, places = len(indices), indices[0].shape
    rest = arg.shape[k:]
    flat = (math.prod(places),)
    shape = (*flat, *(1,) * (k - 1), *rest)  # of arg's rank
    wrapped = []
    for size, index in zip(arg.shape, indices):
        index = b.reshape(index, flat)
        index = b.where(b.lt(index, 0), b.add(index, size), index)
        wrapped.append(b.broadcast(index, shape, (0,)))
    return b.scatter(arg, wrapped, b.reshape(values, shape), range(k), accumulate=accumulate, preserve=True, name=name)


def embedding_gradient(b: FusionBuilder, grad: Value, indices: Value, rows: int, padding: int = -1, *, scale_by_frequency: bool = False,
                       name: str | None = None) -> Value:
    """The gradient of an embedding's weight of `rows` rows: the rows of `grad` added up at `indices`, those at row `padding`
    left out; with `scale_by_frequency` divided by how often their index occurs. Sums of 16-bit floats are made in f32."""
    count, width = indices.type.numel, grad.shape[-1]
    flat, updates = b.reshape(indices, (count,)), b.reshape(grad, (count, width))
    dtype = updates.dtype
    if scale_by_frequency:
        zeros, ones = b.full((rows,), 0, I32), b.full((count,), 1, I32)
        times = b.index_select(b.scatter_slices(zeros, flat, ones, 0, accumulate=True), flat, 0) if rows else ones
        wide = F32 if dtype.size < 4 else dtype
        updates = b.cast(updates, wide) if dtype is not wide else updates
        updates = b.div(updates, b.broadcast(b.cast(times, wide), updates.shape, (0,)))
    if padding >= 0:
        padded = b.broadcast(b.eq(flat, padding), updates.shape, (0,))
        updates = b.where(padded, b.full(updates.shape, 0.0, updates.dtype), updates)
    total = b.scatter_slices(b.full((rows, width), 0.0, updates.dtype), flat, updates, 0, accumulate=True,
                             name=name if updates.dtype is dtype else None)
    return total if total.dtype is dtype else b.cast(total, dtype, name=name)


def squared_deviations(b: FusionBuilder, arg: Value, dims: Sequence[int], *, keepdim: bool = False) -> tuple[Value, Value]:
    """The sum of |x - mean|^2 over `dims`, and the mean, by a pass for each: no difference of large sums. 16-bit floats are
    computed, and given back, in f32. Raises `IRError` for integers."""
    if arg.dtype.kind == "complex":
        return _of_parts(b, [squared_deviations(b, part, dims, keepdim=keepdim) for part in (b.real(arg), b.imag(arg))])
    if arg.dtype.kind != "float":
        raise IRError(f"A variance takes floats or complex numbers, got '{arg.dtype}'.")
    wide = b.cast(arg, F32) if arg.dtype.size < 4 else arg
    over = sorted(d % len(arg.shape) for d in dims)
    kept = [d for d in range(len(arg.shape)) if d not in over]
    mean = b.div(b.sum(wide, over), float(_count(arg, dims)))
    apart = b.sub(wide, b.broadcast(mean, arg.shape, kept))
    total = b.sum(b.mul(apart, apart), over)
    if keepdim:
        shape = tuple(1 if d in over else n for d, n in enumerate(arg.shape))
        total, mean = b.broadcast(total, shape, kept), b.broadcast(mean, shape, kept)
    return total, mean


def variance(b: FusionBuilder, arg: Value, dims: Sequence[int], correction: float = 1, *, keepdim: bool = False) -> tuple[Value, Value]:
    """`torch.var_mean` over `dims`, unrounded: in f32 for 16-bit floats. Where `correction` leaves nothing to divide by, the
    variance is infinite, or NaN if all elements are equal. That of complex numbers is the sum of their parts'."""
    if arg.dtype.kind == "complex":
        return _of_parts(b, [variance(b, part, dims, correction, keepdim=keepdim) for part in (b.real(arg), b.imag(arg))])
    total, mean = squared_deviations(b, arg, dims, keepdim=keepdim)
    return b.div(total, float(max(0, _count(arg, dims) - correction))), mean


def _of_parts(b: FusionBuilder, parts: Sequence[tuple[Value, Value]]) -> tuple[Value, Value]:
    (re, re_mean), (im, im_mean) = parts
    return b.add(re, im), b.complex(re_mean, im_mean)


def _count(arg: Value, dims: Sequence[int]) -> int:
    """Elements that go into one of a reduction's results."""
    return math.prod(arg.shape[d] for d in {d % len(arg.shape) for d in dims})
