"""Every test that takes `device` runs on the host backend, and again on CUDA where there is a card."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return request.param
