"""The fusion IR on one screen: values, a dozen node classes, and `Fusion`.

Typed SSA over static shapes. Nodes are immutable; passes build new ones. All pointwise ops are one class whose
meaning is a row of `ops.POINTWISE`; ops that move elements are a class each, so that their fields have names.
"""

from __future__ import annotations

import keyword
import math
from dataclasses import dataclass
from typing import TypeAlias

from thunder_fuser.ir.dtypes import DType, Number


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor of `dtype` with static `shape`; rank 0 is a tensor of one element."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A Python number handed in at call time; `dtype` is b8, i64, f64 or c128."""

    dtype: DType


Type: TypeAlias = TensorType | ScalarType


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """The result of one node, or an input. Compared by identity; `name` is unique within a fusion."""

    name: str
    type: Type

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape if isinstance(self.type, TensorType) else ()

    def __repr__(self) -> str:
        return self.name


def is_legal_name(name: str) -> bool:
    """Whether a value may have this name: one that its text form can't mistake for a number."""
    return name.replace(".", "_").isidentifier() and not keyword.iskeyword(name) and name not in ("inf", "nan", "infj", "nanj")


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A literal operand. Equal only to the same bits: -0.0 is not 0.0, a NaN equals itself, True is not 1."""

    value: Number

    def key(self) -> tuple[str, str]:
        return type(self.value).__name__, repr(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def __repr__(self) -> str:
        return repr(self.value)


Operand: TypeAlias = Value | Constant


@dataclass(frozen=True, slots=True)
class Pointwise:
    """out[i] = op(args[0][i], ...). Tensor args share one shape and, `where`'s condition aside, one dtype."""

    out: Value
    op: str
    args: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """out[i] = arg[i] converted to out's dtype. Fresh storage in torch's terms, also when dtypes agree."""

    out: Value
    arg: Operand


@dataclass(frozen=True, slots=True)
class Bitcast:
    """out[i] has the bits of arg[i]; dtypes of one size, and not to bool, which has only two patterns. Torch has a view for
    it, which is of another dtype than its memory: here it is fresh storage."""

    out: Value
    arg: Value


@dataclass(frozen=True, slots=True)
class Full:
    """out[i] = value."""

    out: Value
    value: Operand


@dataclass(frozen=True, slots=True)
class Iota:
    """out[i] = start + i * step, rank 1."""

    out: Value
    start: Operand
    step: Operand


@dataclass(frozen=True, slots=True)
class Random:
    """Random numbers: `op` is "uniform" in [low, high) or "normal" with mean `low` and standard deviation `high`.

    out[i] is a function of seed, offset and i's row-major position alone (`ir/random.py` says which), so that it is the
    same wherever it is computed, and computed again. Seed and offset are 64-bit integers: numbers, or i64 tensors of one
    element."""

    out: Value
    op: str
    seed: Operand
    offset: Operand
    low: Operand
    high: Operand


@dataclass(frozen=True, slots=True)
class Reshape:
    """Row-major reinterpretation to out's shape. A view where torch's `view` would accept it, else a copy."""

    out: Value
    arg: Value


@dataclass(frozen=True, slots=True)
class Permute:
    """out dim d is arg dim dims[d]. A view."""

    out: Value
    arg: Value
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """out[i] = arg[start + i * step], per dim; 0 <= start <= stop <= size, step >= 1. A view."""

    out: Value
    arg: Value
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Squeeze:
    """arg without its size-1 dims `dims`. A view."""

    out: Value
    arg: Value
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Broadcast:
    """arg dim k becomes out dim dims[k] (strictly increasing); size-1 and new dims repeat. A view of stride 0."""

    out: Value
    arg: Value
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pad:
    """arg with `value` around and between its elements; widths (low, high, interior) per dim.

    low and high may be negative (they crop); interior >= 0 puts that many values between neighbours. A copy."""

    out: Value
    arg: Value
    value: Operand
    widths: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Cat:
    """args one after the other along `dim`; pieces may be empty along it. Always a copy."""

    out: Value
    args: tuple[Value, ...]
    dim: int


@dataclass(frozen=True, slots=True)
class Flip:
    """arg with `dims` reversed. A copy."""

    out: Value
    arg: Value
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gather:
    """out[i] = arg[i with i[dim] replaced by index[i]]; index has out's shape and an integer dtype.

    arg may be longer than out along other dims. Each index must be within 0 <= index < arg's size along `dim`: one that
    is read and is not stops the kernel with an error."""

    out: Value
    arg: Value
    index: Value
    dim: int


@dataclass(frozen=True, slots=True)
class Copy:
    """arg in fresh storage (`clone`). `order`, if given, lists dims from outermost to innermost in memory."""

    out: Value
    arg: Value
    order: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Reduce:
    """out = arg reduced over `dims` (sorted, removed) by a row of `ops.REDUCTIONS`, accumulated in out's math type."""

    out: Value
    op: str
    arg: Value
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """out[i] = arg reduced over the elements up to i along `dim`, by a row of `ops.SCANS`, in out's math type; row-major."""

    out: Value
    op: str
    arg: Value
    dim: int


@dataclass(frozen=True, slots=True)
class Scatter:
    """out = arg, then out[j with j[dims[k]] replaced by indices[k][j]] = updates[j] for every j, or += with `accumulate`.

    `indices` and `updates` have one shape, no longer than arg's but for `dims`. Each index must be within arg's size, or the
    kernel stops with an error. Of several updates of one place any is kept; sums are added up in any order. Fresh memory:
    row-major, or with arg's strides if `preserve`."""

    out: Value
    arg: Value
    updates: Value
    indices: tuple[Value, ...]
    dims: tuple[int, ...]
    accumulate: bool = False
    preserve: bool = False


Node: TypeAlias = (
    Pointwise | Cast | Bitcast | Full | Iota | Random | Reshape | Permute | Slice | Squeeze | Broadcast | Pad | Cat | Flip | Gather | Copy | Reduce
    | Scan | Scatter
)

# Nodes that torch itself would answer with a view of their argument (a reshape only where strides allow it).
VIEW_NODES = (Reshape, Permute, Slice, Squeeze, Broadcast)
# Nodes that only say where an element comes from: the engine turns them into index maps, never into work.
META_NODES = (*VIEW_NODES, Pad, Cat, Flip, Gather, Copy)


def operands(node: Node) -> tuple[Operand, ...]:
    """Everything a node reads, in printed order."""
    match node:
        case Pointwise(args=args) | Cat(args=args):
            return args
        case Full(value=value):
            return (value,)
        case Iota(start=start, step=step):
            return (start, step)
        case Random(seed=seed, offset=offset, low=low, high=high):
            return (seed, offset, low, high)
        case Pad(arg=arg, value=value):
            return (arg, value)
        case Gather(arg=arg, index=index):
            return (arg, index)
        case Scatter(arg=arg, updates=updates, indices=indices):
            return (arg, updates, *indices)
        case _:
            return (node.arg,)


def operand_values(node: Node) -> tuple[Value, ...]:
    """The operands that are values, constants left out."""
    return tuple(a for a in operands(node) if isinstance(a, Value))


@dataclass(frozen=True, slots=True)
class Update:
    """After everything is computed, `value` is written into the memory of `target`: an input, or a view of one."""

    target: Value
    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class Fusion:
    """A program: `nodes` in an order where operands come first. `str(fusion)` is its text form.

    An output may be an input, and a value may be returned twice: each is then its own tensor, made by a `Copy` node
    that the builder adds unless the caller asked for one tensor.

    Nodes see inputs as they were before the call; `updates` are made at its end, in order. An output that is an updated
    input, or lies in its memory, shows what was written. The program relies on an input in `apart` not to share memory with
    the targets of the first so many updates (after which it reads or writes it), and on `views` to lie in the memory of what
    they are made of: a call for which that does not hold is refused."""

    name: str
    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    updates: tuple[Update, ...] = ()
    apart: tuple[tuple[Value, int], ...] = ()
    views: tuple[Value, ...] = ()

    def __str__(self) -> str:
        from thunder_fuser.ir.printer import print_fusion  # the printer reads node classes: a cycle at import

        return print_fusion(self)

    def roots(self) -> tuple[Value, ...]:
        """The values that must exist for the fusion to do what it does, each as often as it is asked for."""
        return (*self.outputs, *(v for u in self.updates for v in (u.value, u.target)), *self.views)

    def updated_inputs(self) -> tuple[int, ...]:
        """Positions of the inputs whose memory the updates write into."""
        made, found = self.producers() if self.updates else {}, set()
        for update in self.updates:
            value = update.target
            while value in made:
                value = made[value].arg
            found.add(self.inputs.index(value))
        return tuple(sorted(found))

    def producers(self) -> dict[Value, Node]:
        """Value -> the node that makes it (inputs have none)."""
        return {node.out: node for node in self.nodes}
