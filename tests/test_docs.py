"""README and CONTRIBUTING say what is true: examples are run, tables and commands compared with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from thunder_fuser import config

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)


def without_hashes(text):
    return re.sub(r"_[0-9a-f]{12}\b", "_HASH", text).strip()


def test_there_are_examples():
    assert len(EXAMPLES) == README.count("```python") == 2


@pytest.mark.parametrize(("code", "output"), EXAMPLES, ids=["jit", "definition"])
def test_example(code, output, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, "-W", "ignore", str(script)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert without_hashes(done.stdout) == without_hashes(output)


def test_environment_table_is_that_of_the_code():
    rows = re.findall(r"^\| `(THUNDER_FUSER_\w+)` \| (.*?) \| (.*?) \|$", README, re.MULTILINE)
    assert rows == [(k.env, repr(k.default), k.help) for k in config.KNOBS.values()]


def test_commands_are_those_of_ci_and_of_the_command_line():
    commands = re.findall(r"```sh\n(.*?)\n```", README)
    assert len(commands) == 2 and commands[0].endswith("thunder-fuser demo") and commands[1].endswith("-m pytest -n auto")
    (pattern,) = re.findall(r"grep -m1 -E '(.*)' README.md", (ROOT / ".ci" / "run").read_text())
    assert [line for line in README.splitlines() if re.search(pattern, line)] == commands[1:]


def test_named_commands_exist():
    named = set(re.findall(r"`thunder-fuser ([a-z]+)", README)) | {"cache", "config"}
    for name in named:
        done = subprocess.run([sys.executable, "-m", "thunder_fuser", name, "--help"], capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 0, name
    assert named == {"demo", "doctor", "ops", "cache", "config"}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/decisions/README.md", "docs/architecture.md", "docs/fusion_definition.md"])
def test_links_and_named_files_exist(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), target
    for name in re.findall(r"`((?:tests|benchmarks|docs|thunder_fuser)/[\w/.-]+)`", text):
        assert (ROOT / name).exists(), name
