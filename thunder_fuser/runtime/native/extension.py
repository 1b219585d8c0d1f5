"""call.cpp as an extension of the running interpreter and torch: built once in the background, kept in the cache of compiled code.

Called by compiled_call.py. Nothing waits for it: until it is there, and where it cannot be built (no C++ compiler, no
headers of Python or torch), calls stay in Python, which `state()` tells.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

import torch

from thunder_fuser.errors import CompileError
from thunder_fuser.runtime import cache
from thunder_fuser.runtime.host import toolchain

_FOLDER = Path(__file__).parent
_SOURCES = ("call.cpp", "plan.h", "inputs.h", "launch.h")
_FLAGS = ("-std=c++20", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
_TORCH, _PYTHON = Path(torch.__file__).parent, Path(sysconfig.get_path("include"))
_LOWEST_PRIORITY = 19


class Extension:
    """The extension of a process: not asked for, being built, ready, or impossible."""

    def __init__(self) -> None:
        self.module: Any = None
        self.state = "not needed yet"
        self._waiting: list[Callable[[Any], None]] = []
        self._start_anew()
        os.register_at_fork(after_in_child=self._start_anew)  # a thread that was building does not survive a fork

    def _start_anew(self) -> None:
        self._lock = threading.Lock()
        self._building: threading.Thread | None = None

    def when_ready(self, use: Callable[[Any], None]) -> None:
        """Calls `use(module)` now, or from another thread once it has been built, or never."""
        with self._lock:
            if self.module is None:
                if self._building is None:
                    self._building = threading.Thread(target=self._build, args=(cache.current(),), name="thunder_fuser extension", daemon=True)
                    self._building.start()
                if self._building.is_alive():
                    self._waiting.append(use)
                return
        use(self.module)

    def wait(self) -> str:
        """Until it is ready or known to be impossible, asked for or not; returns the state."""
        self.when_ready(lambda module: None)
        if self._building is not None:
            self._building.join()
        return self.state

    def _build(self, store: cache.KernelCache) -> None:
        module = None
        try:
            module, state = _load(store.get_or_compile(_key(), _compile)), "compiled"
        except CompileError as e:
            state = str(e).partition("\n")[0]
        with self._lock:
            self.module, self.state, waiting = module, state, self._waiting
            self._waiting = []
        if module is not None:
            for use in waiting:
                use(module)


def obstacle() -> str | None:
    """One sentence on what is missing to build it; None if there is a compiler and there are headers."""
    try:
        toolchain.compiler()
    except CompileError as e:
        return str(e)
    if not (_PYTHON / "Python.h").is_file():
        return f"There is no Python.h in '{_PYTHON}'; install this Python's development files."
    if not (_TORCH / "include" / "torch" / "csrc").is_dir():
        return f"There are no C++ headers in '{_TORCH / 'include'}'; install torch as its wheels bring it."
    return None


def _cuda() -> bool:
    return (_TORCH / "lib" / "libtorch_cuda.so").is_file()


def _key() -> str:
    texts = [(_FOLDER / name).read_text() for name in _SOURCES]
    parts = (toolchain.identity(), " ".join(_FLAGS), str(sysconfig.get_config_var("SOABI")), torch.__version__, str(_cuda()), *texts)
    return hashlib.sha256("\0".join(("extension", *parts)).encode()).hexdigest()


def _compile() -> bytes:
    """The extension's library. Leaves the calling thread, which is one of its own, at the lowest priority."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)  # of this thread alone; the compiler inherits it
    missing = obstacle()
    if missing:
        raise CompileError(missing)
    path = toolchain.compiler()
    libraries = ["-ltorch_python", "-ltorch_cpu", "-lc10", *(["-ltorch_cuda", "-DTF_CUDA"] if _cuda() else [])]
    with tempfile.TemporaryDirectory(prefix="thunder_fuser_") as folder:
        library = Path(folder) / "tf_native.so"
        headers = [f"-I{_TORCH / 'include'}", f"-I{_PYTHON}"]
        command = [path, *_FLAGS, *headers, str(_FOLDER / _SOURCES[0]), "-o", str(library), f"-L{_TORCH / 'lib'}", *libraries]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as e:
            raise CompileError(f"The C++ compiler '{path}' could not be run: {e}.") from e
        if ended.returncode != 0:
            raise CompileError(f"The C++ compiler '{path}' refused the compiled calls.\n{ended.stderr}")
        return library.read_bytes()


def _load(library: bytes) -> Any:
    with tempfile.NamedTemporaryFile(prefix="tf_native_", suffix=".so") as file:
        file.write(library)
        file.flush()
        loader = ExtensionFileLoader("tf_native", file.name)
        try:
            module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("tf_native", file.name, loader=loader))
            loader.exec_module(module)
        except ImportError as e:
            raise CompileError(f"The compiled calls could not be loaded: {e}.") from e
        return module


EXTENSION = Extension()
