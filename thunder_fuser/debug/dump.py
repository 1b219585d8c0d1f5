"""The knob `dump`: prints what the named stages made of each fusion, when it is planned. Called by `compiler`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from thunder_fuser import config
from thunder_fuser.errors import InputError


def dump(fusion: str, texts: Callable[[], Mapping[str, str]]) -> None:
    """Prints to stderr those of `texts()` that `THUNDER_FUSER_DUMP` names, or all for "all". Nothing is made if it names none.

    Raises `InputError` for a name that is no stage's."""
    wanted = [word.strip() for word in config.get("dump").split(",") if word.strip()]
    if not wanted:
        return
    stages = texts()
    for name in wanted:
        if name != "all" and name not in stages:
            raise InputError(f"THUNDER_FUSER_DUMP names '{name}', expected 'all' or some of {', '.join(stages)}, separated by commas.")
    for name, text in stages.items():
        if name in wanted or "all" in wanted:
            print(f"--- {fusion}: {name} ---\n{text}", file=sys.stderr)
