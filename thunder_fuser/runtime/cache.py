"""Compiled code by key, in memory and on disk: cubins, and shared libraries of the host backend.

Called by the compile pool. The store is cuda.core's (atomic writes, several processes, trimmed by last use); what is
added here is a checksum behind each entry, so that a damaged one is a miss, and a folder that cannot be used is one
warning and no disk, never an error.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import threading
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

from cuda.core.utils import FileStreamProgramCache, InMemoryProgramCache

from thunder_fuser import config
from thunder_fuser.runtime import nvrtc
from thunder_fuser.runtime.host import toolchain
from thunder_fuser.runtime.options import CompileOptions
from thunder_fuser.runtime.source import KernelSource

_MEMORY_BYTES = 64 * 2**20
_DIGEST_BYTES = 32
_TRIM_EVERY = 64  # one write in so many trims the folder, whoever makes it, and so does a 64th of the limit


class KernelCache:
    """Bytes by key. `hits` (memory or disk), `disk_hits`, `misses` and `damaged` count look-ups."""

    def __init__(self, folder: Path | None, limit_bytes: int) -> None:
        """`folder` None keeps everything in memory; `limit_bytes` bounds the folder, but for what was written since it was last trimmed."""
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.hits = self.disk_hits = self.misses = self.damaged = 0
        self._counting = threading.Lock()
        self._memory = InMemoryProgramCache(max_size_bytes=_MEMORY_BYTES)
        self._disk: FileStreamProgramCache | None = None
        self._writable = True
        self._since = 0  # bytes written since the folder was trimmed
        if folder is not None:
            try:
                self._disk = FileStreamProgramCache(folder)
            except OSError as e:
                self._warn("used", e)

    def get_or_compile(self, key: str, compile_: Callable[[], bytes]) -> bytes:
        """The entry of `key`, made by `compile_` on a miss and kept. Raises what `compile_` raises."""
        value = self._memory.get(key)
        if value is None:
            value = self._read(key)
            if value is None:
                self._count("misses")
                value = compile_()
                self._write(key, value)
            else:
                self._count("hits", "disk_hits")
            self._memory[key] = value
        else:
            self._count("hits")
        return value

    def usage(self) -> tuple[int, int] | None:
        """Entries of the folder and their bytes; None if there is no folder, or none that can be used."""
        if self.folder is None or self._disk is None:
            return None
        sizes = [p.stat().st_size for p in self.folder.rglob("*") if p.is_file() and p.parent != self.folder]
        return len(self._disk), sum(sizes)

    def clear(self) -> None:
        """Deletes what memory and folder hold. Other processes that use the folder compile again what they miss."""
        self._memory.clear()
        if self._disk is not None:
            self._disk.clear()

    def _read(self, key: str) -> bytes | None:
        if self._disk is None:
            return None
        try:
            entry = self._disk.get(key)
        except OSError as e:
            self._warn("read", e)
            self._disk = None
            return None
        if entry is None:
            return None
        value, digest = entry[:-_DIGEST_BYTES], entry[-_DIGEST_BYTES:]
        if digest == _digest(key, value):
            return value
        self._count("damaged")
        return None

    def _write(self, key: str, value: bytes) -> None:
        if self._disk is None or not self._writable:
            return
        try:
            # The checksum follows the code: tools that read a cubin or a library ignore what is behind it.
            self._trimming(key, len(value))[key] = value + _digest(key, value)
        except OSError as e:
            self._warn("written", e)
            self._writable = False

    def _trimming(self, key: str, size: int) -> FileStreamProgramCache:
        """What to write an entry through: now and then a view of the folder that trims it. A store that has a limit looks at
        every file of a full folder for each entry written, which takes seconds once they are a hundred thousand."""
        assert self._disk is not None
        self._since += size
        if self._since < self.limit_bytes // _TRIM_EVERY and zlib.crc32(key.encode()) % _TRIM_EVERY:
            return self._disk
        self._since = 0
        return FileStreamProgramCache(self.folder, max_size_bytes=self.limit_bytes)

    def _count(self, *names: str) -> None:
        with self._counting:
            for name in names:
                setattr(self, name, getattr(self, name) + 1)

    def _warn(self, verb: str, error: OSError) -> None:
        reason = error.strerror or str(error)
        warnings.warn(
            f"The folder of compiled kernels '{self.folder}' cannot be {verb} ({reason}), so kernels are kept in memory only; "
            "THUNDER_FUSER_CACHE_DIR names another one.",
            stacklevel=2,
        )


def _digest(key: str, value: bytes) -> bytes:
    return hashlib.sha256(key.encode() + value).digest()


def cubin_key(source: KernelSource, arch: str, options: CompileOptions) -> str:
    """Everything that decides a cubin: source and prelude, NVRTC's version, target and flags."""
    return _key("cubin", nvrtc.nvrtc_version(), *nvrtc.flags(arch, options), source.digest)


def host_key(source: KernelSource, options: CompileOptions) -> str:
    """Everything that decides a host library: source and prelude, the C++ compiler, its flags, the stand-in for CUDA."""
    return _key("host", toolchain.identity(), source.digest)


def fibers_key() -> str:
    """The key of the host backend's own library."""
    return _key("fibers", toolchain.identity())


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def default_folder() -> Path:
    """The user's cache folder for this package."""
    if sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "thunder_fuser"


def current() -> KernelCache:
    """The cache that the configuration names now; one object for each folder and limit."""
    return _opened(config.get("cache_dir"), config.get("cache_limit_mb"))


@functools.lru_cache(maxsize=8)
def _opened(folder: str, limit_mb: int) -> KernelCache:
    path = None if folder == "off" else Path(folder).expanduser() if folder else default_folder()
    return KernelCache(path, max(1, limit_mb) * 2**20)
