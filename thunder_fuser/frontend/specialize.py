"""A definition with sizes filled in: from records and a call's inputs to a `Program` of static fusions and torch calls.

Called by `FusionDefinition.execute`, once for each distinct key: the device, shapes, and the numbers that sizes depend on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from functools import partial
from typing import Any, TypeAlias

import torch

from thunder_fuser.errors import FuserError, IRError, UnsupportedError
from thunder_fuser.frontend.inputs import Input, TensorInput, VectorInput
from thunder_fuser.frontend.lowering import Lowering
from thunder_fuser.frontend.partition import Level, partition
from thunder_fuser.frontend.program import FusionStep, Program, Step, TorchStep, Variable
from thunder_fuser.frontend.records import Record, Statements
from thunder_fuser.frontend.torch_calls import draw_seed
from thunder_fuser.frontend.translation import statement
from thunder_fuser.frontend.values import Scalar, Symbol, TensorView, Vector
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BOOL, C128, F64, I64
from thunder_fuser.ir.nodes import Fusion, Value

Slot: TypeAlias = tuple[Input, TensorView | Scalar]
_SCALAR_TYPES = {"bool": BOOL, "int": I64, "float": F64, "float8": F64, "complex": C128}


def slots(declared: Sequence[Input]) -> tuple[Slot, ...]:
    """Each tensor and number of the inputs with its declaration, in the order of `inputs.flatten`."""
    flat: list[Slot] = []
    for declaration in declared:
        scalars = getattr(declaration, "scalars", None)
        flat += [(declaration, s) for s in ([declaration.symbol] if scalars is None else scalars)]
    return tuple(flat)


def specialize(said: Statements, flat: Sequence[Any], device: torch.device) -> Program:
    """Replays a definition on IR builders, one a fusion. Raises `IRError` or `UnsupportedError` naming what is at fault."""
    levels = partition(said)
    declared = slots(said.inputs)
    replay = _Replay(said.name, declared, said.static, flat, device, len(levels))
    alone = len(levels) == 1 and not levels[0].calls
    if alone:  # all inputs in their order, read or not
        for _, symbol in declared:
            if symbol.index not in said.static or isinstance(symbol, TensorView):
                replay.operand(0, symbol)
    calls = [replay.level(k, level) for k, level in enumerate(levels)]
    returned = replay.outputs(said.outputs, alone, writes=bool(said.updates))
    tensors = tuple(repr(s) for _, s in declared if isinstance(s, TensorView))
    for target, value in said.updates:
        replay.update(target, value)
    steps: list[Step] = [*replay.draws]
    for k, fusion in enumerate(replay.fusions()):
        if fusion.outputs or fusion.updates:
            arguments = tuple(replay.expressions.get(v.name, v.name) for v in fusion.inputs)
            steps.append(FusionStep(fusion, arguments, tuple(replay.exported[k])))
        steps += calls[k]
    parameters = tuple([repr(s) for s in p.scalars] if isinstance(p, VectorInput) else repr(p.symbol) for p in said.inputs)
    return Program(parameters, tensors, tuple(steps), returned, tuple(dict.fromkeys(repr(t) for t, _ in said.updates)))


class _Replay:
    """The builders of all fusions, and what is known of each symbol so far."""

    def __init__(self, name: str, flat_slots: Sequence[Slot], static: Set[int], flat: Sequence[Any], device: torch.device, count: int) -> None:
        names = [name] if count == 1 else [f"{name}_{k}" for k in range(count)]
        self.lowerings = [Lowering(FusionBuilder(n), partial(self.drawn, k)) for k, n in enumerate(names)]
        self.draws: list[TorchStep] = []
        self.device = device
        self.values: list[dict[int, Any]] = [{} for _ in names]  # symbol -> its value inside fusion k
        self.homes: dict[int, int] = {}  # tensor symbol -> the fusion that makes it
        self.shapes: dict[int, torch.Tensor] = {}  # tensor symbol -> a meta tensor like it
        self.numbers: dict[int, Any] = {}  # scalar or vector symbol -> what it is, once known
        self.expressions: dict[str, str] = {}  # input of a fusion -> the Python that makes it of the variable
        self.exported: list[dict[str, None]] = [{} for _ in names]  # names of the results of fusion k, in order
        self.items: set[int] = set()
        for (declaration, symbol), given in zip(flat_slots, flat):
            if isinstance(declaration, TensorInput):
                self.shapes[symbol.index] = torch.empty(given.shape, dtype=given.dtype, device="meta")
                if declaration.is_cpu and device.type != "cpu":
                    self.items.add(symbol.index)
            elif symbol.index in static:
                self.numbers[symbol.index] = given

    def level(self, k: int, level: Level) -> list[TorchStep]:
        """Lowers the ops of fusion k, and makes the torch calls that follow it."""
        for record in level.records:
            made = self.lower(k, record)
            for symbol, value in zip(record.outs, made if isinstance(record.out, tuple) else (made,)):
                self.values[k][symbol.index] = value
                if isinstance(symbol, TensorView):
                    self.homes[symbol.index] = k
                    self.shapes[symbol.index] = torch.empty(value.shape, dtype=value.dtype.torch, device="meta")
                elif not isinstance(value, Value):
                    self.numbers[symbol.index] = value
        return [self.call(record) for record in level.calls]

    def lower(self, k: int, record: Record) -> Any:
        """The IR value or number that an op makes in fusion k."""
        if record.row.name in ("size", "shape"):  # of a tensor that the fusion need not read
            sizes = list(self.shapes[record.arguments["arg"].index].shape)
            return sizes if record.row.name == "shape" else sizes[record.arguments["dim"]]
        arguments = {name: self.operand(k, argument) for name, argument in record.arguments.items()}
        try:
            return record.row.lower(self.lowerings[k], record.result, **arguments)
        except FuserError as error:
            raise type(error)(f"{str(error).rstrip('.')}, in '{statement(record)}'.") from error

    def operand(self, k: int, argument: Any) -> Any:
        """An argument of an op as fusion k sees it: symbols from elsewhere become its inputs."""
        if isinstance(argument, Scalar) and argument.value is not None:
            return argument.value
        if isinstance(argument, Vector) and argument.elements is not None:
            return [self.operand(k, e) for e in argument.elements]
        if isinstance(argument, (list, tuple)):
            return [self.operand(k, a) for a in argument]
        if not isinstance(argument, Symbol):
            return argument
        if argument.index in self.values[k]:
            return self.values[k][argument.index]
        if argument.index in self.numbers:
            return self.numbers[argument.index]
        value = self.values[k][argument.index] = self.brought(k, argument)
        return value

    def brought(self, k: int, symbol: Symbol) -> Value:
        """A new input of fusion k: an input of the definition, or what an earlier step made."""
        builder, name = self.lowerings[k].b, repr(symbol)
        if isinstance(symbol, Scalar):
            kind = {"float": "float", "float8": "float", "complex": "complex"}.get(symbol.dtype.kind)
            if kind is not None:
                self.expressions[name] = f"{kind}({name})"
            return builder.scalar(_SCALAR_TYPES[symbol.dtype.kind], name=name)
        dtype, like = symbol.dtype.ir, self.shapes[symbol.index]
        if symbol.index in self.items:
            self.expressions[name] = f"{name}.item()"
            return builder.full((), builder.scalar(_SCALAR_TYPES[dtype.kind], name=name), dtype)
        self.export(symbol)
        return builder.tensor(dtype, like.shape, name=name)

    def drawn(self, k: int) -> tuple[Value, Value]:
        """A seed and an offset as inputs of fusion k, and the step that draws them."""
        names = (f"seed{len(self.draws)}", f"offset{len(self.draws)}")
        self.draws.append(TorchStep("draw_seed", partial(draw_seed, self.device), (), names))
        seed, offset = (self.lowerings[k].b.scalar(I64, name=name) for name in names)
        return seed, offset

    def export(self, symbol: TensorView) -> None:
        """Has the fusion that makes `symbol` return it, if a fusion does."""
        home = self.homes.get(symbol.index)
        if home is not None and repr(symbol) not in self.exported[home]:
            self.lowerings[home].b.output(self.values[home][symbol.index])
            self.exported[home][repr(symbol)] = None

    def call(self, record: Record) -> TorchStep:
        """The step of an op that torch runs. Torch itself says, from tensors without data, what it returns or what is wrong."""
        given = tuple(self.torch_operand(a) for a in record.arguments.values())
        likes = [self.shapes[a.index] if isinstance(a, TensorView) else self.torch_operand(a) for a in record.arguments.values()]
        try:
            made = record.row.torch(*likes)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise IRError(f"{reason}, in '{statement(record)}'.") from error
        for symbol, like in zip(record.outs, made if isinstance(record.out, tuple) else (made,)):
            self.shapes[symbol.index] = like
        return TorchStep(record.row.name, record.row.torch, given, tuple(map(repr, record.outs)))

    def torch_operand(self, argument: Any) -> Any:
        if isinstance(argument, TensorView):
            self.export(argument)
            return Variable(repr(argument))
        return self.operand(0, argument)

    def outputs(self, symbols: Sequence[TensorView], alone: bool, *, writes: bool) -> tuple[str, ...]:
        """The expressions of the definition's outputs: all those of the fusion, if it is `alone`. One returned twice is two
        tensors, the second with what the first held before the definition `writes` into its inputs."""
        if alone:
            values = [self.operand(0, s) for s in symbols]
            for value in values:
                self.lowerings[0].b.output(value)
            self.exported[0] = dict.fromkeys(f"out{k}" for k in range(len(values)))
            return tuple(self.exported[0])
        times: Counter[int] = Counter()
        names = []
        for symbol in symbols:
            times[symbol.index] += 1
            self.export(symbol)
            if times[symbol.index] == 1:
                names.append(repr(symbol))
            elif writes:
                names.append(self.copied(symbol, times[symbol.index]))
            else:
                names.append(f"{symbol!r}.clone()")
        return tuple(names)

    def copied(self, symbol: TensorView, time: int) -> str:
        """The name of a copy that the last fusion makes, which is the one that writes into inputs."""
        last, name = len(self.lowerings) - 1, f"{symbol!r}_{time}"
        builder = self.lowerings[last].b
        builder.output(builder.copy(self.operand(last, symbol)))
        self.exported[last][name] = None
        return name

    def update(self, target: TensorView, value: TensorView) -> None:
        """Has the last fusion write `value` into the input `target`."""
        if target.index in self.items:
            raise UnsupportedError(f"{target!r} is declared with is_cpu=True, so a fusion on a GPU cannot write into it.")
        last = len(self.lowerings) - 1
        written, made = self.operand(last, target), self.operand(last, value)
        if written.shape != made.shape:
            raise IRError(f"'add_output' writes a value of shape {list(made.shape)} into {target!r} of shape {list(written.shape)}, "
                          "expected the same.")
        self.lowerings[last].b.update(written, made)

    def fusions(self) -> list[Fusion]:
        return [lowering.b.build() for lowering in self.lowerings]
