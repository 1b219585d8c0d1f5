"""`thunder-fuser cache info|clear`: the folder of compiled kernels."""

from __future__ import annotations

import argparse

from thunder_fuser.runtime import cache


def run(arguments: argparse.Namespace) -> int:
    """Shows or clears the folder; 1 if it cannot be used."""
    store = cache.current()
    if store.folder is None:
        print("Compiled kernels are kept in memory only, since THUNDER_FUSER_CACHE_DIR is 'off'.")
        return 0
    held = store.usage()
    if held is None:
        return 1  # the cache has warned and said why
    entries, size = held
    if arguments.action == "clear":
        store.clear()
        print(f"Deleted {entries} compiled kernel{'s' * (entries != 1)} ({size / 2**20:.1f} MiB) from {store.folder}.")
    else:
        print(f"{store.folder}: {entries} compiled kernel{'s' * (entries != 1)}, {size / 2**20:.1f} MiB of {store.limit_bytes / 2**20:.0f} MiB.")
    return 0
