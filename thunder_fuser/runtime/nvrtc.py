"""NVRTC: one translation unit straight to a cubin for one architecture.

Called by the compile pool, from any thread. Needs no GPU and no driver. Keeps nothing: caches are runtime/cache.py's.
"""

from __future__ import annotations

import functools
import re

import torch  # noqa: F401  torch loads the NVRTC that came with it, so that cuda.bindings finds that one first
from cuda.bindings import nvrtc

from thunder_fuser.errors import CompileError
from thunder_fuser.runtime.options import CompileOptions
from thunder_fuser.runtime.source import KernelSource

_SUCCESS = nvrtc.nvrtcResult.NVRTC_SUCCESS


@functools.cache
def nvrtc_version() -> str:
    """The version of the NVRTC in use, as in '13.0'. Raises `CompileError` if there is none."""
    try:
        error, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as e:
        raise CompileError(f"NVRTC could not be loaded, install 'cuda-python' and the CUDA wheels of torch: {e}") from e
    _check(error)
    return f"{major}.{minor}"


def flags(arch: str, options: CompileOptions) -> tuple[str, ...]:
    """NVRTC's command line. `arch` is the target, as in 'sm_90'."""
    return (
        f"--gpu-architecture={arch}",
        "--std=c++17",
        "--minimal",  # leaves out built-in headers that the prelude does not need: 41 ms a kernel instead of 46
        "--diag-suppress=177",  # the prelude is whole in every unit; what a kernel leaves unused is no news
        "--no-cache",  # NVRTC's own disk cache would hide the log and hold a second copy
        f"--fmad={'true' if options.fma else 'false'}",
        "--ftz=true" if options.fast_math else "--ftz=false",
        "--prec-div=false" if options.fast_math else "--prec-div=true",
        "--prec-sqrt=false" if options.fast_math else "--prec-sqrt=true",
        *(() if options.opt_level == 3 else (f"--ptxas-options=-O{options.opt_level}",)),
        *(() if options.max_registers is None else (f"--maxrregcount={options.max_registers}",)),
        *(("--generate-line-info",) if options.lineinfo else ()),
    )


def compile_cubin(source: KernelSource, arch: str, options: CompileOptions) -> bytes:
    """The cubin of `source` for `arch` ('sm_90'). Raises `CompileError` with NVRTC's log and the numbered source."""
    nvrtc_version()
    error, program = nvrtc.nvrtcCreateProgram(source.text.encode(), f"{source.name}.cu".encode(), 0, [], [])
    _check(error)
    try:
        arguments = [flag.encode() for flag in flags(arch, options)]
        (error,) = nvrtc.nvrtcCompileProgram(program, len(arguments), arguments)
        if error != _SUCCESS:
            raise CompileError(_refusal(source, arch, error, _log(program)))
        error, size = nvrtc.nvrtcGetCUBINSize(program)
        _check(error)
        cubin = bytes(size)
        _check(nvrtc.nvrtcGetCUBIN(program, cubin)[0])
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _check(error: nvrtc.nvrtcResult) -> None:
    if error != _SUCCESS:
        text = nvrtc.nvrtcGetErrorString(error)[1].decode()
        raise CompileError(f"NVRTC failed outside the source: {text}.")


def _log(program: object) -> str:
    error, size = nvrtc.nvrtcGetProgramLogSize(program)
    if error != _SUCCESS:
        return ""
    log = bytes(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    return log.rstrip(b"\0\n").decode(errors="replace")


def _refusal(source: KernelSource, arch: str, error: nvrtc.nvrtcResult, log: str) -> str:
    reason = nvrtc.nvrtcGetErrorString(error)[1].decode()
    found = re.search(r"\.cu\((\d+)\): error", log)
    excerpt = source.numbered(around=int(found.group(1))) if found else ""
    return f"NVRTC refused kernel '{source.name}' for {arch} ({reason}).\n{log}\n{excerpt}".rstrip()
