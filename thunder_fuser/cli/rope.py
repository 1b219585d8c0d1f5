"""qkv_split_rope, the demo's program: plain torch code as models write it, with three models' heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

Program = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Heads:
    """`heads` of q share `groups` heads of k and v, of `size` features each; the first `rotary` of them are rotated."""

    model: str
    heads: int
    groups: int
    size: int
    rotary: int
    batch: int
    tokens: int

    def small(self) -> Heads:
        """The same heads over so few tokens that a CPU needs about a second."""
        return replace(self, batch=2, tokens=64)

    def inputs(self, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor, Tensor]:
        """qkv (batch, tokens, features), which requires a gradient, and cos and sin (tokens, rotary)."""
        generator = torch.Generator(device).manual_seed(0)
        features = (self.heads + 2 * self.groups) * self.size
        shapes = ((self.batch, self.tokens, features), (self.tokens, self.rotary), (self.tokens, self.rotary))
        qkv, cos, sin = (torch.randn(shape, generator=generator, device=device).to(dtype) for shape in shapes)
        return qkv.requires_grad_(), cos, sin

    def __str__(self) -> str:
        return (f"{self.heads} heads, {self.groups} of k and v, {self.size} features, {self.rotary} rotated; "
                f"batch {self.batch}, {self.tokens} tokens, bf16")


HEADS = {h.model: h for h in (
    Heads("llama-2-7b", heads=32, groups=32, size=128, rotary=128, batch=2, tokens=4096),
    Heads("llama-3-8b", heads=32, groups=8, size=128, rotary=128, batch=1, tokens=8192),
    Heads("phi-2", heads=32, groups=32, size=80, rotary=32, batch=4, tokens=2048),
)}


def program(shape: Heads) -> Program:
    """qkv, cos, sin -> q, k, v of shape (batch, heads, tokens, size); k and v have one head if there is one group."""
    heads, groups, size, rotary = shape.heads, shape.groups, shape.size, shape.rotary
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
    """x * cos + (x's halves swapped, the second one negated) * sin, in x's dtype."""
    half = x.size(-1) // 2
    swapped = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x * cos + swapped * sin).to(x.dtype)
