"""`thunder-fuser config`: the engine's knobs, their environment variables and their values now."""

from __future__ import annotations

import argparse

from thunder_fuser import config


def run(arguments: argparse.Namespace) -> int:
    """Prints the table of `thunder_fuser.config`."""
    print(config.table())
    return 0
