"""Skips GPU tests where there is no GPU, and keeps compiled kernels of a test run out of the user's cache folder."""

from __future__ import annotations

import os
import tempfile

import pytest
import torch


def pytest_configure(config: pytest.Config) -> None:
    # One folder for all runs of a user: a kernel that has not changed is not compiled again.
    folder = os.path.join(tempfile.gettempdir(), f"thunder_fuser_tests_{os.getuid()}")
    os.environ.setdefault("THUNDER_FUSER_CACHE_DIR", folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
