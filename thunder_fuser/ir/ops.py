"""THE op tables. One row is the only place that knows a pointwise op or a reduction.

A row holds the accepted dtypes, the torch reference, the C++ expression, and where the result's dtype differs from
its operands'. Derived from it elsewhere, by loops: builder methods, type rule, printer and parser keywords,
interpreter, generated code, Thunder translation, documentation and parametrised tests. Adding an op is adding a line.

Names are Thunder's prim names in lower case. `{0}` in an expression is the first operand, already in its math type;
arity is counted from the braces. `tf::` functions live in codegen/cuda/math.cuh and complex_math.cuh,
overloaded by type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from thunder_fuser.ir.dtypes import BOOL as B8
from thunder_fuser.ir.dtypes import DType, complex_of, real_of

BOOL = frozenset({"bool"})
FLOAT = frozenset({"float"})
INT = frozenset({"int"})
BITS = frozenset({"int", "bool"})
NUMBER = frozenset({"int", "float"})
ANY = frozenset({"bool", "int", "float"})
COMPLEX = frozenset({"complex"})
FIELD = FLOAT | COMPLEX
NUMERIC = NUMBER | COMPLEX
ALL = ANY | COMPLEX
STORED = ALL | frozenset({"float8"})


@dataclass(frozen=True, slots=True)
class PointwiseOp:
    """One elementwise op.

    `accepts` are dtype kinds; `out` is "same" (the operands' dtype), "bool", "real" (that of a complex operand's parts) or
    "complex" (the one whose parts the operands are); `cost` is 1 for an op of plain
    arithmetic and about its number of instructions / 4 for a transcendental one; `domain` is where the generated
    tests draw float operands from. `integer` is the C++ expression for integers where `cuda`'s would overflow or fault;
    `narrow` is False where computing in float32 and rounding is not what the op means for 16-bit floats.
    """

    name: str
    accepts: frozenset[str]
    torch: Callable[..., torch.Tensor]
    cuda: str
    out: str = "same"
    cost: int = 1
    integer: str | None = None
    narrow: bool = True
    domain: tuple[float, float] = (-3.0, 3.0)

    @property
    def arity(self) -> int:
        return 1 + max(int(i) for i in re.findall(r"\{(\d)\}", self.cuda))

    def takes(self, dtype: DType) -> bool:
        """Whether operands may have this dtype."""
        return dtype.kind in self.accepts and (self.narrow or dtype.size > 2)

    def result(self, dtype: DType) -> DType:
        """The result's dtype for operands of this dtype."""
        match self.out:
            case "bool":
                return B8
            case "real":
                return real_of(dtype)
            case "complex":
                return complex_of(dtype)
            case _:
                return dtype

    def expression(self, dtype: DType) -> str:
        """The C++ expression for operands of this dtype."""
        return self.integer if self.integer is not None and dtype.kind == "int" else self.cuda


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduction, `torch(x, dims)` in torch: `identity` and `combine` are C++ in the accumulation type `{T}`; `{0}` is
    the accumulator. `integer` is the combination of integers where `combine` would overflow."""

    name: str
    accepts: frozenset[str]
    torch: Callable[..., torch.Tensor]
    identity: str
    combine: str
    integer: str | None = None

    def combination(self, dtype: DType) -> str:
        """The C++ expression that combines two values of this dtype."""
        return self.integer if self.integer is not None and dtype.kind == "int" else self.combine


@dataclass(frozen=True, slots=True)
class ScanOp:
    """One scan, `torch(x, dim)` in torch: element i is the `reduction` (a row of `REDUCTIONS`) of the elements up to i."""

    name: str
    reduction: str
    torch: Callable[..., torch.Tensor]


def _table(*rows: PointwiseOp) -> dict[str, PointwiseOp]:
    return {r.name: r for r in rows}


def _div(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b) if a.is_floating_point() or a.is_complex() else torch.div(a, b, rounding_mode="trunc")


def _real(x: torch.Tensor) -> torch.Tensor:
    return torch.real(x).clone()  # fresh memory, as every pointwise op makes: torch has a view


def _imag(x: torch.Tensor) -> torch.Tensor:
    return torch.imag(x).clone()


def _erfcinv(x: torch.Tensor) -> torch.Tensor:
    # torch has no erfcinv, and erfinv(1 - x) is inexact at small x.
    return 0.0 - torch.special.ndtri(x * 0.5) * 0.5**0.5


def _prod(x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    for dim in sorted(dims, reverse=True):
        x = torch.prod(x, dim, dtype=x.dtype)
    return x


def _extremum(reduce: Callable[..., torch.Tensor], sign: int) -> Callable[..., torch.Tensor]:
    """amax or amin that has a value for nothing too: -inf, the least integer or False, and their opposites."""
    def reference(x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        if x.numel():
            return reduce(x, dims)
        shape = [n for d, n in enumerate(x.shape) if d not in dims]
        if x.dtype is torch.bool:
            return x.new_full(shape, sign < 0)
        if x.is_floating_point():
            return x.new_full(shape, -sign * torch.inf)
        return x.new_full(shape, torch.iinfo(x.dtype).min if sign > 0 else torch.iinfo(x.dtype).max)
    return reference


row = PointwiseOp
# fmt: off
POINTWISE: dict[str, PointwiseOp] = _table(
    #   name            accepts  torch reference       C++ expression
    row("abs",          NUMERIC, torch.abs,            "tf::abs({0})", out="real"),
    row("acos",         FIELD,   torch.acos,           "tf::acos({0})", cost=8, domain=(-1.0, 1.0)),
    row("acosh",        FIELD,   torch.acosh,          "tf::acosh({0})", cost=8, domain=(1.0, 9.0)),
    row("asin",         FIELD,   torch.asin,           "tf::asin({0})", cost=8, domain=(-1.0, 1.0)),
    row("asinh",        FIELD,   torch.asinh,          "tf::asinh({0})", cost=8),
    row("atan",         FIELD,   torch.atan,           "tf::atan({0})", cost=8),
    row("atanh",        FIELD,   torch.atanh,          "tf::atanh({0})", cost=8, domain=(-0.99, 0.99)),
    row("bitwise_not",  BITS,    torch.bitwise_not,    "tf::bitwise_not({0})"),
    row("ceil",         FLOAT,   torch.ceil,           "tf::ceil({0})"),
    row("conj",         COMPLEX, torch.conj_physical,   "tf::conj({0})"),
    row("cos",          FIELD,   torch.cos,            "tf::cos({0})", cost=10),
    row("cosh",         FIELD,   torch.cosh,           "tf::cosh({0})", cost=6),
    row("erf",          FLOAT,   torch.erf,            "tf::erf({0})", cost=6),
    row("erfc",         FLOAT,   torch.erfc,           "tf::erfc({0})", cost=8),
    row("erfinv",       FLOAT,   torch.erfinv,         "tf::erfinv({0})", cost=8, domain=(-0.99, 0.99)),
    row("erfcinv",      FLOAT,   _erfcinv,             "tf::erfcinv({0})", cost=8, domain=(0.01, 1.99)),
    row("exp",          FIELD,   torch.exp,            "tf::exp({0})", cost=4),
    row("exp2",         FIELD,   torch.exp2,           "tf::exp2({0})", cost=2),
    row("expm1",        FIELD,   torch.expm1,          "tf::expm1({0})", cost=6),
    row("floor",        FLOAT,   torch.floor,          "tf::floor({0})"),
    row("frac",         FLOAT,   torch.frac,           "tf::frac({0})"),
    row("imag",         COMPLEX, _imag,                "tf::imag({0})", out="real"),
    row("isfinite",     FIELD,   torch.isfinite,       "tf::isfinite({0})", out="bool"),
    row("isinf",        FIELD,   torch.isinf,          "tf::isinf({0})", out="bool"),
    row("isnan",        FIELD,   torch.isnan,          "tf::isnan({0})", out="bool"),
    row("isneginf",     FLOAT,   torch.isneginf,       "tf::isneginf({0})", out="bool"),
    row("isposinf",     FLOAT,   torch.isposinf,       "tf::isposinf({0})", out="bool"),
    row("lgamma",       FLOAT,   torch.lgamma,         "tf::lgamma({0})", cost=16, domain=(0.1, 9.0)),
    row("log",          FIELD,   torch.log,            "tf::log({0})", cost=4, domain=(1e-2, 9.0)),
    row("log10",        FIELD,   torch.log10,          "tf::log10({0})", cost=4, domain=(1e-2, 9.0)),
    row("log1p",        FIELD,   torch.log1p,          "tf::log1p({0})", cost=6, domain=(-0.9, 9.0)),
    row("log2",         FIELD,   torch.log2,           "tf::log2({0})", cost=4, domain=(1e-2, 9.0)),
    row("logical_not",  ALL,     torch.logical_not,    "!{0}", out="bool"),
    row("neg",          NUMERIC, torch.neg,            "-{0}", integer="tf::neg({0})"),
    row("real",         COMPLEX, _real,                "tf::real({0})", out="real"),
    row("reciprocal",   FIELD,   torch.reciprocal,     "1 / {0}", cost=2, domain=(0.1, 9.0)),
    row("relu",         NUMBER,  torch.relu,           "tf::relu({0})"),
    row("round",        FLOAT,   torch.round,          "tf::round({0})"),
    row("rsqrt",        FIELD,   torch.rsqrt,          "tf::rsqrt({0})", cost=2, domain=(1e-2, 4.0)),
    row("sigmoid",      FIELD,   torch.sigmoid,        "tf::sigmoid({0})", cost=6),
    row("sign",         ANY,     torch.sign,           "tf::sign({0})"),
    row("signbit",      ANY,     torch.signbit,        "tf::signbit({0})", out="bool"),
    row("silu",         FIELD,   functional.silu,      "tf::silu({0})", cost=6),
    row("sin",          FIELD,   torch.sin,            "tf::sin({0})", cost=10),
    row("sinh",         FIELD,   torch.sinh,           "tf::sinh({0})", cost=6),
    row("sqrt",         FIELD,   torch.sqrt,           "tf::sqrt({0})", cost=2, domain=(0.0, 9.0)),
    row("tan",          FIELD,   torch.tan,            "tf::tan({0})", cost=12, domain=(-1.4, 1.4)),
    row("tanh",         FIELD,   torch.tanh,           "tf::tanh({0})", cost=8),
    row("trunc",        FLOAT,   torch.trunc,          "tf::trunc({0})"),

    row("add",          ALL,     torch.add,            "{0} + {1}", integer="tf::add({0}, {1})"),
    row("atan2",        FLOAT,   torch.atan2,          "tf::atan2({0}, {1})", cost=10),
    row("bitwise_and",  BITS,    torch.bitwise_and,    "{0} & {1}"),
    row("bitwise_or",   BITS,    torch.bitwise_or,     "{0} | {1}"),
    row("bitwise_xor",  BITS,    torch.bitwise_xor,    "{0} ^ {1}"),
    row("bitwise_left_shift",  INT, torch.bitwise_left_shift,  "tf::bitwise_left_shift({0}, {1})"),
    row("bitwise_right_shift", INT, torch.bitwise_right_shift, "tf::bitwise_right_shift({0}, {1})"),
    row("complex",      FLOAT,   torch.complex,        "tf::make_complex({0}, {1})", out="complex", narrow=False),
    row("div",          NUMERIC, _div,                 "{0} / {1}", cost=2, integer="tf::div({0}, {1})"),
    row("eq",           STORED,  torch.eq,             "{0} == {1}", out="bool"),
    row("fmod",         NUMBER,  torch.fmod,           "tf::fmod({0}, {1})", cost=8),
    row("gcd",          INT,     torch.gcd,            "tf::gcd({0}, {1})", cost=50),
    row("ge",           ANY,     torch.ge,             "{0} >= {1}", out="bool"),
    row("gt",           ANY,     torch.gt,             "{0} > {1}", out="bool"),
    row("le",           ANY,     torch.le,             "{0} <= {1}", out="bool"),
    row("logical_and",  ALL,     torch.logical_and,    "{0} && {1}", out="bool"),
    row("logical_or",   ALL,     torch.logical_or,     "{0} || {1}", out="bool"),
    row("lt",           ANY,     torch.lt,             "{0} < {1}", out="bool"),
    row("maximum",      ANY,     torch.maximum,        "tf::maximum({0}, {1})"),
    row("minimum",      ANY,     torch.minimum,        "tf::minimum({0}, {1})"),
    row("mul",          ALL,     torch.mul,            "{0} * {1}", integer="tf::mul({0}, {1})"),
    row("ne",           STORED,  torch.ne,             "{0} != {1}", out="bool"),
    row("nextafter",    FLOAT,   torch.nextafter,      "tf::nextafter({0}, {1})", cost=3, narrow=False),
    row("pow",          NUMERIC, torch.pow,            "tf::pow({0}, {1})", cost=16, domain=(0.1, 3.0)),
    row("remainder",    NUMBER,  torch.remainder,      "tf::remainder({0}, {1})", cost=8),
    row("sub",          NUMERIC, torch.sub,            "{0} - {1}", integer="tf::sub({0}, {1})"),

    row("lerp",         FLOAT,   torch.lerp,           "tf::lerp({0}, {1}, {2})", cost=2),
    row("where",        STORED,  torch.where,          "{0} ? {1} : {2}"),
)

REDUCTIONS: dict[str, Reduction] = {
    r.name: r for r in (
        #         name    accepts  torch reference                        identity            combine
        Reduction("sum",  NUMERIC, lambda x, d: x.sum(d, dtype=x.dtype),  "({T})0",           "{0} + {1}", "tf::add({0}, {1})"),
        Reduction("prod", NUMERIC, _prod,                                 "({T})1",           "{0} * {1}", "tf::mul({0}, {1})"),
        Reduction("amax", ANY,     _extremum(torch.amax, 1),              "tf::lowest<{T}>()",  "tf::maximum({0}, {1})"),
        Reduction("amin", ANY,     _extremum(torch.amin, -1),             "tf::highest<{T}>()", "tf::minimum({0}, {1})"),
        Reduction("any",  BOOL,    torch.any,                             "false",            "{0} | {1}"),
        Reduction("all",  BOOL,    torch.all,                             "true",             "{0} & {1}"),
    )
}

SCANS: dict[str, ScanOp] = {
    r.name: r for r in (
        ScanOp("cumsum",  "sum",  lambda x, d: torch.cumsum(x, d, dtype=x.dtype)),
        ScanOp("cumprod", "prod", lambda x, d: torch.cumprod(x, d, dtype=x.dtype)),
        ScanOp("cummax",  "amax", lambda x, d: torch.cummax(x, d).values),
        ScanOp("cummin",  "amin", lambda x, d: torch.cummin(x, d).values),
    )
}
# fmt: on
