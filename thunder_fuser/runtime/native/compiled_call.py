"""An executable's function in compiled code, in place of the Python function as soon as the extension has been built.

Called by `Executable`, which tells it of each plan that it makes or drops. The compiled function answers for inputs that
are exactly what a plan was made for, and hands everything else to the Python function.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder_fuser import config
from thunder_fuser.runtime.launch import Launcher
from thunder_fuser.runtime.launch_plan import LaunchPlan
from thunder_fuser.runtime.native.extension import EXTENSION


@dataclass(frozen=True, slots=True)
class TensorPattern:
    """A tensor that a plan was made for. `low_bits` is its address modulo 16, `bytes` from the first element's first to the
    last one's last."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    low_bits: int
    bytes: int


@dataclass(frozen=True, slots=True)
class NumberPattern:
    """A number, by its struct-module code; for a complex one that of its parts."""

    code: str
    complex: bool


@dataclass(frozen=True, slots=True)
class ItemPattern:
    """The one element of a tensor on the CPU as a number."""

    dtype: torch.dtype
    code: str
    complex: bool


Pattern = TensorPattern | NumberPattern | ItemPattern


class CompiledCall:
    """Plans of one executable on their way into compiled code; `use` is called with the function once there is one."""

    def __init__(self, python: Callable[..., list[Any]], last: list[Any], inputs: int, use: Callable[[Callable[..., list[Any]]], None]) -> None:
        self._python, self._last, self._inputs, self._use = python, last, inputs, use
        self._lock = threading.RLock()
        self._plans: dict[Any, tuple[Any, ...]] = {}  # those that wait for the extension
        self._call: Any = None

    @property
    def served(self) -> int:
        """Calls that no Python function took part in, but for launchers of the host backend."""
        return self._call.served if self._call is not None else 0

    def add(self, key: Any, patterns: Sequence[Pattern], plan: LaunchPlan, launchers: Sequence[Launcher], device: torch.device) -> None:
        """One more plan; ignored where the configuration keeps plans of this device in Python."""
        wanted = config.get("compiled_launch")
        if wanted == "off" or (wanted == "on" and device.type != "cuda"):
            return
        only_device = device.type != "cuda" or torch.cuda.device_count() == 1
        with self._lock:
            self._plans[key] = (key, tuple(patterns), plan, tuple(launchers), device, only_device)
            if self._call is not None:
                self._take_over()
                return
        me = weakref.ref(self)
        EXTENSION.when_ready(lambda module: _ready(me, module))

    def remove(self, key: Any) -> None:
        """Forgets a plan; all of them for None."""
        with self._lock:
            if key is None:
                self._plans.clear()
            else:
                self._plans.pop(key, None)
            if self._call is not None:
                self._call.remove(key)

    def _take_over(self) -> None:
        while self._plans:
            self._call.add(*self._plans.popitem()[1])

    def _start(self, module: Any) -> None:
        with self._lock:
            if self._call is None:
                self._call = module.Call(self._python, self._last, self._inputs)
                self._take_over()
                self._use(self._call)
            else:
                self._take_over()


def _ready(me: weakref.ref[CompiledCall], module: Any) -> None:
    call = me()
    if call is not None:
        call._start(module)
