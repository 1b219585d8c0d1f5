"""A fusion as the Python text of a function of torch's operators: what Thunder is given to trace, and a person to read.

`function(fusion)` is that text run. Pads with interior padding, copies of an explicit order and scalar inputs have no
such text: draw programs without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any

import torch

from thunder_fuser.ir import nodes as ir
from thunder_fuser.ir.dtypes import DType

_CALLED = {"neg": "-{0}", "relu": "torch.nn.functional.relu({0})", "silu": "torch.nn.functional.silu({0})", "add": "{0} + {1}", "sub": "{0} - {1}",
           "mul": "{0} * {1}", "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}", "eq": "{0} == {1}", "ne": "{0} != {1}",
           "bitwise_not": "~{0}", "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_xor": "{0} ^ {1}"}


def text(fusion: ir.Fusion, *, echo: bool = False) -> str:
    """The source of a function named `program`. With `echo` it returns twice each float input too, after its outputs."""
    names = {v: f"x{i}" for i, v in enumerate(fusion.inputs)}
    names |= {node.out: f"v{i}" for i, node in enumerate(fusion.nodes)}
    lines = [f"def program({', '.join(names[v] for v in fusion.inputs)}):"]
    for node in fusion.nodes:
        value = lambda operand: names[operand] if isinstance(operand, ir.Value) else repr(operand.value)  # noqa: E731
        lines.append(f"    {names[node.out]} = {_line(node, value)}")
    echoes = [f"{names[v]} * 2.0" for v in fusion.inputs if v.dtype.kind == "float"] if echo else []
    lines.append(f"    return ({', '.join([*(names[v] for v in fusion.outputs), *echoes])},)")
    return "\n".join(lines) + "\n"


def function(fusion: ir.Fusion, *, echo: bool = False) -> Callable[..., tuple[torch.Tensor, ...]]:
    """`text` as a function. Its file name is the text's, which Thunder wants to read."""
    import linecache

    source = text(fusion, echo=echo)
    file = f"<program {abs(hash(source))}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(source, file, "exec"), scope)
    return scope["program"]


def _dtype(dtype: DType) -> str:
    return str(dtype.torch)


def _shape(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


Name = Callable[[Any], str]


@singledispatch
def _line(node: Any, name: Name) -> str:
    raise NotImplementedError(f"'{type(node).__name__}' has no text.")


@_line.register
def _(node: ir.Pointwise, name: Name) -> str:
    args = list(map(name, node.args))
    tensors = [a for a in node.args if isinstance(a, ir.Value)]
    if node.op in _CALLED and tensors:
        return _CALLED[node.op].format(*args)
    # Most of torch's operators take no number for a tensor.
    made = [a if isinstance(n, ir.Value) else f"torch.full({_shape(node.out.shape)}, {a}, dtype={_dtype(tensors[-1].dtype)}, device={name(tensors[0])}.device)"
            for a, n in zip(args, node.args)]
    return f"torch.{node.op}({', '.join(made)})"


@_line.register
def _(node: ir.Cast, name: Name) -> str:
    return f"{name(node.arg)}.to({_dtype(node.out.dtype)})"


@_line.register
def _(node: ir.Full, name: Name) -> str:
    return f"torch.full({_shape(node.out.shape)}, {name(node.value)}, dtype={_dtype(node.out.dtype)}, device=x0.device)"


@_line.register
def _(node: ir.Iota, name: Name) -> str:
    if not node.out.shape[0]:  # Thunder 0.2.6 has the shape of an empty arange wrong
        return f"torch.full((0,), 0, dtype={_dtype(node.out.dtype)}, device=x0.device)"
    return f"(torch.arange({node.out.shape[0]}, device=x0.device) * {name(node.step)} + {name(node.start)}).to({_dtype(node.out.dtype)})"


@_line.register
def _(node: ir.Reduce, name: Name) -> str:
    if node.op == "sum":
        return f"torch.sum({name(node.arg)}, {_shape(node.dims)}, dtype={_dtype(node.out.dtype)})"
    return f"torch.{node.op}({name(node.arg)}, {_shape(node.dims)})"


@_line.register
def _(node: ir.Cat, name: Name) -> str:
    return f"torch.cat([{', '.join(map(name, node.args))}], {node.dim})"


@_line.register
def _(node: ir.Pad, name: Name) -> str:
    if any(interior for _, _, interior in node.widths):
        raise NotImplementedError("An interior padding has no text.")
    widths = [w for low, high, _ in reversed(node.widths) for w in (low, high)]
    return f"torch.nn.functional.pad({name(node.arg)}, {_shape(widths)}, value={name(node.value)})"


@_line.register
def _(node: ir.Gather, name: Name) -> str:
    return f"torch.gather({name(node.arg)}, {node.dim}, {name(node.index)}.long())"


@_line.register
def _(node: ir.Scatter, name: Name) -> str:
    (index,), (dim,) = node.indices, node.dims
    return f"torch.scatter{'_add' if node.accumulate else ''}({name(node.arg)}, {dim}, {name(index)}.long(), {name(node.updates)})"


@_line.register
def _(node: ir.Reshape, name: Name) -> str:
    return f"{name(node.arg)}.reshape({_shape(node.out.shape)})"


@_line.register
def _(node: ir.Permute, name: Name) -> str:
    return f"{name(node.arg)}.permute({_shape(node.dims)})"


@_line.register
def _(node: ir.Slice, name: Name) -> str:
    parts = [f"{start}:{stop}:{step}" for start, stop, step in zip(node.starts, node.stops, node.steps)]
    return f"{name(node.arg)}[{', '.join(parts)}]" if parts else name(node.arg)


@_line.register
def _(node: ir.Squeeze, name: Name) -> str:
    return f"{name(node.arg)}.squeeze({_shape(node.dims)})"


@_line.register
def _(node: ir.Broadcast, name: Name) -> str:
    new = "".join(f".unsqueeze({d})" for d in range(len(node.out.shape)) if d not in node.dims)
    return f"{name(node.arg)}{new}.expand({_shape(node.out.shape)})"


@_line.register
def _(node: ir.Flip, name: Name) -> str:
    return f"{name(node.arg)}.flip({_shape(node.dims)})"


@_line.register
def _(node: ir.Copy, name: Name) -> str:
    return f"{name(node.arg)}.clone()"
