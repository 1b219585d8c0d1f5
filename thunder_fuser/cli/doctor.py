"""`thunder-fuser doctor`: what this machine has of what the package needs, in plain words, and what to do about the rest.

Nothing that may be missing is imported at the top: each finding imports what it looks at, and a failure is its result.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thunder_fuser.cli import terminal

GOOD, NOTE, BAD = "ok", "note", "missing"
_FUSION = "fusion probe(x: f32[1000]) {\n  y: f32[1000] = mul(x, 2.0)\n  return y\n}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, what it is, and what to do if it is not as it should be."""

    subject: str
    state: str
    text: str
    advice: str = ""


def run(arguments: argparse.Namespace) -> int:
    """Prints all findings; 1 if no backend can run."""
    findings = [_guarded(subject, look) for subject, look in (
        ("Python", _python), ("torch", _torch), ("Thunder", _thunder), ("cuda-python", _cuda_python), ("NVRTC", _nvrtc), ("GPU", _gpu),
        ("C++ compiler", _host), ("calls in C++", _compiled_calls), ("cache folder", _cache))]
    width = max(len(f.subject) for f in findings)
    paint = {GOOD: terminal.good, NOTE: terminal.dim, BAD: terminal.bad}
    for f in findings:
        print(f"{f.subject:{width}}  {paint[f.state](f'{f.state:7}')}  {f.text}")
        if f.advice:
            print(f"{'':{width}}           {terminal.bold(f.advice)}")
    states = {f.subject: f.state for f in findings}
    backends = {"on the GPU": ("NVRTC", "GPU"), "on the host backend": ("C++ compiler",)}
    runs = [where for where, needs in backends.items() if all(states[s] == GOOD for s in ("torch", "Thunder", "cuda-python", *needs))]
    print()
    print(f"'thunder-fuser demo' runs here {' and '.join(runs)}." if runs else terminal.bad("Nothing can run here yet."))
    return 0 if runs else 1


def _guarded(subject: str, look: Callable[[], Finding]) -> Finding:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return look()
    except Exception as error:  # whatever a broken installation raises is the finding
        return Finding(subject, BAD, f"{type(error).__name__}: {_first_line(error)}", _ADVICE.get(subject, ""))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "no reason given")


_ADVICE = {
    "torch": "Install the project again in a fresh environment: pip brings the torch that fits.",
    "Thunder": "Install the project again in a fresh environment: pip brings the Thunder that fits, and a torch that it can be imported with.",
    "cuda-python": "pip install 'cuda-python>=13,<14'",
    "NVRTC": "pip install 'cuda-python>=13,<14' and a torch built for CUDA; the host backend does without.",
    "GPU": "Kernels cannot be run on the GPU; see the reason above. 'thunder-fuser demo --backend host' does without.",
    "C++ compiler": "Install g++ or clang++, or set CXX; the host backend needs it, and calls are quicker with it.",
    "cache folder": "Set THUNDER_FUSER_CACHE_DIR to a folder that can be written, or to 'off'.",
}


def _required(package: str) -> str:
    """What the installed project says about a package's version, as in '<2.13,>=2.11'."""
    from packaging.requirements import Requirement

    found = [Requirement(r) for r in importlib.metadata.requires("thunder-fuser") or []]
    return next(str(r.specifier) for r in found if r.name == package)


def _versioned(subject: str, package: str, version: str, more: str = "") -> Finding:
    from packaging.specifiers import SpecifierSet

    wanted = _required(package)
    if SpecifierSet(wanted).contains(version, prereleases=True):
        return Finding(subject, GOOD, f"{package} {version}{more}")
    return Finding(subject, BAD, f"{package} {version}{more}, expected {wanted}", _ADVICE[subject])


def _python() -> Finding:
    return Finding("Python", GOOD, f"{platform.python_version()} in {sys.prefix}")


def _torch() -> Finding:
    torch = importlib.import_module("torch")
    built = f", built for CUDA {torch.version.cuda}" if torch.version.cuda else ", built without CUDA"
    return _versioned("torch", "torch", torch.__version__, built)


def _thunder() -> Finding:
    importlib.import_module("thunder_fuser.executors")
    return _versioned("Thunder", "lightning-thunder", importlib.metadata.version("lightning-thunder"))


def _cuda_python() -> Finding:
    importlib.import_module("cuda.bindings.driver")
    importlib.import_module("cuda.core.utils")
    core = importlib.metadata.version("cuda-core")
    return _versioned("cuda-python", "cuda-python", importlib.metadata.version("cuda-python"), f", cuda-core {core}")


def _nvrtc() -> Finding:
    nvrtc = importlib.import_module("thunder_fuser.runtime.nvrtc")
    source = importlib.import_module("thunder_fuser.runtime.source").KernelSource("probe", 'extern "C" __global__ void probe() {}\n')
    options = importlib.import_module("thunder_fuser.runtime.options").CompileOptions()
    cubin = nvrtc.compile_cubin(source, "sm_90", options)
    return Finding("NVRTC", GOOD, f"{nvrtc.nvrtc_version()}, compiles for sm_90 ({len(cubin):,} bytes)")


def _gpu() -> Finding:
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return Finding("GPU", NOTE, f"none that torch can use: {_why_no_gpu(torch)}",
                       "The host backend runs the same kernels on the CPU, for reading and debugging.")
    driver = importlib.import_module("cuda.bindings.driver")
    version = int(driver.cuDriverGetVersion()[1])
    major, minor = torch.cuda.get_device_capability()
    name = f"{torch.cuda.get_device_name()} (sm_{major}{minor}), driver for CUDA {version // 1000}.{version % 1000 // 10}"
    _probe("cuda")
    return Finding("GPU", GOOD, f"{name}; a kernel was compiled, launched and right")


def _why_no_gpu(torch: Any) -> str:
    try:
        torch.cuda.init()
    except Exception as error:  # torch's own words: no driver, an old one, built without CUDA
        return _first_line(error).partition(". ")[0]
    return "no device is visible"


def _host() -> Finding:
    toolchain = importlib.import_module("thunder_fuser.runtime.host.toolchain")
    path, version = toolchain.identity().splitlines()[:2]
    _probe("host")
    return Finding("C++ compiler", GOOD, f"{path} ({version}); a kernel was compiled, run and right")


def _compiled_calls() -> Finding:
    extension = importlib.import_module("thunder_fuser.runtime.native.extension")
    missing = extension.obstacle()
    if missing is None and importlib.import_module("torch").cuda.is_available():
        missing = None if extension.EXTENSION.wait() == "compiled" else extension.EXTENSION.state
    if missing:
        return Finding("calls in C++", NOTE, missing, "Calls stay in Python, which costs some microseconds each.")
    return Finding("calls in C++", GOOD, "compiler and headers are there to take calls out of Python")


def _probe(backend: str) -> None:
    """Compiles and runs a small fusion. Raises what goes wrong."""
    torch = importlib.import_module("torch")
    fusion = importlib.import_module("thunder_fuser.ir.parser").parse(_FUSION)
    x = torch.arange(1000.0, device="cuda" if backend == "cuda" else "cpu")
    (y,) = importlib.import_module("thunder_fuser.compiler").compile_fusion(fusion, backend)(x)
    if not torch.equal(y, x * 2):
        raise ArithmeticError("a kernel gave wrong results")


def _cache() -> Finding:
    store = importlib.import_module("thunder_fuser.runtime.cache").current()
    if store.folder is None:
        return Finding("cache folder", NOTE, "off: kernels are compiled again by every process")
    held = store.usage()
    if held is None or not os.access(store.folder, os.W_OK):
        return Finding("cache folder", NOTE, f"{store.folder} cannot be {'used' if held is None else 'written'}", _ADVICE["cache folder"])
    return Finding("cache folder", GOOD, f"{store.folder}: {held[0]} compiled kernels, {held[1] / 2**20:.1f} MiB")
