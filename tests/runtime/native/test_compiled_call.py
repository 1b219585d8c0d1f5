"""Compiled calls beside the Python function that they stand in for: what they answer, what they leave to it, what they hold."""

from __future__ import annotations

import dataclasses
import gc
import os
import re
import resource
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import given as given_programs
from torch.overrides import TorchFunctionMode

from tests.support.programs import programs
from thunder_fuser import config
from thunder_fuser.compiler import compile_fusion
from thunder_fuser.errors import InputError, LaunchError
from thunder_fuser.executable import Executable
from thunder_fuser.ir.nodes import Fusion, Scatter
from thunder_fuser.ir.parser import parse
from thunder_fuser.runtime.host.backend import HostKernel
from thunder_fuser.runtime.launch import Recipe
from thunder_fuser.runtime.launch_plan import Allocation, KernelCall, LaunchPlan, OutputRecipe
from thunder_fuser.runtime.native import compiled_call
from thunder_fuser.runtime.native.extension import EXTENSION, Extension

TEXT = """fusion f(x: f32[4, 6], y: f32[4, 6], s: f64) {
  a: f32[4, 6] = add(x, y)
  b: f32[4, 6] = mul(a, s)
  v: f32[6, 4] = permute(x, dims=[1, 0])
  w: f32[2, 6] = slice(x, starts=[1, 0], stops=[3, 6])
  return a, b, v, w, y
}"""


pytestmark = pytest.mark.usefixtures("compiled_calls")


def made(text: str = TEXT, *, check_inputs: bool = True) -> Executable:
    return compile_fusion(parse(text), "host", check_inputs=check_inputs)


def want(x: torch.Tensor, y: torch.Tensor, s: float) -> list[torch.Tensor]:
    return [x + y, (x + y) * s, x.T, x[1:3], y]


def same(got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(got) == len(expected)
    for g, w in zip(got, expected):
        assert torch.equal(g, w) and g.stride() == w.stride() and g.dtype is w.dtype


def given(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, float]:
    torch.manual_seed(seed)
    return torch.randn(4, 6), torch.randn(4, 6), 0.5


@pytest.mark.parametrize("check_inputs", [True, False])
def test_every_call_but_the_first_is_served(check_inputs: bool) -> None:
    exe, base = made(check_inputs=check_inputs), torch.randn(100)
    layouts = [((6, 1), 0), ((6, 1), 1), ((1, 4), 0), ((0, 1), 8), ((12, 2), 3)]
    for k, (strides, offset) in enumerate(layouts):
        for seed in range(3):
            _, y, s = given(seed)
            x = base.as_strided((4, 6), strides, offset)
            got = exe(x, y, s)
            same(got, want(x, y, s))
            assert got[4] is y and got[2].data_ptr() == x.data_ptr() and got[2]._base is x._base
            assert exe.compiled_calls == 2 * k + seed
    for strides, offset in layouts:
        x = base.as_strided((4, 6), strides, offset)
        same(exe(x, y, s), want(x, y, s))
        assert exe.stages().layouts[exe.fusion.inputs[0]].strides == strides, "the report is that of the last call"
    assert exe.compiled_calls == 3 * len(layouts)


def test_plans_wait_for_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Extension()
    monkeypatch.setattr(compiled_call, "EXTENSION", late)
    built = threading.Event()
    build = late._build
    monkeypatch.setattr(late, "_build", lambda store: (built.wait(), build(store)))
    exe, dropped = made(), made()
    x, y, s = given()
    for _ in range(3):
        same(exe(x, y, s), want(x, y, s))
        same(dropped(x.T.contiguous().T, y, s), want(x.T.contiguous().T, y, s))
    assert exe.compiled_calls == 0 and late.state == "not needed yet"
    dropped = weakref.ref(dropped)
    gc.collect()
    assert dropped() is None, "nothing waits for the extension but what is alive"
    built.set()
    assert late.wait() == "compiled"
    same(exe(x, y, s), want(x, y, s))
    assert exe.compiled_calls == 1


def test_no_part_of_a_plan_is_overlooked() -> None:
    """Every field of what Python hands over is read in C++."""
    folder = Path(compiled_call.__file__).parent
    read = set(re.findall(r'attr\("(\w+)"\)', "".join(p.read_text() for p in folder.glob("*.h"))))
    kinds = (LaunchPlan, KernelCall, OutputRecipe, Allocation, Recipe, compiled_call.TensorPattern, compiled_call.NumberPattern, compiled_call.ItemPattern)
    fields = {f.name for kind in kinds for f in dataclasses.fields(kind)}
    assert fields - read == {"name", "source", "blocks", "threads", "kinds", "items"}, "what is left is for reports, launchers, patterns"


@pytest.mark.parametrize("wanted", ["off", "on"])
def test_calls_of_cpu_tensors_stay_in_python_unless_asked_for(wanted: str) -> None:
    with config.override(compiled_launch=wanted):
        exe = made()
        for _ in range(3):
            same(exe(*given()), want(*given()))
        assert exe.compiled_calls == 0


def test_without_a_compiler_python_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    broken = Extension()
    monkeypatch.setattr(compiled_call, "EXTENSION", broken)
    exe = made("fusion f(x: f32[4, 6]) {\n  v: f32[6, 4] = permute(x, dims=[1, 0])\n  return v\n}")
    x = torch.randn(4, 6)
    same(exe(x), [x.T])
    assert broken.wait().startswith("There is no C++ compiler: none of no-such-compiler")
    same(exe(x), [x.T])
    assert exe.compiled_calls == 0


def test_numbers_of_every_kind() -> None:
    exe = made("fusion f(x: c64[5], z: c128, w: c64, s: f32, n: i64, b: b8) {\n  a: c64[5] = mul(x, z)\n  c: c64[5] = add(a, w)\n"
               "  d: c64[5] = mul(c, s)\n  e: c64[5] = add(d, n)\n  g: c64[5] = where(b, e, c)\n  return g, x\n}")
    x = torch.randn(5, dtype=torch.complex64)
    cases = [(2.5 - 1j, 1j, 0.5, -3, True), (-1j, -2.0 + 0j, 3.0, 2**20, True), (complex(0.0, -0.0), 1 + 1j, -0.0, 7, False)]
    for k, (z, w, s, n, b) in enumerate(cases):
        c = x * z + w
        torch.testing.assert_close(exe(x, z, w, s, n, b)[0], c * s + n if b else c)
        assert exe.compiled_calls == k
    exe(x, 2.0, 1j, 0.5, 3, True)
    with pytest.raises(OverflowError):
        exe(x, 1j, complex(1e39, 0), 0.5, 3, True)
    assert exe.compiled_calls == 2, "other classes, and what single precision cannot hold, are Python's"


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given_programs(programs(max_nodes=8))
def test_random_programs(drawn: tuple[Fusion, list]) -> None:
    """Compiled code gives the values and the strides that the Python function gives."""
    fusion, inputs = drawn
    exe = compile_fusion(fusion, "host", check_inputs=False)
    first, second = exe(*inputs), exe(*inputs)
    for a, b in zip(first, second, strict=True):
        assert a.dtype is b.dtype and a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
        assert any(a is x for x in inputs) == any(b is x for x in inputs)
    asks_torch = any(isinstance(n, Scatter) and n.accumulate for n in fusion.nodes)
    assert exe.compiled_calls or asks_torch or not any(isinstance(x, torch.Tensor) for x in inputs)


# what is left to Python

class Sub(torch.Tensor):
    pass


class Seen(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_unusual_inputs_take_the_python_path() -> None:
    exe = made()
    x, y, s = given()
    exe(x, y, s)
    same(exe(torch.nn.Parameter(x), y, s), want(x, y, s))
    served = exe.compiled_calls
    assert served == 1, "a parameter is as good as a tensor"
    same(exe(x.as_subclass(Sub), y, s), want(x, y, s))
    same(exe(x, y, 2), want(x, y, 2.0))
    same(exe(x, torch._neg_view(y), s)[:4], want(x, -y, s)[:4])
    assert exe.compiled_calls == served
    with Seen() as seen:
        exe(x, y, s)
    assert "as_strided" in seen.names and exe.compiled_calls == served, "a mode sees what it would see"
    for bad, message in [((x, y), "takes 3 inputs, got 2"), ((x, y, s, s), "got 4"), ((x, None, s), "expected a tensor"), ((x, y, "a"), "expected a float"),
                         ((x, y.double(), s), "expected torch.float32"), ((x, y.to_sparse(), s), "layout"),
                         ((x, y.to("meta"), s), "are on cpu and meta")]:
        with pytest.raises(InputError, match=message):
            exe(*bad)
    assert exe.compiled_calls == served
    same(exe(x, y, s), want(x, y, s))
    assert exe.compiled_calls == served + 1


def test_keywords_take_the_python_path() -> None:
    exe = made()
    x, y, s = given()
    exe(x, y, s)
    same(exe.call(x, y, in2=s), want(x, y, s))
    with pytest.raises(TypeError):
        exe.call(x, y, other=s)
    assert exe.compiled_calls == 0


def test_a_failed_launch_is_the_launchers_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = [False]

    def launcher(self, *shape, **how):
        def launch(stream, *args):
            if fails[0]:
                raise LaunchError("no more.")
        return launch

    monkeypatch.setattr(HostKernel, "launcher", launcher)
    exe = made()
    exe(*given())
    exe(*given())
    fails[0] = True
    with pytest.raises(LaunchError, match="^no more.$"):
        exe(*given())
    assert exe.compiled_calls == 2 and exe.is_planned(*given())


# updates

UPDATE = "fusion f(x: f32[4, 6], y: f32[4, 6]) {\n  z: f32[4, 6] = add(x, y)\n  update x = z\n  return z\n}"
ROWS = ("fusion f(x: f32[4, 6], y: f32[2, 6]) {\n  v: f32[2, 6] = slice(x, starts=[1, 0], stops=[3, 6])\n  z: f32[2, 6] = mul(y, 2.0)\n"
        "  update v = z\n  return\n}")


def test_updates_are_told_to_autograd_and_shared_memory_goes_through_python() -> None:
    exe, memory = made(UPDATE), torch.arange(100.0)
    x, y = memory[:24].view(4, 6), memory[32:56].view(4, 6)
    for k in range(1, 4):
        want = x + y
        (z,) = exe(x, y)
        assert torch.equal(x, want) and torch.equal(z, want) and exe.compiled_calls == k - 1
        assert memory._version == k
    for start in (4, 20, 0):  # the last is x itself
        low = memory[start:start + 24].view(4, 6)
        want = x + low
        (z,) = exe(x, low)
        assert torch.equal(x, want) and torch.equal(z, want) and exe.compiled_calls == 2, start
    x, y = memory[32:56].view(4, 6), memory[56:80].view(4, 6)  # side by side
    want = x + y
    exe(x, y)
    assert torch.equal(x, want) and exe.compiled_calls == 3


def test_a_part_of_an_input_is_written() -> None:
    exe = made(ROWS)
    for k in range(3):
        x, y = torch.randn(4, 6), torch.randn(2, 6)
        want = x.clone()
        want[1:3] = y * 2
        assert exe(x, y) == [] and torch.equal(x, want) and exe.compiled_calls == k


def test_an_inference_tensor_has_no_version_to_tell() -> None:
    exe = made(UPDATE)
    with torch.inference_mode():
        x = torch.randn(4, 6)
    for k in range(3):
        y = torch.randn(4, 6)
        want = x + y
        assert torch.equal(exe(x, y)[0], want) and torch.equal(x, want) and exe.compiled_calls == k


# autograd

def test_views_are_those_of_torch() -> None:
    exe = made()
    _, y, s = given()
    for _ in range(2):
        x = torch.randn(4, 6, requires_grad=True)
        v = exe(x, y, s)[2]
        assert v._base is x and v.grad_fn.name() == "AsStridedBackward0" and v._version == x._version
        (v * y.T).sum().backward()
        assert torch.equal(x.grad, y)
        with torch.no_grad():
            leaf, plain = torch.randn(4, 6, requires_grad=True), torch.randn(4, 6)
            views = [exe(leaf, y, s)[2], torch.as_strided(leaf, (6, 4), (1, 6), 0)]
            v = exe(plain, y, s)[2]
            v.add_(1)
            assert v._version == plain._version == 1 and torch.equal(v, plain.T)
        messages = []
        for view in views:
            with pytest.raises(RuntimeError) as error:
                view.add_(1)
            messages.append(str(error.value))
        assert messages[0] == messages[1] and "no_grad" in messages[0]
        with torch.inference_mode():
            inside = torch.randn(4, 6)
            assert all(t.is_inference() for t in exe(inside, y.clone(), s)[2:])
    assert exe.compiled_calls >= 7


# what is held

def test_nothing_is_held_or_lost() -> None:
    exe = made()
    x, y, s = given()
    exe(x, y, s)
    counts = [sys.getrefcount(o) for o in (x, y, exe.call, exe._last[0])]
    gc.collect()
    alive = len(gc.get_objects())
    for _ in range(500):
        exe(x, y, s)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(5000):
        exe(x, y, s)
        exe(y, x, s)
        exe(x.as_subclass(Sub), y, s)
        with pytest.raises(InputError):
            exe(x, y, None)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 4096, f"{grown} KiB in 20000 calls"
    exe(x, y, s)
    assert [sys.getrefcount(o) for o in (x, y, exe.call, exe._last[0])] == counts
    gc.collect()
    assert len(gc.get_objects()) < alive + 1000
    tensors = [weakref.ref(t) for t in exe(x, y, s)[:4]]
    assert not any(t() is not None for t in tensors)


def test_an_executable_dies_with_its_compiled_call() -> None:
    exe = made()
    call = exe.call
    exe(*given())
    assert exe.call is not call
    dead = weakref.ref(exe)
    del exe, call
    gc.collect()
    assert dead() is None


def test_plans_dropped_while_others_call() -> None:
    exe, base = made(check_inputs=False), torch.randn(400)
    failed: list[BaseException] = []
    stop = threading.Event()

    def work(seed: int) -> None:
        try:
            k = seed
            while not stop.is_set():
                k += 1
                x, y = base.as_strided((4, 6), (6 * (k % 5), 1), k % 7), torch.full((4, 6), float(seed))
                same(exe(x, y, 0.5), want(x, y, 0.5))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    [t.start() for t in threads]
    for _ in range(4):
        stop.wait(0.4)
        exe.cache_clear()
    stop.set()
    [t.join() for t in threads]
    assert not failed, failed
    assert exe.compiled_calls > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_goes_on() -> None:
    exe = made("fusion f(x: f32[4, 6]) {\n  v: f32[6, 4] = permute(x, dims=[1, 0])\n  return v\n}")
    x = torch.randn(4, 6)
    exe(x)
    child = os.fork()
    if child == 0:
        fine = torch.equal(exe(x)[0], x.T) and exe.compiled_calls == 1 and EXTENSION.wait() == "compiled"
        other = made("fusion f(x: f32[4, 6]) {\n  v: f32[24] = reshape(x)\n  return v\n}")
        fine = fine and all(torch.equal(other(x)[0], x.reshape(24)) for _ in range(2)) and other.compiled_calls == 1
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0


# on the card

@pytest.mark.gpu
def test_on_the_card() -> None:
    fusion = parse(TEXT)
    with config.override(compiled_launch="on"):
        exe = compile_fusion(fusion, check_inputs=False)
    x, y, s = given()
    x, y = x.cuda(), y.cuda()
    exe(x, y, s)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        x.mul_(2.0)
        got = exe(x, y, s)  # on the default stream this would see what x was
    side.synchronize()
    same(got, want(x, y, s))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = exe(x, y, s)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize()
    same(got, want(x, y, s))
    answers: list[list[torch.Tensor]] = []
    thread = threading.Thread(target=lambda: answers.append(exe(x, y, s)))  # a thread that has not used CUDA yet
    thread.start()
    thread.join()
    same(answers[0], want(x, y, s))
    assert exe.compiled_calls == 3


@pytest.mark.gpu
def test_memory_that_runs_out_is_torchs_error() -> None:
    """A terabyte."""
    exe = compile_fusion(parse("fusion f(x: f32[1]) {\n  y: f32[262144, 1048576] = broadcast(x, dims=[1])\n"
                               "  z: f32[262144, 1048576] = neg(y)\n  return z\n}"), check_inputs=False)
    x = torch.ones(1, device="cuda")
    for k in range(3):
        with pytest.raises(torch.OutOfMemoryError):
            exe(x)
        assert exe.compiled_calls == k
