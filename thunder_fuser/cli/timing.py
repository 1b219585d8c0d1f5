"""GPU time of a call, and of a device copy of as many bytes, measured in turn. Used by the demo on CUDA devices."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

ROUNDS, CALLS, WARM = 5, 12, 5
FLUSH_BYTES = 256 * 2**20  # more than the L2 cache of any card
AHEAD_CYCLES = 2_000_000  # that the GPU sleeps before a call, so that the host's launch time is not measured


@dataclass(frozen=True, slots=True)
class Timing:
    """Medians, in microseconds. `share` is the copy's time over the call's: the share of copy bandwidth reached."""

    microseconds: float
    copy_microseconds: float
    share: float


def measure(call: Callable[[], object], moved_bytes: int) -> Timing:
    """Times `call` on the current device against a copy that reads half of `moved_bytes` and writes the other half.

    The L2 cache is flushed before each call; the two take turns in rounds, so that a change of clocks meets both."""
    source = torch.empty(max(1, moved_bytes // 2), dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    for _ in range(WARM):
        call()
        target.copy_(source)
    rounds = [(_median(call, flush), _median(lambda: target.copy_(source), flush)) for _ in range(ROUNDS)]
    return Timing(statistics.median(c for c, _ in rounds), statistics.median(d for _, d in rounds),
                  statistics.median(d / c for c, d in rounds))


def _median(call: Callable[[], object], flush: torch.Tensor) -> float:
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(CALLS)]
    torch.cuda.synchronize()
    for start, end in events:
        flush.zero_()
        torch.cuda._sleep(AHEAD_CYCLES)
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events) * 1000
