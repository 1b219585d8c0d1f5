"""Fixtures of the front end's tests: the device under test, and the example programs that ship in benchmarks/."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from thunder_fuser import FusionDefinition


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Each test that takes it runs on the host backend, and with `-m gpu` on the GPU."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return request.param


@pytest.fixture(scope="session")
def issue_2613() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "nvfuser_issue_2613.py"
    spec = importlib.util.spec_from_file_location("nvfuser_issue_2613", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def _run(body: Callable[..., Any], *tensors: torch.Tensor) -> list[torch.Tensor]:
    with FusionDefinition() as fd:
        made = body(fd, *(fd.from_pytorch(t) for t in tensors))
        for out in made if isinstance(made, (list, tuple)) else [made]:
            fd.add_output(out)
    return fd.execute(list(tensors))


@pytest.fixture
def run() -> Callable[..., list[torch.Tensor]]:
    """`run(body, *tensors)`: the outputs of `body(fd, *views)`, which returns a TensorView or a list of them."""
    return _run


@pytest.fixture
def run_one() -> Callable[..., torch.Tensor]:
    """`run` for a body with one output."""
    return lambda body, *tensors: _run(body, *tensors)[0]
