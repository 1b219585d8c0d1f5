"""What must be written to memory, and how each output comes from that or from an input: the alias rules.

Called after `layout`, once for each pattern of input strides. The rules are written down in
docs/decisions/0002-alias-rules.md; the short form: an output shares storage exactly where eager torch's output shares
it with an input or with another output, and the buffers hold no element that no output reaches, unless outputs
overlap in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from thunder_fuser.analysis import strides as rules
from thunder_fuser.analysis.layout import Layout, Layouts, node_layout
from thunder_fuser.errors import UnsupportedError
from thunder_fuser.ir.nodes import VIEW_NODES, Fusion, TensorType, Value

# Outputs that slice one temporary are compared in pairs up to this many; above it the temporary is written whole.
_MOST_PIECES = 32


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that kernels write: all elements of `value`, dense, with `strides` in elements."""

    value: Value
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """The arguments of `as_strided`; `offset` counts from the first element of the source tensor, in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def __str__(self) -> str:
        return f"{list(self.shape)} strides {list(self.strides)} offset {self.offset}"


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """An output is input or buffer number `index` itself (`view` is None) or a view of it."""

    of_input: bool
    index: int
    view: View | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AliasInfo:
    """`buffers` to write, and a plan for each of the fusion's outputs, in their order."""

    fusion: Fusion
    buffers: tuple[Buffer, ...]
    outputs: tuple[OutputPlan, ...]

    @property
    def is_noop(self) -> bool:
        """Whether all outputs are inputs or views of them, so that no kernel is needed."""
        return not self.buffers

    def __str__(self) -> str:
        lines = ["buffers"]
        lines += [f"  b{i} = {b.value} {list(b.value.shape)} strides {list(b.strides)}" for i, b in enumerate(self.buffers)]
        lines.append("outputs")
        for value, plan in zip(self.fusion.outputs, self.outputs):
            source = str(self.fusion.inputs[plan.index]) if plan.of_input else f"b{plan.index}"
            lines.append(f"  {value} = {source}" + (f" as {plan.view}" if plan.view else ""))
        return "\n".join(lines)


def aliases(fusion: Fusion, layouts: Layouts) -> AliasInfo:
    """The buffers and output plans of `fusion` under `layouts`. Raises `UnsupportedError` if it returns a number that
    it computes."""
    inputs = {v: i for i, v in enumerate(fusion.inputs)}
    _check(fusion, inputs)
    computed = [v for v in fusion.outputs if v not in inputs and layouts[v].base not in inputs]
    owned = _owned_layouts(fusion, layouts, computed)
    buffers: dict[Value, int] = {}
    plans = []
    for value in fusion.outputs:
        if value in inputs:
            plans.append(OutputPlan(True, inputs[value]))
            continue
        of_input = layouts[value].base in inputs
        layout = layouts[value] if of_input else owned[value]
        index = inputs[layout.base] if of_input else buffers.setdefault(layout.base, len(buffers))
        view = None if value is layout.base else View(value.shape, layout.strides, layout.offset)
        plans.append(OutputPlan(of_input, index, view))
    return AliasInfo(fusion, tuple(Buffer(v, owned[v].strides) for v in buffers), tuple(plans))


def _check(fusion: Fusion, inputs: dict[Value, int]) -> None:
    for value in fusion.outputs:
        if value not in inputs and not isinstance(value.type, TensorType):
            raise UnsupportedError(f"Output '{value}' of fusion '{fusion.name}' is a computed number; outputs must be tensors.")


def _owned_layouts(fusion: Fusion, layouts: Layouts, outputs: list[Value]) -> Layouts:
    """Layouts of the values that computed outputs are made of, with buffers as bases.

    A value's root is the earliest value on its chain of views that holds no other elements than it does. A root that
    is a piece of a temporary gets a dense buffer of its own, unless the temporary is written anyway, the piece repeats
    elements (it slices an expanded temporary) or two pieces may overlap: then the temporary is the buffer."""
    roots = _roots(fusion, layouts)
    pieces: dict[Value, dict[Value, None]] = {}
    for value in outputs:
        pieces.setdefault(layouts[value].base, {})[roots[value]] = None
    owned: Layouts = {}
    for base, of_base in pieces.items():
        if base in of_base or _may_overlap(base, layouts[base].strides, [(p.shape, layouts[p]) for p in of_base]):
            owned[base] = layouts[base]
        else:
            owned |= {p: Layout(p, rules.like(p.shape, layouts[p].strides), 0) for p in of_base}
    for node in fusion.nodes:
        if node.out not in owned and isinstance(node, VIEW_NODES) and node.arg in owned:
            owned[node.out] = node_layout(node, owned)
    return owned


def _roots(fusion: Fusion, layouts: Layouts) -> dict[Value, Value]:
    roots: dict[Value, Value] = {}
    for node in fusion.nodes:
        out = node.out
        layout = layouts.get(out)
        if layout is None or layout.base is out or not isinstance(node, VIEW_NODES):
            roots[out] = out
        elif _distinct(out, layout) == _distinct(node.arg, layouts[node.arg]):
            roots[out] = roots.get(node.arg, node.arg)
        else:
            roots[out] = out
    return roots


def _distinct(value: Value, layout: Layout) -> int:
    """How many elements of its base a view reaches: a stride of 0 repeats one."""
    return math.prod(n for n, stride in zip(value.shape, layout.strides) if stride or n < 2)


def _may_overlap(base: Value, strides: tuple[int, ...], pieces: list[tuple[tuple[int, ...], Layout]]) -> bool:
    """Whether several views of a dense tensor may reach an element twice. Never wrongly False."""
    if any(stride == 0 and n > 1 for shape, layout in pieces for n, stride in zip(shape, layout.strides) if 0 not in shape):
        return True
    if len(pieces) < 2:
        return False
    if len(pieces) > _MOST_PIECES:
        return True
    boxes = [_box(base.shape, strides, shape, layout) for shape, layout in pieces if 0 not in shape]
    return any(a is None or b is None or all(lo <= high and low <= hi for (lo, hi), (low, high) in zip(a, b))
               for i, a in enumerate(boxes) for b in boxes[:i])


def _box(shape: tuple[int, ...], strides: tuple[int, ...], view: tuple[int, ...], layout: Layout) -> list[tuple[int, int]] | None:
    """First and last index of a view along each dim of the dense tensor it lies in, or None where a view's dim runs on
    from one of the tensor's dims into the next."""
    steps = [(stride, n - 1) for n, stride in zip(view, layout.strides) if n > 1 and stride]
    offset, box = layout.offset, []
    for d in sorted((d for d, n in enumerate(shape) if n > 1), key=lambda d: -strides[d]):
        low, offset = divmod(offset, strides[d])
        high = low
        for stride, last in steps:
            if stride >= strides[d]:
                if stride % strides[d]:
                    return None
                high += stride // strides[d] * last
        if high >= shape[d]:
            return None
        steps = [(stride, last) for stride, last in steps if stride < strides[d]]
        box.append((low, high))
    return box
