"""Memory of a region's tensors while the region is translated, so that in-place copies become values.

Called by `region`. The IR has no writes before a program's end: what a Thunder trace writes into a tensor is, for whatever
reads that tensor or a view of it later, another value. A tensor is a place in a memory, reached from its root (an input or
a computed value) by views; a memory knows the value that it holds now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thunder_fuser.errors import UnsupportedError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BOOL
from thunder_fuser.ir.nodes import Broadcast, Permute, Reshape, Slice, Squeeze, TensorType, Value


@dataclass(frozen=True, slots=True)
class _Tensor:
    """`late` are the reshapes on the way from the root that were made after a write: copies of what was written, where they
    are no views."""

    memory: _Memory
    place: Value
    late: tuple[Value, ...] = ()


@dataclass(slots=True, eq=False)
class _Memory:
    """`state` is what the memory of `root` holds now; `place` is the one place written so far, None for none or several."""

    root: Value
    of_input: bool
    state: Value
    place: Value | None = None
    written: bool = False
    returned: Value | None = None  # a computed memory's last state, once an output asks for it


class Memories:
    """Values by Thunder's names: as places (`place`), as what they hold now (`read`), as what is returned (`output`)."""

    def __init__(self, builder: FusionBuilder, inputs: Mapping[str, Value]) -> None:
        self._b = builder
        self._tensors: dict[str, _Tensor] = {}
        self._updated: dict[Value, int] = {}  # roots of the input memories written so far
        for name, value in inputs.items():
            self._tensors[name] = _Tensor(_Memory(value, isinstance(value.type, TensorType), value), value)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def define(self, name: str, value: Value) -> None:
        """A computed value: memory of its own."""
        self._tensors[name] = _Tensor(_Memory(value, False, value), value)

    def place(self, name: str) -> Value:
        """Where a tensor lies: the root of its memory or a view of it. A view of the result lies in the same memory."""
        return self._tensors[name].place

    def define_in(self, name: str, of: str, place: Value) -> None:
        """A tensor in the memory of tensor `of`, at `place`."""
        source = self._tensors[of]
        late = source.late
        if source.memory.written and place is not source.place and isinstance(self._b.producer(place), Reshape):
            late = (*late, place)
        self._tensors[name] = _Tensor(source.memory, place, late)

    def read(self, name: str) -> Value:
        """What a tensor holds now."""
        memory, place = self._tensors[name].memory, self._tensors[name].place
        if memory.of_input:
            self._require_apart(memory)
        return self._seen(memory, place)

    def write(self, name: str, value: Value) -> None:
        """Thunder's `copy_(value, name)`. Raises `UnsupportedError` for a tensor that was expanded."""
        memory, place = self._tensors[name].memory, self._tensors[name].place
        memory.state = self._with(memory, place, value)
        memory.place = place if not memory.written or memory.place is place else None
        memory.written = True
        if memory.of_input:
            self._require_apart(memory)
            self._updated.setdefault(memory.root, len(self._updated))

    def output(self, name: str) -> Value:
        """What to return for a tensor when all is done: a place in an input's memory, or a view of the last state of a computed one."""
        memory, place = self._tensors[name].memory, self._tensors[name].place
        if memory.of_input or not memory.written:
            for value in self._tensors[name].late:
                self._b.require_view(value)
            return place
        if memory.returned is None:
            memory.returned = self._b.copy(memory.state)  # it may be another output's value too, or an input
        return self._moved(place, memory.root, memory.returned)

    def update(self) -> None:
        """Adds the updates of all inputs that were written into."""
        of_root = {t.memory.root: t.memory for t in self._tensors.values()}
        for root in self._updated:
            memory = of_root[root]
            place = root if memory.place is None else memory.place
            self._b.update(place, self._seen(memory, place))

    def _require_apart(self, memory: _Memory) -> None:
        """What is used after other inputs were written into must not have changed with them."""
        before = len(self._updated) - (memory.root in self._updated)
        if before:
            self._b.require_apart(memory.root, len(self._updated))

    def _seen(self, memory: _Memory, place: Value) -> Value:
        return place if memory.state is memory.root else self._moved(place, memory.root, memory.state)

    def _moved(self, place: Value, root: Value, state: Value) -> Value:
        """`place` with `state` for its root: the same views of another value."""
        chain = []
        while place is not root:
            chain.append(node := self._b.producer(place))
            place = node.arg
        for node in reversed(chain):
            state = self._view(node, state)
        return state

    def _view(self, node: Reshape | Permute | Slice | Squeeze | Broadcast, arg: Value) -> Value:
        b = self._b
        match node:
            case Reshape(out=out):
                b.require_view(out)
                return b.reshape(arg, out.shape)
            case Permute(dims=dims):
                return b.permute(arg, dims)
            case Slice(starts=starts, stops=stops, steps=steps):
                return b.slice(arg, starts, stops, steps)
            case Squeeze(dims=dims):
                return b.squeeze(arg, dims)
            case Broadcast(out=out, dims=dims):
                return b.broadcast(arg, out.shape, dims)

    def _with(self, memory: _Memory, place: Value, value: Value) -> Value:
        """The memory's state with `value` at `place`."""
        b = self._b
        while place is not memory.root:
            node = b.producer(place)
            match node:
                case Reshape(out=out, arg=arg):
                    b.require_view(out)
                    value = b.reshape(value, arg.shape)
                case Squeeze(arg=arg):
                    value = b.reshape(value, arg.shape)
                case Permute(dims=dims):
                    value = b.permute(value, [dims.index(d) for d in range(len(dims))])
                case Broadcast(out=out, arg=arg):
                    if out.type.numel != arg.type.numel:
                        raise UnsupportedError(f"'{out}' is expanded, so that several of its elements are one in memory, and written into: clone it first.")
                    value = b.reshape(value, arg.shape)
                case Slice():
                    value = _with_slice(b, self._seen(memory, node.arg), node, value)
            place = node.arg
        return value


def _with_slice(b: FusionBuilder, whole: Value, node: Slice, value: Value) -> Value:
    """`whole` with `value` where `node` slices it: pieces joined, or a choice by a mask where it takes steps."""
    if any(step != 1 and n > 1 for step, n in zip(node.steps, value.shape)):
        widths = [(start, size - start - ((n - 1) * step + 1 if n else 0), step - 1)
                  for start, step, n, size in zip(node.starts, node.steps, value.shape, whole.shape)]
        mask = b.pad(b.full(value.shape, True, BOOL), widths, False)
        return b.where(mask, b.pad(value, widths, 0), whole)
    inner = [whole]  # whole, cut to the slice in one more dim each time
    for d, (start, n) in enumerate(zip(node.starts, value.shape)):
        inner.append(_part(b, inner[-1], d, start, start + n))
    for d in reversed(range(len(value.shape))):
        outer, start = inner[d], node.starts[d]
        stop = start + value.shape[d]
        pieces = [_part(b, outer, d, 0, start), value, _part(b, outer, d, stop, outer.shape[d])]
        pieces = [p for p in pieces if p.shape[d]]
        value = b.cat(pieces, d) if len(pieces) > 1 else value if value.shape[d] else outer
    return value


def _part(b: FusionBuilder, value: Value, d: int, start: int, stop: int) -> Value:
    if (start, stop) == (0, value.shape[d]):
        return value
    starts, stops = [0] * len(value.shape), list(value.shape)
    starts[d], stops[d] = start, stop
    return b.slice(value, starts, stops)
