"""Copies of tensors that keep what a plain clone loses: strides, offsets, gaps, and who shares memory with whom."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def copied(inputs: Sequence[object]) -> list:
    """The same tensors in storages of their own; those that share one share one again. Numbers stay."""
    storages: dict[int, torch.UntypedStorage] = {}
    found: list = []
    for given in inputs:
        if isinstance(given, torch.Tensor):
            old = given.untyped_storage()
            new = storages.setdefault(old.data_ptr(), old.clone())
            given = torch.empty(0, dtype=given.dtype, device=given.device).set_(new, given.storage_offset(), given.shape, given.stride())
        found.append(given)
    return found
