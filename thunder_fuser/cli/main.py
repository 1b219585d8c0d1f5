"""`thunder-fuser COMMAND`: reads the arguments and hands over to the command's module.

A command's module is imported only when it runs: help is quick, and `doctor` works where torch cannot be imported.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from thunder_fuser import __version__
from thunder_fuser.cli import terminal
from thunder_fuser.errors import FuserError

CONFIGS = ("llama-2-7b", "llama-3-8b", "phi-2")


def parser() -> argparse.ArgumentParser:
    """The arguments of all commands."""
    top = argparse.ArgumentParser(prog="thunder-fuser", description="A fusion engine for Thunder traces.")
    top.add_argument("--version", action="version", version=f"thunder_fuser {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, line: str, more: str = "") -> argparse.ArgumentParser:
        return commands.add_parser(name, help=line, description=f"{line[0].upper()}{line[1:]}. {more}".strip())

    demo = command("demo", "run qkv_split_rope, forward and backward, and show what became of it",
                   "Compares with eager torch and with float64, and exits with 1 if a result is wrong.")
    demo.add_argument("--config", choices=(*CONFIGS, "all"), default="all", help="whose heads (default: all)")
    demo.add_argument("--backend", choices=("auto", "cuda", "host"), default="auto",
                      help="where to run: a CUDA device, or the same kernels on the CPU with small sizes and no times; "
                           "auto: CUDA if there is a device (default)")
    demo.add_argument("--prims", action="store_true", help="print every prim of the fusions, not the first and last few")
    demo.add_argument("--json", metavar="FILE", help="also write all figures, with plans and sources, to FILE")
    command("ops", "list the pointwise ops and reductions: dtypes, torch's name, C++ expression")
    command("doctor", "check Python, torch, Thunder, NVRTC, the GPU, the C++ compiler and the cache folder",
            "Exits with 1 if no backend can run.")
    cache = command("cache", "show or clear the folder of compiled kernels")
    cache.add_argument("action", choices=("info", "clear"), help="info: where it is and what it holds; clear: delete what it holds")
    command("config", "list the environment variables: value now, meaning")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; the process's exit code."""
    given = parser().parse_args(arguments)
    try:
        if given.command == "demo" and sys.stderr.isatty():
            print(terminal.dim("importing torch and Thunder ..."), file=sys.stderr)
        return importlib.import_module(f"thunder_fuser.cli.{given.command}").run(given)
    except FuserError as error:
        print(f"thunder-fuser {given.command}: {error}", file=sys.stderr)
    except ImportError as error:
        print(f"thunder-fuser {given.command}: {error}. 'thunder-fuser doctor' says what is missing.", file=sys.stderr)
    except BrokenPipeError:
        # The reader has seen enough; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
