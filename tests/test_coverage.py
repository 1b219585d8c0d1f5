"""docs/coverage.md is true: which prims fuse, beside what nvFuser's executor claims, and which of them ran in fusions.

`pytest tests/test_coverage.py --update-golden` writes the page; what ran is noted by Thunder's suite (see CONTRIBUTING).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from thunder.core.prims import PrimIDs
from thunder.core.trace import TraceCtx, tracectx

from tests.support.prim_calls import CALLS, DTYPES, LEFT, NARROWER, NVFUSER, NVFUSER_CALLS, Call, name, torch_takes, valid
from thunder_fuser.executors.claims import why_not_call
from thunder_fuser.translators import TRANSLATIONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "coverage.md"
RAN = Path(__file__).parent / "thunder_suite" / "ran.txt"
CLAIMED = [p.name for p in TRANSLATIONS if isinstance(p, PrimIDs)]
COMPOSITES = sorted(p for p in TRANSLATIONS if isinstance(p, str))
# These check, unpack, name or return: they compute no tensor.
BOOKKEEPING = ("ASSERT", "CHECK", "PYTHON", "UNPACK", "CONSTRUCT", "PACK", "DATACLASS", "COMMENT", "DEL", "PRINT", "RETURN", "GET_GRAD", "PUT_GRAD",
               "NUMPY", "EXOGENOUS", "SINK", "PY_")

GROUPS = {
    "bool": ("bool8",),
    "int": ("uint8", "int8", "int16", "int32", "int64"),
    "float16": ("float16", "bfloat16"),
    "float": ("float32", "float64"),
    "complex": ("complex64", "complex128"),
    "float8": ("float8_e4m3fn", "float8_e5m2"),
}


def ran() -> dict[str, list[str]]:
    """Prims that ran in fusions, with the dtypes of their operands and results."""
    return {prim: names for prim, *names in map(str.split, RAN.read_text().splitlines())}


@cache
def answers(prim: str, first: int | None = None) -> dict[str, str | None]:
    """For each dtype in which Thunder takes the prim at all: why a call of it (of the first few) is not claimed, or None."""
    found = {}
    with tracectx(TraceCtx()):
        for dtype in DTYPES:
            calls = [c for c in [*CALLS[prim](dtype)][:first] if valid(prim, c)]
            if calls:
                found[name(dtype)] = next(filter(None, (_reason(prim, c) for c in calls)), None)
    return found


def _reason(prim: str, call: Call) -> str | None:
    if prim not in CLAIMED:
        return "no translation"
    args, kwargs = call
    return why_not_call(PrimIDs[prim], args, kwargs)


def grouped(names: Iterator[str]) -> str:
    """Dtypes by kind, a kind by its name where all of it is there."""
    left = set(names)
    words = []
    for word, members in GROUPS.items():
        if left.issuperset(members):
            words.append(word)
        else:
            words += [m for m in members if m in left]
    return ", ".join(words) or "-"


def page() -> str:
    lines = [
        "# What fuses", "",
        "Made by `pytest tests/test_coverage.py --update-golden`. A prim's dtypes are those in which every call of it that was tried is claimed;",
        "Thunder takes some prims in fewer dtypes than others, and computes in float32 what torch computes in float16.",
        "`int`: uint8, int8, int16, int32, int64. `float16`: float16, bfloat16. `float`: float32, float64. `complex`: complex64, complex128.",
        "`float8`: float8_e4m3fn, float8_e5m2. *Ran*: in fusions, with right results, while Thunder's own tests ran on this executor.", "",
        "| prim | nvFuser's executor claims | this executor claims | ran |", "|---|---|---|---|",
    ]
    found = ran()
    for prim in sorted(CLAIMED):
        checks = NVFUSER.get(prim, ("no", ()))[0]
        lines.append(f"| {prim} | {checks} | {grouped(d for d, r in answers(prim).items() if r is None)} | {grouped(iter(found.get(prim, ())))} |")
    lines += ["", "Operators of torch that are claimed whole, before Thunder makes prims of them: "
              + ", ".join(f"`{c}` (ran: {grouped(iter(found.get(c, ())))})" for c in COMPOSITES) + "."]
    lines += ["", "## Not claimed where nvFuser's executor claims", "", "| prim | dtypes | why |", "|---|---|---|"]
    lines += [f"| {prim} | {', '.join(names)} | {why} |" for (prim, names), why in sorted(NARROWER.items())]
    lines += ["", "## Left to torch", "", "| prim | why |", "|---|---|"]
    lines += [f"| {prim} | {why} |" for prim, why in sorted(LEFT.items())]
    return "\n".join(lines) + "\n"


def test_page_is_current(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page()


def test_every_prim_that_computes_is_claimed_or_left_to_torch_with_a_reason() -> None:
    computing = {p.name for p in PrimIDs if not p.name.startswith(BOOKKEEPING)}
    assert computing == set(CLAIMED) | set(LEFT)
    assert not set(CLAIMED) & set(LEFT)


def test_every_claimed_prim_is_asked_about() -> None:
    assert not [p for p in CLAIMED if p not in CALLS]


@pytest.mark.parametrize("prim", sorted(NVFUSER))
def test_claims_are_no_narrower_than_those_of_nvfuser(prim: str) -> None:
    _, taken = NVFUSER[prim]
    allowed = {d for p, names in NARROWER if p == prim for d in names}
    refused = {name(t): r for t in taken if (r := answers(prim, NVFUSER_CALLS.get(prim)).get(name(t))) is not None and torch_takes(prim, t)}
    assert {d: r for d, r in refused.items() if d not in allowed} == {}
    assert allowed <= set(refused), "an exception that is none"


def test_claimed_prims_ran() -> None:
    missing = [p for p in CLAIMED if p not in ran()]
    assert len(missing) <= 0.05 * len(CLAIMED), missing
