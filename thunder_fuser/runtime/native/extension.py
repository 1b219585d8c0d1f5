"""call.cpp as an extension of the running interpreter and torch: built once in the background, kept in the cache of compiled code.

Called by compiled_call.py. Nothing waits for it: until it is there, and where it cannot be built (no C++ compiler, no
headers of Python or torch), calls stay in Python, which `state()` tells.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
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
_AFTER_SECONDS = 0.05  # the call that asks for it comes first


class Extension:
    """The extension of a process: not asked for, being built, ready, or impossible."""

    def __init__(self) -> None:
        self.module: Any = None
        self.state = "not needed yet"
        self._waiting: list[Callable[[Any], None]] = []
        self._start_anew()
        os.register_at_fork(after_in_child=self._start_anew)  # a thread that was building does not survive a fork
        atexit.register(self._stop)

    def _start_anew(self) -> None:
        self._lock = threading.Lock()
        self._building: threading.Thread | None = None
        self._compiler: subprocess.Popen[str] | None = None

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
        time.sleep(_AFTER_SECONDS)
        try:
            module, state = _load(store.get_or_compile(_key(), self._compile)), "compiled"
        except (CompileError, OSError) as e:
            state = str(e).partition("\n")[0]
        with self._lock:
            self.module, self.state, waiting = module, state, self._waiting
            self._waiting = []
        if module is not None:
            for use in waiting:
                use(module)

    def _compile(self) -> bytes:
        """The extension's library. Leaves the calling thread, which is one of its own, at the lowest priority."""
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)  # of this thread alone; the compiler inherits it
        missing = obstacle()
        if missing:
            raise CompileError(missing)
        path = toolchain.compiler()
        with tempfile.TemporaryDirectory(prefix="thunder_fuser_") as folder:
            library = Path(folder) / "tf_native.so"
            command = [path, *_FLAGS, f"-I{_TORCH / 'include'}", f"-I{_PYTHON}", str(_FOLDER / _SOURCES[0]), "-o", str(library), *_libraries()]
            try:
                place = {**os.environ, "TMPDIR": folder}
                self._compiler = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, env=place)
            except OSError as e:
                raise CompileError(f"The C++ compiler '{path}' could not be run: {e}.") from e
            log = self._compiler.communicate()[1]
            if self._compiler.returncode != 0:
                raise CompileError(f"The C++ compiler '{path}' refused the compiled calls.\n{log}")
            return library.read_bytes()

    def _stop(self) -> None:
        """At the end of the process, which does not wait for a compiler and leaves none behind."""
        building, compiler = self._building, self._compiler
        if building is not None and building.is_alive() and compiler is not None:
            with contextlib.suppress(OSError):
                os.killpg(compiler.pid, signal.SIGKILL)
            building.join(1.0)  # it removes its folder


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


def _libraries() -> list[str]:
    cuda = ["-ltorch_cuda", "-DTF_CUDA"] if (_TORCH / "lib" / "libtorch_cuda.so").is_file() else []
    return [f"-L{_TORCH / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10", *cuda]


def _key() -> str:
    texts = [(_FOLDER / name).read_text() for name in _SOURCES]
    parts = (toolchain.identity(), " ".join(_FLAGS), str(sysconfig.get_config_var("SOABI")), torch.__version__, *_libraries(), *texts)
    return hashlib.sha256("\0".join(("extension", *parts)).encode()).hexdigest()


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
