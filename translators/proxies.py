"""What the engine can take of Thunder's proxies: dtypes, ranks, static sizes, numbers.

Called by the translations' checkers and by `region`. Every `why_not_*` function is pure and cheap, and answers with
the reason, as a phrase without a full stop, or None.
"""

from __future__ import annotations

from typing import Any

from thunder.core.devices import DeviceType
from thunder.core.dtypes import to_torch_dtype
from thunder.core.proxies import FutureTensorProxy, NumberProxy, TensorProxy

from thunder_fuser.ir.dtypes import BOOL, C128, F64, I64, DType, from_torch, is_supported

MAX_RANK = 8


def why_not_tensor(x: Any) -> str | None:
    """Why a tensor proxy cannot be a value of a fusion."""
    if not isinstance(x, TensorProxy):
        return f"'{x}' is not a tensor"
    if isinstance(x, FutureTensorProxy) or type(x).__name__ == "DTensorProxy":
        return f"'{x.name}' is a {type(x).__name__}, only plain tensors are supported"
    reason = why_not_dtype(x.dtype)
    if reason is not None:
        return reason
    if len(x.shape) > MAX_RANK:
        return f"rank {len(x.shape)} is above {MAX_RANK}"
    if not all(type(n) is int for n in x.shape):
        return f"'{x.name}' has symbolic sizes"
    return None


def is_cpu_scalar(x: Any) -> bool:
    """Whether a value is a rank-0 tensor on the CPU, which Thunder lets stand beside tensors on other devices."""
    return isinstance(x, TensorProxy) and not x.shape and x.device.devicetype is DeviceType.CPU


def why_not_dtype(dtype: Any) -> str | None:
    """Why a Thunder dtype, or a number type standing for one, has no row in the engine's table."""
    torch_dtype = to_torch_dtype(dtype)
    return None if is_supported(torch_dtype) else f"dtype '{torch_dtype}' is not supported"


def why_not_number(x: Any) -> str | None:
    """Why a Python number, or a proxy of one, cannot be an operand."""
    kind = python_type(x)
    return None if kind in (bool, int, float, complex) else f"'{x}' is not a number"


def why_not_static(*values: Any) -> str | None:
    """Why an argument made of sizes (a shape, dims, paddings; nested sequences too) is not known ahead of the call."""
    for value in values:
        if isinstance(value, (tuple, list)):
            reason = why_not_static(*value)
            if reason is not None:
                return reason
        elif isinstance(value, NumberProxy) or not isinstance(value, int):
            return f"'{value}' is not a static size"
    return None


def dtype_of(x: TensorProxy) -> DType:
    """The IR dtype of a tensor proxy."""
    return from_torch(to_torch_dtype(x.dtype))


def number_dtype(x: NumberProxy) -> DType:
    """The IR dtype of a number that is handed in at call time."""
    return {bool: BOOL, int: I64, float: F64, complex: C128}[python_type(x)]


def python_type(x: Any) -> type:
    """bool, int, float, complex, ... for a number or a number proxy."""
    return x.python_type if isinstance(x, NumberProxy) else type(x)
