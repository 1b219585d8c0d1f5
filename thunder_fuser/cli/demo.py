"""`thunder-fuser demo`: qkv_split_rope with three models' heads, forward and backward, through `thunder.jit`.

Prints, for each: the trace's fusions, what alias analysis took away, the kernels, on a GPU their times, and how right
the results are. The exit code is 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from thunder_fuser import __version__
from thunder_fuser.cli import terminal
from thunder_fuser.errors import InputError

warnings.filterwarnings("ignore", message="transformer_engine module not found")  # of Thunder's import, for every user

from thunder_fuser.cli.results import Direction, FusionResult, run_both_ways  # noqa: E402
from thunder_fuser.cli.rope import HEADS, Heads, program  # noqa: E402

SHOWN_FIRST, SHOWN_LAST = 4, 2  # prims of a fusion that are printed unless all are asked for


def run(arguments: argparse.Namespace) -> int:
    """Runs and prints the demo; 1 if a result is wrong."""
    device = _device(arguments.backend)
    print("\n".join(_opening(device)))
    runs: list[tuple[Heads, list[Direction]]] = []
    for shape in HEADS.values() if arguments.config == "all" else [HEADS[arguments.config]]:
        sized = shape if device.type == "cuda" else shape.small()
        print("\n" + terminal.bold(f"{shape.model}") + f": {sized}")
        directions = run_both_ways(program(sized), sized.inputs(device), ("q", "k", "v"))
        runs.append((sized, directions))
        for direction in directions:
            print("\n".join(_direction(direction, every_prim=arguments.prims)))
    wrong = [f"{shape.model}, {d.name}: {c.result} {c.wrong}" for shape, ds in runs for d in ds for c in d.comparisons if c.wrong]
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(_record(device, runs), indent=1) + "\n")
    print()
    print("\n".join([terminal.bad(f"wrong: {w}") for w in wrong] or [terminal.good("All results are as near to float64 as eager torch's, or nearer.")]))
    return 1 if wrong else 0


def _device(backend: str) -> torch.device:
    available = torch.cuda.is_available()
    if backend == "cuda" and not available:
        raise InputError("There is no CUDA device that torch can use; '--backend host' runs without one.")
    if backend == "host" or not available:
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def _opening(device: torch.device) -> list[str]:
    title = terminal.bold(f"thunder_fuser {__version__}: qkv_split_rope, forward and backward, through thunder.jit")
    if device.type == "cuda":
        return [title, f"On {torch.cuda.get_device_name(device)}. Times: CUDA events, L2 flushed, medians; a copy of as many bytes is measured in turn."]
    return [title, "On the host backend (the generated CUDA source, compiled by the C++ compiler): small sizes, no times."]


def _direction(direction: Direction, *, every_prim: bool) -> list[str]:
    lines = ["", terminal.bold(f"  {direction.name}")]
    for fusion in direction.fusions:
        lines += _trace(fusion, every_prim=every_prim) + _views(fusion) + _kernels(fusion) + _timing(fusion)
    if direction.others:
        lines.append(f"    left to other executors: {', '.join(direction.others)}")
    return lines + _comparisons(direction)


def _trace(fusion: FusionResult, *, every_prim: bool) -> list[str]:
    prims = list(fusion.prims)
    if not every_prim and len(prims) > SHOWN_FIRST + SHOWN_LAST + 1:
        hidden = len(prims) - SHOWN_FIRST - SHOWN_LAST
        prims[SHOWN_FIRST:-SHOWN_LAST] = [f"# ... {hidden} more, shown by --prims"]
    count = f"    {len(fusion.prims)} prims in one fusion; {fusion.moves} of them only move elements, and are index arithmetic in its kernels"
    return ["    " + fusion.line, *(terminal.dim(terminal.clipped("      " + p)) for p in prims), count]


def _views(fusion: FusionResult) -> list[str]:
    report = fusion.report
    if not report.views:
        return ["    alias analysis: no output is a view in torch, so all are written"]
    return [f"    alias analysis: {fusion.names[v.output]} is a view of {fusion.names.get(v.of, v.of)}, offset {v.offset}, "
            f"strides {list(v.strides)}: no kernel, no bytes" for v in report.views]


def _kernels(fusion: FusionResult) -> list[str]:
    kernels = fusion.report.kernels
    if not kernels:
        return ["    no kernel is launched"]
    on_card = kernels[0].registers is not None
    rows = [("kernel", "grid", "block", "widest access", "bytes moved", *(("registers",) if on_card else ()))]
    for k in kernels:
        registers = (f"{k.registers}" + (f" + {k.spill_bytes} bytes spilled" if k.spill_bytes else ""),) if on_card else ()
        rows.append((k.name, str(k.grid), str(k.block), f"{k.vector_bytes} bytes", f"{k.bytes:,}", *registers))
    return terminal.table(rows, indent="    ")


def _timing(fusion: FusionResult) -> list[str]:
    timing = fusion.timing
    if timing is None:
        return []
    rate = fusion.report.bytes / timing.microseconds / 1000
    return [f"    {timing.microseconds:.1f} µs on the GPU, {rate:,.0f} GB/s; a copy of as many bytes takes {timing.copy_microseconds:.1f} µs: "
            + terminal.bold(f"{timing.share:.1%} of copy bandwidth")]


def _comparisons(direction: Direction) -> list[str]:
    rows = [("error against float64", "thunder_fuser", "eager torch", "")]
    rows += [(c.result, f"{c.ours:.2e}", f"{c.eager:.2e}", "") for c in direction.comparisons]
    lines = terminal.table(rows, indent="    ")
    verdicts = [terminal.bad(f"  wrong: {c.wrong}") if c.wrong else terminal.good("  right") for c in direction.comparisons]
    return [lines[0], *(line + verdict for line, verdict in zip(lines[1:], verdicts))]


def _record(device: torch.device, runs: list[tuple[Heads, list[Direction]]]) -> dict[str, Any]:
    """All figures, for programs."""
    return {
        "version": __version__,
        "torch": torch.__version__,
        "backend": "cuda" if device.type == "cuda" else "host",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "runs": [{"heads": asdict(shape), "directions": [_direction_record(d) for d in directions]} for shape, directions in runs],
    }


def _direction_record(direction: Direction) -> dict[str, Any]:
    record = asdict(direction)
    for entry, fusion in zip(record["fusions"], direction.fusions):
        entry["report"] = fusion.report.to_dict()
    return record
