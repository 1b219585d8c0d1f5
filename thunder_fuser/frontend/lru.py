"""`LruFusionCache`: a decorator for functions that define fusions, so that equal definitions compile once.

Two definitions are equal if their printed text is, names aside. The definition that comes back is the function's own; what it
compiled, or will compile, it shares with its equals.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from thunder_fuser.errors import InputError
from thunder_fuser.frontend.calls import Calls
from thunder_fuser.frontend.definition import FusionDefinition


class LruFusionCache:
    """Decorator of a function that returns a complete `FusionDefinition`. Keeps the last `max_fusions` distinct ones."""

    def __init__(self, max_fusions: int = 16384) -> None:
        if not isinstance(max_fusions, int) or max_fusions < 1:
            raise InputError(f"'LruFusionCache' takes a max_fusions of at least 1, got '{max_fusions!r}'.")
        self.max_fusions = max_fusions
        self._known: OrderedDict[str, Calls] = OrderedDict()
        self._hits: dict[str, int] = {}
        self._lookups = 0
        self._lock = threading.Lock()

    def __call__(self, define: Callable[..., FusionDefinition]) -> Callable[..., FusionDefinition]:
        @functools.wraps(define)
        def cached(*args: Any, **kwargs: Any) -> FusionDefinition:
            fd = define(*args, **kwargs)
            if not isinstance(fd, FusionDefinition):
                raise InputError(f"'{define.__name__}' returned a '{type(fd).__name__}', expected a FusionDefinition.")
            self._share(fd)
            return fd

        cached.stats = self.stats
        cached.num_fusions = self.num_fusions
        return cached

    def num_fusions(self) -> int:
        """How many distinct definitions are held."""
        return len(self._known)

    def stats(self) -> str:
        """Definitions held, look-ups so far, and how many of them found a definition again."""
        found = sum(self._hits.values())
        lines = [f"{len(self._known)} fusions of at most {self.max_fusions}, {self._lookups} look-ups, {found} hits"]
        lines += [f"  {calls.said.name}: {self._hits[text]} hits, {len(calls.known)} sets of sizes" for text, calls in self._known.items()]
        return "\n".join(lines)

    def _share(self, fd: FusionDefinition) -> None:
        calls = fd.calls()
        text = fd.text()
        with self._lock:
            self._lookups += 1
            known = self._known.get(text)
            if known is None:
                self._known[text] = calls
                self._hits[text] = 0
                if len(self._known) > self.max_fusions:
                    self._hits.pop(self._known.popitem(last=False)[0])
            else:
                self._hits[text] += 1
                self._known.move_to_end(text)
                fd.share(known)
