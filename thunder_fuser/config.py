"""Every knob of the engine in one table: name, environment variable, type, default, help.

Read by any room through `get(name)`; set by the environment, or for a block of code with `override(name=value)`.
An override wins over the environment, and holds in the current thread or task only.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from thunder_fuser.errors import InputError


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word in ("1", "true", "on", "yes"):
        return True
    if word in ("", "0", "false", "off", "no"):
        return False
    raise ValueError(text)


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    parse.__name__ = " or ".join(f"'{w}'" for w in words)
    return parse


def _optional_int(text: str) -> int | None:
    return int(text) if text else None


_flag.__name__ = "0 or 1"
_optional_int.__name__ = "an integer or nothing"


@dataclass(frozen=True, slots=True)
class Knob:
    """One row. `parse` turns the environment's text into the value; its `__name__` says what it expects."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str

    @property
    def env(self) -> str:
        return f"THUNDER_FUSER_{self.name.upper()}"


# fmt: off
KNOBS: dict[str, Knob] = {k.name: k for k in (
    Knob("host",           _flag,                     False,   "run fusions of CPU tensors on the host backend, not in torch"),
    Knob("fallback",       _one_of("torch", "error"), "torch", "what runs a region that cannot be translated, compiled or loaded"),
    Knob("keep_rounding",  _flag,                     False,   "keep every cast to a 16-bit float and back, as eager rounds"),
    Knob("fuel",           _optional_int,             None,    "fusions that the executor may make, to find one that goes wrong; nothing: no limit"),
    Knob("check",          _flag,                     False,   "verify each fusion, and again after every pass"),
    Knob("dump",           str,                       "",      "stages to print when a fusion is planned, separated by commas: fusion, layouts, "
                                                               "aliases, segments, kernels, sources, launches, or all"),
    Knob("cache_dir",      str,                       "",      "folder of compiled kernels; empty: the user's; 'off': none"),
    Knob("cache_limit_mb", int,                       512,     "size that the folder of compiled kernels is trimmed to"),
    Knob("opt_level",      int,                       3,       "optimisation level of device code, 0 to 3"),
    Knob("fma",            _flag,                     True,    "contract a * b + c into one rounding"),
    Knob("fast_math",      _flag,                     False,   "approximate division and square roots, flush subnormals"),
    Knob("max_registers",  _optional_int,             None,    "limit of registers a thread"),
    Knob("lineinfo",       _flag,                     False,   "keep source lines in device code, for profilers"),
    Knob("compiled_launch", _one_of("on", "off", "host"), "on", "calls in compiled code, where a C++ compiler is found; host: of CPU tensors too"),
    Knob("host_seed",      int,                       0,       "seed of the order in which the host backend runs threads and blocks"),
)}
# fmt: on

_overrides: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("thunder_fuser_config", default={})


def _knob(name: str) -> Knob:
    knob = KNOBS.get(name)
    if knob is None:
        raise InputError(f"'{name}' is not a configuration option; the options are {', '.join(sorted(KNOBS))}.")
    return knob


def get(name: str) -> Any:
    """The value of one knob. Raises `InputError` for an unknown name or an environment value that does not parse."""
    knob = _knob(name)
    overrides = _overrides.get()
    if name in overrides:
        return overrides[name]
    text = os.environ.get(knob.env)
    if text is None:
        return knob.default
    try:
        return knob.parse(text)
    except ValueError:
        raise InputError(f"{knob.env} is '{text}', expected {_expected(knob)}.") from None


def _expected(knob: Knob) -> str:
    return "an integer" if knob.parse is int else knob.parse.__name__


def _checked(name: str, value: Any) -> Any:
    """`value` if its text would parse to it, which is what the environment accepts too."""
    knob = _knob(name)
    text = "" if value is None else str(int(value)) if isinstance(value, bool) else str(value)
    try:
        parsed = knob.parse(text)
    except ValueError:
        raise InputError(f"'{name}' was set to {value!r}, expected {_expected(knob)}.") from None
    return parsed


@contextlib.contextmanager
def override(**values: Any) -> Iterator[None]:
    """Set knobs for a block of code: `with config.override(fallback="error"): ...`. Nests."""
    checked = {name: _checked(name, value) for name, value in values.items()}
    token = _overrides.set({**_overrides.get(), **checked})
    try:
        yield
    finally:
        _overrides.reset(token)


def table() -> str:
    """The knobs as aligned text: environment variable, value now, help."""
    rows = [(k.env, repr(get(k.name)), k.help) for k in KNOBS.values()]
    width, value_width = (max(len(r[i]) for r in rows) for i in (0, 1))
    return "\n".join(f"{env:{width}}  {value:{value_width}}  {text}" for env, value, text in rows)
