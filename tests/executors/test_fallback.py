"""Regions that cannot be translated, compiled or loaded; and faults that must never be hidden."""

from __future__ import annotations

import warnings

import pytest
import thunder
import torch

from tests.executors.jitted import calls, forward, gradients, jit, rand, same
from thunder_fuser import config
from thunder_fuser.errors import CompileError, InputError, LaunchError, UnsupportedError
from thunder_fuser.executable import Executable
from thunder_fuser.executors import program


def f(x):
    y = torch.tanh(x) * 0.25
    return torch.cat((y, -x), -1).transpose(0, 1)[1:], y.reshape(-1)


@pytest.fixture
def programs(monkeypatch):
    """No program of another test is found."""
    monkeypatch.setattr(program, "_programs", type(program._programs)())


def refuse(error):
    def raises(*args, **kwargs):
        raise error
    return raises


STAGES = {
    "translate": lambda patch, error: patch.setattr(program, "translate", refuse(error)),
    "compile": lambda patch, error: patch.setattr(program, "compile_fusion", refuse(error)),
    "plan": lambda patch, error: patch.setattr(Executable, "_plan", refuse(error)),
}
STAGE = pytest.mark.parametrize("stage", STAGES)


@STAGE
@pytest.mark.parametrize("error, reason", [
    (UnsupportedError("'cat' cannot be translated: seven dims."), "'cat' cannot be translated: seven dims."),
    (CompileError("The compiler refused 'cat_0'."), "The compiler refused 'cat_0'."),
    (KeyError("t7"), "KeyError: 't7'."),
], ids=["unsupported", "compile", "a bug"])
def test_torch_runs_what_the_engine_cannot_with_one_warning(stage, error, reason, monkeypatch, programs):
    STAGES[stage](monkeypatch, error)
    jitted = jit(f, fuser_fallback="torch")
    x = rand(3, 4, grad=True)
    with pytest.warns(RuntimeWarning) as caught:
        same(jitted(x), f(x), rtol=1e-6, atol=1e-6)
    messages = [str(w.message) for w in caught if w.category is RuntimeWarning]
    assert len(messages) == 1
    assert "TFuser0" in messages[0] and reason in messages[0] and "THUNDER_FUSER_FALLBACK=error" in messages[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        same(jitted(x.detach().requires_grad_()), f(x), rtol=1e-6, atol=1e-6)
    assert "runs through torch" in repr(calls(forward(jitted))["TFuser0"])


def test_prims_that_torch_knows_only_as_operators_fall_back_too(monkeypatch, programs):
    STAGES["translate"](monkeypatch, UnsupportedError("no kernel."))
    x = rand(3, 4)
    with pytest.warns(RuntimeWarning, match="no kernel"):
        same(jit(lambda x: torch.lerp(x, -x, 0.25), fuser_fallback="torch")(x), torch.lerp(x, -x, 0.25), rtol=1e-6, atol=1e-6)


def test_gradients_fall_back_too(monkeypatch, programs):
    STAGES["compile"](monkeypatch, UnsupportedError("no kernel."))
    x = rand(3, 4, grad=True)
    with pytest.warns(RuntimeWarning, match="no kernel"):
        given = gradients(jit(f, fuser_fallback="torch"), (x,))
    for g, w in zip(given, gradients(f, (x,))):
        same(g, w, rtol=1e-5, atol=1e-6)


@STAGE
def test_the_error_mode_raises_instead(stage, monkeypatch, programs):
    STAGES[stage](monkeypatch, UnsupportedError("'cat' is too much."))
    with pytest.raises(UnsupportedError, match="'cat' is too much"):
        jit(f, fuser_fallback="error")(rand(3, 4))
    with config.override(fallback="error"), pytest.raises(UnsupportedError):
        thunder.jit(f, executors=["thunder_fuser"], fuser_host=True)(rand(3, 4))


def test_an_environment_variable_turns_fallback_into_an_error(monkeypatch, programs):
    STAGES["compile"](monkeypatch, UnsupportedError("'cat' is too much."))
    monkeypatch.setenv("THUNDER_FUSER_FALLBACK", "error")
    with pytest.raises(UnsupportedError):
        thunder.jit(f, executors=["thunder_fuser"], fuser_host=True)(rand(3, 4))


@pytest.mark.parametrize("error", [LaunchError("launch failed."), InputError("two devices.")], ids=["launch", "input"])
def test_a_failed_launch_and_wrong_inputs_are_errors_always(error, monkeypatch, programs):
    STAGES["plan"](monkeypatch, error)
    with pytest.raises(type(error)):
        jit(f, fuser_fallback="torch")(rand(3, 4))


def test_an_error_of_a_planned_call_is_never_answered_by_torch(monkeypatch, programs):
    jitted = jit(f, fuser_fallback="torch")
    jitted(rand(3, 4))
    call = calls(forward(jitted))["TFuser0"]
    (key,) = call.last_used._plans
    call.last_used._plans[key] = refuse(RuntimeError("out of memory"))
    with pytest.raises(RuntimeError, match="out of memory"):
        jitted(rand(3, 4))
    assert call.program.fallback_reason is None


def test_the_cache_cleared_is_another_try(monkeypatch, programs):
    with monkeypatch.context() as patch:
        STAGES["compile"](patch, UnsupportedError("not today."))
        jitted = jit(f, fuser_fallback="torch")
        with pytest.warns(RuntimeWarning):
            jitted(rand(3, 4))
    call = calls(forward(jitted))["TFuser0"]
    call.cache_clear()
    same(jitted(rand(3, 4)), f(rand(3, 4)), rtol=1e-6, atol=1e-6)
    assert isinstance(call.last_used, Executable)
