"""One call of each prim that computes, for every dtype: what a claim is asked with, by `tests/test_coverage.py`.

`CALLS` maps a prim to a function from a dtype to arguments, which may be several calls. `NVFUSER` says what nvFuser's
executor claims of them in lightning-thunder 0.2.6, `LEFT` which prims no fusion should have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import thunder.core.dtypes as dtypes
import thunder.core.prims as prims
import torch
from thunder.core.devices import Device, to_device
from thunder.core.prims import PrimIDs
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import Symbol

DTYPES = (dtypes.bool8, dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.float16, dtypes.bfloat16, dtypes.float32,
          dtypes.float64, dtypes.complex64, dtypes.complex128, dtypes.float8_e4m3fn, dtypes.float8_e5m2)
# Those that nvFuser's executor knows; without the floats of 8 and 16 bits for reductions.
NVFUSER_DTYPES = (dtypes.bool8, dtypes.int32, dtypes.int64, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.complex64,
                  dtypes.complex128, dtypes.float8_e4m3fn, dtypes.float8_e5m2)
LOW = (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2)

Call = tuple[tuple[Any, ...], dict[str, Any]]
SYMBOLS = {s.id: s for s in vars(prims).values() if isinstance(s, Symbol)}
CUDA = to_device("cuda:0")


def tensor(dtype: dtypes.dtype, *shape: int, device: Device = CUDA) -> TensorProxy:
    return TensorProxy(shape=shape, dtype=dtype, device=device, requires_grad=False)


def name(dtype: dtypes.dtype) -> str:
    return str(dtype).removeprefix("thunder.dtypes.")


def _given(*args: Any, **kwargs: Any) -> Call:
    return args, kwargs


def _unary(d: dtypes.dtype) -> Iterator[Call]:
    yield _given(tensor(d, 3, 5))
    yield _given(tensor(d))
    yield _given(tensor(d, 2, 0))
    yield _given(tensor(d, *[1] * 8))


def _binary(d: dtypes.dtype) -> Iterator[Call]:
    yield _given(tensor(d, 3, 5), tensor(d, 3, 5))
    yield _given(tensor(d, 2, 0), tensor(d, 2, 0))
    yield _given(tensor(d, 3, 5), _number(d))
    yield _given(_number(d), tensor(d, 3, 5))


def _number(d: dtypes.dtype) -> Any:
    return True if d is dtypes.bool8 else 2j if isinstance(d, dtypes.complexfloating) else 1.5 if isinstance(d, dtypes.floating) else 2


def _real(d: dtypes.dtype) -> Any:
    return 1.5 if isinstance(d, dtypes.inexact) else 2


def _reduction(d: dtypes.dtype) -> Iterator[Call]:
    yield _given(tensor(d, 3, 5), (1,))
    yield _given(tensor(d, 3, 5), (0, 1))
    yield _given(tensor(d, 3, 5), ())


def _argument(d: dtypes.dtype) -> Iterator[Call]:
    yield _given(tensor(d, 3, 5), 1)
    yield _given(tensor(d, 3, 5), None)


def _variance(d: dtypes.dtype) -> Iterator[Call]:
    yield _given(tensor(d, 3, 5), (1,), correction=1)
    yield _given(tensor(d, 3, 5), (0, 1), correction=0)


def _one(make: Callable[[dtypes.dtype], Call]) -> Callable[[dtypes.dtype], Iterator[Call]]:
    def calls(d: dtypes.dtype) -> Iterator[Call]:
        yield make(d)

    return calls


def _index(*shape: int) -> TensorProxy:
    return tensor(dtypes.int64, *shape)


UNARY = (
    "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf erfc erfcinv erfinv exp exp2 expm1 floor isfinite lgamma log log10 log1p "
    "log2 neg real imag reciprocal round rsqrt sign signbit sin sinh sqrt tan tanh trunc clone shallow_copy").upper().split()
BINARY = (
    "add atan2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift div eq fmod ge gt le lt maximum minimum mul ne "
    "nextafter pow remainder sub").upper().split()

# fmt: off
CALLS: dict[str, Callable[[dtypes.dtype], Iterator[Call]]] = {
    **dict.fromkeys((*UNARY, "DIGAMMA", "NDTRI"), _unary),
    **dict.fromkeys((*BINARY, "ZETA"), _binary),
    **dict.fromkeys(("SUM", "PROD", "AMAX", "AMIN"), _reduction),
    **dict.fromkeys(("ARGMAX", "ARGMIN"), _argument),
    **dict.fromkeys(("VAR", "VAR_MEAN", "STD"), _variance),
    "CONVERT_ELEMENT_TYPE": lambda d: (_given(tensor(e, 3, 5), d) for e in (dtypes.float32, dtypes.int64)),
    "FULL":             _one(lambda d: _given((3, 5), _real(d), device=CUDA, dtype=d)),
    "IOTA":             _one(lambda d: _given(5, start=0, step=2, device=CUDA, dtype=d)),
    "UNIFORM":          _one(lambda d: _given((3, 5), 0.0, 1.0, device=CUDA, dtype=d)),
    "UNIFORM_PHILOX":   _one(lambda d: _given((3, 5), 0.0, 1.0, device=CUDA, dtype=d, seed=1, offset=0)),
    "RANDN":            _one(lambda d: _given((3, 5), device=CUDA, dtype=d)),
    "BROADCAST_IN_DIM": _one(lambda d: _given(tensor(d, 3, 1), (2, 3, 5), (1, 2))),
    "STRIDE_ORDER":     _one(lambda d: _given(tensor(d, 2, 3, 5), (0, 1, 2))),
    "RESHAPE":          _one(lambda d: _given(tensor(d, 2, 6), (3, 4))),
    "VIEW":             _one(lambda d: _given(tensor(d, 2, 6), (3, 4))),
    "SQUEEZE":          _one(lambda d: _given(tensor(d, 2, 1), (1,))),
    "TRANSPOSE":        _one(lambda d: _given(tensor(d, 2, 3), (1, 0))),
    "CAT":              _one(lambda d: _given([tensor(d, 2, 3), tensor(d, 2, 0)], 1)),
    "PAD":              _one(lambda d: _given(tensor(d, 2, 3), _number(d), [(0, 1, 0), (-1, 2, 0)])),
    "SLICE":            lambda d: (_given(tensor(d, 7, 5), [0, 1], [7, 4], s) for s in ([1, 1], [3, 2])),
    "FLIP":             _one(lambda d: _given(tensor(d, 3, 5), (1,))),
    "LERP":             _one(lambda d: _given(tensor(d, 3, 5), tensor(d, 3, 5), tensor(d, 3, 5))),
    "WHERE":            _one(lambda d: _given(tensor(dtypes.bool8, 3, 5), tensor(d, 3, 5), tensor(d, 3, 5))),
    "TAKE":             lambda d: (_given(tensor(d, n, 5), _index(3), 0) for n in (7, 0)),
    "TAKE_ALONG_AXIS":  _one(lambda d: _given(tensor(d, 7, 5), _index(3, 5), 0)),
    "GATHER":           _one(lambda d: _given(tensor(d, 7, 5), _index(3, 5), 0)),
    "SCATTER":          _one(lambda d: _given(tensor(d, 7, 5), _index(3, 5), tensor(d, 3, 5), 0)),
    "SCATTER_ADD":      _one(lambda d: _given(tensor(d, 7, 5), _index(3, 5), tensor(d, 3, 5), 0)),
    "INDEX_ADD":        _one(lambda d: _given(tensor(d, 7, 5), _index(3), tensor(d, 3, 5), 0)),
    "INDEX_COPY":       _one(lambda d: _given(tensor(d, 7, 5), _index(3), tensor(d, 3, 5), 0)),
    "INDEX_PUT":        lambda d: (_given(tensor(d, 7, 5), [_index(3)], tensor(d, 3, 5), a) for a in (False, True)),
    "EMBEDDING":        _one(lambda d: _given(_index(4), tensor(d, 7, 5))),
    "EMBEDDING_BACKWARD": _one(lambda d: _given(tensor(d, 4, 5), _index(4), 7, -1, False, False)),
    "UPDATE_ALIASES":   _one(lambda d: _given((tensor(d, 3, 5),))),
    "COPY_":            _one(lambda d: _given(tensor(d, 3, 5), tensor(d, 3, 5), grad_enabled=False)),
    "BITCAST":          _one(lambda d: _given(tensor(d, 3, 4), {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}.get(d.bytes, d))),
}
# fmt: on

# What nvFuser's executor claims, in words; the dtypes beside are those that it takes.
NVFUSER: dict[str, tuple[str, tuple[dtypes.dtype, ...]]] = {
    **dict.fromkeys((*UNARY, *BINARY, "LERP", "WHERE", "CONVERT_ELEMENT_TYPE", "FULL", "IOTA", "UNIFORM", "BROADCAST_IN_DIM",
                     "STRIDE_ORDER", "RESHAPE", "SQUEEZE", "TRANSPOSE", "CAT", "COPY_"), ("yes", NVFUSER_DTYPES)),
    "UNIFORM_PHILOX": ("yes", NVFUSER_DTYPES),
    "PAD": ("without interior padding", NVFUSER_DTYPES),
    "SLICE": ("steps of 1", NVFUSER_DTYPES),
    "TAKE": ("of tensors that have elements", NVFUSER_DTYPES),
    "TAKE_ALONG_AXIS": ("of tensors that have elements", NVFUSER_DTYPES),
    "EMBEDDING": ("two-dimensional weights", NVFUSER_DTYPES),
    "INDEX_PUT": ("opt-in, one index of rank 1, no accumulation", NVFUSER_DTYPES),
    "SCATTER": ("opt-in", NVFUSER_DTYPES),
    **dict.fromkeys(("SUM", "PROD", "AMAX", "AMIN"), ("no floats of 8 or 16 bits", tuple(d for d in NVFUSER_DTYPES if d not in LOW))),
    "VAR": ("no floats of 8 or 16 bits", tuple(d for d in NVFUSER_DTYPES if d not in LOW)),
    "VAR_MEAN": ("real floats of 32 and 64 bits", (dtypes.float32, dtypes.float64)),
}

# Prims that no fusion has, and what speaks for torch.
LEFT = {
    "DEVICE_PUT": "moves between devices",
    "ITEM": "hands a number to the host, which waits for it",
    "SORT": "a library's algorithm",
    "TOPK": "a library's algorithm",
    "CONVOLUTION": "a library's algorithm",
    "MATMUL": "a library's algorithm; what surrounds it is fused",
    "LINEAR": "a library's algorithm; what surrounds it is fused",
    "_GROUPED_MM": "a library's algorithm; what surrounds it is fused",
    "MULTINOMIAL": "draws from a distribution by searching it",
    "RANDINT": "torch's own stream of integers",
    "TENSOR_FROM_SEQUENCE": "copies from the host",
    "EMPTY": "computes nothing",
    "UNFOLD": "a view that overlaps itself",
    "DIGAMMA": "a series of torch's own, rare",
    "ZETA": "a series of torch's own, rare",
    "NDTRI": "a series of torch's own, rare",
    "SHAPE": "gives numbers, which a fusion has as constants; Thunder's symbolic values are left to torch",
    "COPY_WITH_SETITEM": "an index of any form",
    "FREXP": "two results of different dtypes, rare",
    "GET_AND_UPDATE_RNG_STATE": "the state of torch's generator",
}

# Where nvFuser's executor claims more: what torch itself refuses is no example (`torch_takes`), these are.
NARROWER: dict[tuple[str, tuple[str, ...]], str] = {
    ("LERP", ("complex64", "complex128")): "two formulas, chosen by the magnitude of a complex weight",
    ("NEXTAFTER", ("float16", "bfloat16")): "the neighbour in 16 bits is not that of the float32 that kernels compute in",
    ("ABS", ("float8_e4m3fn", "float8_e5m2")): "floats of 8 bits are stored and cast, not computed with",
    ("ISFINITE", ("float8_e5m2",)): "floats of 8 bits are stored and cast, not computed with",
    ("UNIFORM", ("complex64", "complex128")): "random numbers are real",
    ("UNIFORM_PHILOX", ("complex64", "complex128")): "random numbers are real",
}

# Of these prims nvFuser's executor claims the first call alone.
NVFUSER_CALLS = {"INDEX_PUT": 1}


def torch_takes(prim: str, dtype: dtypes.dtype) -> bool:
    """Whether torch computes a prim in a dtype, with a result of the dtype that Thunder's trace says."""
    if prim.startswith("UNIFORM"):
        return isinstance(dtype, dtypes.inexact) and dtype.bytes > 1
    operator = getattr(torch, prim.lower(), None)
    if operator is None:
        return not isinstance(dtype, dtypes.complexfloating)  # erfcinv, which Thunder has torch compute by erfinv
    x = torch.ones(3, 5).to(dtypes.to_torch_dtype(dtype))
    operands = [x] * (2 if prim in BINARY else 3 if prim == "LERP" else 1)
    try:
        result = operator(*operands, *([1] if prim in ("SUM", "PROD", "AMAX", "AMIN", "VAR") else []))
    except (RuntimeError, TypeError):
        return False
    return result.dtype is x.dtype or result.dtype is torch.bool or (x.is_complex() and not result.is_complex())


def valid(prim: str, call: Call) -> bool:
    """Whether Thunder itself takes such a call. To be asked inside a trace."""
    args, kwargs = call
    try:
        SYMBOLS[PrimIDs[prim]].meta(*args, **kwargs)
    except Exception:  # whichever of Thunder's checks it is that refuses
        return False
    return True


