"""Random fusions with inputs, for property tests: `programs()` is a hypothesis strategy of `(fusion, inputs)`.

With `exact` (the default) every float is a small integer that all float dtypes hold, sums and products included, so that any
right engine agrees with `evaluate(fusion, *inputs)` and with `evaluate(..., dtype=torch.float64)` to the bit, in whatever order
it sums and whichever roundings it drops. Otherwise floats are random, transcendental functions occur, and nothing
discontinuous is applied to a rounded value: compare with a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from hypothesis import note
from hypothesis import strategies as st

from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, DType
from thunder_fuser.ir.nodes import Fusion, Value

FLOATS = (F32, BF16, F16, F64)
ALL = (*FLOATS, I32, I64, BOOL, I8, U8, I16)
SIZES = (4, 1, 2, 3, 8, 5, 7, 6, 2, 1, 3, 4, 8, 2, 0)  # as often as they stand here
_LARGEST = 1200  # elements of any tensor
_HELD = {BF16: 2.0**8, F16: 2.0**11, F32: 2.0**24, F64: 2.0**53}  # floats hold all integers up to this
_RANGE = {BOOL: 1.0, U8: 255.0, I8: 128.0, I16: 2.0**15, I32: 2.0**31, I64: 2.0**63}
_TAME = 1e3  # what inexact values stay below
_SMOOTH = ("tanh", "sigmoid", "cos", "sin", "silu", "exp")


@st.composite
def programs(
    draw: st.DrawFn,
    *,
    exact: bool = True,
    specials: bool = False,
    dtypes: Sequence[DType] = ALL,
    max_nodes: int = 12,
    max_rank: int = 4,
    sizes: Sequence[int] = SIZES,
    reductions: bool = True,
    scalars: bool = True,
    torch_text: bool = False,
) -> tuple[Fusion, list[torch.Tensor | bool | int | float]]:
    """A legal fusion of about `max_nodes` nodes and inputs for it, on the CPU: strided, transposed, offset, expanded ones too.

    `specials` puts NaN and infinities into float inputs; `dtypes` are those that inputs and casts have (comparisons still
    make b8). Outputs may be inputs, views of inputs, one value twice, the same tensor twice, or unused parts of the program.
    `torch_text` leaves out what `tests/support/torch_text.py` has no words for."""
    draft = _Draft(draw, exact, specials, tuple(dtypes), max_rank, tuple(sizes))
    draft.torch_text = torch_text
    shapes = [draft.shape() for _ in range(draw(st.integers(1, 2)))]
    for _ in range(draw(st.sampled_from((2, 1, 3)))):
        draft.tensor(draw(st.sampled_from(shapes)), draw(st.sampled_from(draft.dtypes)))
    if scalars and draw(st.integers(0, 2)) == 2:
        draft.scalar()
    steps = [getattr(draft, f"_{name}") for name in _STEPS if (reductions or name != "reduce") and not (torch_text and name in _WORDLESS)]
    for _ in range(draw(st.integers(min(3, max_nodes), max_nodes))):
        draw(st.sampled_from(steps))()
    draft.outputs()
    fusion = draft.builder.build()
    note(str(fusion))  # hypothesis itself would print a failing program as nested dataclasses
    return fusion, draft.inputs


@st.composite
def laid_out(draw: st.DrawFn, values: torch.Tensor) -> torch.Tensor:
    """A tensor that equals `values` (where it is expanded, values[0] repeated) with some layout of its memory."""
    rank = values.ndim
    kinds = ["contiguous", "offset"]
    kinds += ["sliced", "stepped", "expanded"] if rank else []
    kinds += ["permuted", "permuted", "turned", "windows"] if rank > 1 else []
    kinds += ["channels_last"] if rank == 4 else []
    kind = draw(st.sampled_from(kinds))
    if kind == "permuted":
        order = draw(st.permutations(range(rank)))
        return values.permute(order).contiguous().permute([order.index(d) for d in range(rank)])
    if kind == "turned":  # transposed, and a part of something wider, from an odd place on
        wide = torch.zeros((*values.shape[:-2], values.shape[-1], values.shape[-2] + 3), dtype=values.dtype)
        return wide[..., 1:-2].transpose(-1, -2).copy_(values)
    if kind == "windows" and values.numel():
        span = sum(values.shape) - rank + 1
        return values.flatten()[:span].clone().as_strided(values.shape, (1,) * rank)
    if kind == "channels_last":
        return values.contiguous(memory_format=torch.channels_last)
    if kind == "offset":
        offset = draw(st.integers(1, 9))
        base = torch.zeros(values.numel() + offset, dtype=values.dtype)
        return base[offset:].view(values.shape).copy_(values)
    if kind in ("sliced", "stepped", "expanded"):
        d = draw(st.integers(0, rank - 1))
        size = values.shape[d]
        if kind == "expanded" and size:
            return values.narrow(d, 0, 1).clone().expand(values.shape)
        step = 2 if kind == "stepped" else 1
        start = draw(st.integers(0, 3))
        shape = list(values.shape)
        shape[d] = start + size * step + draw(st.integers(0, 2))
        base = torch.zeros(shape, dtype=values.dtype)
        window = base[(slice(None),) * d + (slice(start, start + size * step, step),)]
        return window.copy_(values)
    return values


class _Draft:
    """A program being drawn: `pool` holds every value so far, `bounds` what no element of it exceeds in magnitude.

    `rounded` are the values that differ between a float64 run and one in the dtypes given; it stays empty when exact."""

    def __init__(self, draw: st.DrawFn, exact: bool, specials: bool, dtypes: tuple[DType, ...], max_rank: int,
                 sizes: tuple[int, ...]) -> None:
        self.draw, self.exact, self.specials = draw, exact, specials
        self.dtypes, self.max_rank, self.sizes = dtypes, max_rank, sizes
        self.torch_text = False
        self.builder = FusionBuilder("random_program")
        self.inputs: list[torch.Tensor | bool | int | float] = []
        self.pool: list[Value] = []
        self.numbers: list[Value] = []
        self.bounds: dict[Value, float] = {}
        self.rounded: set[Value] = set()

    # what is drawn

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, choices: Sequence):
        return self.draw(st.sampled_from(choices))

    def value(self, accept: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """A value so far, more likely a late one."""
        found = [v for v in self.pool if accept(v)]
        if not found:
            return None
        return found[-1 - min(self.integer(0, len(found) - 1), self.integer(0, len(found) - 1))]

    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = ()
        for _ in range(min(self.pick((2, 3, 1, 4, 3, 2, 4, 0)), self.max_rank)):
            size = self.pick(self.sizes)
            if size * math.prod(shape) <= _LARGEST:
                shape = (*shape, size)
        return shape

    def number(self, dtype: DType) -> bool | int | float:
        """A literal for an operand of `dtype`."""
        if dtype.kind == "bool":
            return self.draw(st.booleans())
        if dtype.kind == "int":
            return self.integer(0 if dtype is U8 else -3, 3)
        return float(self.integer(-3, 3)) if self.exact else self.pick((0.5, -1.25, 2.0, 0.1, -0.0, 3))

    # inputs and outputs

    def tensor(self, shape: tuple[int, ...], dtype: DType) -> None:
        generator = torch.Generator().manual_seed(self.integer(0, 1 << 16))
        if dtype.kind == "float" and not self.exact:
            values = torch.rand(shape, dtype=torch.float64, generator=generator) * 4 - 2
        else:
            low = {"bool": 0, "int": 0 if dtype is U8 else -4, "float": -4}[dtype.kind]
            values = torch.randint(low, 2 if dtype.kind == "bool" else 5, shape, generator=generator)
        values = values.to(dtype.torch)
        if dtype.kind == "float" and self.specials and values.numel():
            for special in (math.nan, math.inf, -math.inf, -0.0):
                values.view(-1)[self.integer(0, values.numel() - 1)] = special
        self.inputs.append(self.draw(laid_out(values)))
        self.keep(self.builder.tensor(dtype, shape), 4.0)

    def scalar(self) -> None:
        dtype = self.pick((F64, I64, BOOL))
        self.inputs.append(self.number(dtype))
        self.numbers.append(self.builder.scalar(dtype))

    def outputs(self) -> None:
        """The last value and a few more."""
        self.builder.output(self.pool[-1])
        for _ in range(self.integer(0, 3)):
            self.builder.output(self.value(), shared=self.integer(0, 3) == 0)

    def keep(self, value: Value, bound: float, rounded: bool = False) -> None:
        if value not in self.bounds:
            self.pool.append(value)
            self.bounds[value] = min(bound, _RANGE.get(value.dtype, math.inf))
            if rounded and not self.exact:
                self.rounded.add(value)

    def fits(self, bound: float, dtype: DType) -> bool:
        """Whether results of this magnitude are what the mode promises. Integers wrap around, whatever they are."""
        return dtype.kind != "float" or bound <= (_HELD[dtype] if self.exact else _TAME)

    def computed(self, value: Value, bound: float, *args: Value, rounds: bool = True) -> None:
        """Keeps the result of arithmetic."""
        self.keep(value, bound, (value.dtype.kind == "float" and rounds) or any(a in self.rounded for a in args))

    # arithmetic

    def _unary(self) -> None:
        arg = self.value()
        if arg.dtype.kind == "bool":
            return self.computed(self.builder.pointwise(self.pick(("bitwise_not", "logical_not")), arg), 1.0, arg)
        plain = ["neg", "abs", "relu", "sign"]
        # sign jumps where a rounded value may be on either side of zero
        if arg in self.rounded:
            plain.remove("sign")
        if arg.dtype.kind == "int":
            plain.append("bitwise_not")
        elif self.exact:
            plain += ["floor", "round"]
        else:
            plain += _SMOOTH
        op = self.pick(plain)
        if op == "exp" and self.bounds[arg] > 4:
            op = "tanh"
        bound = {"exp": math.exp(min(self.bounds[arg], 4)), "bitwise_not": self.bounds[arg] + 1}.get(op, self.bounds[arg])
        if self.wraps(arg.dtype, bound, op):
            bound = _RANGE[arg.dtype]
        self.computed(self.builder.pointwise(op, arg), bound, arg, rounds=op in _SMOOTH)

    def wraps(self, dtype: DType, bound: float, op: str) -> bool:
        """Whether an integer result may be anything."""
        return dtype.kind == "int" and (bound >= _RANGE[dtype] or (dtype is U8 and op in ("neg", "sub", "bitwise_not")))

    def partner(self, arg: Value) -> tuple[Value | bool | int | float, float] | None:
        """A second operand for `arg`: a value of its type, one broadcast to it, a literal or a scalar; and its bound."""
        kind = self.pick(("value", "value", "value", "literal", "scalar" if self.numbers else "value"))
        if kind == "scalar" and arg.dtype.kind != "bool":
            number = self.numbers[0]
            if not (arg.dtype.kind == "int" and number.dtype.kind == "float") and arg.dtype is not U8:
                return number, 4.0
        if kind == "value":
            other = self.value(lambda v: v is not arg and v.dtype is arg.dtype and _expands(v.shape, arg.shape)) or arg
            lead = len(arg.shape) - len(other.shape)
            if other.shape != arg.shape:
                expanded = self.builder.broadcast(other, arg.shape, range(lead, len(arg.shape)))
                self.keep(expanded, self.bounds[other], other in self.rounded)
                other = expanded
            return other, self.bounds[other]
        return self.number(arg.dtype), 4.0

    def _binary(self) -> None:
        arg = self.value()
        if arg.dtype.kind == "bool":
            ops = ("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "add", "mul", "maximum")
        else:
            ops = ("add", "add", "sub", "mul", "mul", "maximum", "minimum")
        op = self.pick(ops)
        other, second = self.partner(arg)
        first = self.bounds[arg]
        bound = {"add": first + second, "sub": first + second, "mul": first * second}.get(op, max(first, second))
        if not self.fits(bound, arg.dtype):
            op, bound = "minimum", max(first, second)
        if self.wraps(arg.dtype, bound, op):
            bound = _RANGE[arg.dtype]
        args = (arg, other) if self.draw(st.booleans()) else (other, arg)
        rounds = op in ("add", "sub", "mul") or not isinstance(other, Value)
        self.computed(self.builder.pointwise(op, *args), bound, *(a for a in args if isinstance(a, Value)), rounds=rounds)

    def _compare(self) -> None:
        arg = self.value(lambda v: v not in self.rounded)
        if arg is None:
            return
        other, _ = self.partner(arg)
        # a literal that the dtype has to round is on different sides of an input in different dtypes
        if other in self.rounded or (not self.exact and not isinstance(other, Value)):
            return
        self.keep(self.builder.pointwise(self.pick(("lt", "le", "gt", "ge", "eq", "ne")), arg, other), 1.0)

    def _where(self) -> None:
        arg = self.value()
        condition = self.value(lambda v: v.dtype is BOOL and _expands(v.shape, arg.shape))
        if condition is None:
            return
        if condition.shape != arg.shape:
            condition = self.builder.broadcast(condition, arg.shape, range(len(arg.shape) - len(condition.shape), len(arg.shape)))
            self.keep(condition, 1.0)
        other, second = self.partner(arg)
        args = (arg, other) if self.draw(st.booleans()) else (other, arg)
        self.computed(self.builder.where(condition, *args), max(self.bounds[arg], second), arg, rounds=True)

    def _cast(self) -> None:
        arg, dtype = self.value(), self.pick(self.dtypes)
        bound = self.bounds[arg]
        if arg.dtype.kind == "float" and dtype.kind != "float":
            # Out of range is undefined, a rounded value may truncate either way, and NaN is no integer.
            illegal = dtype is U8 or bound >= _RANGE[dtype] or (self.specials and dtype.kind == "int")
            if arg in self.rounded or (dtype.kind == "int" and illegal):
                return
        if not self.fits(bound, dtype):
            return
        if dtype.kind == "int" and (bound >= _RANGE[dtype] or dtype is U8):
            bound = _RANGE[dtype]
        self.computed(self.builder.cast(arg, dtype), bound, arg, rounds=arg.dtype is not dtype)

    def _reduce(self) -> None:
        arg = self.value(lambda v: bool(v.shape))
        if arg is None:
            return
        dims = [d for d in range(len(arg.shape)) if self.draw(st.booleans())]
        reduced = math.prod(arg.shape[d] for d in dims)
        op = self.pick(("any", "all") if arg.dtype.kind == "bool" else ("sum", "sum", "amax", "amin"))
        bound = self.bounds[arg] * max(1, reduced) if op == "sum" else self.bounds[arg]
        if not dims or not self.fits(bound, arg.dtype) or (op in ("amax", "amin") and not reduced):
            return
        if op == "sum" and self.wraps(arg.dtype, bound, op):
            bound = _RANGE[arg.dtype]
        self.computed(self.builder.reduce(op, arg, dims, keepdim=self.draw(st.booleans())), bound, arg, rounds=op == "sum")

    def _make(self) -> None:
        dtype = self.pick(self.dtypes)
        if dtype.kind != "bool" and self.integer(0, 2) == 0:
            start, step, length = self.integer(0, 3), self.integer(0, 3), self.pick(self.sizes)
            return self.keep(self.builder.iota(length, dtype, start, step), 3.0 + 3 * length)
        self.keep(self.builder.full(self.shape(), self.number(dtype), dtype), 4.0, dtype.kind == "float")

    # meta ops

    def moved(self, value: Value, *args: Value) -> None:
        self.keep(value, max(self.bounds[a] for a in args), any(a in self.rounded for a in args))

    def _permute(self) -> None:
        arg = self.value(lambda v: len(v.shape) > 1)
        if arg is not None:
            self.moved(self.builder.permute(arg, self.draw(st.permutations(range(len(arg.shape))))), arg)

    def _reshape(self) -> None:
        arg = self.value()
        shape = list(arg.shape)
        for _ in range(self.integer(1, 2)):
            d = self.integer(0, len(shape))
            kind = self.pick(("merge", "split", "insert"))
            if kind == "merge" and d + 1 < len(shape):
                shape[d : d + 2] = [shape[d] * shape[d + 1]]
            elif kind == "split" and d < len(shape) and len(shape) < self.max_rank + 2:
                factor = self.pick([f for f in range(1, shape[d] + 1) if shape[d] % f == 0] or [2])
                shape[d : d + 1] = self.pick(([factor, shape[d] // factor], [shape[d] // factor, factor]))
            elif len(shape) < self.max_rank + 2:
                shape.insert(d, 1)
        if not arg.type.numel and shape:
            shape = list(self.draw(st.permutations(shape)))
        self.moved(self.builder.reshape(arg, shape), arg)

    def _slice(self) -> None:
        arg = self.value()
        starts, stops, steps = [], [], []
        for size in arg.shape:
            least = 0 if self.integer(0, 9) == 9 else min(size, 1)  # an empty slice now and then
            starts.append(self.integer(0, size - least) if self.draw(st.booleans()) else 0)
            stops.append(self.integer(starts[-1] + least, size) if self.draw(st.booleans()) else size)
            steps.append(self.pick((1, 1, 1, 2, 3)))
        self.moved(self.builder.slice(arg, starts, stops, steps), arg)

    def _squeeze(self) -> None:
        arg = self.value(lambda v: 1 in v.shape)
        if arg is not None:
            ones = [d for d, n in enumerate(arg.shape) if n == 1]
            self.moved(self.builder.squeeze(arg, [d for d in ones if self.draw(st.booleans())] or ones), arg)

    def _broadcast(self) -> None:
        arg = self.value(lambda v: len(v.shape) <= self.max_rank)
        if arg is None:
            return
        shape, dims = [], []
        for size in arg.shape:
            if self.integer(0, 3) == 0 and len(shape) < self.max_rank:
                shape.append(self.pick(self.sizes))
            dims.append(len(shape))
            shape.append(self.pick(self.sizes) if size == 1 else size)
        if self.integer(0, 3) == 0:
            shape.append(self.pick(self.sizes))
        if math.prod(shape) <= _LARGEST:
            self.moved(self.builder.broadcast(arg, shape, dims), arg)

    def _pad(self) -> None:
        arg = self.value()
        widths, numel = [], 1
        for size in arg.shape:
            low, high, interior = self.pick((0, 0, 1, 2, -1, 5, -3)), self.pick((0, 0, 1, 3, -1, -2)), self.pick((0, 0, 0, 1, 2))
            interior = 0 if self.torch_text else interior
            refused = self.torch_text and (low + size < 0 or high + size < 0)
            inner = size + max(size - 1, 0) * interior
            if refused or inner + low + high < 0 or (inner + low + high) * numel > _LARGEST:
                low, high, interior, inner = 0, 0, 0, size
            widths.append((low, high, interior))
            numel *= inner + low + high
        value = self.number(arg.dtype)
        out = self.builder.pad(arg, widths, value)
        self.computed(out, max(self.bounds[arg], 4.0), arg, rounds=True)

    def _cat(self) -> None:
        arg = self.value(lambda v: len(v.shape) > 0)
        if arg is None:
            return
        dim = self.integer(0, len(arg.shape) - 1)
        rest = arg.shape[:dim] + arg.shape[dim + 1 :]
        pieces = [arg]
        for _ in range(self.integer(0, 2)):
            piece = self.value(lambda v: v.dtype is arg.dtype and len(v.shape) == len(arg.shape)
                               and v.shape[:dim] + v.shape[dim + 1 :] == rest)
            if self.integer(0, 4) == 0:  # an empty piece
                stops = [0 if d == dim else n for d, n in enumerate(piece.shape)]
                piece = self.builder.slice(piece, [0] * len(stops), stops)
                self.keep(piece, 0.0)
            pieces.insert(self.integer(0, len(pieces)), piece)
        if sum(p.type.numel for p in pieces) <= _LARGEST:
            self.moved(self.builder.cat(pieces, dim), *pieces)

    def _halves(self) -> None:
        """Rotates the halves of a dim, as rotary embeddings do: slices, a neg and a cat."""
        arg = self.value(lambda v: v.dtype.kind != "bool" and v.dtype is not U8 and bool(v.shape) and v.shape[-1] > 1)
        if arg is None:
            return
        half = arg.shape[-1] // 2
        zeros, lead = [0] * (len(arg.shape) - 1), list(arg.shape[:-1])
        low = self.builder.slice(arg, [*zeros, 0], [*lead, half])
        high = self.builder.slice(arg, [*zeros, half], list(arg.shape))
        if self.wraps(arg.dtype, self.bounds[arg], "neg"):
            return
        self.moved(self.builder.cat([self.builder.neg(high), low], -1), arg)

    def _flip(self) -> None:
        arg = self.value()
        self.moved(self.builder.flip(arg, [d for d in range(len(arg.shape)) if self.draw(st.booleans())]), arg)

    def _gather(self) -> None:
        """Elements, or whole slices, at an index that the program has computed, brought into range."""
        arg = self.value(lambda v: 0 not in v.shape and len(v.shape) > 0)
        if arg is None:
            return
        dim = self.integer(0, len(arg.shape) - 1)

        def fits(v: Value) -> bool:
            same_rank = len(v.shape) == len(arg.shape) and all(n <= m for d, (n, m) in enumerate(zip(v.shape, arg.shape)) if d != dim)
            return v.dtype.kind == "int" and v not in self.rounded and (same_rank or len(v.shape) == 1)

        index = self.value(fits)
        if index is None:
            return
        number = self.builder.remainder(index if index.dtype is I64 else self.builder.cast(index, I64), arg.shape[dim])
        whole = len(index.shape) != len(arg.shape) or (len(index.shape) == 1 and self.draw(st.booleans()))
        if whole and arg.type.numel // arg.shape[dim] * index.type.numel > _LARGEST:
            return
        gather = self.builder.index_select if whole else self.builder.gather
        self.moved(gather(arg, number, dim), arg)

    def _scatter(self) -> None:
        """Sums at an index that the program has computed, brought into range; or updates of places that are all different."""
        arg = self.value(lambda v: 0 not in v.shape and len(v.shape) > 0)
        if arg is None:
            return
        dim = self.integer(0, len(arg.shape) - 1)
        updates = self.value(lambda v: v.dtype is arg.dtype and len(v.shape) == len(arg.shape)
                             and all(n <= m for d, (n, m) in enumerate(zip(v.shape, arg.shape)) if d != dim))
        if updates is None:
            return
        size, count = arg.shape[dim], updates.shape[dim]
        bound = self.bounds[arg] + count * self.bounds[updates]
        if arg.dtype.kind == "bool" or not self.fits(bound, arg.dtype) or arg.dtype is F16:
            if count > size:
                return
            index = self.builder.broadcast(self.builder.iota(count, I64), updates.shape, (dim,))
            return self.moved(self.builder.scatter(arg, index, updates, dim), arg, updates)
        index = self.value(lambda v: v.dtype.kind == "int" and v not in self.rounded and v.shape == updates.shape)
        if index is None:
            index = self.builder.broadcast(self.builder.iota(count, I64, step=self.integer(0, 3)), updates.shape, (dim,))
        number = self.builder.remainder(index if index.dtype is I64 else self.builder.cast(index, I64), size)
        if self.wraps(arg.dtype, bound, "add"):
            bound = _RANGE[arg.dtype]
        self.computed(self.builder.scatter(arg, number, updates, dim, accumulate=True), bound, arg, updates)

    def _scan(self) -> None:
        arg = self.value(lambda v: len(v.shape) > 0 and v.dtype.kind in ("int", "float"))
        if arg is None:
            return
        dim = self.integer(0, len(arg.shape) - 1)
        op = self.pick(("cumsum", "cumsum", "cummax", "cummin"))
        bound = self.bounds[arg] * (max(1, arg.shape[dim]) if op == "cumsum" else 1)
        if not self.fits(bound, arg.dtype):
            return
        if op == "cumsum" and self.wraps(arg.dtype, bound, "add"):
            bound = _RANGE[arg.dtype]
        self.computed(self.builder.scan(op, arg, dim), bound, arg, rounds=op == "cumsum")

    def _copy(self) -> None:
        arg = self.value()
        order = None if self.torch_text else self.draw(st.none() | st.permutations(range(len(arg.shape))))
        self.moved(self.builder.copy(arg, order), arg)


_WORDLESS = ("scan", "random")  # steps that `tests/support/torch_text.py` has no words for
_STEPS = (
    "unary", "binary", "binary", "binary", "compare", "where", "cast", "cast", "reduce", "make", "permute", "reshape", "reshape",
    "slice", "slice", "squeeze", "broadcast", "pad", "cat", "cat", "halves", "flip", "gather", "scatter", "scan", "copy")


def _expands(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether a tensor of `shape` broadcasts to `to`."""
    lead = len(to) - len(shape)
    return lead >= 0 and all(n in (1, m) for n, m in zip(shape, to[lead:]))
