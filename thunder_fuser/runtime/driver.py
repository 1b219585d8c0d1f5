"""The CUDA driver: loads cubins and launches their kernels.

Called by the compile pool (`load`) and by launch plans. A launch from Python patches its arguments into a buffer of
the thread and hands one prebuilt configuration to `cuLaunchKernelEx`; runtime/native/launch.h does the same in C++.
Nothing here synchronises or allocates device memory.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from threading import get_ident

import torch
from cuda.bindings import driver

from thunder_fuser.errors import LaunchError
from thunder_fuser.runtime.launch import Launcher, Recipe, dims, packer

_SUCCESS = driver.CUresult.CUDA_SUCCESS
_NO_CONTEXT = driver.CUresult.CUDA_ERROR_INVALID_CONTEXT
_ATTRIBUTE = driver.CUfunction_attribute
_STREAM_WORD = 4  # CUlaunchConfig: grid and block (24 bytes), shared bytes (4), padding (4), then the stream
_DEFAULT_SHARED = 48 * 1024  # more needs the function's leave


class CudaKernel:
    """One loaded kernel of one device. `registers`, `shared_bytes` (static), `local_bytes` (spills and arrays) and
    `max_threads` are what the driver reports. The module is never unloaded: a captured graph may hold the function."""

    def __init__(self, name: str, device: int, module: driver.CUmodule, function: driver.CUfunction) -> None:
        self.name = name
        self.device = device
        self._module = module
        self._function = function
        self.registers = self._attribute(_ATTRIBUTE.CU_FUNC_ATTRIBUTE_NUM_REGS)
        self.shared_bytes = self._attribute(_ATTRIBUTE.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        self.local_bytes = self._attribute(_ATTRIBUTE.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
        self.max_threads = self._attribute(_ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)

    def _attribute(self, attribute: driver.CUfunction_attribute) -> int:
        return _checked(driver.cuFuncGetAttribute(attribute, self._function), f"read attributes of '{self.name}'")

    def launcher(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared_bytes: int,
        arg_kinds: Sequence[str],
        *,
        cooperative: bool = False,
    ) -> Launcher:
        """A callable `launcher(stream, *args)` for one launch shape; see runtime/launch.py for the arguments.

        The caller sees to it that the kernel's device is current. `shared_bytes` is the dynamic shared memory a block;
        `cooperative` promises that all blocks are resident at once. Raises `LaunchError` if the shape cannot run.
        """
        grid, block = dims(grid, "grid", self.name), dims(block, "block", self.name)
        if block[0] * block[1] * block[2] > self.max_threads:
            raise LaunchError(f"Kernel '{self.name}' has blocks of {block} threads, but can run {self.max_threads} at most.")
        if shared_bytes > _DEFAULT_SHARED:
            limit = _ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            what = f"give '{self.name}' {shared_bytes} bytes of shared memory"
            _checked(driver.cuFuncSetAttribute(self._function, limit, shared_bytes), what)
        pack = packer(arg_kinds, self.name)
        count = len(arg_kinds)

        def build() -> _Slot:
            return _Slot(grid, block, shared_bytes, count, cooperative)

        failed = f"launch '{self.name}' with grid {grid} and block {block}"
        launch = _launcher(self._function, build, None if pack is None else pack.pack_into, self._bind, failed)
        launch.recipe = Recipe(_entry_point(), int(self._function), grid, block, shared_bytes, cooperative)  # type: ignore[attr-defined]
        return launch

    def _bind(self) -> None:
        """Makes torch's context of the kernel's device this thread's own."""
        what = f"use CUDA device {self.device}"
        context = _checked(driver.cuDevicePrimaryCtxRetain(_checked(driver.cuDeviceGet(self.device), what)), what)
        _checked(driver.cuCtxSetCurrent(context), what)


class _Slot:
    """One thread's launch configuration and argument buffer, and the addresses the driver wants."""

    def __init__(self, grid: tuple, block: tuple, shared_bytes: int, count: int, cooperative: bool) -> None:
        self.config = config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = shared_bytes
        if cooperative:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            attribute.value.cooperative = 1
            config.attrs = [attribute]
            config.numAttrs = 1
        self.words = (ctypes.c_uint64 * (_STREAM_WORD + 1)).from_address(config.getPtr())
        self.arguments = (ctypes.c_uint64 * count)()
        first = ctypes.addressof(self.arguments)
        self._pointers = (ctypes.c_void_p * count)(*range(first, first + 8 * count, 8))
        self.pointers = ctypes.addressof(self._pointers)


@functools.cache
def _entry_point() -> int:
    """The address of the driver's cuLaunchKernelEx."""
    flags = driver.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_DEFAULT
    result, address, *_ = driver.cuGetProcAddress(b"cuLaunchKernelEx", 12000, flags)
    return _checked((result, address), "find cuLaunchKernelEx")


def _launcher(function: driver.CUfunction, build: Callable[[], _Slot], pack_into: Callable[..., None] | None,
              bind: Callable[[], None], failed: str) -> Launcher:
    # A closure: its free variables are the cheapest look-ups that Python has. Slots are kept by thread, because
    # another thread may run between the patching and the launch.
    slots: dict[int, tuple] = {}
    call = driver.cuLaunchKernelEx
    success = _SUCCESS
    stream_word = _STREAM_WORD

    def new_slot() -> tuple:
        slot = build()
        entry = slots[get_ident()] = (slot.words, slot.arguments, slot.config, slot.pointers, slot)
        return entry

    def again(result: driver.CUresult, config: driver.CUlaunchConfig, pointers: int) -> None:
        # A thread that has not used CUDA yet has no context: nothing was launched, so give it one and launch.
        if result == _NO_CONTEXT:
            bind()
            result = call(config, function, pointers, 0)[0]
        if result != success:
            raise LaunchError(_sentence(result, failed))

    if pack_into is None:

        def launch(stream: int, *args: int) -> None:
            words, arguments, config, pointers, _ = slots.get(get_ident()) or new_slot()
            arguments[:] = args
            words[stream_word] = stream
            result = call(config, function, pointers, 0)[0]
            if result is not success and result != success:
                again(result, config, pointers)

    else:

        def launch(stream: int, *args: float) -> None:
            words, arguments, config, pointers, _ = slots.get(get_ident()) or new_slot()
            pack_into(arguments, 0, *args)
            words[stream_word] = stream
            result = call(config, function, pointers, 0)[0]
            if result is not success and result != success:
                again(result, config, pointers)

    return launch


def load(cubin: bytes, name: str, device: torch.device | int) -> CudaKernel:
    """Kernel `name` of `cubin`, loaded into torch's context of `device`. Raises `LaunchError` with the driver's words,
    and when a CUDA graph is being captured, which cannot take up a new kernel."""
    index = device if isinstance(device, int) else device.index
    if index is None:
        index = torch.cuda.current_device()
    with torch.cuda.device(index):
        refuse_under_capture(name)
    handle = _checked(driver.cuDeviceGet(index), f"find CUDA device {index}")
    context = _checked(driver.cuDevicePrimaryCtxRetain(handle), f"use CUDA device {index}")
    _checked(driver.cuCtxPushCurrent(context), f"use CUDA device {index}")
    # Another thread may be capturing a graph at this moment; a relaxed thread may load code without spoiling that.
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    mode = _checked(driver.cuThreadExchangeStreamCaptureMode(relaxed), f"use CUDA device {index}")
    try:
        module = _checked(driver.cuModuleLoadData(cubin), f"load kernel '{name}'")
        function = _checked(driver.cuModuleGetFunction(module, name.encode()), f"find kernel '{name}' in its cubin")
        # With lazy loading the code would go to the device at the first launch, which may be under capture.
        _checked(driver.cuFuncLoad(function), f"load kernel '{name}'")
        return CudaKernel(name, index, module, function)
    finally:
        driver.cuThreadExchangeStreamCaptureMode(mode)
        driver.cuCtxPopCurrent()


def refuse_under_capture(name: str) -> None:
    """Raise `LaunchError` if this thread's current stream is being captured: a graph cannot take up a new kernel."""
    if torch.cuda.is_current_stream_capturing():
        raise LaunchError(
            f"Kernel '{name}' is not loaded yet and a CUDA graph is being captured; run the function once before capturing it."
        )


def arch(device: torch.device | int) -> str:
    """The architecture to compile for, as in 'sm_90'."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def _checked(result: tuple, what: str) -> object:
    error, *values = result
    if error != _SUCCESS:
        raise LaunchError(_sentence(error, what))
    return values[0] if values else None


def _sentence(error: driver.CUresult, what: str) -> str:
    text = driver.cuGetErrorString(error)[1]
    words = text.decode() if isinstance(text, bytes) else str(error)
    return f"The CUDA driver could not {what}: {words} ({getattr(error, 'name', error)})."
