"""A budget of time for property tests: programs are drawn until it is spent."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any


def within(seconds: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The test under `@given` as one that passes at once when it has run for this long, unless it has failed: then
    hypothesis is making the example smaller, and must see it fail."""
    def wrap(test: Callable[..., None]) -> Callable[..., None]:
        started: list[float] = []
        failed: list[bool] = []

        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            started or started.append(time.monotonic())
            if not failed and time.monotonic() - started[0] > seconds:
                return
            try:
                test(*args, **kwargs)
            except BaseException:
                failed.append(True)
                raise

        return run

    return wrap
