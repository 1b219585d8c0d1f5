"""The system's C++ compiler: finds it, names it for cache keys, and turns a generated unit into a shared library.

Called by the compile pool through runtime/host/backend.py. Keeps nothing: caches are runtime/cache.py's.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from thunder_fuser.errors import CompileError
from thunder_fuser.runtime.options import CompileOptions
from thunder_fuser.runtime.source import KernelSource

_FOLDER = Path(__file__).parent
_FLAGS = (
    "-std=c++17",
    "-Og",  # a fifth faster to compile than -O1, which is twice as fast on millions of elements: tests have few
    "-w",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",  # or two libraries with one kernel name would share its static variables
    "-fwrapv",  # integers overflow as they do on the card and in torch
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fno-stack-protector",
    "-U_FORTIFY_SOURCE",  # its longjmp refuses to change stacks
)


def compiler() -> str:
    """Path of the C++ compiler: $CXX, else the first of c++, g++ and clang++. Raises `CompileError` if there is none."""
    asked = os.environ.get("CXX")
    names = (asked,) if asked else ("c++", "g++", "clang++")
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise CompileError(
        f"There is no C++ compiler: none of {', '.join(names)} is on the PATH; install one or set CXX."
    )


@functools.cache
def _version(path: str) -> str:
    shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return shown.stdout.partition("\n")[0] or shown.stderr.partition("\n")[0]


@functools.cache
def _support_text() -> str:
    return "".join((_FOLDER / name).read_text() for name in ("cuda_on_host.h", "footer.h", "fibers.cpp"))


def identity() -> str:
    """Everything but the source that decides the library: compiler, version, flags and the text of the stand-in."""
    path = compiler()
    return "\n".join((path, _version(path), " ".join(_FLAGS), _support_text()))


def build_fibers() -> bytes:
    """The library of fibers that kernels with barriers, shuffles or shared memory call."""
    path = compiler()
    with tempfile.TemporaryDirectory(prefix="thunder_fuser_") as folder:
        flags = [f for f in _FLAGS if f not in ("-Og", "-fvisibility=hidden")]
        return _run([path, *flags, "-O2", str(_FOLDER / "fibers.cpp")], Path(folder), "the host backend's fibers", None)


def compile_library(source: KernelSource, options: CompileOptions) -> bytes:
    """The shared library of `source`, with the entry `tf_host_launch`. Raises `CompileError` with the compiler's log.

    `options` are the card's; none of them changes what the host computes.
    """
    path = compiler()
    with tempfile.TemporaryDirectory(prefix="thunder_fuser_") as name:
        folder = Path(name)
        (folder / f"{source.name}.cu").write_text(source.text)
        unit = folder / "unit.cpp"
        unit.write_text(f'#include "{source.name}.cu"\n#include "footer.h"\nTF_HOST_LAUNCH({source.name})\n')
        command = [path, "-x", "c++", *_FLAGS, "-DTF_HOST", f"-I{_FOLDER}", "-include", str(_FOLDER / "cuda_on_host.h")]
        return _run([*command, str(unit)], folder, f"kernel '{source.name}'", source)


def _run(command: list[str], folder: Path, what: str, source: KernelSource | None) -> bytes:
    library = folder / "library.so"
    try:
        ended = subprocess.run([*command, "-o", str(library)], capture_output=True, text=True, check=False, cwd=folder)
    except OSError as e:
        raise CompileError(f"The C++ compiler '{command[0]}' could not be run: {e}.") from e
    if ended.returncode != 0:
        log = ended.stderr.strip()
        found = re.search(r"\.cu:(\d+):\d+: (?:fatal )?error", log)
        excerpt = source.numbered(around=int(found.group(1))) if source and found else ""
        raise CompileError(f"The C++ compiler '{command[0]}' refused {what}.\n{log}\n{excerpt}".rstrip())
    return library.read_bytes()
