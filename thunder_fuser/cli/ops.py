"""`thunder-fuser ops`: the rows of the op tables."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from thunder_fuser.cli import terminal
from thunder_fuser.ir import dtypes, ops

_KINDS = ("bool", "int", "float", "float8", "complex")


def run(arguments: argparse.Namespace) -> int:
    """Prints every pointwise op and every reduction with its dtypes, torch reference and C++ expression."""
    pointwise = [("op", "dtypes", "result", "torch", "C++")]
    for op in ops.POINTWISE.values():
        kinds = ", ".join(k for k in _KINDS if k in op.accepts) + ("" if op.narrow else " of 32 bits or more")
        integers = f" (integers: {_operands(op.integer)})" if op.integer else ""
        pointwise.append((op.name, kinds, op.out, _reference(op.torch), _operands(op.cuda) + integers))
    reductions = [("reduction", "dtypes", "of nothing", "torch", "C++")]
    for reduction in ops.REDUCTIONS.values():
        kinds = ", ".join(k for k in _KINDS if k in reduction.accepts)
        combine = reduction.combine.replace("{0}", "acc").replace("{1}", "x")
        reductions.append((reduction.name, kinds, reduction.identity.replace("{T}", "T"), _reference(reduction.torch), combine))
    print("\n".join([*terminal.table(pointwise, left=5), "", *terminal.table(reductions, left=5), ""]))
    print(f"dtypes: {', '.join(dtypes.DTYPES)}")
    print("Besides these: casts, full, iota, and what only moves elements: reshape, permute, slice, squeeze, broadcast, expand, pad, cat, flip, copy.")
    return 0


def _operands(expression: str) -> str:
    return expression.replace("{0}", "a").replace("{1}", "b").replace("{2}", "c")


def _reference(function: Callable[..., object]) -> str:
    """A torch function's name; references of our own are named after the op they make of torch's functions."""
    name = getattr(function, "__name__", "")
    ours = (getattr(function, "__module__", None) or "").startswith("thunder_fuser")
    return "composed" if ours or not name else name
