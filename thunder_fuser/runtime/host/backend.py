"""The host backend: loads a compiled unit and runs its grid on CPU memory, with the interface of the CUDA driver.

Called by the compile pool (`load`) and by launch plans. One launch at a time in a process. A kernel whose library
refers to no function of the fibers has no barrier, shuffle or shared memory, and runs as plain loops.
"""

from __future__ import annotations

import _ctypes
import ctypes
import re
import tempfile
import threading
import weakref
from collections.abc import Sequence

from thunder_fuser import config
from thunder_fuser.errors import CompileError, IndexRangeError, LaunchError
from thunder_fuser.runtime.launch import Launcher, dims, packer
from thunder_fuser.runtime.source import KernelSource

_lock = threading.Lock()
_fibers: ctypes.CDLL | None = None
_NEEDS_FIBERS = re.compile(
    rb"tf_host_(block_barrier|cluster_barrier|warp_barrier|exchange|vote|reserve|peer)\0"  # names a library imports
)
_MAX_THREADS = 1024
_REASONS = {
    1: "its threads wait for each other for ever: a barrier or shuffle that some of them never reach",
    2: "a block asks for more than 227 KiB of shared memory",
    3: "it needs more than 16384 threads at once",
}


class _Extent(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class _Grid(ctypes.Structure):  # TfHostGrid of footer.h
    _fields_ = [
        ("grid", _Extent),
        ("block", _Extent),
        ("cluster", ctypes.c_uint),
        ("dynamic_shared", ctypes.c_uint),
        ("fibers", ctypes.c_uint),
        ("seed", ctypes.c_ulonglong),
        ("failed_index", ctypes.c_longlong),
        ("failed_size", ctypes.c_longlong),
    ]


class HostKernel:
    """One loaded kernel. `fibers` says whether its threads run as fibers or as plain loops."""

    def __init__(self, name: str, library: ctypes.CDLL, *, fibers: bool, cluster: int) -> None:
        self.name = name
        self.fibers = fibers
        self._cluster = cluster
        self._launch = library.tf_host_launch
        self._launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._launch.restype = ctypes.c_int
        self.max_threads = _MAX_THREADS
        # A process may map a limited number of files: without this some ten thousand kernels would be the end of it.
        weakref.finalize(self, _ctypes.dlclose, library._handle).atexit = False

    def launcher(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared_bytes: int,
        arg_kinds: Sequence[str],
        *,
        cooperative: bool = False,
    ) -> Launcher:
        """A callable `launcher(stream, *args)`: pointers are CPU addresses, the stream is ignored, and the kernel has
        run when it returns. Raises `LaunchError` if the shape cannot run."""
        grid, block = dims(grid, "grid", self.name), dims(block, "block", self.name)
        if block[0] * block[1] * block[2] > _MAX_THREADS:
            raise LaunchError(f"Kernel '{self.name}' has blocks of {block} threads, but can run {_MAX_THREADS} at most.")
        # To the fibers a cooperative grid is one cluster: all its threads are alive at once.
        cluster = grid[0] * grid[1] * grid[2] if cooperative else self._cluster
        if grid[0] % self._cluster:
            raise LaunchError(f"Kernel '{self.name}' has a grid of {grid}, not a multiple of its cluster of {self._cluster}.")
        shape = _Grid(_Extent(*grid), _Extent(*block), cluster, shared_bytes, self.fibers, 0, 0, 0)
        pack = packer(arg_kinds, self.name)
        words = (ctypes.c_uint64 * len(arg_kinds))()
        first = ctypes.addressof(words)
        pointers = (ctypes.c_void_p * len(arg_kinds))(*range(first, first + 8 * len(arg_kinds), 8))

        def launch(stream: int, *args: float) -> None:
            with _lock:
                if pack is None:
                    words[:] = args
                else:
                    pack.pack_into(words, 0, *args)
                shape.seed = config.get("host_seed")
                status = self._launch(ctypes.addressof(shape), ctypes.addressof(pointers))
                index, size = shape.failed_index, shape.failed_size
            if status == -1:
                raise IndexRangeError(f"Kernel '{self.name}' met the index {index}, which is out of range for size {size}.")
            if status:
                raise LaunchError(f"Kernel '{self.name}' could not run on the host: {_REASONS[status]}.")

        return launch


def load(library: bytes, source: KernelSource) -> HostKernel:
    """The kernel of `source` out of its compiled library."""
    cluster = re.search(r"__cluster_dims__\((\d+)", source.text)
    fibers = _NEEDS_FIBERS.search(library) is not None
    return HostKernel(source.name, _open(library), fibers=fibers, cluster=int(cluster.group(1)) if cluster else 1)


def fibers_loaded() -> bool:
    return _fibers is not None


def load_fibers(library: bytes) -> None:
    """Make the fibers' functions known to every kernel loaded after it. Once a process."""
    global _fibers
    with _lock:
        if _fibers is None:
            _fibers = _open(library, ctypes.RTLD_GLOBAL)


def _open(library: bytes, mode: int = ctypes.RTLD_LOCAL) -> ctypes.CDLL:
    with tempfile.NamedTemporaryFile(prefix="thunder_fuser_", suffix=".so") as file:
        file.write(library)
        file.flush()
        try:
            return ctypes.CDLL(file.name, mode=mode)
        except OSError as e:
            raise CompileError(f"A library compiled for the host backend could not be loaded: {e}.") from e
