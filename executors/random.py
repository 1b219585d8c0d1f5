"""Seeds for the random prims of a trace, drawn outside of fusions, and what makes their numbers without a fusion.

Called by the fusion pass once regions are known. `uniform` in a region becomes `draw_random_state`, an operator before the
region, and `uniform_philox`, which is pure: the backward computes the forward's dropout mask again from two numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from thunder.core import prims
from thunder.core.compile_data import get_compile_option
from thunder.core.devices import to_torch_device
from thunder.core.dtypes import to_torch_dtype
from thunder.core.prims import OpTags, PrimIDs
from thunder.core.proxies import NumberProxy, Proxy, TensorProxy, numberproxy
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, tracectx
from thunder.extend import OperatorExecutor, register_executor

from thunder_fuser import __version__
from thunder_fuser.ir.random import sample
from thunder_fuser.runtime.generator import draw
from thunder_fuser.translators import FROM_GENERATOR, FROM_SEED, normal_philox

ex = OperatorExecutor("thunder_fuser_random", version=__version__)
register_executor(ex)


def _draw_meta(device: str) -> tuple[NumberProxy, NumberProxy]:
    return numberproxy(int, None), numberproxy(int, None)


def _draw(device: str) -> tuple[Any, Any]:
    return draw(torch.device(device))


def _random_meta(op: str, shape: Sequence[int], dtype: Any, device: Any, seed: Any, offset: Any, low: Any, high: Any) -> TensorProxy:
    return TensorProxy(shape=tuple(shape), device=device, dtype=dtype)


def _random(op: str, shape: Sequence[int], dtype: Any, device: Any, seed: Any, offset: Any, low: float, high: float) -> torch.Tensor:
    return sample(op, shape, to_torch_dtype(dtype), seed, offset, low, high, device=to_torch_device(device))


draw_random_state = ex.register_operator("draw_random_state", meta=_draw_meta, fn=_draw, tags=(OpTags.RANDOM_OP,))
random_numbers = ex.register_operator("random_numbers", meta=_random_meta, fn=_random)


def draws_from_generator(bsym: BoundSymbol) -> bool:
    """Whether a prim is one whose every call gives other numbers."""
    return bsym.sym.id in FROM_GENERATOR


def keeps_uniform() -> bool:
    """Thunder's option for traces in which `uniform` is to stay what it is."""
    return bool(get_compile_option("disable_replace_uniform", "Disables the replace_uniform transform to avoid dropout rematerialization"))


def with_seed(trace: TraceCtx, prim: BoundSymbol) -> tuple[BoundSymbol, BoundSymbol]:
    """What draws a seed and an offset, and the prim that makes of them what `prim` gives."""
    device = prim.kwargs["device"]
    with tracectx(trace):
        seed, offset = numberproxy(int, None), numberproxy(int, None)
    drawn = draw_random_state.bind(str(to_torch_device(device)), output=(seed, offset))
    if prim.sym.id is PrimIDs.UNIFORM:
        shape, *bounds = prim.args
        made = prims.uniform_philox.bind(shape, *(float(b) if isinstance(b, (int, float)) else b for b in bounds),
                                         **prim.kwargs, seed=seed, offset=offset, output=prim.output)
    else:
        made = normal_philox.bind(*prim.args, **prim.kwargs, seed=seed, offset=offset, output=prim.output)
    for bsym in (drawn, made):
        bsym.tags |= prim.tags
        bsym.source_filename, bsym.source_positions = prim.source_filename, prim.source_positions
    return drawn, made


def as_operator(prim: BoundSymbol) -> BoundSymbol:
    """A prim with a seed as an operator of torch's integer arithmetic, which gives the same numbers, slowly."""
    low, high = prim.args[1:3] if prim.sym.id is PrimIDs.UNIFORM_PHILOX else (0.0, 1.0)
    k = prim.kwargs
    op = "uniform" if prim.sym.id is PrimIDs.UNIFORM_PHILOX else "normal"
    return random_numbers.bind(op, prim.args[0], k["dtype"], k["device"], k["seed"], k["offset"], low, high, output=prim.output)


def seed_inputs(prims_: Sequence[BoundSymbol], inputs: Sequence[Proxy]) -> tuple[int, ...]:
    """Positions of the numbers among a region's inputs that are seeds or offsets."""
    names = {prim.kwargs[what].name for prim in prims_ if prim.sym.id in FROM_SEED for what in ("seed", "offset")
             if isinstance(prim.kwargs[what], NumberProxy)}
    return tuple(i for i, p in enumerate(inputs) if p.name in names)
