"""Skips GPU tests where there is no GPU and long ones unless asked for, and keeps compiled kernels of a test run out of
the user's cache folder."""

from __future__ import annotations

import os
import tempfile

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the expected texts of tests/golden and of the architecture page anew")
    parser.addoption("--samples", type=int, help="small samples that a test of Thunder's suite tries of an op; without it 4, with --long all")
    parser.addoption("--update-coverage", action="store_true", help="note which prims the run of Thunder's suite had in fusions, for docs/coverage.md")
    parser.addoption("--long", action="store_true", help="run the tests marked long too, with thousands of random programs")


def pytest_configure(config: pytest.Config) -> None:
    # One folder for all runs of a user: a kernel that has not changed is not compiled again.
    folder = os.path.join(tempfile.gettempdir(), f"thunder_fuser_tests_{os.getuid()}")
    os.environ.setdefault("THUNDER_FUSER_CACHE_DIR", folder)
    from tests.support.every_kernel import EveryKernel  # reads the variable just set

    config.pluginmanager.register(EveryKernel(), "every_kernel")


@pytest.fixture
def compiled_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code answers for CPU tensors too, from an executable's second call with the same strides on."""
    from thunder_fuser.runtime.native.extension import EXTENSION

    monkeypatch.setenv("THUNDER_FUSER_COMPILED_LAUNCH", "host")
    assert EXTENSION.wait() == "compiled"


@pytest.fixture(params=["python", "compiled"])
def compiled(request: pytest.FixtureRequest) -> bool:
    """The test runs twice: with calls in Python, and with calls in compiled code."""
    if request.param == "compiled":
        request.getfixturevalue("compiled_calls")
    return request.param == "compiled"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "gpu" in item.keywords and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
        if "long" in item.keywords and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="long: run with --long"))
