"""The program that compute-sanitizer watches runs, and its kernels give torch's values."""

from __future__ import annotations

import pytest

from tests.sanitize import PROGRAMS, check


@pytest.mark.parametrize("backend", ["host", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, backend: str) -> None:
    assert check(name, backend)
