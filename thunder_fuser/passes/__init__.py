"""Simplification: functions from one fusion to an equal one, which return the same object when nothing changes.

Called by the compiler before any analysis. Each pass is linear in the number of nodes and works without recursion.
No pass folds `0 * x` or `x + 0` (NaN, infinity, -0.0) and none turns a copy into a view: an output's value, strides and
storage stay what eager torch's are, `merge_casts`' roundings aside.
"""

from __future__ import annotations

from collections.abc import Callable

from thunder_fuser import config
from thunder_fuser.errors import IRError
from thunder_fuser.ir.nodes import Fusion
from thunder_fuser.ir.verify import verify
from thunder_fuser.passes.cse import cse
from thunder_fuser.passes.dce import dce
from thunder_fuser.passes.merge_casts import merge_casts
from thunder_fuser.passes.own_bases import own_bases
from thunder_fuser.passes.own_updates import own_updates
from thunder_fuser.passes.powers import powers

Pass = Callable[[Fusion], Fusion]

# fmt: off
PASSES: tuple[tuple[Pass, str], ...] = (
    (dce,         "a use that nothing needs must not count as one that sees a rounded value"),
    (powers,      "before equal nodes are merged: a square may be written either way"),
    (cse,         "a rounded value written twice is one value: if one of the two is seen, both are rounded"),
    (merge_casts, "before the scheduler weighs values by their size"),
    (cse,         "nodes after different casts of one value are equal now"),
    (dce,         "casts and merged nodes leave operands that nothing reads"),
    (own_updates, "what is written into an input is stored there: nothing else may count on finding it elsewhere"),
    (own_bases,   "once nothing is merged any more; a scatter overwrites what it is given"),
)
# fmt: on


def simplify(fusion: Fusion, *, keep_rounding: bool = False) -> Fusion:
    """Runs `PASSES` in order. With `keep_rounding` every cast of the program rounds, as in eager torch.

    Under the knob `check` each fusion is verified on the way; raises `IRError` that names the pass at fault."""
    check = config.get("check")
    if check:
        verify(fusion)
    for run, _ in PASSES:
        if not (keep_rounding and run is merge_casts):
            fusion = run(fusion)
            if check:
                _verify_after(run, fusion)
    return fusion


def _verify_after(run: Pass, fusion: Fusion) -> None:
    try:
        verify(fusion)
    except IRError as error:
        raise IRError(f"Pass '{run.__name__}' left a fusion that does not verify. {error}") from error
