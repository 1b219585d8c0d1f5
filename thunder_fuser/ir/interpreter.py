"""Runs a fusion with torch ops, one node after the other: the reference that generated kernels are tested against.

Called by tests, by the self-check of the engine and by whoever wants to know what a fusion means. Two meanings:
eager torch's to the letter, views and strides included, or, with `dtype`, the same program with every float
computed in that dtype (float64: the yardstick of accuracy).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from thunder_fuser.errors import InputError, UnsupportedError
from thunder_fuser.ir.dtypes import BOOL, F64, DType, Number, as_number
from thunder_fuser.ir.nodes import (
    VIEW_NODES,
    Bitcast,
    Broadcast,
    Cast,
    Cat,
    Constant,
    Copy,
    Flip,
    Full,
    Fusion,
    Gather,
    Iota,
    Node,
    Operand,
    Pad,
    Permute,
    Pointwise,
    Random,
    Reduce,
    Reshape,
    ScalarType,
    Scan,
    Scatter,
    Slice,
    Squeeze,
    TensorType,
    Value,
    operand_values,
)
from thunder_fuser.ir.ops import POINTWISE, REDUCTIONS, SCANS
from thunder_fuser.ir.random import sample
from thunder_fuser.ir.rules import natural_dtype, operand_dtype


def evaluate(
    fusion: Fusion,
    *inputs: Tensor | Number,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> list[Tensor]:
    """The outputs of `fusion`, in order, for `inputs` in the order of `fusion.inputs` (numbers for scalars).

    With `dtype` every floating tensor has that dtype, inputs and outputs included (complex ones have parts of it), and casts
    between floating dtypes do nothing, those to 8 bits aside. Without it 16-bit floats are computed in float32 and rounded
    after each op. `device` is where nodes
    without tensor operands live; by default with the first tensor input, else on the CPU. Works on meta tensors.
    Raises `InputError` for inputs that do not match the fusion's, and
    `UnsupportedError` for strides under which what must be a view is none. That inputs lie apart is the caller's to see to."""
    if len(inputs) != len(fusion.inputs):
        raise InputError(f"Fusion '{fusion.name}' takes {len(fusion.inputs)} inputs, got {len(inputs)}.")
    if device is None:
        device = next((x.device for x in inputs if isinstance(x, Tensor)), torch.device("cpu"))
    run = _Interpreter(dtype, torch.device(device))
    for value, given in zip(fusion.inputs, inputs):
        run.values[value] = run.input(value, given)
    uses = Counter(v for node in fusion.nodes for v in operand_values(node))
    anchors = _anchors(fusion)
    uses.update((*fusion.roots(), *fusion.inputs, *anchors.values()))
    for node in fusion.nodes:
        run.values[node.out] = run.node(node)
        for value in operand_values(node):
            uses[value] -= 1
            if not uses[value]:
                run.values.pop(value, None)  # so that a long fusion holds no more than eager would
    for value, root in anchors.items():
        if value.type.numel and not _shares_memory(run.values[value], run.values[root]):
            raise UnsupportedError(f"'{value}' of fusion '{fusion.name}' is no view of '{root}' for the strides given.")
    run.update(fusion, inputs)
    return [run.values[v] for v in fusion.outputs]


class _Interpreter:
    """The values so far, and one method a kind of node."""

    def __init__(self, dtype: torch.dtype | None, device: torch.device) -> None:
        self.dtype = dtype
        self.device = device
        self.values: dict[Value, Tensor | Number] = {}

    def input(self, value: Value, given: Tensor | Number) -> Tensor | Number:
        if isinstance(value.type, ScalarType):
            if isinstance(given, Tensor):
                raise InputError(f"Input '{value.name}' is a number, got a tensor.")
            return as_number(given, value.dtype)
        if not isinstance(given, Tensor):
            raise InputError(f"Input '{value.name}' is a tensor, got '{given!r}'.")
        if given.dtype is not value.dtype.torch or tuple(given.shape) != value.shape:
            raise InputError(f"Input '{value.name}' is {value.dtype}{list(value.shape)}, "
                             f"got {given.dtype} of shape {list(given.shape)}.")
        return given.to(self.torch_dtype(value.dtype))

    def update(self, fusion: Fusion, inputs: Sequence[Tensor | Number]) -> None:
        """Writes into the inputs what the fusion says, all values being computed."""
        written = [self.values[u.value].clone() for u in fusion.updates]
        for update, value in zip(fusion.updates, written):
            self.values[update.target].copy_(value)
        for value, given in zip(fusion.inputs, inputs):
            if fusion.updates and isinstance(given, Tensor) and self.values[value] is not given:
                given.copy_(self.values[value])  # computed in another dtype

    def torch_dtype(self, dtype: DType) -> torch.dtype:
        """The torch dtype that tensors of an IR dtype have in this run."""
        if self.dtype is None or dtype.kind not in ("float", "complex"):
            return dtype.torch
        return self.dtype if dtype.kind == "float" else self.dtype.to_complex()

    def math_dtype(self, dtype: DType) -> torch.dtype:
        """The torch dtype that arithmetic on an IR dtype is done in."""
        found = self.torch_dtype(dtype)
        return torch.float32 if found.is_floating_point and found.itemsize < 4 else found

    def scalar(self, operand: Operand, dtype: DType) -> Number:
        """A literal or scalar value as a Python number of `dtype`'s kind."""
        return as_number(operand.value if isinstance(operand, Constant) else self.values[operand], dtype)

    def node(self, node: Node) -> Tensor | Number:
        match node:
            case Pointwise():
                return self.pointwise(node)
            case Cast():
                return self.cast(node)
            case Bitcast(out=out, arg=arg):
                return self.values[arg].to(arg.dtype.torch).view(out.dtype.torch).to(self.torch_dtype(out.dtype), copy=True)
            case Full(out=out, value=value):
                return torch.full(out.shape, self.scalar(value, out.dtype),
                                  dtype=self.torch_dtype(out.dtype), device=self.device)
            case Iota():
                return self.iota(node)
            case Random():
                return self.random(node)
            case Reduce():
                return self.reduce(node)
            case Cat(args=args, dim=dim):
                return torch.cat([self.values[a] for a in args], dim)
            case Gather(arg=arg, index=index, dim=dim):
                return torch.gather(self.values[arg], dim, self.values[index].long())
            case Scatter():
                return self.scatter(node)
            case Scan(op=op, arg=arg, dim=dim):
                return SCANS[op].torch(self.values[arg].to(self.math_dtype(arg.dtype)), dim).to(self.torch_dtype(arg.dtype)).contiguous()
            case Pad(arg=arg, value=value, widths=widths):
                return _pad(self.values[arg], self.scalar(value, arg.dtype), widths)
            case _:
                return _moved(node, self.values[node.arg])

    def pointwise(self, node: Pointwise) -> Tensor | Number:
        op = POINTWISE[node.op]
        dtype = operand_dtype(node)
        dtypes = [BOOL if node.op == "where" and i == 0 else dtype for i in range(len(node.args))]
        if isinstance(node.out.type, ScalarType):
            args = [torch.tensor(self.scalar(a, d), dtype=self.math_dtype(d)) for a, d in zip(node.args, dtypes)]
            return op.torch(*args).item()
        given = [self.tensor(a, d) for a, d in zip(node.args, dtypes)]
        wide = [a.to(self.math_dtype(d)) for a, d in zip(given, dtypes)]
        computed = op.torch(*wide).to(self.torch_dtype(node.out.dtype))
        if any(a is not b and not a.is_contiguous() for a, b in zip(given, wide)):
            # Widening a strided operand may change the order of its dims: eager's strides come from the narrow operands.
            # (Not on meta tensors of 16 bits, which torch widens itself, with the same loss.)
            meta = [torch.empty_strided(a.shape, a.stride(), dtype=b.dtype, device="meta") for a, b in zip(given, wide)]
            return _restrided(computed, op.torch(*meta).stride())
        return computed

    def tensor(self, operand: Operand, dtype: DType) -> Tensor:
        """A tensor operand as it is, a number as a rank-0 tensor of the math dtype (numbers are never rounded to 16 bits)."""
        if isinstance(operand, Value) and isinstance(operand.type, TensorType):
            return self.values[operand]
        return torch.full((), self.scalar(operand, dtype), dtype=self.math_dtype(dtype), device=self.device)

    def cast(self, node: Cast) -> Tensor | Number:
        dtype = self.torch_dtype(node.out.dtype)
        if isinstance(node.out.type, TensorType):
            return self.values[node.arg].to(dtype, copy=True)
        given = self.scalar(node.arg, natural_dtype(node.arg))
        return torch.tensor(given, dtype=self.torch_dtype(natural_dtype(node.arg))).to(dtype).item()

    def iota(self, node: Iota) -> Tensor:
        dtype = node.out.dtype
        math = torch.int64 if dtype.kind == "int" else self.math_dtype(dtype)
        start, step = (self.scalar(a, dtype) for a in (node.start, node.step))
        steps = torch.arange(node.out.shape[0], device=self.device).to(math)
        return (steps * step + start).to(self.torch_dtype(dtype))

    def random(self, node: Random) -> Tensor:
        seed, offset = (self.values[a] if isinstance(a, Value) else a.value for a in (node.seed, node.offset))
        low, high = (self.scalar(a, F64) for a in (node.low, node.high))
        return sample(node.op, node.out.shape, node.out.dtype.torch, seed, offset, low, high, device=self.device, wide=self.dtype)

    def reduce(self, node: Reduce) -> Tensor:
        arg = self.values[node.arg]
        dtype = self.torch_dtype(node.out.dtype)
        if not node.dims:
            return arg.clone()
        return REDUCTIONS[node.op].torch(arg.to(self.math_dtype(node.arg.dtype)), node.dims).to(dtype)

    def scatter(self, node: Scatter) -> Tensor:
        arg, updates = self.values[node.arg], self.values[node.updates]
        out = arg.clone() if node.preserve else arg.clone(memory_format=torch.contiguous_format)
        places = [torch.arange(n, device=updates.device).view([-1 if k == d else 1 for k in range(updates.ndim)]).expand(updates.shape)
                  for d, n in enumerate(updates.shape)]
        for dim, index in zip(node.dims, node.indices):
            number = self.values[index].long()
            if number.device.type != "meta" and bool(((number < 0) | (number >= arg.shape[dim])).any()):
                raise InputError(f"An index of '{node.out.name}' is out of range for size {arg.shape[dim]}.")
            places[dim] = number
        return out.index_put_(tuple(places), updates, accumulate=node.accumulate)


def _anchors(fusion: Fusion) -> dict[Value, Value]:
    """For each value that must be a view: the value at the other end of its chain of views."""
    asked = (*fusion.views, *(u.target for u in fusion.updates))
    made = fusion.producers() if asked else {}
    anchors = {}
    for value in asked:
        root = value
        while isinstance(made.get(root), VIEW_NODES):
            root = made[root].arg
        anchors[value] = root
    return anchors


def _shares_memory(a: Tensor, b: Tensor) -> bool:
    return a.device.type == "meta" or a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _moved(node: Node, arg: Tensor) -> Tensor:
    """The nodes that move elements of one tensor and need nothing else."""
    match node:
        case Reshape(out=out):
            return arg.reshape(out.shape)
        case Permute(dims=dims):
            return arg.permute(dims)
        case Slice(starts=starts, stops=stops, steps=steps):
            return arg[tuple(slice(*s) for s in zip(starts, stops, steps))]
        case Squeeze(dims=dims):
            return arg.squeeze(dims)
        case Broadcast(out=out, dims=dims):
            for d in range(len(out.shape)):
                arg = arg if d in dims else arg.unsqueeze(d)
            return arg.expand(out.shape)
        case Flip(dims=dims):
            if arg.dtype.itemsize == 1:  # torch flips no 8-bit floats
                return arg.view(torch.uint8).flip(dims).view(arg.dtype)
            return arg.flip(dims)
        case Copy(order=None):
            return arg.clone()
        case Copy(order=order):
            strides, step = [0] * len(order), 1
            for d in reversed(order):
                strides[d], step = step, step * arg.shape[d]
            return _restrided(arg, tuple(strides), always=True)
    raise AssertionError(f"'{node!r}' is not a node.")


def _pad(arg: Tensor, value: Number, widths: Sequence[tuple[int, int, int]]) -> Tensor:
    if any(interior for _, _, interior in widths):
        # As Thunder does: spread the elements over a full tensor, then pad that.
        spread = [n + max(n - 1, 0) * interior for n, (_, _, interior) in zip(arg.shape, widths)]
        full = torch.full(spread, value, dtype=arg.dtype, device=arg.device)
        full[tuple(slice(None, None, interior + 1) for _, _, interior in widths)] = arg
        arg = full
    if all(low + n >= 0 and high + n >= 0 for n, (low, high, _) in zip(arg.shape, widths)):
        return torch.constant_pad_nd(arg, [w for low, high, _ in reversed(widths) for w in (low, high)], value)
    # torch refuses to crop more than there is: here that leaves nothing of arg.
    shape = [low + n + high for n, (low, high, _) in zip(arg.shape, widths)]
    return torch.full(shape, value, dtype=arg.dtype, device=arg.device)


def _restrided(value: Tensor, strides: tuple[int, ...], *, always: bool = False) -> Tensor:
    """`value` in memory of the given strides; itself if it has them, unless `always`."""
    if value.stride() == strides and not always:
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)
