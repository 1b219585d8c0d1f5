"""qkv_split_rope in plain torch: a packed projection split into q, k and v, with rotary embeddings on q and k.

Used by the executor's tests; sizes small enough for the host backend.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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

    def function(self):
        """qkv, cos, sin -> q, k, v of shape (batch, heads, tokens, size); k and v have one head if there is one group."""
        heads, groups, size, rotary = self.heads, self.groups, self.size, self.rotary
        per_group = heads // groups

        def qkv_split_rope(qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            batch, tokens, _ = qkv.shape
            packed = qkv.view(batch, tokens, groups, per_group + 2, size).permute(0, 2, 3, 1, 4)
            q, k, v = packed.split((per_group, 1, 1), dim=2)
            if 1 < groups < heads:
                k = k.expand(batch, groups, per_group, tokens, size)
                v = v.expand(batch, groups, per_group, tokens, size)
            q, k, v = (x.reshape(batch, -1, tokens, size) for x in (q, k, v))
            q = torch.cat((rotate(q[..., :rotary], cos, sin), q[..., rotary:]), dim=-1)
            k = torch.cat((rotate(k[..., :rotary], cos, sin), k[..., rotary:]), dim=-1)
            return q, k, v

        return qkv_split_rope


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x * cos + (halves of x swapped, the second negated) * sin, in x's dtype."""
    half = x.size(-1) // 2
    swapped = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x * cos + swapped * sin).to(x.dtype)


CONFIGS = {
    "multi-head": RopeConfig(heads=4, groups=4, size=8, rotary=8),
    "grouped queries": RopeConfig(heads=6, groups=2, size=8, rotary=8),
    "partial rotary": RopeConfig(heads=3, groups=3, size=10, rotary=4),
    "one group": RopeConfig(heads=4, groups=1, size=8, rotary=8),
    "tiny": RopeConfig(heads=1, groups=1, size=2, rotary=2, batch=1, tokens=1),
}
