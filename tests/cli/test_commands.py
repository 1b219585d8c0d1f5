"""The small commands: ops, config, cache, doctor, and what the parser refuses."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from thunder_fuser import __version__, config
from thunder_fuser.cli import doctor
from thunder_fuser.cli.main import CONFIGS, main
from thunder_fuser.cli.rope import HEADS
from thunder_fuser.compiler import compile_fusion
from thunder_fuser.ir.ops import POINTWISE, REDUCTIONS
from thunder_fuser.ir.parser import parse

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["whole", "off", "blocked"])
def folder(request, monkeypatch, tmp_path):
    """A cache folder of each kind; the path that the knob names."""
    if request.param == "blocked":
        (tmp_path / "file").write_text("")
    path = {"whole": str(tmp_path / "kernels"), "off": "off", "blocked": str(tmp_path / "file" / "kernels")}[request.param]
    monkeypatch.setenv("THUNDER_FUSER_CACHE_DIR", path)
    return request.param, path


def test_ops_lists_every_row(capsys):
    assert main(["ops"]) == 0
    first_words = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line]
    for name in (*POINTWISE, *REDUCTIONS):
        assert first_words.count(name) == 1


def test_config_is_the_table_of_knobs(capsys, monkeypatch):
    monkeypatch.setenv("THUNDER_FUSER_MAX_REGISTERS", "64")
    assert main(["config"]) == 0
    out = capsys.readouterr().out
    assert all(k.env in out and k.help in out for k in config.KNOBS.values())
    assert "64" in next(line for line in out.splitlines() if "MAX_REGISTERS" in line)


def test_a_knob_that_does_not_parse_is_one_sentence(capsys, monkeypatch):
    monkeypatch.setenv("THUNDER_FUSER_FMA", "perhaps")
    assert main(["config"]) == 1
    assert capsys.readouterr().err == "thunder-fuser config: THUNDER_FUSER_FMA is 'perhaps', expected 0 or 1.\n"


@pytest.mark.filterwarnings("ignore:The folder of compiled kernels")
def test_cache(folder, capsys):
    kind, path = folder
    number = random.random()  # so that no other run has compiled this kernel
    fusion = parse(f"fusion f(x: f32[7]) {{\n  y: f32[7] = mul(x, {number!r})\n  return y\n}}")
    compile_fusion(fusion, "host")(torch.ones(7))
    code = main(["cache", "info"])
    info = capsys.readouterr().out
    if kind == "whole":
        held = re.match(rf"{re.escape(path)}: (\d) compiled kernels?, \d\.\d MiB of 512 MiB\.", info)
        assert code == 0 and 1 <= int(held[1]) <= 2  # the host backend's own library may be a second one
        assert main(["cache", "clear"]) == 0 and capsys.readouterr().out.startswith(f"Deleted {held[1]} compiled kernel")
        assert main(["cache", "info"]) == 0 and f"{path}: 0 compiled kernels, 0.0 MiB" in capsys.readouterr().out
    elif kind == "off":
        assert code == 0 and "in memory only" in info
    else:
        assert code == 1 and info == ""


def test_doctor_finds_the_host_backend(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    lines = {line[:12].strip(): line for line in out.splitlines()}
    assert torch.__version__ in lines["torch"] and "ok" in lines["torch"] and "0.2.6" in lines["Thunder"]
    assert "a kernel was compiled, run and right" in lines["C++ compiler"] and "compiles for sm_90" in lines["NVRTC"]
    assert "'thunder-fuser demo' runs here" in out and "on the host backend" in out


def test_doctor_says_what_to_do_about_a_missing_compiler(capsys, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["doctor"]) == (0 if torch.cuda.is_available() else 1)
    out = capsys.readouterr().out
    assert "none of no-such-compiler is on the PATH" in out and "Install g++ or clang++, or set CXX" in out
    assert ("Nothing can run here yet." in out) is not torch.cuda.is_available()


def test_doctor_survives_whatever_is_broken(monkeypatch):
    def broken():
        raise OSError("libcuda.so.1: cannot open shared object file\nand more")

    finding = doctor._guarded("GPU", broken)
    assert finding.state == doctor.BAD and finding.text == "OSError: libcuda.so.1: cannot open shared object file" and finding.advice


@pytest.mark.parametrize("version, state", [("2.10.0", doctor.BAD), ("2.11.0+cu130", doctor.GOOD), ("2.12.1", doctor.GOOD), ("2.13.0", doctor.BAD)])
def test_doctor_knows_the_pins(version, state):
    assert doctor._versioned("torch", "torch", version).state == state


def test_help_needs_no_torch_and_a_missing_one_is_one_sentence():
    """In a process where importing torch fails."""
    def run(*words):
        program = f"import sys; sys.modules['torch'] = None; from thunder_fuser.cli.main import main; sys.exit(main({list(words)!r}))"
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)

    assert run("--version").stdout == f"thunder_fuser {__version__}\n"
    assert "--backend" in run("demo", "--help").stdout
    failed = run("demo")
    assert failed.returncode == 1 and "thunder-fuser doctor" in failed.stderr and "Traceback" not in failed.stderr
    doctored = run("doctor")
    assert doctored.returncode == 1 and "Nothing can run here yet" in doctored.stdout and "torch         missing" in doctored.stdout


def test_the_module_runs_as_the_script_does():
    ran = subprocess.run([sys.executable, "-m", "thunder_fuser", "--version"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.stdout == f"thunder_fuser {__version__}\n"


@pytest.mark.parametrize("words", [[], ["nothing"], ["demo", "--config", "gpt-2"], ["cache"], ["cache", "burn"]])
def test_what_the_parser_refuses(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2 and "usage: thunder-fuser" in capsys.readouterr().err


def test_the_parser_offers_the_demos_own_heads():
    assert tuple(HEADS) == CONFIGS
