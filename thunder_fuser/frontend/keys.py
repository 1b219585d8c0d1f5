"""What a call is looked up by: everything that a specialisation was checked and made for.

Called by `FusionDefinition` when its inputs are known, for a function that makes the key of a call. It is source code, since a
loop over the inputs would cost a microsecond each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Set

import torch

from thunder_fuser.frontend.inputs import Input, ScalarInput, TensorInput


def key_function(declared: Sequence[Input], static: Set[int], layouts: bool) -> Callable[..., Hashable]:
    """key(in0, in1, ...): shape, dtype and device of each tensor, the class of each number, and the value of those that
    sizes depend on. With `layouts` also torch's layout of each tensor: a fusion itself fails for what has no strides, torch
    does not. Raises TypeError or AttributeError for arguments that are neither tensors nor numbers."""
    parts: list[str] = []
    on_device = False
    for k, declaration in enumerate(declared):
        if isinstance(declaration, TensorInput):
            on_device = on_device or not declaration.is_cpu
            parts += [f"in{k}.shape", f"in{k}.dtype", f"in{k}.device", *([f"in{k}.layout"] if layouts else [])]
        elif isinstance(declaration, ScalarInput):
            parts.append(f"in{k}.__class__")
            if declaration.symbol.index in static:  # a float by its text: NaN equals itself there, and -0.0 is not 0.0
                parts.append(f"repr(in{k})" if declaration.symbol.dtype.kind in ("float", "float8", "complex") else f"in{k}")
        else:
            parts.append(f"tuple([n.__class__ for n in in{k}])")
            if any(s.index in static for s in declaration.scalars):
                parts.append(f"tuple(in{k})")
    if not on_device:
        parts.append("current_device()")
    text = f"lambda {', '.join(f'in{k}' for k in range(len(declared)))}: ({', '.join(parts)},)"
    return eval(text, {"current_device": _current_device})


def _current_device() -> int:
    return torch.cuda.current_device() if torch.cuda.is_available() else -1
