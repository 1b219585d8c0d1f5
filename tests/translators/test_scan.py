"""Thunder's cumulative sum, translated, against torch."""

from __future__ import annotations

import pytest
import torch

from tests.translators.test_region import check


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool, torch.uint8, torch.int64], ids=str)
def test_dtypes(dtype):
    x = torch.randint(0, 2, (3, 40)).to(dtype)
    check(lambda x: (torch.cumsum(x, 1), torch.cumsum(x, -2), x.cumsum(0, dtype=torch.float64), x.cumsum(1, dtype=torch.int32)), x)


def test_nothing():
    check(lambda x: torch.cumsum(x, 0), torch.empty(0, 3))
