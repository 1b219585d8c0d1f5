"""Compiles kernels side by side on threads, each distinct one once a process, and keeps the loaded ones.

Called when a fusion is planned: ask for all kernels of a region first, then wait for the futures. Options and cache
folder are read in the caller's thread.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from thunder_fuser.runtime import cache, driver, nvrtc
from thunder_fuser.runtime.cache import KernelCache
from thunder_fuser.runtime.driver import CudaKernel
from thunder_fuser.runtime.host import backend, toolchain
from thunder_fuser.runtime.host.backend import HostKernel
from thunder_fuser.runtime.options import CompileOptions
from thunder_fuser.runtime.source import KernelSource

_MAX_WORKERS = 8  # NVRTC gains little beyond, and each instance takes memory


class CompilePool:
    """A table of futures by what was asked for, the least recently asked for dropped beyond `limit`.

    A dropped kernel stays alive as long as a plan holds it. After a failure the next request
    tries again. `compiled` counts requests that were not found in the table.
    """

    def __init__(self, limit: int = 4096, workers: int | None = None) -> None:
        self._limit = limit
        self._workers = workers or min(_MAX_WORKERS, os.cpu_count() or 1)
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        # Also in a forked child: threads do not survive a fork, and neither do CUDA contexts.
        self._lock = threading.Lock()
        self._fibers_lock = threading.Lock()
        self._table: OrderedDict[Hashable, Future] = OrderedDict()
        self._threads: ThreadPoolExecutor | None = None
        self.compiled = 0

    def kernel(
        self, source: KernelSource, device: torch.device, options: CompileOptions | None = None
    ) -> Future[CudaKernel] | Future[HostKernel]:
        """The loaded kernel for a device, "cuda" or "cpu"; the future raises `CompileError` or `LaunchError`."""
        if device.type == "cuda":
            return self.cuda_kernel(source, device, options)
        return self.host_kernel(source, options)

    def cubin(self, source: KernelSource, arch: str, options: CompileOptions | None = None) -> Future[bytes]:
        """The cubin for an architecture ('sm_90'), without loading it; needs no GPU."""
        options, store = options or CompileOptions.from_config(), cache.current()
        return self._once(("cubin", arch, options, source), lambda: _cubin(store, source, arch, options))

    def cuda_kernel(
        self, source: KernelSource, device: torch.device, options: CompileOptions | None = None
    ) -> Future[CudaKernel]:
        """The kernel loaded on a CUDA device. Raises `LaunchError` at once when it is new and a CUDA graph is being
        captured by this thread."""
        options, store = options or CompileOptions.from_config(), cache.current()
        index = device.index if device.index is not None else torch.cuda.current_device()
        key = ("cuda", index, options, source)
        with self._lock:
            known = key in self._table
        if not known:
            driver.refuse_under_capture(source.name)
        target = driver.arch(index)
        return self._once(key, lambda: driver.load(_cubin(store, source, target, options), source.name, index))

    def host_kernel(self, source: KernelSource, options: CompileOptions | None = None) -> Future[HostKernel]:
        """The kernel loaded into this process, for CPU tensors."""
        options, store = options or CompileOptions.from_config(), cache.current()

        def build() -> HostKernel:
            key = cache.host_key(source, options)
            self._ensure_fibers(store)
            return backend.load(store.get_or_compile(key, lambda: toolchain.compile_library(source, options)), source)

        return self._once(("host", options, source), build)

    def _ensure_fibers(self, store: KernelCache) -> None:
        with self._fibers_lock:
            if not backend.fibers_loaded():
                backend.load_fibers(store.get_or_compile(cache.fibers_key(), toolchain.build_fibers))

    def _once(self, key: Hashable, work: Callable[[], Any]) -> Future:
        with self._lock:
            future = self._table.get(key)
            if future is not None and not (future.done() and future.exception() is not None):
                self._table.move_to_end(key)
                return future
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._workers, thread_name_prefix="thunder_fuser")
            self.compiled += 1
            future = self._table[key] = self._threads.submit(work)
            self._table.move_to_end(key)
            while len(self._table) > self._limit:
                self._table.popitem(last=False)
            return future


def _cubin(store: KernelCache, source: KernelSource, arch: str, options: CompileOptions) -> bytes:
    key = cache.cubin_key(source, arch, options)
    return store.get_or_compile(key, lambda: nvrtc.compile_cubin(source, arch, options))


POOL = CompilePool()
