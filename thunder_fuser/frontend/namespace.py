"""`fd.ops`: every op of the front end as a method, and a clear refusal for nvFuser's ops that it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thunder_fuser.errors import UnsupportedError
from thunder_fuser.frontend import copies, indexing, pointwise, random, torch_calls, variances, views
from thunder_fuser.frontend.rows import OPS

if TYPE_CHECKING:
    from thunder_fuser.frontend.definition import FusionDefinition

# Loading these modules fills OPS.
SOURCES = (pointwise, views, copies, indexing, random, torch_calls, variances)

# nvFuser's other ops, and what to do: known by name, so that a script that needs one is told so.
_SCALED = "scale the operands with 'mul' and use 'matmul' or 'grouped_mm', or run it with torch"
UNSUPPORTED: dict[str, str] = {
    **dict.fromkeys("scaled_mm scaled_grouped_mm cutlass_nvfp4_grouped_mm preprocess_grouped_matmul_input_sf".split(), _SCALED),
    **dict.fromkeys("nv_block_quantize nv_grouped_block_quantize".split(), "quantise with torch, before or after the fusion"),
    "batch_norm": "write it with 'var_mean', 'sub', 'rsqrt' and 'mul'",
}


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
    raise UnsupportedError(f"Op '{name}' is not supported: {UNSUPPORTED[name]}.")
