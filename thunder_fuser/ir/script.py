"""A fusion and the inputs of one call as a Python script that runs without Thunder: called by `Executable` and by tests.

The script compiles the fusion, runs it, and compares with torch op by op (`ir/interpreter.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from thunder_fuser.ir.nodes import Fusion, ScalarType, Value

MAX_ELEMENTS = 4096  # of an input's memory that is written out; a larger input is made of random numbers

_TEMPLATE = '''\
"""Reproduces a call of the fusion '{name}': python THIS_FILE [host|cuda]. Made with torch {torch}."""

import sys
from math import inf, nan

import torch

from thunder_fuser.compiler import compile_fusion
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.parser import parse

FUSION = parse("""\\
{fusion}
""")
BACKEND = sys.argv[1] if len(sys.argv) > 1 else "{backend}"


def memory(values, dtype):
    """A tensor of these values: bits as integers for dtypes that a list cannot hold."""
    return torch.tensor(values, dtype=dtype, device="cuda" if BACKEND == "cuda" else "cpu")


inputs = [
{inputs}
]
expected = evaluate(FUSION, *[x.clone() if isinstance(x, torch.Tensor) else x for x in inputs])
got = compile_fusion(FUSION, BACKEND, keep_rounding={keep_rounding})(*inputs)
for name, g, w in zip({outputs}, got, expected, strict=True):
    try:
        torch.testing.assert_close(g, w, equal_nan=True)
        print(f"{{name}}: as torch")
    except AssertionError as error:
        print(f"{{name}}: {{error}}")
'''


def script(fusion: Fusion, inputs: Sequence[Tensor | bool | int | float] = (), *, backend: str = "host", keep_rounding: bool = False) -> str:
    """The script's text. Inputs are made anew with their values, shapes, strides and offsets; without any, and where they
    are large, of random numbers."""
    lines = [_input(v, x) for v, x in zip(fusion.inputs, inputs)] if inputs else map(_random, fusion.inputs)
    return _TEMPLATE.format(name=fusion.name, torch=torch.__version__, fusion=fusion, backend=backend, keep_rounding=keep_rounding,
                            inputs="\n".join(f"    {line}," for line in lines), outputs=[v.name for v in fusion.outputs])


def _input(value: Value, given: Tensor | bool | int | float) -> str:
    if not isinstance(given, Tensor):
        return repr(given)
    span = 1 + sum((n - 1) * s for n, s in zip(given.shape, given.stride())) if given.numel() else 0
    if span > MAX_ELEMENTS:
        return _random(value, given)
    offset = given.storage_offset() % (16 // min(given.element_size(), 16))  # what alignment sees of it
    held = given.detach().as_strided((span,), (1,), given.storage_offset()).cpu() if span else given.detach().new_empty(0).cpu()
    values = held.tolist() if given.dtype.itemsize > 1 or given.dtype == torch.bool else held.view(torch.uint8).tolist()
    made = f"memory({[0] * offset + values}, torch.uint8).view({given.dtype})" if held.dtype.itemsize == 1 and given.dtype != torch.bool else (
        f"memory({[0] * offset + values}, {given.dtype})")
    return f"torch.as_strided({made}, {tuple(given.shape)}, {tuple(given.stride())}, {offset})"


def _random(value: Value, like: Tensor | None = None) -> str:
    if isinstance(value.type, ScalarType):
        return {"bool": "True", "int": "3"}.get(value.dtype.kind, "1.5")
    strides = torch.empty(value.shape, device="meta").stride() if like is None else like.stride()
    span = 1 + sum((n - 1) * s for n, s in zip(value.shape, strides)) if value.type.numel else 0
    made = f"torch.rand({span})" if value.dtype.kind in ("float", "complex") else f"torch.randint(0, 2, ({span},))"
    device = '"cuda" if BACKEND == "cuda" else "cpu"'
    return f"torch.as_strided({made}.to({device}, {value.dtype.torch}), {tuple(value.shape)}, {tuple(strides)})"
