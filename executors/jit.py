"""`thunder_fuser.jit`: `thunder.jit` with the executors that go well with this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import thunder
from thunder.executors.sdpaex import sdpa_ex
from thunder.extend import Executor

from thunder_fuser.executors.executor import executor


def jit(fn: Callable[..., Any], /, *, executors: Sequence[Executor | str] = (), **options: Any) -> Any:
    """`thunder.jit(fn, **options)` with scaled dot-product attention by torch's kernels, then this executor, then torch.

    `executors` are asked before those. torchcompile_xentropy, which `thunder.jit` has by default, is left out: it would
    take cross-entropy away."""
    return thunder.jit(fn, executors=[*executors, sdpa_ex, executor], **options)
