"""Common subexpressions of a trace, computed once. Called by the fusion pass, on a trace flattened to prims.

Only claimed prims are merged: they are pure, so no random number and no unknown operator ever is. Forward and
backward symbols are not merged with each other; what the backward needs of the forward is for `recompute` to decide.
Two equal outputs of the forward stay two tensors, as in eager torch. Shallow copies, which Thunder needs to tell
gradients apart and which torch's executor answers with the tensor itself, end here: their uses get the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.core.prims import PrimIDs
from thunder.core.proxies import Proxy, Variable, variableify
from thunder.core.symbol import BoundSymbol

from thunder_fuser.executors.inplace import written_names
from thunder_fuser.executors.regions import Item
from thunder_fuser.translators import FROM_GENERATOR, results

# Fresh storage is what the first two are for; others give new numbers each time.
NEVER_MERGED = (PrimIDs.CLONE, PrimIDs.STRIDE_ORDER, *FROM_GENERATOR)
# These speak of an output of the forward by its name, they do not read its value.
NAMING = (PrimIDs.RETURN, PrimIDs.GET_GRAD)


def eliminate(items: Sequence[Item], returned: set[str]) -> list[Item]:
    """`items` without those whose value an earlier one has, their uses renamed. `returned`: the names of the trace's
    outputs. What may lie in memory that the trace writes into is left as it is: equal expressions of it need not be equal values."""
    written = written_names([item.bsym for item in items])
    renamed: dict[Variable, Proxy] = {}
    dropped: dict[Variable, Proxy] = {}
    known: dict[Any, Proxy] = {}
    kept: list[Item] = []
    for item in items:
        bsym = item.bsym
        names = dropped if bsym.sym.id in NAMING else renamed
        if any(variableify(p) in names for p in bsym.flat_proxy_args):
            bsym = bsym.from_bsym_swap_proxies(names, skip_output=True)
        if item.place is not None and bsym.sym.id not in NEVER_MERGED and not _touches(bsym, written):
            if bsym.sym.id is PrimIDs.SHALLOW_COPY:
                first = bsym.args[0]
            else:
                first = known.setdefault((bsym.sym.id, item.place, _key(bsym.args), _key(bsym.kwargs)), bsym.output)
            if first is not bsym.output:
                # All uses go to the first; but an output of the forward is returned under its own name, a tensor of its own.
                pairs = list(zip(bsym.output, first)) if isinstance(bsym.output, tuple) else [(bsym.output, first)]
                renamed.update((variableify(old), new) for old, new in pairs if isinstance(old, Proxy) and isinstance(new, Proxy))
                if item.place.backward or not any(p.name in returned for p in results(bsym)):
                    dropped.update((variableify(old), new) for old, new in pairs if isinstance(old, Proxy) and isinstance(new, Proxy))
                    continue
        kept.append(Item(bsym, item.place))
    return kept


def _touches(bsym: BoundSymbol, written: set[str]) -> bool:
    return any(p.name in written for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs)) if written else False


def _key(arg: Any) -> Any:
    """Arguments as a hashable value that tells -0.0 from 0.0 and 1 from True."""
    if isinstance(arg, Proxy):
        return Proxy, arg.name
    if isinstance(arg, (tuple, list)):
        return tuple(map(_key, arg))
    if isinstance(arg, dict):
        return tuple((k, _key(v)) for k, v in sorted(arg.items()))
    return type(arg), repr(arg)
