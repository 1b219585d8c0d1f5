"""Which prims ran in fusions, in which dtypes: recorded by the conftest, kept in `ran.txt`, read by docs/coverage.md.

    PRIM  DTYPE DTYPE ...
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from thunder.core.proxies import TensorProxy
from thunder.core.pytree import tree_flatten

from thunder_fuser.executable import Executable
from thunder_fuser.executors.callable import FusionCallable
from thunder_fuser.executors.program import Program

TABLE = Path(__file__).parent / "ran.txt"


class Recorder:
    """From `install()` on, `pairs` are the prims and dtypes of all fusions that were called and ran."""

    def __init__(self) -> None:
        self.pairs: set[tuple[str, str]] = set()
        self._programs: dict[int, Program] = {}  # those seen, kept so that their ids stay theirs

    def install(self) -> None:
        call = FusionCallable.__call__

        def recorded(fusion: FusionCallable, *inputs: Any) -> Any:
            outputs = call(fusion, *inputs)
            if id(fusion.program) not in self._programs and isinstance(fusion.last_used, Executable):
                self._programs[id(fusion.program)] = fusion.program
                self.pairs.update(_pairs(fusion.program))
            return outputs

        FusionCallable.__call__ = recorded


def _pairs(program: Program) -> Iterable[tuple[str, str]]:
    for bsym in program._region[0]:
        for proxy in tree_flatten((bsym.args, bsym.kwargs, bsym.output))[0]:
            if isinstance(proxy, TensorProxy):
                yield getattr(bsym.sym.id, "name", bsym.sym.id), str(proxy.dtype).removeprefix("thunder.dtypes.").rstrip("_")


def read() -> dict[str, list[str]]:
    """The dtypes that each prim ran in."""
    return {prim: dtypes for prim, *dtypes in map(str.split, TABLE.read_text().splitlines())}


def write(pairs: Iterable[tuple[str, str]]) -> None:
    """Adds to what the file has."""
    found: dict[str, set[str]] = defaultdict(set, {prim: set(dtypes) for prim, dtypes in read().items()})
    for prim, dtype in pairs:
        found[prim].add(dtype)
    TABLE.write_text("".join(f"{prim} {' '.join(sorted(found[prim]))}\n" for prim in sorted(found)))
