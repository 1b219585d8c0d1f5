"""The demo's qkv_split_rope at sizes small enough for the host backend. Used by the executor's tests."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thunder_fuser.cli.rope import Heads, Program, program


@dataclass(frozen=True)
class RopeConfig:
    """`groups` heads of k and v serve `heads` of q; the first `rotary` of `size` features are rotated."""

    heads: int
    groups: int
    size: int
    rotary: int
    batch: int = 2
    tokens: int = 5

    def inputs(self, device: str = "cpu", dtype: torch.dtype = torch.bfloat16, *, grad: bool = True) -> tuple[Tensor, ...]:
        """The packed projection, cos and sin."""
        generator = torch.Generator().manual_seed(0)
        packed = (self.batch, self.tokens, (self.heads + 2 * self.groups) * self.size)
        shapes = (packed, (self.tokens, self.rotary), (self.tokens, self.rotary))
        qkv, cos, sin = (torch.randn(*shape, generator=generator).to(device, dtype) for shape in shapes)
        return qkv.requires_grad_(grad), cos, sin

    def function(self) -> Program:
        """The demo's program for these heads."""
        return program(Heads("test", self.heads, self.groups, self.size, self.rotary, self.batch, self.tokens))


CONFIGS = {
    "multi-head": RopeConfig(heads=4, groups=4, size=8, rotary=8),
    "grouped queries": RopeConfig(heads=6, groups=2, size=8, rotary=8),
    "partial rotary": RopeConfig(heads=3, groups=3, size=10, rotary=4),
    "one group": RopeConfig(heads=4, groups=1, size=8, rotary=8),
    "tiny": RopeConfig(heads=1, groups=1, size=2, rotary=2, batch=1, tokens=1),
}
