"""A region of a Thunder trace -> a `Fusion`: `translate`. Called by the executor, once a region.

Values keep Thunder's names (t7 stays t7); numbers that are known become constants, others scalar inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from thunder.core.proxies import NumberProxy, Proxy, TensorProxy
from thunder.core.symbol import BoundSymbol

from thunder_fuser.errors import IRError, UnsupportedError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BOOL, I64
from thunder_fuser.ir.nodes import Fusion, Value
from thunder_fuser.translators import indexing, inplace, pointwise, random, reduction, scan, scatter, shape  # noqa: F401  they fill the registry
from thunder_fuser.translators.memory import Memories
from thunder_fuser.translators.proxies import dtype_of, number_dtype, why_not_tensor
from thunder_fuser.translators.registry import TRANSLATIONS, results, why_not


def flatten(bsyms: Iterable[BoundSymbol]) -> list[BoundSymbol]:
    """Composites (`ltorch.*`) replaced by the prims they are made of, in order. Prims inherit the composite's tags."""
    prims: list[BoundSymbol] = []
    stack = list(bsyms)[::-1]
    while stack:
        bsym = stack.pop()
        if bsym.sym.id in TRANSLATIONS or not bsym.subsymbols:
            prims.append(bsym)
        else:
            stack.extend(_tagged(s, bsym.tags) for s in reversed(bsym.subsymbols))
    return prims


def translate(bsyms: Sequence[BoundSymbol], inputs: Sequence[Proxy], outputs: Sequence[Proxy],
              *, name: str = "fusion", shared: bool = False, tensors: Sequence[int] = ()) -> Fusion:
    """The fusion that computes `outputs` from `inputs` by `bsyms`, in the given orders.

    Equal outputs are distinct tensors, made by copies, unless they are views of one value or `shared` (the outputs of
    a backward region): then they are one output value, listed twice.
    Integers at the positions `tensors` of the inputs are handed in as int64 tensors of rank 0.
    Raises `UnsupportedError`, naming the op, for a symbol that has no translation."""
    builder = FusionBuilder(name, shared=shared)
    memories = Memories(builder, {p.name: _input(builder, p, k in tensors) for k, p in enumerate(inputs)})
    views: set[str] = {p.name for p in inputs}
    for bsym in flatten(bsyms):
        reason = why_not(bsym)
        if reason is not None:
            raise UnsupportedError(f"'{bsym.sym.name}' cannot be translated: {reason}.")
        translation = TRANSLATIONS[bsym.sym.id]
        if translation.memory:
            translation.translate(memories, bsym)
        elif translation.view:
            of = bsym.args[0].name
            memories.define_in(bsym.output.name, of, *_values(builder, bsym, memories, memories.place(of)))
        else:
            for proxy, value in zip(_outputs(bsym), _values(builder, bsym, memories)):
                if proxy is not None:
                    memories.define(proxy.name, value)
        if translation.view or translation.memory:
            views.update(p.name for p in results(bsym))
    for proxy in outputs:
        value = memories.output(proxy.name)
        if _counts(proxy, value):
            raise UnsupportedError(f"Output '{proxy.name}' is a number of elements, which Thunder's trace has as {dtype_of(proxy)}.")
        builder.output(value, shared=shared or proxy.name in views)
    memories.update()
    return builder.build()


def _tagged(bsym: BoundSymbol, tags: set[Any]) -> BoundSymbol:
    return bsym if tags <= bsym.tags else bsym.from_bsym(tags=bsym.tags | tags)


def _input(builder: FusionBuilder, proxy: Proxy, tensor: bool) -> Value:
    if tensor:
        return builder.tensor(I64, (), name=proxy.name)
    if isinstance(proxy, NumberProxy):
        return builder.scalar(number_dtype(proxy), name=proxy.name)
    reason = why_not_tensor(proxy)
    if reason is not None:
        raise UnsupportedError(f"Input '{proxy.name}' of a fusion is not supported: {reason}.")
    return builder.tensor(dtype_of(proxy), proxy.shape, name=proxy.name)


def _values(builder: FusionBuilder, bsym: BoundSymbol, memories: Memories, first: Value | None = None) -> tuple[Value, ...]:
    """The IR values of one prim, checked against what Thunder says its results are. `first` stands for the first argument."""
    args = [_argument(a, memories) for a in (bsym.args if first is None else bsym.args[1:])]
    kwargs = {k: _argument(a, memories) for k, a in bsym.kwargs.items()}
    try:
        made = TRANSLATIONS[bsym.sym.id].translate(builder, bsym.output, *([] if first is None else [first]), *args, **kwargs)
    except IRError as error:
        raise UnsupportedError(f"'{bsym.sym.name}' cannot be translated: {error}") from error
    values = made if isinstance(made, tuple) else (made,)
    for out, value in zip(_outputs(bsym), values, strict=True):
        if out is not None and not _counts(out, value) and (value.shape != tuple(out.shape) or value.dtype is not dtype_of(out)):
            raise UnsupportedError(f"'{bsym.sym.name}' cannot be translated: '{out.name}' is {dtype_of(out)}{list(out.shape)}, "
                                   f"the engine computes {value.dtype}{list(value.shape)}.")
    return values


def _counts(out: Proxy, value: Value) -> bool:
    """Whether this is a sum of bools, or a view of one: Thunder's gradient of amax and amin has it as bool, torch as int64."""
    return isinstance(out, TensorProxy) and dtype_of(out) is BOOL and value.dtype is I64 and value.shape == tuple(out.shape)


def _outputs(bsym: BoundSymbol) -> tuple[TensorProxy | None, ...]:
    """One proxy a result, None for one that Thunder has dropped."""
    return tuple(bsym.output) if isinstance(bsym.output, (tuple, list)) else (bsym.output,)


def _argument(arg: Any, memories: Memories) -> Any:
    """A prim's argument with proxies replaced by IR values; a number that no input carries is a constant."""
    if isinstance(arg, NumberProxy):
        return memories.read(arg.name) if arg.name in memories else arg.value
    if isinstance(arg, Proxy):
        return memories.read(arg.name)
    if isinstance(arg, (tuple, list)):
        return type(arg)(_argument(a, memories) for a in arg)
    return arg
