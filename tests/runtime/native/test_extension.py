"""Building the extension: in the background, once, and nothing of it outlives the process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from thunder_fuser import config
from thunder_fuser.runtime.native import extension
from thunder_fuser.runtime.native.extension import EXTENSION, Extension

LEFT_EARLY = """
import time
from thunder_fuser.runtime.native.extension import EXTENSION
EXTENSION.when_ready(print)
while EXTENSION._compiler is None:
    time.sleep(0.01)
print(EXTENSION._compiler.pid, EXTENSION.state)
"""


def _running(group: str) -> list[str]:
    """The processes of a group, those left out that have ended and wait for someone to ask how."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in listed if line.split()[0] == group and not line.split()[1].startswith("Z")]


def test_a_process_that_ends_early_leaves_nothing_behind(tmp_path: Path) -> None:
    env = {**os.environ, "THUNDER_FUSER_CACHE_DIR": "off", "TMPDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", LEFT_EARLY], capture_output=True, text=True, env=env, check=True)
    group, state = ended.stdout.split(maxsplit=1)
    assert state == "not needed yet\n"
    for _ in range(100):  # what was killed may take a moment to be gone
        if not _running(group):
            break
        time.sleep(0.1)
    assert not _running(group)
    assert not list(tmp_path.iterdir())


def test_it_is_kept_with_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    assert EXTENSION.wait() == "compiled"  # in the folder now
    again = Extension()
    monkeypatch.setattr(again, "_compile", lambda: pytest.fail("compiled again"))
    ready: list[object] = []
    again.when_ready(ready.append)
    assert again.wait() == "compiled"
    assert ready == [again.module] and again.module.Call
    again.when_ready(ready.append)
    assert len(ready) == 2


@pytest.mark.parametrize("change", ["flags", "torch", "source"])
def test_what_decides_the_library_is_in_its_key(change: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = extension._key()
    if change == "flags":
        monkeypatch.setattr(extension, "_FLAGS", ("-O0", *extension._FLAGS))
    elif change == "torch":
        monkeypatch.setattr(extension.torch, "__version__", "2.12.0")
    else:
        for name in extension._SOURCES:
            (tmp_path / name).write_text((extension._FOLDER / name).read_text() + "\n")
        monkeypatch.setattr(extension, "_FOLDER", tmp_path)
    assert extension._key() != before


@pytest.mark.parametrize("missing, sentence", [("_PYTHON", "There is no Python.h in '{}'; install this Python's development files."),
                                               ("_TORCH", "There are no C++ headers in '{}/include'; install torch as its wheels bring it.")])
def test_missing_headers_are_one_sentence(missing: str, sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(extension, missing, tmp_path)
    with config.override(cache_dir="off"):
        assert Extension().wait() == sentence.format(tmp_path)


def test_code_that_the_compiler_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in extension._SOURCES:
        (tmp_path / name).write_text("not C++\n")
    monkeypatch.setattr(extension, "_FOLDER", tmp_path)
    broken = Extension()
    with config.override(cache_dir="off"):
        assert broken.wait().endswith("refused the compiled calls.") and broken.module is None
