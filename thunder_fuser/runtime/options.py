"""Options of a compilation, part of every cache key and printed wherever a kernel is inspected."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields

from thunder_fuser import config
from thunder_fuser.errors import InputError

_warned: set[str] = set()


@dataclass(frozen=True)
class CompileOptions:
    """How device code is compiled; the host backend follows `fma` and `fast_math` only as far as results go.

    `opt_level` is 0 to 3 (of ptxas), `max_registers` a limit a thread (None: the compiler's choice). Raises `InputError`
    for values out of range, and warns once for each choice that makes generated code slower.
    """

    opt_level: int = 3
    fma: bool = True
    fast_math: bool = False
    max_registers: int | None = None
    lineinfo: bool = False

    def __post_init__(self) -> None:
        if self.opt_level not in (0, 1, 2, 3):
            raise InputError(f"The optimisation level is {self.opt_level!r}, expected 0, 1, 2 or 3.")
        if self.max_registers is not None and not 16 <= self.max_registers <= 255:
            raise InputError(f"The register limit is {self.max_registers!r}, expected 16 to 255 or None.")
        if self.opt_level < 3:
            _warn_once(f"Kernels are compiled at optimisation level {self.opt_level}, not 3: they will run slower.")
        if not self.fma:
            _warn_once("Kernels are compiled without fused multiply-add: those bound by arithmetic will run slower.")

    @classmethod
    def from_config(cls) -> CompileOptions:
        """The options that the environment and `config.override` ask for."""
        return cls(**{f.name: config.get(f.name) for f in fields(cls)})

    def __str__(self) -> str:
        return " ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))


def _warn_once(sentence: str) -> None:
    if sentence not in _warned:
        _warned.add(sentence)
        warnings.warn(sentence, stacklevel=4)
