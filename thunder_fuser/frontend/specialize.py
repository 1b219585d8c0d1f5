"""A definition with sizes filled in: from records and a call's inputs to an IR `Fusion`.

Called by `FusionDefinition.execute`, once for each distinct key: the device, shapes, and the numbers that sizes depend on.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from thunder_fuser.errors import FuserError
from thunder_fuser.frontend.inputs import Input, TensorInput
from thunder_fuser.frontend.lowering import Lowering
from thunder_fuser.frontend.records import Record
from thunder_fuser.frontend.translation import statement
from thunder_fuser.frontend.values import Scalar, Symbol, TensorView, Vector
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BOOL, F64, I64
from thunder_fuser.ir.nodes import Fusion

Slot: TypeAlias = tuple[Input, TensorView | Scalar]
_SCALAR_TYPES = {"bool": BOOL, "int": I64, "float": F64}


@dataclass(frozen=True, slots=True)
class Bound:
    """A fusion and where its inputs come from: `positions` index the flat inputs of a call, those in `items` are
    0-dim CPU tensors handed over as numbers."""

    fusion: Fusion
    positions: tuple[int, ...]
    items: frozenset[int]

    def arguments(self, flat: Sequence[Any]) -> list[Any]:
        """The fusion's inputs out of a call's flat ones; no output shall require a gradient, so no input may."""
        return [flat[p].item() if p in self.items else _detached(flat[p]) for p in self.positions]


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value


def slots(declared: Sequence[Input]) -> tuple[Slot, ...]:
    """Each tensor and number of the inputs with its declaration, in the order of `inputs.flatten`."""
    flat: list[Slot] = []
    for declaration in declared:
        scalars = getattr(declaration, "scalars", None)
        flat += [(declaration, s) for s in ([declaration.symbol] if scalars is None else scalars)]
    return tuple(flat)


def key_of(slots: Sequence[Slot], static: Set[int], flat: Sequence[Any], device: torch.device) -> Hashable:
    """What one specialisation holds for."""
    parts: list[Hashable] = [device]
    for (declaration, symbol), value in zip(slots, flat):
        if isinstance(declaration, TensorInput):
            parts.append(value.shape)
        elif symbol.index in static:
            parts.append(value)
    return tuple(parts)


def specialize(
    name: str, records: Sequence[Record], outputs: Sequence[TensorView], slots: Sequence[Slot], static: Set[int],
    flat: Sequence[Any], device: torch.device,
) -> Bound:
    """Replays `records` on an IR builder. Raises `IRError` or `UnsupportedError` naming the statement at fault."""
    builder = FusionBuilder(name)
    lowering = Lowering(builder)
    values: dict[int, Any] = {}
    positions: list[int] = []
    items: set[int] = set()
    for position, ((declaration, symbol), given) in enumerate(zip(slots, flat)):
        dtype = symbol.dtype.ir
        if isinstance(declaration, TensorInput) and declaration.is_cpu and device.type != "cpu":
            number = builder.scalar(_SCALAR_TYPES[dtype.kind], name=repr(symbol))
            values[symbol.index] = builder.full((), number, dtype)
            items.add(position)
        elif isinstance(declaration, TensorInput):
            values[symbol.index] = builder.tensor(dtype, given.shape, name=repr(symbol))
        elif symbol.index in static:
            values[symbol.index] = given
            continue
        else:
            values[symbol.index] = builder.scalar(_SCALAR_TYPES[dtype.kind], name=repr(symbol))
        positions.append(position)
    for record in records:
        if record.row is not None:
            made = _lower(lowering, record, values)
            values |= zip((s.index for s in record.outs), made if isinstance(record.out, tuple) else (made,))
    for symbol in outputs:
        builder.output(values[symbol.index])
    return Bound(builder.build(), tuple(positions), frozenset(items))


def _lower(lowering: Lowering, record: Record, values: dict[int, Any]) -> Any:
    arguments = {name: _resolve(argument, values) for name, argument in record.arguments.items()}
    try:
        return record.row.lower(lowering, record.result, **arguments)
    except FuserError as error:
        raise type(error)(f"{str(error).rstrip('.')}, in '{statement(record)}'.") from error


def _resolve(argument: Any, values: dict[int, Any]) -> Any:
    if isinstance(argument, Scalar) and argument.value is not None:
        return argument.value
    if isinstance(argument, Vector) and argument.elements is not None:
        return [_resolve(e, values) for e in argument.elements]
    if isinstance(argument, Symbol):
        return values[argument.index]
    if isinstance(argument, (list, tuple)):
        return [_resolve(a, values) for a in argument]
    return argument
