"""`fd.ops`: every op of the front end as a method, and a clear refusal for nvFuser's ops that it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thunder_fuser.errors import UnsupportedError
from thunder_fuser.frontend import copies, pointwise, views
from thunder_fuser.frontend.rows import OPS

if TYPE_CHECKING:
    from thunder_fuser.frontend.definition import FusionDefinition

# Loading these modules fills OPS.
SOURCES = (pointwise, views, copies)

# nvFuser's other ops: known by name, so that a script that needs one is told so.
UNSUPPORTED = frozenset("""
    acos acosh asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
    ceil cos cosh div eq erf erfc erfcinv erfinv exp2 expm1 floor fmod frac gcd ge gt isfinite isinf isnan isneginf isposinf
    isreal le lgamma log log10 log1p log2 logical_and logical_not logical_or logical_right_shift minimum mod ne nextafter pow
    reciprocal relu remainder round sigmoid sign signbit silu sin sinh sqrt tan threshold clamp truediv trunc
    real imag complex rand_like randn_like uniform normal max min prod var var_mean welford
    cumsum cumprod cummin cummax gather take_along_axis index_select scatter index_put_accumulate embedding_fwd argsort topk triu
    matmul linear grouped_mm scaled_mm cutlass_nvfp4_grouped_mm sdpfa_fwd sdpfa_bwd nv_block_quantize
    nv_grouped_block_quantize preprocess_grouped_matmul_input_sf batch_norm
""".split())


class Ops:
    """`fd.ops.NAME(...)` records op NAME of table `OPS`. Raises `UnsupportedError` for an op that only nvFuser has."""

    def __init__(self, fd: FusionDefinition) -> None:
        self._fd = fd

    def __getattr__(self, name: str) -> Any:
        row = OPS.get(name)
        if row is not None:
            return lambda *args, **kwargs: self._fd._call(row, args, kwargs)
        if name in UNSUPPORTED:
            return lambda *args, **kwargs: _refuse(name)
        raise AttributeError(f"'{name}' is not an op of FusionDefinition.")

    def __dir__(self) -> list[str]:
        return sorted(OPS)


def _refuse(name: str) -> None:
    raise UnsupportedError(f"Op '{name}' is not supported: run it with torch, before or after the fusion.")
