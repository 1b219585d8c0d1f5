"""Thunder's own tests, from its wheel, on this executor: each module here is one of `thunder.tests`.

A part of them runs with the other tests: every module, every op in one of its dtypes, a few samples each. The whole runs
with --long. Tests of CUDA tensors are marked gpu. What cannot pass is listed in exceptions.txt.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import warnings
import zlib
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.thunder_suite import exceptions

HERE = Path(__file__).parent
ONCE_MORE = "THUNDER_SUITE_ONCE_MORE"

# Thunder's tests import these; the extra `suite` brings them.
COMPLETE = all(importlib.util.find_spec(m) for m in ("fdm", "transformers", "litgpt"))
if COMPLETE:
    from tests.thunder_suite import plugin, ran

    plugin.install()
    recorder = ran.Recorder()

collect_ignore_glob = [] if COMPLETE else ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    if COMPLETE:
        recorder.install()
        samples = config.getoption("--samples") or (None if config.getoption("--long") else 4)
        if samples is not None:
            plugin.thin_samples(samples)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """A test that fails has another try in a process of its own: what others left behind is no failure."""
    try:
        yield
    except (Exception, pytest.fail.Exception):
        if item.path.parent != HERE or ONCE_MORE in os.environ or any(m.name == "xfail" for m in item.iter_markers()):
            raise
        samples = item.config.getoption("--samples")
        options = [*(["--long"] if item.config.getoption("--long") else []), *([f"--samples={samples}"] if samples else [])]
        again = subprocess.run([sys.executable, "-m", "pytest", "-q", *options, f"{item.path}::{item.name}"], cwd=item.config.rootpath,
                               env={**os.environ, ONCE_MORE: "1"}, capture_output=True, text=True)
        if again.returncode:
            raise
        warnings.warn(f"{item.name} passes only in a process of its own.", RuntimeWarning, stacklevel=1)


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # a process of pytest-xdist's, which hands what it saw to the one that started it
        output["ran"] = sorted(recorder.pairs)
    elif COMPLETE and session.config.getoption("--update-coverage"):
        ran.write(recorder.pairs)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    recorder.pairs.update(map(tuple, getattr(node, "workeroutput", {}).get("ran", ())))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    table = exceptions.entries()
    ours = [i for i in items if i.path.parent == HERE]
    others = {i for i in ours if re.search(r"_(torch|torchcompile|torchcompile_cat|torchcompile_xentropy|DynamoThunder)_(cpu|cuda)_", i.name)}
    part = _part(ours)
    for item in ours:
        _mark(item, exceptions.entry_of(item.name, table))
        if item not in part:
            item.add_marker("long")
    items[:] = [i for i in items if i not in others]
    config.hook.pytest_deselected(items=list(others))


def _part(items: list[pytest.Item]) -> set[pytest.Item]:
    """The tests of the short run: of those that differ in dtype alone, one."""
    groups = defaultdict(list)
    for item in items:
        groups[item.module, re.sub(r"thunder\.dtypes\.\w+", "", item.name)].append(item)
    return {min(group, key=lambda i: zlib.crc32(i.name.encode())) for group in groups.values()}


def _mark(item: pytest.Item, entry: exceptions.Entry | None) -> None:
    # What Thunder expects to fail may pass here.
    item.own_markers[:] = [pytest.mark.xfail(*m.args, **{"strict": False} | m.kwargs).mark if m.name == "xfail" else m for m in item.own_markers]
    knobs = {}
    if entry is not None:
        knobs = exceptions.KNOBS.get(entry.kind, {})
        if entry.fails(plugin.BASELINE):
            item.add_marker(pytest.mark.xfail(strict=True, reason=f"{entry.kind}: {entry.reason}"))
    if "_cuda_" in item.name or (torch.cuda.is_available() and "_cpu_" not in item.name):
        item.add_marker("gpu")
    item.obj = plugin.alone(item.obj, **knobs)


@pytest.fixture
def turn_off_tf32_and_set_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of Thunder's tests ask its own conftest for this."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    torch.manual_seed(42)
