"""Strategies for tensors of any strides, shared by the tests of the analyses."""

from __future__ import annotations

import math

import torch
from hypothesis import strategies as st

Strided = tuple[tuple[int, ...], tuple[int, ...]]


@st.composite
def strided(draw: st.DrawFn, max_rank: int = 5, shape: tuple[int, ...] | None = None) -> Strided:
    """A shape and strides: arbitrary ones, or those of a permuted, sliced, stepped and expanded tensor."""
    if shape is None:
        shape = tuple(draw(st.lists(st.sampled_from([2, 3, 4, 1, 2, 3, 4, 1, 2, 0]), max_size=max_rank)))
    if draw(st.booleans()):
        any_stride = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24, 0])
        return shape, tuple(draw(any_stride) for _ in shape)
    strides, step = [0] * len(shape), draw(st.sampled_from([1, 1, 1, 2]))
    plain = draw(st.booleans())  # no gaps and no expanded dims
    order = draw(st.one_of(st.just(range(len(shape))), st.permutations(range(len(shape)))))
    for d in reversed(order):
        strides[d] = step if plain or draw(st.integers(0, 4)) else 0
        step *= max(shape[d], 1) + (0 if plain else draw(st.sampled_from([0, 0, 0, 1])))
        if shape[d] == 1 and not draw(st.integers(0, 3)):
            strides[d] = draw(st.sampled_from([0, 1, 5, 40]))
    return shape, tuple(strides)


def tensor(spec: Strided, dtype: torch.dtype = torch.float32, offset: int = 0) -> torch.Tensor:
    """A tensor of the given shape and strides, its elements all distinct in memory where `dtype` can tell."""
    shape, strides = spec
    reach = offset + 1 + sum(max(n - 1, 0) * s for n, s in zip(shape, strides))
    flat = torch.arange(1, reach + 1, dtype=torch.float64)
    flat = flat % 3 != 0 if dtype is torch.bool else flat.to(dtype)
    return flat.as_strided(shape, strides, offset)


def factorings(numel: int, rank: int) -> list[tuple[int, ...]]:
    """Shapes of `numel` elements with at most `rank` dims."""
    found = {()} if numel == 1 else set()
    for n in ([d for d in range(1, numel + 1) if numel % d == 0] if numel else [0, 1, 2]):
        if rank == 0:
            break
        rests = factorings(numel // n, rank - 1) if n else [(), (2,), (1, 3)][:rank]
        found |= {(n, *rest) for rest in rests if math.prod((n, *rest)) == numel}
    return sorted(found)
