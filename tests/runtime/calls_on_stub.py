"""Compiled calls with the driver's launchers, run by test_driver.py in a process of its own whose libcuda is stub_driver.c.

Tensors are of the CPU, so that there is no stream; a plan does not mind.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading

import torch
from cuda.bindings import driver as cuda

from thunder_fuser import config
from thunder_fuser.errors import LaunchError
from thunder_fuser.runtime.driver import CudaKernel
from thunder_fuser.runtime.launch_plan import Allocation, KernelCall, LaunchPlan, OutputRecipe
from thunder_fuser.runtime.native.compiled_call import CompiledCall, ItemPattern, NumberPattern, TensorPattern
from thunder_fuser.runtime.native.extension import EXTENSION
from thunder_fuser.runtime.source import KernelSource

stub = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
seen = (ctypes.c_uint32 * 14).in_dll(stub, "seen_config")
arguments = (ctypes.c_uint64 * 8).in_dll(stub, "seen_arguments")
count = ctypes.c_int.in_dll(stub, "count_arguments")
result = ctypes.c_int.in_dll(stub, "result")
cuda.cuInit(0)

kernel = object.__new__(CudaKernel)
kernel.name, kernel.max_threads, kernel._function, kernel.device = "k", 1024, cuda.CUfunction(0x1234), 0
x = torch.zeros(3)
BUFFER = Allocation("y", (2, 3), (3, 1), torch.float64)


def compiled(launcher, kinds, *, outputs=(), numbers="", allocations=(), calls=1, places=()):
    """A call of `x` and numbers, by their codes or patterns, that launches with the inputs, then the buffers."""
    places = tuple(places) or (*(("input", k) for k in range(1 + len(numbers))), *(("buffer", k) for k in range(len(allocations))))
    plan = LaunchPlan(tuple(allocations), (KernelCall(KernelSource("k", ""), 1, 1, places, tuple(kinds)),) * calls, tuple(outputs))

    def python(*given):
        raise TypeError(given)

    made = []
    call = CompiledCall(python, [None], 1 + len(numbers), made.append)
    patterns = [TensorPattern((3,), (1,), torch.float32, x.data_ptr() & 15, 12), *(NumberPattern(n, False) if isinstance(n, str) else n for n in numbers)]
    with config.override(compiled_launch="host"):
        call.add("key", patterns, plan, [launcher] * calls, torch.device("cpu"))
    state = EXTENSION.wait()
    assert state == "compiled", state
    return made[0]


# Integers and floats, each at the start of its slot, then a buffer's address.
count.value = 6
call = compiled(kernel.launcher((5, 6), 128, 1024, ["ptr", "f32", "f64", "b8", "i64", "ptr"]), ["ptr", "f32", "f64", "b8", "i64", "ptr"],
                numbers="fd?q", allocations=[BUFFER], outputs=[OutputRecipe("buffer", 0, None)])
(y,) = call(x, 0.5, -0.25, True, -7)
assert list(seen[:7]) == [5, 6, 1, 128, 1, 1, 1024], list(seen)
assert list(seen[8:13]) == [0] * 5  # stream and attributes
raw = [struct.pack("=Q", a) for a in arguments[:6]]
assert arguments[0] == x.data_ptr() and arguments[5] == y.data_ptr() and y.shape == (2, 3) and y.dtype is torch.float64
assert struct.unpack("=f", raw[1][:4]) == (0.5,) and struct.unpack("=d", raw[2]) == (-0.25,)
assert raw[3][0] == 1 and struct.unpack("=q", raw[4]) == (-7,)

# What is not exactly as planned never reaches the driver: the Python function has it.
served = call.served
for bad in ((), (x,), (x, 0.5, 0.5, True, 7, 8), (x, 1, 0.5, True, 7), (x, 1e300, 0.5, True, 7), (x, 0.5, 0.5, 1, 7), (x, 0.5, 0.5, True, 2**63),
            (x, 0.5, 0.5, True, False), (x, 0.5, 0.5, True, 7.0), (x.double(), 0.5, 0.5, True, 7), (x[:2], 0.5, 0.5, True, 7), (None, 0.5, 0.5, True, 7)):
    try:
        call(*bad)
    except TypeError as error:
        assert error.args == (bad,)
    else:
        raise AssertionError(bad)
assert call.served == served

# Tensors of rank 0 whose element is handed over.
count.value = 6
things = [ItemPattern(torch.bfloat16, "d", False), ItemPattern(torch.bool, "?", False), ItemPattern(torch.uint8, "q", False),
          ItemPattern(torch.complex64, "d", True)]
items = call = compiled(kernel.launcher(1, 1, 0, ["ptr", "f64", "b8", "i64", "f64", "f64"]), ["ptr", "f64", "b8", "i64", "f64", "f64"],
                numbers=things, places=[("input", 0), ("input", 1), ("input", 2), ("input", 3), ("real", 4), ("imag", 4)])
given = [torch.tensor(0.5, dtype=torch.bfloat16), torch.tensor(True), torch.tensor(200, dtype=torch.uint8), torch.tensor(2 - 3j)]
call(x, *given)
raw = [struct.pack("=Q", a) for a in arguments[:6]]
assert [struct.unpack("=d", raw[k])[0] for k in (1, 4, 5)] == [0.5, 2.0, -3.0] and raw[2][0] == 1 and arguments[3] == 200
for bad in ((x, 0.5, *given[1:]), (x, given[0].float(), *given[1:]), (x, given[0].reshape(1), *given[1:])):
    try:
        call(*bad)
    except TypeError:
        continue
    raise AssertionError(bad)
assert call.served == 1

# Threads that launch at once, with the GIL released, each have arguments of their own.
count.value = 3
many = compiled(kernel.launcher(1, 32, 0, ["ptr", "i64", "i64"]), ["ptr", "i64", "i64"], numbers="qq", calls=2)
sys.setswitchinterval(1e-6)


def hammer(value: int) -> None:
    for k in range(5000):
        many(x, value + k, value + k)


threads = [threading.Thread(target=hammer, args=(i,)) for i in (0, 10**6, -(10**6))]
[t.start() for t in threads]
[t.join() for t in threads]
assert ctypes.c_int.in_dll(stub, "mixed_up").value == 0 and many.served == 15000

# A cooperative launch carries its attribute.
together = compiled(kernel.launcher(1, 32, 0, ["ptr", "i64", "i64"], cooperative=True), ["ptr", "i64", "i64"], numbers="qq")
together(x, 5, 5)
attribute = (ctypes.c_uint32 * 3).in_dll(stub, "seen_attribute")
assert seen[12] == 1 and attribute[0] == int(cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE) and attribute[2] == 1

# A thread without a context is given one by the Python launcher.
needs_context = ctypes.c_int.in_dll(stub, "needs_context")
needs_context.value = 1
failed = []


def first_launch() -> None:
    try:
        items(x, *given)
        assert struct.unpack("=d", struct.pack("=Q", arguments[5])) == (-3.0,) and arguments[3] == 200
    except (LaunchError, AssertionError) as e:
        failed.append(e)


count.value = 6
arguments[3] = arguments[5] = 0
thread = threading.Thread(target=first_launch)
thread.start()
thread.join()
assert not failed, failed
needs_context.value = 0
count.value = 3

# The driver's own words.
result.value = 700
try:
    many(x, 1, 1)
except LaunchError as e:
    assert str(e).startswith("The CUDA driver could not launch 'k' with grid (1, 1, 1)") and "illegal memory access" in str(e), e
else:
    raise AssertionError("no LaunchError")
print("launches are right")
