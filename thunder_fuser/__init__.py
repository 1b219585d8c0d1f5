"""thunder_fuser: a fusion engine for Thunder traces."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Public names and the modules they live in, imported on first use.
_LAZY = {
    "DataType": "thunder_fuser.frontend.datatype",
    "FusionDefinition": "thunder_fuser.frontend.definition",
    "LruFusionCache": "thunder_fuser.frontend.lru",
    "executor": "thunder_fuser.executors.executor",
    "jit": "thunder_fuser.executors.jit",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
