"""What both backends agree on about a launch: the kinds of kernel parameters and the shape of a grid.

`arg_kinds` name a kernel's parameters in order: "ptr" for a device pointer (an int), else an IR dtype name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from thunder_fuser.errors import LaunchError

Launcher = Callable[..., None]
"""Called as `launcher(stream, *args)`: the stream's handle as an int, then ints and floats in the kernel's order. One of CUDA
has a `recipe`."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What compiled code needs to make a launcher's launch: addresses of the driver's cuLaunchKernelEx and of the kernel, and the shape."""

    driver: int
    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    cooperative: bool


CODES = {
    "ptr": "Q",
    "b8": "?",
    "u8": "B",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "u32": "I",
    "i64": "q",
    "u64": "Q",
    "f32": "f",
    "f64": "d",
}  # fmt: skip
_FLOATS = {"f32", "f64"}


def dims(extent: int | Sequence[int], what: str, kernel: str) -> tuple[int, int, int]:
    """A grid or block as three numbers. Raises `LaunchError` for one that is empty or has more than three dims."""
    given = (extent,) if isinstance(extent, int) else tuple(extent)
    if not 1 <= len(given) <= 3 or any(n < 1 for n in given):
        raise LaunchError(f"Kernel '{kernel}' has the {what} {given}, expected one to three positive extents.")
    return (*given, 1, 1)[:3]  # type: ignore[return-value]


def packer(arg_kinds: Sequence[str], kernel: str) -> struct.Struct | None:
    """How parameters are written to slots of 8 bytes each; None when every one is an integer, which a plain
    array of 64-bit words takes (its low bytes are what a narrower parameter reads)."""
    unknown = [k for k in arg_kinds if k not in CODES]
    if unknown:
        raise LaunchError(f"Kernel '{kernel}' has a parameter of kind '{unknown[0]}', expected one of {', '.join(CODES)}.")
    if not _FLOATS.intersection(arg_kinds):
        return None
    sizes = [struct.calcsize(CODES[k]) for k in arg_kinds]
    return struct.Struct("=" + "".join(f"{CODES[k]}{8 - size}x" for k, size in zip(arg_kinds, sizes)))
