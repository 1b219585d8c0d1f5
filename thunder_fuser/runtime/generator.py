"""Seeds and offsets for random numbers, drawn from torch's own generators, which go on by it.

Called once a call for each random value of a program whose seed nobody gave: by the executor's operator in a trace, and by
`FusionDefinition`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def draw(device: torch.device) -> tuple[int | Tensor, int | Tensor]:
    """A seed and an offset of 64 bits each that torch's default generator of `device` has not given before.

    On CUDA they are those that torch's next kernel would have: the generator's seed and a fourth of its offset, which
    grows by 4. While a CUDA graph is captured they are tensors of rank 0 that every replay draws anew, since a number would
    be the same in all replays and torch shows the state that it keeps on the device to no one. On the CPU they are drawn."""
    if device.type != "cuda":
        seed, offset = torch.randint(-(2**63), 2**63 - 1, (2,)).tolist()
        return seed, offset
    if torch.cuda.is_current_stream_capturing():
        both = torch.randint(-(2**63), 2**63 - 1, (2, 2), device=device)  # 16 bytes for each: how kernels find them is in plans' keys
        return both[0, 0], both[1, 0]
    torch.cuda.init()
    generator = torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    offset = generator.get_offset() // 4
    generator.set_offset((offset + 1) * 4)
    return _signed(generator.initial_seed()), offset


def like_captured(device: torch.device) -> Tensor:
    """A tensor like those that `draw` gives under capture, with nothing in it: for plans that must be ready by then."""
    return torch.empty((), dtype=torch.int64, device=device)


def _signed(seed: int) -> int:
    """The same 64 bits as a signed number."""
    return seed - 2**64 if seed >= 2**63 else seed
