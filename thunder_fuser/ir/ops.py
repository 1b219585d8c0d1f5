"""THE op tables. One row is the only place that knows a pointwise op or a reduction.

A row holds the accepted dtypes, the torch reference, the C++ expression, and where the result's dtype differs from
its operands'. Derived from it elsewhere, by loops: builder methods, type rule, printer and parser keywords,
interpreter, generated code, Thunder translation, documentation and parametrised tests. Adding an op is adding a line.

Names are Thunder's prim names in lower case. `{0}` in an expression is the first operand, already in its math type;
arity is counted from the braces. `tf::` functions live in codegen/cuda/math.cuh, overloaded by type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch

FLOAT = frozenset({"float"})
INT = frozenset({"int"})
BITS = frozenset({"int", "bool"})
NUMBER = frozenset({"int", "float"})
ANY = frozenset({"bool", "int", "float"})


@dataclass(frozen=True, slots=True)
class PointwiseOp:
    """One elementwise op.

    `accepts` are dtype kinds; `out` is "same" (the operands' dtype) or "bool"; `cost` is 1 for an op of plain
    arithmetic and about its number of instructions / 4 for a transcendental one; `domain` is where the generated
    tests draw float operands from.
    """

    name: str
    accepts: frozenset[str]
    torch: Callable[..., torch.Tensor]
    cuda: str
    out: str = "same"
    commutes: bool = False
    cost: int = 1
    domain: tuple[float, float] = (-3.0, 3.0)

    @property
    def arity(self) -> int:
        return 1 + max(int(i) for i in re.findall(r"\{(\d)\}", self.cuda))


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduction: `identity` and `combine` are C++ in the accumulation type `{T}`; `{0}` is the accumulator."""

    name: str
    accepts: frozenset[str]
    torch: Callable[..., torch.Tensor]
    identity: str
    combine: str


def _table(*rows: PointwiseOp) -> dict[str, PointwiseOp]:
    return {r.name: r for r in rows}


row = PointwiseOp
# fmt: off
POINTWISE: dict[str, PointwiseOp] = _table(
    #   name            accepts  torch reference       C++ expression
    row("neg",          NUMBER,  torch.neg,            "-{0}"),
    row("abs",          NUMBER,  torch.abs,            "tf::abs({0})"),
    row("exp",          FLOAT,   torch.exp,            "tf::exp({0})", cost=4),
    row("tanh",         FLOAT,   torch.tanh,           "tf::tanh({0})", cost=8),
    row("rsqrt",        FLOAT,   torch.rsqrt,          "tf::rsqrt({0})", cost=2, domain=(1e-2, 4.0)),
    row("add",          NUMBER,  torch.add,            "{0} + {1}", commutes=True),
    row("sub",          NUMBER,  torch.sub,            "{0} - {1}"),
    row("mul",          NUMBER,  torch.mul,            "{0} * {1}", commutes=True),
    row("maximum",      ANY,     torch.maximum,        "tf::maximum({0}, {1})", commutes=True),
    row("lt",           ANY,     torch.lt,             "{0} < {1}", out="bool"),
    row("where",        ANY,     torch.where,          "{0} ? {1} : {2}"),
)

REDUCTIONS: dict[str, Reduction] = {
    r.name: r for r in (
        Reduction("sum", NUMBER, torch.sum, "{T}(0)", "{0} + {1}"),
    )
}
# fmt: on
