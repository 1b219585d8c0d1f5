"""Launches through compiled code: launcher.cpp as an extension of the running interpreter, where a C++ compiler is found.

A launch from Python costs some 3 us more than the driver call itself. Launch plans come here (`upgrade`) with a bound
function; its Python launchers are replaced by compiled ones, now or as soon as the extension has been built, which
happens once in the background and is kept in the cache of compiled code. Without a compiler or Python's headers
the Python launchers stay, which `state()` tells.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sysconfig
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import FunctionType
from typing import Any

from thunder_fuser import config
from thunder_fuser.errors import CompileError
from thunder_fuser.runtime import cache
from thunder_fuser.runtime.host import toolchain

_SOURCE = Path(__file__).with_name("launcher.cpp")
_FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a compiled launcher is made of: addresses of the driver's cuLaunchKernelEx and of the kernel, the launch shape,
    a struct-module code an argument, and the Python launcher that answers for a launch that the driver refuses."""

    driver: int
    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    cooperative: bool
    codes: str
    refused: Callable[..., None]


class _Extension:
    """The extension of this process: not asked for, being built, ready, or impossible."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)  # a thread that was building does not survive a fork

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self.module: Any = None
        self.state = "not needed yet"
        self._building: threading.Thread | None = None
        self._waiting: list[tuple[weakref.ref[FunctionType], str, Recipe]] = []

    def upgrade(self, run: FunctionType, name: str, recipe: Recipe) -> None:
        with self._lock:
            if self.module is None:
                if self._building is None:
                    self._building = threading.Thread(target=self._build, args=(cache.current(),), name="thunder_fuser launcher", daemon=True)
                    self._building.start()
                if self._building.is_alive():
                    self._waiting.append((weakref.ref(run), name, recipe))
                return
        self._replace(run, name, recipe)

    def wait(self) -> None:
        """Until it is ready or known to be impossible, if it was asked for."""
        building = self._building
        if building is not None:
            building.join()

    def _build(self, store: cache.KernelCache) -> None:
        module, state = None, "compiled"
        try:
            module = _load(store.get_or_compile(_key(), _compile))
        except CompileError as e:
            state = str(e).partition("\n")[0]
        with self._lock:
            self.module, self.state, waiting = module, state, self._waiting
            self._waiting = []
        if module is not None:
            for reference, name, recipe in waiting:
                run = reference()
                if run is not None:
                    self._replace(run, name, recipe)

    def _replace(self, run: FunctionType, name: str, recipe: Recipe) -> None:
        r = recipe
        run.__globals__[name] = self.module.Launcher(r.driver, r.function, r.grid, r.block, r.shared_bytes, r.cooperative, r.codes, r.refused)


def upgrade(run: FunctionType, name: str, launcher: Callable[..., None]) -> None:
    """Lets the global `name` of `run` be a compiled launcher in `launcher`'s place, if that has a `recipe`."""
    recipe = getattr(launcher, "recipe", None)
    if recipe is not None and config.get("compiled_launch"):
        _extension.upgrade(run, name, recipe)


def wait() -> None:
    """Returns when compiled launchers are in place, or known to be impossible, for every plan made so far."""
    _extension.wait()


def state() -> str:
    """"compiled", "not needed yet", or one sentence that says why launches stay in Python."""
    return _extension.state


def _key() -> str:
    parts = (toolchain.identity(), " ".join(_FLAGS), str(sysconfig.get_config_var("SOABI")), _SOURCE.read_text())
    return hashlib.sha256("\0".join(("launcher", *parts)).encode()).hexdigest()


def _compile() -> bytes:
    path = toolchain.compiler()
    with tempfile.TemporaryDirectory(prefix="thunder_fuser_") as folder:
        library = Path(folder) / "tf_launcher.so"
        command = [path, *_FLAGS, f"-I{sysconfig.get_path('include')}", str(_SOURCE), "-o", str(library)]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as e:
            raise CompileError(f"The C++ compiler '{path}' could not be run: {e}.") from e
        if ended.returncode != 0:
            found = (Path(sysconfig.get_path("include")) / "Python.h").is_file()
            why = "refused the launcher" if found else "does not find Python.h; install this Python's development files"
            raise CompileError(f"The C++ compiler '{path}' {why}.\n{ended.stderr}")
        return library.read_bytes()


def _load(library: bytes) -> Any:
    with tempfile.NamedTemporaryFile(prefix="tf_launcher_", suffix=".so") as file:
        file.write(library)
        file.flush()
        loader = ExtensionFileLoader("tf_launcher", file.name)
        try:
            module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("tf_launcher", file.name, loader=loader))
            loader.exec_module(module)
        except ImportError as e:
            raise CompileError(f"The compiled launcher could not be loaded: {e}.") from e
        return module


_extension = _Extension()
