"""The prelude: the text that opens every generated unit, one string of the files in codegen/cuda.

Called by the emitter, which puts a kernel behind it, and by tests that write kernels by hand.
"""

from __future__ import annotations

import functools
from importlib import resources

_FILES = ("complex.cuh", "types.cuh", "math.cuh", "complex_math.cuh", "indexing.cuh", "random.cuh")


@functools.cache
def prelude() -> str:
    """Storage types, conversions, vector access, barriers, shuffles, math, checked indices and random numbers, without any #include."""
    folder = resources.files("thunder_fuser.codegen") / "cuda"
    return "\n".join((folder / name).read_text() for name in _FILES if (folder / name).is_file())
