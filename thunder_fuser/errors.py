"""Every error that a user of the engine can see, in one place.

Messages are one sentence that a user can act on: what was wrong, and what was expected.
"""

from __future__ import annotations


class FuserError(Exception):
    """Base of all errors raised on purpose by thunder_fuser."""


class IRError(FuserError):
    """A fusion that cannot be built or does not verify: wrong shapes, dtypes, arguments or text."""


class InputError(FuserError):
    """An argument of a call does not match the fusion: count, dtype, device, shape."""


class UnsupportedError(FuserError):
    """A correct program that the engine cannot run: the reason names the op and what is missing."""


class CompileError(FuserError):
    """A compiler refused generated source or could not be found; carries the log and numbered source."""


class LaunchError(FuserError):
    """The driver refused a launch, or a launched kernel failed. Never caught, never retried."""


class IndexRangeError(LaunchError, IndexError):
    """A kernel of the host backend met an index out of range. On CUDA the kernel traps, and the driver reports a fault."""
