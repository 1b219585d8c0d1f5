"""Launchers of the driver, run by test_driver.py in a process of its own whose libcuda is stub_driver.c."""

from __future__ import annotations

import ctypes
import struct
import sys
import threading

from cuda.bindings import driver as cuda

from thunder_fuser.errors import LaunchError
from thunder_fuser.runtime.driver import CudaKernel

stub = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
config = (ctypes.c_uint32 * 14).in_dll(stub, "seen_config")
arguments = (ctypes.c_uint64 * 8).in_dll(stub, "seen_arguments")
count = ctypes.c_int.in_dll(stub, "count_arguments")
result = ctypes.c_int.in_dll(stub, "result")
cuda.cuInit(0)

kernel = object.__new__(CudaKernel)
kernel.name, kernel.max_threads, kernel._function, kernel.device = "k", 1024, cuda.CUfunction(0x1234), 0
launcher = kernel.launcher

# Integers only: 64-bit words.
count.value = 4
launch = launcher((5, 6), 128, 1024, ["ptr", "ptr", "i64", "i32"])
launch(0x7000_1111_2222, 0x7FFF_0000_1000, 0x7FFF_0000_2000, -3, -4)
assert list(config[:7]) == [5, 6, 1, 128, 1, 1, 1024], list(config)
assert config[8] | config[9] << 32 == 0x7000_1111_2222
assert list(config[10:13]) == [0, 0, 0]  # no attributes
assert arguments[0] == 0x7FFF_0000_1000 and arguments[1] == 0x7FFF_0000_2000
assert struct.unpack("=q", struct.pack("=Q", arguments[2])) == (-3,)
assert struct.unpack("=i", struct.pack("=Q", arguments[3])[:4]) == (-4,)

# Floats among them, each at the start of its slot.
count.value = 5
launch = launcher(1, 32, 0, ["ptr", "f32", "f64", "b8", "i32"])
launch(0, 0x10, 0.5, -0.25, True, -7)
raw = [struct.pack("=Q", a) for a in arguments[:5]]
assert arguments[0] == 0x10 and struct.unpack("=f", raw[1][:4]) == (0.5,) and struct.unpack("=d", raw[2]) == (-0.25,)
assert raw[3][0] == 1 and struct.unpack("=i", raw[4][:4]) == (-7,)

# A wrong number of arguments never reaches the driver.
for bad in ((), (1, 2, 3, 4, 5, 6)):
    try:
        launch(0, *bad)
    except (TypeError, ValueError, struct.error):
        pass
    else:
        raise AssertionError(bad)

for bad in (("a", 0.0, 0.0, True, 0), (0, "a", 0.0, True, 0), (0, 0.0, 0.0, True, 0.5)):
    try:
        launch(0, *bad)
    except (TypeError, struct.error):
        pass
    else:
        raise AssertionError(bad)

# Two threads that launch at once each have their own buffer.
count.value = 1
many = launcher(1, 32, 0, ["ptr"])
sys.setswitchinterval(1e-6)


def hammer(value: int) -> None:
    for _ in range(5000):
        many(value, value)


threads = [threading.Thread(target=hammer, args=(i,)) for i in (1, 2, 3)]
[t.start() for t in threads]
[t.join() for t in threads]
assert ctypes.c_int.in_dll(stub, "mixed_up").value == 0

# A cooperative launch carries its attribute.
together = launcher(1, 32, 0, ["ptr"], cooperative=True)
together(5, 5)
attribute = (ctypes.c_uint32 * 3).from_address(config[10] | config[11] << 32)
assert config[12] == 1
assert attribute[0] == int(cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE) and attribute[2] == 1

# A thread without a context is given one, also when it has the number of a thread that is gone.
needs_context = ctypes.c_int.in_dll(stub, "needs_context")
needs_context.value = 1
failed = []


def first_launch() -> None:
    try:
        many(6, 6)
    except LaunchError as e:
        failed.append(e)


for _ in range(3):
    thread = threading.Thread(target=first_launch)
    thread.start()
    thread.join()
assert not failed, failed
needs_context.value = 0

# The driver's own words.
result.value = 700
try:
    many(0, 1)
except LaunchError as e:
    assert str(e).startswith("The CUDA driver could not launch 'k' with grid (1, 1, 1)") and "illegal memory access" in str(e), e
else:
    raise AssertionError("no LaunchError")
print("launches are right")
