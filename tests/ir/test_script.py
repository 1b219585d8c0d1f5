"""Scripts that reproduce a call run on their own, make the very inputs of the call, and see a wrong result."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from tests.support.programs import programs
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, BOOL, C64, F32, F64, I8, I64
from thunder_fuser.ir.script import script


def made(text: str) -> dict:
    """The names of a script after it ran here, its report aside."""
    scope: dict = {"__name__": "script", "print": lambda *_: None}
    argv, sys.argv = sys.argv, ["script"]
    try:
        exec(compile(text, "script", "exec"), scope)
    finally:
        sys.argv = argv
    return scope


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(specials=True, max_nodes=3))
def test_inputs_are_those_of_the_call(case) -> None:
    fusion, inputs = case
    scope = made(script(fusion, inputs))
    for given_, again in zip(inputs, scope["inputs"], strict=True):
        if isinstance(given_, torch.Tensor):
            assert again.dtype is given_.dtype and again.stride() == given_.stride()
            torch.testing.assert_close(again, given_, rtol=0, atol=0, equal_nan=True)
        else:
            assert type(again) is type(given_) and again == given_


def test_every_dtype_and_alignment() -> None:
    b = FusionBuilder()
    inputs = []
    for dtype in (F32, F64, BF16, I8, I64, BOOL, C64):
        b.output(b.copy(b.tensor(dtype, (3, 2))))
        inputs.append(torch.tensor([0, 1, 1, 0, 1, 0, 1]).to(dtype.torch)[1:].view(3, 2))
    inputs[0][1, 1] = math.inf
    for given_, again in zip(inputs, made(script(b.build(), inputs))["inputs"], strict=True):
        assert torch.equal(given_, again) and given_.data_ptr() % 16 == again.data_ptr() % 16


@pytest.mark.parametrize("wrong", [False, True])
def test_it_runs_without_thunder_and_compares(wrong: bool, tmp_path) -> None:
    b = FusionBuilder("doubled")
    b.output(b.mul(b.tensor(F32, (5,)), 2.0, name="y"))
    text = script(b.build())
    file = tmp_path / "repro.py"
    file.write_text(text.replace("got = compile_fusion", "got = [x + 1 for x in expected] or compile_fusion") if wrong else text)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", f"import runpy, sys; runpy.run_path({str(file)!r}); assert 'thunder' not in sys.modules"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ("y: as torch" in done.stdout) is not wrong
