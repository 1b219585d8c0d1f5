"""A definition as Python text: what `repr(fd)` prints, and the script that reproduces a call.

The text is nvFuser's own form, and running it rebuilds the definition.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import torch

from thunder_fuser.frontend.records import Record
from thunder_fuser.frontend.values import TensorView


def function_text(name: str, records: Sequence[Record]) -> str:
    """The definition as a function of `fd`."""
    lines = [f"    {statement(record)}" for record in records]
    return "\n".join([f"def {name}(fd : FusionDefinition) -> None :", *(lines or ["    pass"])])


def statement(record: Record) -> str:
    """One record as a line of Python: operands in order, what else was given by keyword, defaults left out."""
    shown, by_name = [], False
    for position, (name, value) in enumerate(record.arguments.items()):
        if _is_default(record, name, value):
            by_name = True
            continue
        by_name = by_name or position >= _positional(record)
        shown.append(f"{name}={_literal(value)}" if by_name else _literal(value))
    callee = f"fd.{record.method}" if record.row is None else f"fd.ops.{record.row.name}"
    call = f"{callee}({', '.join(shown)})"
    return f"{', '.join(map(repr, record.outs))} = {call}" if record.outs else call


def repro_script(name: str, records: Sequence[Record], inputs: Sequence[Any]) -> str:
    """A script that defines the fusion, makes random inputs of the same shapes and strides, and runs it."""
    made = [f"    {_random_input(value)}," for value in inputs]
    return "\n".join([
        f"# torch {torch.__version__}, cuda {torch.version.cuda}, {torch.cuda.get_device_name() if torch.cuda.is_available() else 'no GPU'}",
        "import torch",
        "from thunder_fuser import DataType, FusionDefinition",
        "",
        function_text(name, records),
        "",
        "with FusionDefinition() as fd:",
        f"    {name}(fd)",
        "",
        "inputs = [",
        *made,
        "]",
        "fd.execute(inputs)",
        "",
    ])


def _is_default(record: Record, name: str, value: Any) -> bool:
    if record.row is None:
        return value is None and name != "value"
    return value is record.row.signature.parameters[name].default


def _positional(record: Record) -> int:
    """How many leading arguments are written without their names: all operands of an elementwise op, else the tensors that
    come first, one argument at least."""
    if record.method == "define_tensor":
        return 0
    if getattr(record.result, "compute", None) is not None:
        return len(record.arguments)
    tensors = takewhile(lambda value: isinstance(value, TensorView), record.arguments.values())
    return max(1, sum(1 for _ in tensors))


def _literal(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, complex) and not cmath.isfinite(value):
        return f'complex("{value}")'
    return repr(value)


def _random_input(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return _literal(value)
    size, stride = tuple(value.shape), tuple(value.stride())
    span = 0 if value.numel() == 0 else 1 + sum((n - 1) * s for n, s in zip(size, stride))
    options = f"dtype={value.dtype}, device='{value.device}'"
    if value.dtype.is_floating_point and value.dtype.itemsize == 1:  # torch draws no random numbers of 8 bits
        source = f"torch.randn(({span},), device='{value.device}').to({value.dtype})"
    elif value.dtype.is_floating_point or value.dtype.is_complex:
        source = f"torch.randn(({span},), {options})"
    elif value.dtype is torch.uint64:  # seeds
        source = f"torch.zeros(({span},), {options})"
    else:  # between the least and the largest, so that indices stay in range
        low, high = (int(value.min()), int(value.max())) if value.numel() else (0, 1)
        source = f"torch.randint({low}, {min(high + 1, 2**63 - 1)}, ({span},), {options})"
    return f"{source}.as_strided({size}, {stride})"
