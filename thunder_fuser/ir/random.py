"""Random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

The meaning of a `Random` node, in torch's integer arithmetic; `codegen/cuda/random.cuh` says the same in CUDA. A number
belongs to an element of the node's own shape, by its row-major position e, whatever is done with it afterwards:

    counter   e // 4 in the low 64 bits, the offset in the high ones (e // 2 for float64)
    key       the seed
    words     one of four for an element: number e % 4 (for float64 two: 2 * (e % 2) and the next)

Called by the interpreter and by what stands in for a kernel where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

KINDS = ("uniform", "normal")
DRAW_COST = 24  # of a number, in operations of plain arithmetic

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def philox(counter: Sequence[Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """The four words of each counter. Counter and key are words: int64 tensors in [0, 2^32)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        # Products of two words wrap around in int64, which leaves all their bits in place.
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> 32 & _LOW) ^ c1 ^ k0, p1 & _LOW, (p0 >> 32 & _LOW) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = k0 + _WEYL[0] & _LOW, k1 + _WEYL[1] & _LOW
    return c0, c1, c2, c3


def sample(kind: str, shape: Sequence[int], dtype: torch.dtype, seed: int | Tensor, offset: int | Tensor, low: float, high: float, *,
           device: torch.device, wide: torch.dtype | None = None) -> Tensor:
    """What `Random` means: uniform in [low, high), or normal with mean `low` and standard deviation `high`, as `dtype`.

    `wide` computes the last step in that dtype from the same random bits, and keeps it."""
    count = math.prod(shape)
    single = dtype is not torch.float64
    per = 4 if single else 2
    block = torch.arange(-(-count // per), dtype=torch.int64, device=device)
    offset, seed = (torch.as_tensor(n, dtype=torch.int64, device=device).reshape(()) for n in (offset, seed))
    words = philox((block & _LOW, block >> 32 & _LOW, offset & _LOW, offset >> 32 & _LOW), (seed & _LOW, seed >> 32 & _LOW))
    words = tuple(w.expand(block.shape) for w in words)
    numbers = (_uniform if kind == "uniform" else _normal)(words, single, low, high, wide)
    found = torch.stack(numbers, -1).reshape(-1)[:count].reshape(tuple(shape))
    if wide is not None:
        return found.to(wide)
    found = found.to(dtype)
    return torch.where(found >= high, torch.full_like(found, low), found) if kind == "uniform" else found


def _uniform(words: Sequence[Tensor], single: bool, low: float, high: float, wide: torch.dtype | None) -> list[Tensor]:
    """24 bits of a word, or 53 of two, as a fraction of the range. (Rounded once, as by a fused multiply-add, but for a
    case in 2^29 with bounds that are no small numbers.)"""
    if single:
        units, math_ = [(w >> 8).double() * 2.0**-24 for w in words], torch.float32
    else:
        units = [_fraction(words[k], words[k + 1]) for k in (0, 2)]
        math_ = torch.float64
    if wide is None:
        low, high = (torch.tensor(n, dtype=torch.float64).to(math_).item() for n in (low, high))
    span = torch.tensor(high, dtype=math_) - torch.tensor(low, dtype=math_)
    return [(u * span.item() + low).to(wide or math_) for u in units]


def _fraction(high: Tensor, low: Tensor) -> Tensor:
    return (high << 21 | low >> 11).double() * 2.0**-53


def _normal(words: Sequence[Tensor], single: bool, mean: float, deviation: float, wide: torch.dtype | None) -> list[Tensor]:
    """Box and Muller: a radius from one uniform number, an angle from another, two normal numbers from both."""
    if single:
        pairs = [(words[k].double(), words[k + 1].double()) for k in (0, 2)]
        pairs = [((a * 2.0**-32 + 2.0**-33).float(), (b * 2.0**-32).float()) for a, b in pairs]
    else:
        pairs = [(_fraction(words[0], words[1]) + 2.0**-54, _fraction(words[2], words[3]))]
    found = []
    for a, b in pairs:
        a, b = (a, b) if wide is None else (a.to(wide), b.to(wide))
        radius = torch.sqrt(-2 * torch.log(a))
        found += [radius * torch.cos(2 * math.pi * b) * deviation + mean, radius * torch.sin(2 * math.pi * b) * deviation + mean]
    return found
