"""How Thunder's test framework sees this executor, and the surroundings in which each of Thunder's tests runs.

Called by this folder's conftest. `install()` must run before any of Thunder's test modules is imported: they instantiate
their tests for the executors known at import.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import thunder.core.devices as devices
import thunder.core.dtypes as dtypes
import thunder.examine
import thunder.executors.nvfuserex
import thunder.tests.framework as framework
import torch
from looseversion import LooseVersion
from thunder.core.pytree import tree_flatten
from thunder.extend import Executor, get_always_executors, get_default_executors, set_default_executors
from thunder.tests.opinfos import OpInfo

import thunder_fuser
from thunder_fuser import config

# With this set the same tests, under the same names, run on Thunder's torch executor: what fails there too is no fault of ours.
BASELINE = bool(os.environ.get("THUNDER_SUITE_BASELINE"))

ELEMENTS = 4096  # that tensors of small samples have at most


class ThunderFuserTestExecutor(framework.TestExecutor):
    """Tests that are made for every executor are made for this one too, on both devices, and so are nvFuser's."""

    name = "thunder_fuser"
    supported_devicetypes = (devices.DeviceType.CPU, devices.DeviceType.CUDA)
    supported_dtypes = tuple(dtypes.all_dtypes - {dtypes.complex32, dtypes.complex32_})

    def executors_list(self) -> list[Executor]:
        return list(get_always_executors()) if BASELINE else [thunder_fuser.executor]

    def version(self) -> Any:
        return LooseVersion(thunder_fuser.__version__)


def install() -> None:
    """Makes Thunder's framework instantiate its tests for this executor."""
    ours = ThunderFuserTestExecutor()
    framework._all_test_executors = lambda: [ours]
    framework.TorchCompileCatExecutor = framework.TorchCompileXentropyExecutor = ours
    framework.nvFuserExecutor = ours
    thunder.executors.nvfuserex.nvfuserex = thunder_fuser.executor  # whose fuel a test sets
    thunder.examine.warn_fusions = lambda: False  # without nvFuser it would answer that there are no fusions at all
    numerical_jvp = importlib.import_module("thunder.tests.test_grad")
    torch_too = numerical_jvp._should_force_numerical_jvp
    # Of three ops torch's own jvp is wrong for the samples, which Thunder knows by the type of its torch executor.
    numerical_jvp._should_force_numerical_jvp = lambda op, executor, *rest: torch_too(op, framework.TorchExecutor, *rest)


def alone(test: Callable[..., Any], **knobs: Any) -> Callable[..., Any]:
    """The test with a trace context, random numbers and default executors of its own, and `knobs` of the engine.

    A test of Thunder's that fails while it traces leaves its trace behind, and what comes next fails for that."""
    @functools.wraps(test)
    def run(**arguments: Any) -> Any:
        return contextvars.copy_context().run(_surrounded, functools.partial(test, **arguments), knobs)

    return run


def _surrounded(test: Callable[[], Any], knobs: dict[str, Any]) -> Any:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    with _defaults(), config.override(**{"fallback": "error", "host": True} | knobs):
        return test()


@contextlib.contextmanager
def _defaults() -> Iterator[None]:
    """This executor where nvFuser stands among those that `thunder.jit` takes unless told otherwise."""
    before = list(get_default_executors())
    if not BASELINE:
        set_default_executors([*before, thunder_fuser.executor])
    try:
        yield
    finally:
        set_default_executors(before)


def thin_samples(most: int) -> None:
    """From now on a test of an op tries this many small samples of its many."""
    all_of_them = OpInfo.sample_inputs

    def sample_inputs(self: OpInfo, *args: Any, **kwargs: Any) -> Iterator[Any]:
        samples = list(all_of_them(self, *args, **kwargs))
        small = [s for s in samples if all(x.numel() <= ELEMENTS for x in tree_flatten((s.args, s.kwargs))[0] if isinstance(x, torch.Tensor))]
        small = small or samples[:1]
        yield from small[:: -(-len(small) // most)]

    OpInfo.sample_inputs = sample_inputs
