"""A pytest plug-in: every kernel that the host's compiler took in this session is also compiled by NVRTC.

The host backend runs what the card would run; this makes sure that the card's compiler takes it too. Works beside the
tests, on one thread, through a cache on disk, so that a second session compiles only what is new.
"""

from __future__ import annotations

import re
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from thunder_fuser import config
from thunder_fuser.errors import CompileError
from thunder_fuser.runtime import cache, nvrtc
from thunder_fuser.runtime.compile_pool import CompilePool
from thunder_fuser.runtime.host.backend import HostKernel
from thunder_fuser.runtime.options import CompileOptions
from thunder_fuser.runtime.source import KernelSource

ARCH = "sm_90"
_GENERATED = re.compile(r"[a-z]+_[0-9a-f]{12}")  # the emitter's names: kernels that tests write by hand may be wrong on purpose


class EveryKernel:
    """Register one for a session. `refused` holds what NVRTC said about the kernels that it did not take.

    The processes that pytest-xdist starts have one each and report to that of the process that started them."""

    def __init__(self) -> None:
        self.seen: dict[KernelSource, Future[None]] = {}
        self.counts = [0, 0]  # kernels seen, and compiled anew, by this process and those that it started
        self.refused: list[str] = []
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="nvrtc_too")
        self._options = CompileOptions()
        self._store = cache.KernelCache(cache.current().folder, config.get("cache_limit_mb") * 2**20)
        self._host_kernel = CompilePool.host_kernel

    def pytest_sessionstart(self) -> None:
        def host_kernel(pool: CompilePool, source: KernelSource, options: CompileOptions | None = None) -> Future[HostKernel]:
            future = self._host_kernel(pool, source, options)
            future.add_done_callback(lambda done: None if done.cancelled() or done.exception() else self._enqueue(source))
            return future

        CompilePool.host_kernel = host_kernel

    def _enqueue(self, source: KernelSource) -> None:
        if source not in self.seen and _GENERATED.fullmatch(source.name):
            self.seen[source] = self._threads.submit(self._compile, source)

    def _compile(self, source: KernelSource) -> None:
        try:
            self._store.get_or_compile(cache.cubin_key(source, ARCH, self._options), lambda: nvrtc.compile_cubin(source, ARCH, self._options))
        except CompileError as e:
            self.refused.append(str(e))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        CompilePool.host_kernel = self._host_kernel
        for future in list(self.seen.values()):
            future.result()
        self._threads.shutdown()
        self._count(len(self.seen), self._store.misses)
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["every_kernel"] = (*self.counts, self.refused)
        if self.refused and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        *counts, refused = getattr(node, "workeroutput", {}).get("every_kernel", (0, 0, []))
        self._count(*counts)
        self.refused.extend(refused)

    def _count(self, seen: int, anew: int) -> None:
        self.counts[0] += seen
        self.counts[1] += anew

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.refused:
            terminalreporter.section("NVRTC refused kernels that ran on the host", red=True)
            for text in self.refused[:10]:
                terminalreporter.line(text)
        seen, anew = self.counts
        terminalreporter.line(f"{seen} kernels ran on the host, NVRTC compiled {seen - len(self.refused)} of them for {ARCH} too ({anew} anew)")
