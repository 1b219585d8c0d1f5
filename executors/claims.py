"""Which bound symbols the executor claims, and why not the others.

Called by Thunder through the executor's checkers, several times a symbol: everything here is pure and cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from thunder.core.devices import Device, DeviceType
from thunder.core.prims import PrimIDs
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import BoundSymbol

from thunder_fuser.executors import options
from thunder_fuser.translators import TRANSLATIONS, is_cpu_scalar


def why_not(bsym: BoundSymbol) -> str | None:
    """Why a bound symbol is not claimed, or None if it is. For a composite: the first reason among its prims."""
    if bsym.sym.is_fusion:
        return f"'{bsym.sym.name}' is a fusion already"
    if bsym.sym.id in TRANSLATIONS:
        return why_not_call(bsym.sym.id, bsym.args, bsym.kwargs)
    if not bsym.subsymbols:
        return f"'{bsym.sym.name}' has no translation"
    return next(filter(None, map(why_not, bsym.subsymbols)), None)


def why_not_call(prim: PrimIDs, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Why a prim with these arguments is not claimed, or None."""
    return _why_not_devices({str(d): d for d in _devices_of(prim, (args, kwargs))}) or TRANSLATIONS[prim].why_not(*args, **kwargs)


def checker(prim: PrimIDs) -> Callable[..., bool]:
    """The checker to register with Thunder for a prim."""
    def claims(*args: Any, **kwargs: Any) -> bool:
        return why_not_call(prim, args, kwargs) is None

    return claims


def device_of(bsym: BoundSymbol) -> str:
    """The device that a claimed prim runs on; the two results of equal devices are equal."""
    return str(_devices_of(bsym.sym.id, (bsym.args, bsym.kwargs))[0])


def _devices_of(prim: PrimIDs, tree: Any) -> list[Device]:
    """The devices that a prim's arguments are on. Rank-0 tensors on the CPU count only among themselves, where the prim takes
    them beside others."""
    others = list(_devices(tree, cpu_scalars=False)) if TRANSLATIONS[prim].takes_cpu_scalars else []
    return others or list(_devices(tree))


def _devices(tree: Any, *, cpu_scalars: bool = True) -> Iterator[Device]:
    """The devices of all tensors among arguments (or of all but rank-0 ones on the CPU), and those named by arguments."""
    if isinstance(tree, TensorProxy):
        if cpu_scalars or not is_cpu_scalar(tree):
            yield tree.device
    elif isinstance(tree, Device):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from _devices(item, cpu_scalars=cpu_scalars)
    elif isinstance(tree, dict):
        yield from _devices(tuple(tree.values()), cpu_scalars=cpu_scalars)


def _why_not_devices(devices: dict[str, Device]) -> str | None:
    if not devices:
        return "no operand is a tensor"
    if len(devices) > 1:
        return f"the operands are on several devices: {', '.join(devices)}"
    ((name, device),) = devices.items()
    if device.devicetype is DeviceType.CUDA:
        return None
    if device.devicetype is not DeviceType.CPU:
        return f"device '{name}' is not supported"
    if not options.read("fuser_host"):
        return "CPU tensors are left to torch unless fuser_host=True or THUNDER_FUSER_HOST=1 asks for the host backend"
    return None
