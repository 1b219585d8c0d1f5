"""Where each value of a fusion would lie in memory if eager torch ran it op by op: base, strides, offset.

Called by alias analysis, scheduling and the reports, once for each pattern of input strides, so it is linear, quick and
makes no torch call. The rules of the single ops are in `strides`; this module walks the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from thunder_fuser.analysis import strides as rules
from thunder_fuser.errors import InputError
from thunder_fuser.ir.nodes import (
    Bitcast,
    Broadcast,
    Cast,
    Cat,
    Copy,
    Flip,
    Full,
    Fusion,
    Gather,
    Iota,
    Node,
    Pad,
    Permute,
    Pointwise,
    Random,
    Reduce,
    Reshape,
    Scan,
    Scatter,
    Slice,
    Squeeze,
    TensorType,
    Value,
)


@dataclass(frozen=True, slots=True)
class Layout:
    """`base` is the value whose storage this one lives in (itself if its storage is its own); `strides` are in
    elements; `offset` is the distance in elements from the base's first element."""

    base: Value
    strides: tuple[int, ...]
    offset: int

    def __str__(self) -> str:
        return f"{self.base}{list(self.strides)}" + (f"+{self.offset}" if self.offset else "")


Layouts = dict[Value, Layout]


def layouts(fusion: Fusion, input_strides: Sequence[tuple[int, ...] | None]) -> Layouts:
    """The layout of every tensor value, for inputs of the given strides (None for a number).

    A view's strides are exactly those of torch's view, also in dims of size 1 and 0; a fresh tensor's are those that
    torch would allocate. Raises `InputError` if the strides do not fit the inputs."""
    _check(fusion, input_strides)
    table: Layouts = {v: Layout(v, tuple(s), 0) for v, s in zip(fusion.inputs, input_strides) if s is not None}
    for node in fusion.nodes:
        out = node.out
        if isinstance(out.type, TensorType):
            table[out] = node_layout(node, table)
    return table


def node_layout(node: Node, table: Layouts) -> Layout:
    """The layout of one node's result, given those of its operands in `table`."""
    return _RULES[type(node)](node, table)


def format_layouts(table: Layouts) -> str:
    """One line a value: `name: base[strides]+offset`."""
    return "\n".join(f"{value}: {layout}" for value, layout in table.items())


def _check(fusion: Fusion, input_strides: Sequence[tuple[int, ...] | None]) -> None:
    if len(input_strides) != len(fusion.inputs):
        raise InputError(f"Fusion '{fusion.name}' has {len(fusion.inputs)} inputs, got strides for {len(input_strides)}.")
    for value, given in zip(fusion.inputs, input_strides):
        is_tensor = isinstance(value.type, TensorType)
        if is_tensor != (given is not None) or (is_tensor and len(given) != len(value.shape)):
            want = f"{len(value.shape)} strides" if is_tensor else "None, since it is a number"
            raise InputError(f"Input '{value}' of fusion '{fusion.name}' has strides {given}, expected {want}.")


def _pointwise(node: Pointwise, table: Layouts) -> Layout:
    operands = tuple([table[a].strides for a in node.args if a in table])
    numbers = len(operands) < len(node.args)
    special = _SPECIAL.get(node.op)
    if special is not None:
        return Layout(node.out, special(node, operands, numbers), 0)
    return Layout(node.out, rules.elementwise(node.out.shape, operands, numbers), 0)


def _pow(node: Pointwise, operands: tuple[rules.Ints, ...], numbers: bool) -> rules.Ints:
    """A number as exponent is no operand; with a number as base torch allocates row-major."""
    if numbers and isinstance(getattr(node.args[1], "type", None), TensorType):
        return rules.contiguous(node.out.shape)
    return rules.elementwise(node.out.shape, operands, False)


def _lerp(node: Pointwise, operands: tuple[rules.Ints, ...], numbers: bool) -> rules.Ints:
    """A number as weight is no operand."""
    ends = [a for a in node.args[:2] if isinstance(getattr(a, "type", None), TensorType)]
    return rules.elementwise(node.out.shape, operands, len(ends) < 2)


def _erfcinv(node: Pointwise, operands: tuple[rules.Ints, ...], numbers: bool) -> rules.Ints:
    """`0.0 - ndtri(x * 0.5) * c`, which is all that torch has for it."""
    strides = operands[0] if operands else ()
    for with_number in (True, False, True, True):
        strides = rules.elementwise(node.out.shape, (strides,), with_number)
    return strides


def _isinf(node: Pointwise, operands: tuple[rules.Ints, ...], numbers: bool) -> rules.Ints:
    """`abs(x) == inf`."""
    return rules.elementwise(node.out.shape, (rules.elementwise(node.out.shape, operands, False),), True)


def _isfinite(node: Pointwise, operands: tuple[rules.Ints, ...], numbers: bool) -> rules.Ints:
    """`(x == x) * (abs(x) != inf)`."""
    same = rules.elementwise(node.out.shape, operands, False)
    return rules.elementwise(node.out.shape, (same, _isinf(node, operands, numbers)), False)


# Ops that torch does not run as one TensorIterator over all their operands.
_SPECIAL: dict[str, Callable[[Pointwise, tuple[rules.Ints, ...], bool], rules.Ints]] = {
    "pow": _pow,
    "lerp": _lerp,
    "erfcinv": _erfcinv,
    "isinf": _isinf,
    "isfinite": _isfinite,
}


def _cast(node: Cast, table: Layouts) -> Layout:
    return Layout(node.out, rules.converted(node.out.shape, table[node.arg].strides), 0)


def _like(node: Flip | Bitcast, table: Layouts) -> Layout:
    return Layout(node.out, rules.like(node.out.shape, table[node.arg].strides), 0)


def _copy(node: Copy, table: Layouts) -> Layout:
    if node.order is None:
        return _like(node, table)
    return Layout(node.out, rules.ordered(node.out.shape, node.order[::-1]), 0)


def _contiguous(node: Full | Iota | Random | Gather | Reduce | Scan, table: Layouts) -> Layout:
    return Layout(node.out, rules.contiguous(node.out.shape), 0)


def _scatter(node: Scatter, table: Layouts) -> Layout:
    strides = rules.like(node.out.shape, table[node.arg].strides) if node.preserve else rules.contiguous(node.out.shape)
    return Layout(node.out, strides, 0)


def _cat(node: Cat, table: Layouts) -> Layout:
    channels_last = all(rules.suggests_channels_last(a.shape, table[a].strides) for a in node.args)
    return Layout(node.out, rules.suggested(node.out.shape, channels_last), 0)


def _pad(node: Pad, table: Layouts) -> Layout:
    """Interior padding goes through a row-major tensor; widths that add nothing crop and clone; others allocate in
    the argument's memory format. Cropping more than there is, which torch refuses, leaves a row-major fill."""
    shape, strides = node.arg.shape, table[node.arg].strides
    if any(interior for _, _, interior in node.widths):
        shape = tuple(n + max(n - 1, 0) * interior for n, (_, _, interior) in zip(shape, node.widths))
        strides = rules.contiguous(shape)
    if any(low + n < 0 or high + n < 0 for n, (low, high, _) in zip(shape, node.widths)):
        return Layout(node.out, rules.contiguous(node.out.shape), 0)
    if all(low <= 0 and high <= 0 for low, high, _ in node.widths):
        return Layout(node.out, rules.like(node.out.shape, strides), 0)
    return Layout(node.out, rules.suggested(node.out.shape, rules.suggests_channels_last(shape, strides)), 0)


def _reshape(node: Reshape, table: Layouts) -> Layout:
    arg = table[node.arg]
    strides = rules.viewed(node.arg.shape, arg.strides, node.out.shape)
    if strides is None:
        return Layout(node.out, rules.contiguous(node.out.shape), 0)
    return Layout(arg.base, strides, arg.offset)


def _permute(node: Permute, table: Layouts) -> Layout:
    arg = table[node.arg]
    return Layout(arg.base, tuple([arg.strides[d] for d in node.dims]), arg.offset)


def _slice(node: Slice, table: Layouts) -> Layout:
    arg = table[node.arg]
    offset = arg.offset
    for start, stride in zip(node.starts, arg.strides):
        offset += start * stride
    return Layout(arg.base, tuple([s * step for s, step in zip(arg.strides, node.steps)]), offset)


def _squeeze(node: Squeeze, table: Layouts) -> Layout:
    arg = table[node.arg]
    return Layout(arg.base, tuple([s for d, s in enumerate(arg.strides) if d not in node.dims]), arg.offset)


def _broadcast(node: Broadcast, table: Layouts) -> Layout:
    arg = table[node.arg]
    return Layout(arg.base, rules.broadcast(node.arg.shape, arg.strides, node.dims, node.out.shape), arg.offset)


_RULES: dict[type, Callable[[Any, Layouts], Layout]] = {
    Pointwise: _pointwise,
    Cast: _cast,
    Bitcast: _like,
    Full: _contiguous,
    Random: _contiguous,
    Iota: _contiguous,
    Reshape: _reshape,
    Permute: _permute,
    Slice: _slice,
    Squeeze: _squeeze,
    Broadcast: _broadcast,
    Pad: _pad,
    Cat: _cat,
    Flip: _like,
    Gather: _contiguous,
    Copy: _copy,
    Reduce: _contiguous,
    Scan: _contiguous,
    Scatter: _scatter,
}
