"""Compile options of the executor: one table, read while Thunder compiles and never later.

Given as keywords of `thunder.jit`; an option that is not given takes the value of the engine's knob of the same
meaning (`thunder_fuser.config`: environment variable or `config.override`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thunder.core.compile_data import get_compile_option

from thunder_fuser import config
from thunder_fuser.runtime.options import CompileOptions


@dataclass(frozen=True, slots=True)
class CompileOption:
    """One row: the keyword, the engine's knob behind it, and what a user reads about it."""

    name: str
    knob: str
    description: str


# fmt: off
OPTIONS: dict[str, CompileOption] = {o.name: o for o in (
    CompileOption("fuser_host",          "host",          "Claim CPU tensors too and run them on the host backend (for debugging and tests)."),
    CompileOption("fuser_keep_rounding", "keep_rounding", "Keep every cast to a 16-bit float and back, as eager rounds."),
    CompileOption("fuser_fallback",      "fallback",      "What a region does that cannot be translated, compiled or loaded: 'torch' runs it there "
                                                          "with a warning, 'error' raises."),
)}
# fmt: on


@dataclass(frozen=True, slots=True)
class FusionOptions:
    """The options of one compilation, as `fuse` found them. Part of the key under which programs are shared."""

    host: bool
    keep_rounding: bool
    fallback: str
    compile: CompileOptions


def read(name: str) -> Any:
    """The value of one option. Raises `InputError` for a value that the option does not take."""
    option = OPTIONS[name]
    given = get_compile_option(option.name, option.description)
    if given is None:
        return config.get(option.knob)
    with config.override(**{option.knob: given}):
        return config.get(option.knob)


def current() -> FusionOptions:
    """All options, as the compilation going on (if any) and the environment have them."""
    return FusionOptions(**{option.knob: read(option.name) for option in OPTIONS.values()}, compile=CompileOptions.from_config())
