"""Pulls the values of buffers back to memory: from "element [i, j] of this output" to loads, through every meta op.

`Pullback.boxes(value)` gives the boxes of one buffer with, for each, the expression of an element. Called by
`nests.build`. Reshape, permute, slice, squeeze, broadcast, flip and copy rewrite the index and cost nothing; pad and cat
are decided box by box. Walks with an explicit stack: programs may be ten thousand ops deep.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from thunder_fuser.errors import UnsupportedError
from thunder_fuser.ir import nodes as ir
from thunder_fuser.ir.dtypes import F64, I64, DType
from thunder_fuser.ir.rules import natural_dtype, operand_dtype
from thunder_fuser.maps.affine import ZERO, Affine, Axis, AxisPool, Condition, Divisible, Within, all_of, dot
from thunder_fuser.maps.boxes import Box, Refine
from thunder_fuser.maps.decide import divisible, divmod_index, within
from thunder_fuser.maps.exprs import Accumulate, Apply, Convert, Draw, Expr, Exprs, Literal, Load, Position, Scalar, Select, free_axes

MAX_BOXES = 48
MAX_DIVISIONS = 48  # of one index: reshapes that do not factor nest them, and each may double their number
EMPTY = {"sum": 0, "prod": 1, "any": False, "all": True}  # what a reduction of nothing is

Index = tuple[Affine, ...]
Key = tuple[ir.Value, Index, tuple[Condition, ...]]
Step = tuple[list[Key], Callable[[list[Expr]], "Expr | None"]]


@dataclass(frozen=True, slots=True)
class BoxExpr:
    """One box of a buffer: the axes to walk, outermost first, the buffer's index at them, and the element there."""

    buffer: ir.Value
    axes: tuple[Axis, ...]
    index: Index
    expr: Expr


class Pullback:
    """Pulls values back to `sources`: inputs and values that earlier kernels have written, with their strides."""

    def __init__(self, producers: Mapping[ir.Value, ir.Node], sources: Mapping[ir.Value, tuple[int, ...]], budget: int | None = None) -> None:
        self.budget = budget
        self.producers = producers
        self.sources = sources
        self.pool = AxisPool()
        self.exprs = Exprs()
        self._memo: dict[Key, Expr] = {}
        self._box = Box(())
        self._may_cut = True
        self._tangled = False
        self._pending: dict[Key, Step] = {}

    @property
    def exhausted(self) -> bool:
        """Whether more (value, index) pairs were evaluated than the budget allows, or an index has become too long to be
        worth it; `boxes` then stops early."""
        return self.budget is not None and (self._tangled or len(self._memo) > self.budget)

    def counts(self) -> dict[ir.Value, int]:
        """At how many indices each value was evaluated."""
        return Counter(value for value, _, _ in self._memo.keys() | self._pending.keys())

    def boxes(self, value: ir.Value, *, max_boxes: int = MAX_BOXES) -> list[BoxExpr]:
        """The boxes that cover `value`, none if it has no elements."""
        return [BoxExpr(value, axes, index, expr) for axes, index, (expr,) in self.together((value,), max_boxes=max_boxes)]

    def together(self, values: Sequence[ir.Value], *, max_boxes: int = MAX_BOXES) -> list[tuple[tuple[Axis, ...], Index, list[Expr]]]:
        """The boxes that cover the one shape of `values`: axes, index, and the element of each value there."""
        if math.prod(values[0].shape) == 0:
            return []
        work, done = [Box.whole(values[0].shape)], []
        while work and not self.exhausted:
            self._box = work.pop()
            self._may_cut = len(work) + len(done) + 1 < max_boxes
            index, axes = self._box.index(self.pool)
            try:
                done.append((axes, index, [self._pull((value, index, ())) for value in values]))
            except Refine as refine:
                work.extend(reversed(refine.apply(self._box)))
        return done

    def _pull(self, root: Key) -> Expr:
        memo = self._memo
        stack = [root]
        pending = self._pending = {}
        while stack:
            key = stack[-1]
            if key in memo:
                stack.pop()
                continue
            if self.exhausted:
                return self.exprs.make(Literal, 0, I64)  # the caller throws all of it away
            if key not in pending:
                pending[key] = self._step(*key)
            needs, finish = pending[key]
            missing = [n for n in needs if n not in memo]
            if missing:
                stack.extend(missing)
                continue
            made = finish([memo[n] for n in needs])
            if made is None:
                pending[key] = self._step(*key)  # which asks for more, now that it knows this much
                continue
            memo[key] = made
            stack.pop()
        return memo[root]

    def _step(self, value: ir.Value, index: Index, guards: tuple[Condition, ...]) -> Step:
        """What `value` at `index` needs, and how it is made of that; or None, to be asked again once that is known."""
        make = self.exprs.make
        self._tangled |= any(i.divisions > MAX_DIVISIONS for i in index)
        if isinstance(value.type, ir.ScalarType) and value not in self.producers:
            return [], lambda _: make(Scalar, value, value.dtype)
        strides = self.sources.get(value)
        if strides is not None:
            return [], lambda _: make(Load, value, dot(index, strides), guards, value.dtype)
        node = self.producers[value]
        match node:
            case ir.Pointwise():
                dtype = operand_dtype(node)
                want = [natural_dtype(a) if node.op == "where" and k == 0 else dtype for k, a in enumerate(node.args)]
                return self._operands(node.args, index, guards, want,
                                      lambda args: make(Apply, node.op, tuple(args), dtype, value.dtype))
            case ir.Cast(arg=arg):
                return self._operands((arg,), index, guards, (natural_dtype(arg),), lambda args: self._convert(args[0], value))
            case ir.Bitcast(arg=arg):
                return self._operands((arg,), index, guards, (arg.dtype,), lambda args: make(Convert, args[0], value.dtype, True))
            case ir.Full(value=fill):
                return self._operands((fill,), (), guards, (value.dtype,), lambda args: self._convert(args[0], value))
            case ir.Iota():
                return self._iota(node, index, guards)
            case ir.Random():
                return self._random(node, index)
            case ir.Pad():
                return self._pad(node, index, guards)
            case ir.Cat():
                return self._cat(node, index, guards)
            case ir.Reduce():
                return self._reduce(node, index, guards)
            case ir.Gather():
                return self._gather(node, index, guards)
            case _:
                return [(node.arg, self._map(node, index), guards)], _first

    def _convert(self, arg: Expr, value: ir.Value) -> Expr:
        return self._typed(arg, value.dtype)

    def _operands(self, operands, index, guards, dtypes, build):
        """Needs for the operands that are values; literals are made on the spot, in the dtype wanted."""
        keys = [(a, index if isinstance(a.type, ir.TensorType) else (), guards if isinstance(a.type, ir.TensorType) else ())
                for a in operands if isinstance(a, ir.Value)]

        def finish(found: list[Expr]) -> Expr:
            given = iter(found)
            return build([next(given) if isinstance(a, ir.Value) else self.exprs.make(Literal, a.value, d)
                          for a, d in zip(operands, dtypes)])

        return keys, finish

    def _map(self, node: ir.Node, index: Index) -> Index:
        """The argument's index for a node that only moves elements."""
        match node:
            case ir.Copy():
                return index
            case ir.Reshape():
                return self._reshape(node.arg.shape, node.out.shape, index)
            case ir.Permute(dims=dims):
                back = [ZERO] * len(dims)
                for d, source in enumerate(dims):
                    back[source] = index[d]
                return tuple(back)
            case ir.Slice():
                return tuple(i * step + start for i, start, step in zip(index, node.starts, node.steps))
            case ir.Squeeze(dims=dims):
                kept = iter(index)
                return tuple(ZERO if d in dims else next(kept) for d in range(len(node.arg.shape)))
            case ir.Broadcast(dims=dims):
                return tuple(ZERO if size == 1 else index[d] for size, d in zip(node.arg.shape, dims))
            case ir.Flip(dims=dims):
                return tuple(i * -1 + (n - 1) if d in dims else i for d, (i, n) in enumerate(zip(index, node.arg.shape)))
        raise UnsupportedError(f"'{type(node).__name__}' has no index map.")

    def _reshape(self, source: tuple[int, ...], target: tuple[int, ...], index: Index) -> Index:
        """Row-major: groups of dims with equal products are mapped on their own."""
        back: list[Affine] = []
        s = t = 0
        while s < len(source) or t < len(target):
            s0, t0 = s, t
            left = right = 1
            if s < len(source):
                left, s = source[s], s + 1
            if t < len(target):
                right, t = target[t], t + 1
            while left != right:
                if left < right:
                    left, s = left * source[s], s + 1
                else:
                    right, t = right * target[t], t + 1
            if s - s0 == t - t0 == 1:
                back.append(index[t0] if source[s0] > 1 else ZERO)
                continue
            strides = [math.prod(target[k + 1:t]) for k in range(t0, t)]
            linear = dot(index[t0:t], strides)
            digits: list[Affine] = []
            for k in range(s - 1, s0, -1):
                linear, digit = divmod_index(linear, source[k], self.pool, may_cut=self._may_cut)
                digits.append(digit)
            if s > s0:
                digits.append(linear)
            back.extend(reversed(digits))
        return tuple(back)

    def _iota(self, node: ir.Iota, index: Index, guards: tuple[Condition, ...]):
        make, dtype = self.exprs.make, node.out.dtype
        if isinstance(node.start, ir.Constant) and isinstance(node.step, ir.Constant) and dtype.kind == "int":
            place = index[0] * node.step.value + node.start.value
            return [], lambda _: self._convert(make(Position, place, I64), node.out)
        math_type = dtype if dtype.kind == "float" else I64

        def build(args: list[Expr]) -> Expr:
            start, step = (self._typed(a, math_type) for a in args)
            position = make(Position, index[0], I64)
            scaled = make(Apply, "mul", (self._typed(position, math_type), step), math_type, math_type)
            return self._convert(make(Apply, "add", (start, scaled), math_type, math_type), node.out)

        return self._operands((node.start, node.step), (), guards, (math_type, math_type), build)

    def _random(self, node: ir.Random, index: Index) -> Step:
        """Seed and offset have one element each, wherever they come from."""
        place = dot(index, [math.prod(node.out.shape[d + 1:]) for d in range(len(index))])
        operands, dtypes = ir.operands(node), (I64, I64, F64, F64)
        keys: list[Key] = [(a, (ZERO,) * len(a.shape), ()) for a in operands if isinstance(a, ir.Value)]

        def finish(found: list[Expr]) -> Expr:
            given = iter(found)
            args = [self._typed(next(given), d) if isinstance(a, ir.Value) else self.exprs.make(Literal, a.value, d)
                    for a, d in zip(operands, dtypes)]
            return self.exprs.make(Draw, node.op, place, tuple(args), node.out.dtype)

        return keys, finish

    def _typed(self, expr: Expr, dtype: DType) -> Expr:
        if expr.dtype is dtype:
            return expr
        if isinstance(expr, Literal):  # torch does the rounding
            number = torch.tensor(expr.value, dtype=expr.dtype.torch).to(dtype.torch).item()
            return self.exprs.make(Literal, number, dtype)
        if isinstance(expr, Convert) and not expr.bits and expr.arg.dtype is dtype and _is_exact(expr.arg, expr.dtype):
            return expr.arg  # the narrowing between changed nothing
        return self.exprs.make(Convert, expr, dtype)

    def _pad(self, node: ir.Pad, index: Index, guards: tuple[Condition, ...]):
        conditions: list[Condition] = []
        inner: list[Affine] = []
        outside = math.prod(node.arg.shape) == 0
        for place, size, (low, _, interior) in zip(index, node.arg.shape, node.widths):
            if outside:
                break
            place = place + -low
            span = (size - 1) * (interior + 1) + 1
            inside = within(place, 0, span, may_cut=self._may_cut)
            if inside is None:
                conditions.append(Within(place, 0, span))
            if interior and inside is not False:
                on_grid = divisible(place, interior + 1, may_cut=self._may_cut)
                if on_grid is None:
                    conditions.append(Divisible(place, interior + 1))
                inside = inside if on_grid is None else on_grid and inside
                place, _ = divmod_index(place, interior + 1, self.pool, may_cut=self._may_cut)
            outside = inside is False
            inner.append(place)
        if outside:
            return self._operands((node.value,), (), (), (node.out.dtype,), lambda args: self._convert(args[0], node.out))
        if not conditions:
            return [(node.arg, tuple(inner), guards)], _first
        both = all_of(guards, conditions)
        fill, finish_fill = self._operands((node.value,), (), (), (node.out.dtype,), lambda args: self._convert(args[0], node.out))
        return [(node.arg, tuple(inner), both), *fill], lambda found: self.exprs.make(
            Select, tuple(conditions), found[0], finish_fill(found[1:]), node.out.dtype)

    def _cat(self, node: ir.Cat, index: Index, guards: tuple[Condition, ...]):
        place, start = index[node.dim], 0
        candidates: list[tuple[ir.Value, Within | None, Index]] = []
        for arg in node.args:
            size = arg.shape[node.dim]
            inside = within(place, start, start + size, may_cut=self._may_cut) if size else False
            if inside is not False:
                moved = (*index[:node.dim], place + -start, *index[node.dim + 1:])
                candidates.append((arg, None if inside else Within(place, start, start + size), moved))
            if inside:
                break
            start += size
        certain = [c for c in candidates if c[1] is None]
        if certain:
            candidates = certain
        if len(candidates) == 1:
            arg, _, moved = candidates[0]
            return [(arg, moved, guards)], _first
        needs = [(arg, moved, all_of(guards, [condition])) for arg, condition, moved in candidates]

        def finish(found: list[Expr]) -> Expr:
            result = found[-1]
            for expr, (_, condition, _) in zip(reversed(found[:-1]), reversed(candidates[:-1])):
                result = self.exprs.make(Select, (condition,), expr, result, node.out.dtype)
            return result

        return needs, finish

    def _reduce(self, node: ir.Reduce, index: Index, guards: tuple[Condition, ...]):
        kept = iter(index)
        inner, axes = [], []
        for d, size in enumerate(node.arg.shape):
            if d in node.dims:
                place, split = self._box.reduction_index(self.pool, node.out.name, d, size)
                inner.append(place)
                axes.extend(split)
            else:
                inner.append(next(kept))
        if math.prod(node.arg.shape[d] for d in node.dims) == 0:
            if node.op not in EMPTY:
                raise UnsupportedError(f"'{node.op}' over no elements has no value.")
            return [], lambda _: self.exprs.make(Literal, EMPTY[node.op], node.out.dtype)
        loops = tuple(axes)
        return [(node.arg, tuple(inner), guards)], lambda found: self.exprs.make(Accumulate, node.op, loops, found[0], node.out.dtype)


    def _gather(self, node: ir.Gather, index: Index, guards: tuple[Condition, ...]) -> Step:
        """First the number that says where, then the argument there."""
        where = (node.index, index, guards)
        number = self._memo.get(where)
        if number is None:
            return [where], lambda _: None
        place = self.place(number, guards, node.arg.shape[node.dim], f"{node.index}[{', '.join(map(str, index))}]")
        return [(node.arg, (*index[:node.dim], place, *index[node.dim + 1:]), guards)], _first


    def place(self, number: Expr, guards: tuple[Condition, ...], size: int, label: str) -> Affine:
        """A computed number as an index below `size`; `label` is what a person reads for it, if it is not loaded."""
        number = self._typed(number, I64)
        if isinstance(number, Position) and number.index.lo >= 0 and number.index.hi < size:
            return number.index
        loaded = number.arg if isinstance(number, Convert) and not number.bits else number
        label = f"{loaded.buffer}[{loaded.address}]" if isinstance(loaded, Load) else label
        return Affine.of(self.pool.fetched(number, guards, size, free_axes(number), label))


def _is_exact(expr: Expr, dtype: DType) -> bool:
    """Whether every value of `expr`, a wide float, is one of the narrow float `dtype` too."""
    while isinstance(expr, Apply) and expr.op in ("neg", "abs"):
        expr = expr.args[0]
    return isinstance(expr, Convert) and not expr.bits and expr.arg.dtype is dtype and dtype.kind == expr.dtype.kind == "float"


def _first(found: list[Expr]) -> Expr:
    return found[0]
