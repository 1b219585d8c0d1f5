"""NVRTC and the system's C++ compiler: refusals that point at the line, missing tools, the same text for both."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runtime import handwritten as kernels
from thunder_fuser import config
from thunder_fuser.errors import CompileError, InputError, LaunchError
from thunder_fuser.runtime import nvrtc
from thunder_fuser.runtime.host import backend, toolchain
from thunder_fuser.runtime.options import CompileOptions
from thunder_fuser.runtime.source import KernelSource

BAD = KernelSource("bad", 'extern "C" __global__ void bad(float* o) {\n  o[0] = 1.0f;\n  o[1] = missing;\n}\n')


def test_nvrtc_refusal_has_the_log_and_the_numbered_line():
    with pytest.raises(CompileError) as caught:
        nvrtc.compile_cubin(BAD, "sm_90", CompileOptions())
    text = str(caught.value)
    assert "'bad' for sm_90" in text and 'identifier "missing" is undefined' in text and "    3 |   o[1] = missing;" in text


def test_nvrtc_refuses_an_unknown_architecture():
    with pytest.raises(CompileError, match="invalid value for --gpu-architecture"):
        nvrtc.compile_cubin(kernels.COPY, "sm_1", CompileOptions())


def test_nvrtc_version():
    assert re.fullmatch(r"1[2-9]\.\d+", nvrtc.nvrtc_version())


def test_host_refusal_has_the_log_and_the_numbered_line():
    with pytest.raises(CompileError) as caught:
        toolchain.compile_library(BAD, CompileOptions())
    text = str(caught.value)
    assert "refused kernel 'bad'" in text and "missing" in text and "    3 |   o[1] = missing;" in text


def test_shared_memory_must_be_declared_by_macro():
    unit = KernelSource("raw", 'extern "C" __global__ void raw(float* o) {\n  __shared__ float x[4];\n  o[0] = x[0];\n}\n')
    with pytest.raises(CompileError, match="TF_SHARED"):
        toolchain.compile_library(unit, CompileOptions())


def test_no_compiler_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompileError, match=r"no C\+\+ compiler: none of c\+\+, g\+\+, clang\+\+ is on the PATH"):
        toolchain.compile_library(kernels.COPY, CompileOptions())


def test_cxx_is_obeyed(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", str(tmp_path / "nothing"))
    with pytest.raises(CompileError, match="none of .*nothing is on the PATH"):
        toolchain.compiler()
    real = subprocess.check_output(["sh", "-c", "command -v c++"], text=True).strip()
    wrapper = tmp_path / "my compiler"
    wrapper.write_text(f'#!/bin/sh\ntouch "{tmp_path}/used"\nexec {real} "$@"\n')
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(wrapper))
    assert toolchain.compile_library(kernels.COPY, CompileOptions())[:4] == b"\x7fELF"
    assert (tmp_path / "used").exists()


def test_a_compiler_that_cannot_run_is_one_sentence(monkeypatch, tmp_path):
    broken = tmp_path / "broken"
    broken.write_bytes(b"\0\0\0\0")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(CompileError, match="could not be run"):
        toolchain.compile_library(kernels.COPY, CompileOptions())


def test_both_compilers_are_given_the_same_bytes(monkeypatch):
    given = []
    run, create = toolchain._run, nvrtc.nvrtc.nvrtcCreateProgram

    def spy_run(command, folder, *rest):
        given.append((folder / "copy_bf16.cu").read_bytes())
        return run(command, folder, *rest)

    def spy_create(text, *rest):
        given.append(text)
        return create(text, *rest)

    monkeypatch.setattr(toolchain, "_run", spy_run)
    monkeypatch.setattr(nvrtc.nvrtc, "nvrtcCreateProgram", spy_create)
    toolchain.compile_library(kernels.COPY, CompileOptions())
    nvrtc.compile_cubin(kernels.COPY, "sm_90", CompileOptions())
    assert given == [kernels.COPY.text.encode()] * 2


def test_a_library_that_is_none_is_refused():
    with pytest.raises(CompileError, match="could not be loaded"):
        backend.load(b"not a library", kernels.COPY)


def test_too_much_shared_memory_is_an_error():
    text = 'extern "C" __global__ void big(char* o) { TF_SHARED(char, x, 300000); x[threadIdx.x] = 1; o[0] = x[0]; }'
    from thunder_fuser.runtime.compile_pool import POOL

    kernel = POOL.host_kernel(KernelSource("big", kernels.prelude() + text)).result()
    for _ in range(2):
        with pytest.raises(LaunchError, match="more than 227 KiB"):
            kernel.launcher(1, 1, 0, ["ptr"])(0, 0)


def test_options_print_and_check():
    options = CompileOptions(max_registers=64)
    assert str(options) == "opt_level=3 fma=True fast_math=False max_registers=64 lineinfo=False"
    assert "--maxrregcount=64" in nvrtc.flags("sm_90", options) and hash(options) == hash(replace(options))
    with pytest.raises(InputError, match="level is 4"):
        CompileOptions(opt_level=4)
    with pytest.raises(InputError, match="limit is 8"):
        CompileOptions(max_registers=8)


@pytest.mark.parametrize("change", [{"opt_level": 0}, {"fma": False}])
def test_options_that_slow_kernels_warn_once(change):
    program = (
        "import warnings\nfrom thunder_fuser.runtime.options import CompileOptions\n"
        "with warnings.catch_warnings(record=True) as seen:\n    warnings.simplefilter('always')\n"
        f"    CompileOptions(**{change}); CompileOptions(**{change})\n"
        "assert len(seen) == 1 and 'slower' in str(seen[0].message), seen"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ})


def test_options_follow_the_configuration():
    with config.override(max_registers=40, lineinfo=True):
        assert CompileOptions.from_config() == CompileOptions(max_registers=40, lineinfo=True)


def test_no_include_in_the_prelude_or_the_stand_in():
    folder = Path(toolchain.__file__).parent
    for text in (kernels.prelude(), (folder / "cuda_on_host.h").read_text(), (folder / "footer.h").read_text()):
        assert not re.search(r"^\s*#\s*include", text, re.MULTILINE)
