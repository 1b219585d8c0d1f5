"""Expressions as C++ statements: loads first, then arithmetic lane by lane. Used by the nest and reduction emitters.

One expression is one statement; names are numbered, so that equal kernels have equal text whatever their values are
called in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from thunder_fuser.codegen.indexing import IndexPrinter
from thunder_fuser.codegen.literals import cuda_literal
from thunder_fuser.codegen.writer import SourceWriter
from thunder_fuser.ir.dtypes import BOOL, DType
from thunder_fuser.ir.nodes import Value
from thunder_fuser.ir.ops import POINTWISE, REDUCTIONS
from thunder_fuser.maps.affine import Affine, Fetched
from thunder_fuser.maps.exprs import (
    Accumulate,
    Apply,
    Convert,
    Draw,
    Expr,
    Literal,
    Load,
    Position,
    Scalar,
    Select,
    fetched_in,
    indices_of,
    topological,
)
from thunder_fuser.schedule.plan import Access, Loop, Vector


@dataclass
class Names:
    """Numbers the identifiers of one kernel. `in_place` are buffers that the kernel reads and writes."""

    buffers: Mapping[Value, str]
    in_place: frozenset[Value] = frozenset()
    counts: dict[str, int] = field(default_factory=dict)

    def fresh(self, prefix: str) -> str:
        self.counts[prefix] = self.counts.get(prefix, -1) + 1
        return f"{prefix}{self.counts[prefix]}"


class Scope:
    """Emits the expressions below some roots. `lanes` values a thread; `lane` is the loop they lie along."""

    def __init__(self, w: SourceWriter, names: Names, printer: IndexPrinter, lanes: int, access: Mapping[Access, Vector],
                 index_type: str, outer: Scope | None = None) -> None:
        self.w, self.names, self.printer, self.lanes = w, names, printer, lanes
        self.access, self.index_type = access, index_type
        self.at = "l" if lanes > 1 else "0"
        self.loaded: dict[Load, str] = dict(outer.loaded) if outer else {}
        self.accumulated: dict[Accumulate, str] = dict(outer.accumulated) if outer else {}
        self.drawn: dict[Draw, str] = dict(outer.drawn) if outer else {}
        self.divisors: dict[Expr, str] = dict(outer.divisors) if outer else {}  # what many numbers are divided by
        self.narrow: frozenset[Expr] = outer.narrow if outer else frozenset()  # quotients that are rounded to 16 bits next
        self.known: dict[Expr, str] = dict(outer.known) if outer else {}  # evaluated by whoever made the scope

    def load(self, roots: list[Expr]) -> None:
        """Issues the loads below `roots`, those inside reductions left out; first those that wait for no index."""
        waiting: list[Expr] = []
        for expr in topological(roots, into_reductions=False, known=self.known):
            if any(fetched_in(indices_of(expr))):
                waiting.append(expr)
            elif isinstance(expr, Load) and expr not in self.loaded:
                self.loaded[expr] = self._load(expr)
        for expr in waiting:
            self.fetch(indices_of(expr))
            if isinstance(expr, Load) and expr not in self.loaded:
                self.loaded[expr] = self._load(expr)
        self.draw(roots)

    def draw(self, roots: list[Expr]) -> None:
        """Makes the random words below `roots` that lanes can share, four lanes of them by one call."""
        for expr in topological(roots, into_reductions=False, known=self.known):
            if isinstance(expr, Draw) and expr not in self.drawn and self._shares_words(expr):
                self.drawn[expr] = self._draw(expr)

    def fetch(self, indices: Iterable[Affine]) -> None:
        """Declares the fetched numbers that `indices` are made of, whose own loads have been issued."""
        for axis in fetched_in(indices):
            if axis not in self.printer.fetched:
                self._fetch(axis)

    def reduce(self, roots: list[Expr]) -> None:
        """Evaluates the reductions below `roots`, in this thread."""
        order = topological(roots, into_reductions=False, known=self.known)
        for group in together([e for e in order if isinstance(e, Accumulate) and e not in self.accumulated]):
            self._serial(group)

    def for_each_lane(self, roots: list[Expr], use: Callable[[dict[Expr, str]], None]) -> None:
        """Evaluates `roots` for every lane and hands their C++ texts to `use`."""
        if self.lanes > 1:
            self.w.line("#pragma unroll")
            with self.w.block(f"for (int l = 0; l < {self.lanes}; ++l)"):
                use(self.statements(roots))
        else:
            with self.w.block():
                use(self.statements(roots))

    # loads

    def _load(self, load: Load) -> str:
        name = self.names.fresh("v")
        vector, ctype, w = self.access[load], load.dtype.storage, self.w
        base = self.names.buffers[load.buffer]
        guarded = self.printer.condition(load.guards) if load.guards else ""
        if self.lanes == 1 or vector.width == 0:
            element = f"{base}[{self.printer.text(load.address)}]"
            w.line(f"const {ctype} {name} = " + (f"{guarded} ? {element} : {_nothing(ctype)};" if guarded else f"{element};"))
        elif vector.width == 1:
            w.line(f"tf::Vec<{ctype}, {self.lanes}> {name};")
            guard = self.printer.condition(load.guards, per_lane=True) if load.guards else ""
            element = f"{base}[{self.printer.text(load.address, per_lane=True)}]"
            w.line("#pragma unroll")
            w.line(f"for (int l = 0; l < {self.lanes}; ++l) {name}.x[l] = " + (f"{guard} ? {element} : {_nothing(ctype)};" if guard else f"{element};"))
        else:
            way = "load" if load.buffer in self.names.in_place else "load_keep"
            call = f"tf::{way}<{widths(self.lanes, vector, load.dtype)}>({base} + ({self.printer.text(load.address)}))"
            w.line(f"const tf::Vec<{ctype}, {self.lanes}> {name} = " + (f"{guarded} ? {call} : tf::Vec<{ctype}, {self.lanes}>{{}};" if guarded else f"{call};"))
        return name

    def _lane_value(self, load: Load) -> str:
        name = self.loaded[load]
        return name if self.lanes == 1 or self.access[load].width == 0 else f"{name}.x[l]"

    def _fetch(self, axis: Fetched) -> None:
        """One number for all lanes or one for each, in range or the kernel stops."""
        self.reduce([axis.value])
        name, w = self.names.fresh("f"), self.w
        per_lane = self.lanes > 1 and self.printer.varies(axis)
        guard = self.printer.condition(axis.guards, per_lane=per_lane) if axis.guards else ""

        def keep(texts: dict[Expr, str]) -> None:
            checked = f"({self.index_type})tf::checked({texts[axis.value]}, {axis.extent}LL)"
            w.line(f"{name}{'[l]' if per_lane else ''} = " + (f"{guard} ? {checked} : 0;" if guard else f"{checked};"))

        if per_lane:
            w.line(f"{self.index_type} {name}[{self.lanes}];")
            self.for_each_lane([axis.value], keep)
        else:
            w.line(f"{self.index_type} {name};")
            with w.block():
                if self.lanes > 1:
                    w.line("const int l = 0;")
                keep(self.statements([axis.value]))
        self.printer.fetched[axis] = f"{name}[l]" if per_lane else name

    # random numbers

    def _shares_words(self, draw: Draw) -> bool:
        """Whether the lanes are whole blocks of neighbours: from a position on that is a multiple of a block."""
        per = words_per_block(draw.dtype)
        return self.lanes > 1 and self.lanes % per == 0 and self.printer.is_lane_run(draw.index, per)

    def _draw(self, draw: Draw) -> str:
        seed, offset = draw.args[:2]
        self.reduce([seed, offset])
        name, w = self.names.fresh("d"), self.w
        w.line(f"tf::Vec<tf::Words, {self.lanes // words_per_block(draw.dtype)}> {name};")
        with w.block():
            w.line("const int l = 0;")
            texts = self.statements([seed, offset])
            first = self.printer.text(draw.index)
            w.line(f"{name} = tf::draw<{draw.dtype.storage}, {self.lanes}>({first}, {self.math(offset, texts)}, {self.math(seed, texts)});")
        return name

    def _number(self, draw: Draw, texts: dict[Expr, str]) -> str:
        """One random number, of the words made for all lanes or of a block of its own."""
        seed, offset, low, high = (self.math(a, texts) for a in draw.args)
        per, ctype = words_per_block(draw.dtype), draw.dtype.storage
        if draw in self.drawn:
            words, k = f"{self.drawn[draw]}.x[l / {per}]", f"l % {per}"
        else:
            place = f"static_cast<long long>({self.printer.text(draw.index, per_lane=self.lanes > 1)})"
            words, k = f"tf::words_at<{ctype}>({place}, {offset}, {seed})", f"(int)({place} % {per})"
        whole = draw.op == "uniform" and [repr(a.value) if isinstance(a, Literal) else "" for a in draw.args[2:]] == ["0.0", "1.0"]
        return f"tf::{draw.op}<{ctype}>({words}, {k}{'' if whole else f', {low}, {high}'})"

    # reductions inside one thread

    def _serial(self, group: list[Accumulate]) -> None:
        """One loop for reductions over the same axes: they tend to read the same memory."""
        w = self.w
        for acc in group:
            name = self.accumulated[acc] = self.names.fresh("acc")
            w.line(f"{acc.dtype.math} {name}[{self.lanes}];")
            w.line("#pragma unroll")
            w.line(f"for (int l = 0; l < {self.lanes}; ++l) {name}[l] = {identity(acc)};")
        loops = {Loop((axis,)): self.names.fresh("r") for axis in group[0].axes}
        inner = Scope(w, self.names, self.printer.nested(loops), self.lanes, self.access, self.index_type, self)
        self._nest(list(loops.items()), lambda: inner.accumulate(group))

    def _nest(self, loops: list[tuple[Loop, str]], body: Callable[[], None]) -> None:
        if not loops:
            with self.w.block():
                body()
            return
        (loop, name), *rest = loops
        self.w.line("#pragma unroll" if loop.extent <= 8 else "#pragma unroll 4")
        with self.w.block(f"for ({self.index_type} {name} = 0; {name} < {loop.extent}; ++{name})"):
            if rest:
                self._nest(rest, body)
            else:
                body()

    def accumulate(self, group: list[Accumulate]) -> None:
        """Adds one step to each of the accumulators of `group`, which an outer scope has declared."""
        bodies = [acc.body for acc in group]
        self.load(bodies)
        self.reduce(bodies)

        def add(texts: dict[Expr, str]) -> None:
            for acc in group:
                element = f"{self.accumulated[acc]}[{self.at}]"
                self.w.line(f"{element} = {combine(acc, element, self.math(acc.body, texts))};")

        self.for_each_lane(bodies, add)

    # arithmetic

    def statements(self, roots: list[Expr]) -> dict[Expr, str]:
        """Declares what `roots` are computed from; the C++ texts of all of it."""
        texts: dict[Expr, str] = dict(self.known)
        for expr in topological(roots, into_reductions=False, known=self.known):
            texts[expr] = self._statement(expr, texts)
        return texts

    def _statement(self, expr: Expr, texts: dict[Expr, str]) -> str:
        """The C++ text that names `expr`'s value, after declaring it if need be."""
        match expr:
            case Load():
                return self._lane_value(expr)
            case Literal(value=value, dtype=dtype):
                return to_storage(cuda_literal(value, dtype), dtype)
            case Scalar(value=value):
                return self.names.buffers[value]
            case Accumulate():
                return self._declare(expr.dtype, to_storage(f"{self.accumulated[expr]}[{self.at}]", expr.dtype))
            case Position(index=index):
                return self._declare(expr.dtype, f"static_cast<long long>({self.printer.text(index, per_lane=self.lanes > 1)})")
            case Convert(arg=arg, dtype=dtype, bits=True):
                return self._declare(dtype, f"tf::bitcast<{dtype.storage}>({texts[arg]})")
            case Convert(arg=arg, dtype=dtype):
                return self._declare(dtype, f"tf::convert<{dtype.storage}>({texts[arg]})")
            case Select(guards=guards, chosen=chosen, other=other, dtype=dtype):
                condition = self.printer.condition(guards, per_lane=self.lanes > 1)
                return self._declare(dtype, f"({condition}) ? {texts[chosen]} : {texts[other]}")
            case Draw():
                return self._declare(expr.dtype, self._number(expr, texts))
            case Apply():
                return self._declare(expr.dtype, self._apply(expr, texts))
        raise AssertionError(f"'{expr!r}' is no expression")

    def _declare(self, dtype: DType, text: str) -> str:
        name = self.names.fresh("t")
        self.w.line(f"const {dtype.storage} {name} = {text};")
        return name

    def _apply(self, expr: Apply, texts: dict[Expr, str]) -> str:
        if expr.op == "div" and expr.args[1] in self.divisors:
            how = "near" if expr in self.narrow else "rounded"
            return f"tf::{how}({self.math(expr.args[0], texts)}, {self.divisors[expr.args[1]]})"
        row = POINTWISE[expr.op]
        args = []
        for i, arg in enumerate(expr.args):
            wanted = BOOL if expr.op == "where" and i == 0 else expr.operand_dtype
            text = self.math(arg, texts)
            # A number handed in has a dtype of its own: it takes the operands', as a literal does.
            args.append(text if arg.dtype.math == wanted.math else f"tf::convert<{wanted.math}>({text})")
        text = row.expression(expr.operand_dtype).format(*(f"({a})" if a.startswith("-") else a for a in args))
        if row.out != "bool" and expr.dtype.kind == "int" and expr.dtype.size < 4:
            return f"static_cast<{expr.dtype.storage}>({text})"
        return text if row.out == "bool" else to_storage(text, expr.dtype)

    def math(self, expr: Expr, texts: dict[Expr, str]) -> str:
        """`expr`'s value in its math type."""
        if isinstance(expr, Literal):
            return cuda_literal(expr.value, expr.dtype)
        return texts[expr] if expr.dtype.storage == expr.dtype.math else f"tf::to_float({texts[expr]})"


def words_per_block(dtype: DType) -> int:
    """How many elements take their random words from one block of four."""
    return 4 if dtype.size <= 4 else 2


def widths(lanes: int, vector: Vector, dtype: DType) -> str:
    """Template arguments of a vector access: the lanes, and the width where it is less than 16 bytes and than all."""
    whole = vector.width * dtype.size >= min(16, lanes * dtype.size)
    return f"{lanes}" if whole else f"{lanes}, {vector.width}"


def to_storage(text: str, dtype: DType) -> str:
    return text if dtype.storage == dtype.math else f"tf::convert<{dtype.storage}>({text})"


def _nothing(ctype: str) -> str:
    """What a load that its guard keeps from memory gives; names of two words cannot be written `T{}`."""
    return f"({ctype})0" if " " in ctype else f"{ctype}{{}}"


def identity(acc: Accumulate) -> str:
    return REDUCTIONS[acc.op].identity.format(T=acc.dtype.math)


def combine(acc: Accumulate, left: str, right: str) -> str:
    return REDUCTIONS[acc.op].combination(acc.dtype).format(left, right, T=acc.dtype.math)


def together(reductions: list[Accumulate]) -> list[list[Accumulate]]:
    """Neighbours over the same axes, of which none needs another's result, as groups; in an order that can be run."""
    groups: list[list[Accumulate]] = []
    for acc in reductions:
        inside = {e for e in topological([acc.body]) if isinstance(e, Accumulate)}
        if groups and groups[-1][0].axes == acc.axes and not inside.intersection(groups[-1]):
            groups[-1].append(acc)
        else:
            groups.append([acc])
    return groups
