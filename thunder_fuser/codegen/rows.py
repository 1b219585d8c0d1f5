"""The schedule of rows as C++: passes over the elements of a row, between them the reductions that the next pass needs.

Called by `kernel`. What does not change along a row is computed once between the passes; resident loads are arrays of
registers, filled before the first pass. Reductions meet by shuffles, in shared memory, across a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

from thunder_fuser.codegen.indexing import IndexPrinter, row_major, unravel
from thunder_fuser.codegen.meeting import meet_across_cluster, meet_across_rows, meet_along_row
from thunder_fuser.codegen.scope import Names, Scope, combine, identity, to_storage, together
from thunder_fuser.codegen.stores import Results
from thunder_fuser.codegen.writer import SourceWriter
from thunder_fuser.ir.dtypes import F32
from thunder_fuser.maps.exprs import Accumulate, Apply, Convert, Expr, Literal, Load, Scalar, axes_of, children
from thunder_fuser.maps.rows import Result
from thunder_fuser.schedule.plan import Loop, RowPlan
from thunder_fuser.schedule.rows import along_row, depths


def emit_rows(w: SourceWriter, names: Names, plan: RowPlan, *, wide_index: bool) -> None:
    """The body of a kernel."""
    _Rows(w, names, plan, "long long" if wide_index else "int").emit()


class _Rows:
    """One kernel: `texts` names what is known of the row at hand."""

    def __init__(self, w: SourceWriter, names: Names, plan: RowPlan, index_type: str) -> None:
        self.w, self.names, self.plan, self.index_type = w, names, plan, index_type
        self.nest, self.depth = plan.nest, depths(plan.nest)
        self.row_lanes = 1 if plan.lane_is_reduced else plan.lanes
        self.kept = {loop: f"i{k}" for k, loop in enumerate(plan.kept)}
        self.reduced = {loop: f"r{k}" for k, loop in enumerate(plan.reduced)}
        self.lane = (plan.reduced if plan.lane_is_reduced else plan.kept)[-1] if plan.lanes > 1 else None
        self.part = {Loop((a,)): "slice" for s in self.nest.stores for a in s.address.axes() if a.key[0] == "s"}
        self.held: dict[Load, str] = {}
        self.row_held: dict[Load, str] = {}
        self.cluster_started = False
        self.memory: list[str] = []
        self.texts: dict[Expr, str] = {}
        self.divisors: dict[Expr, str] = {}
        self.varies, self.narrow = _varies(plan), _narrow(plan)
        self.unit_type = "unsigned" if max(plan.row_units + plan.stride, plan.units + plan.columns * plan.blocks) < 2**31 else "unsigned long long"
        along = set(self.nest.reduced)
        self.of_row = [s for s in self.nest.stores if along.isdisjoint(s.address.axes())]
        self.of_element = [s for s in self.nest.stores if s not in self.of_row]
        self.passes = 1 + max([self.depth[s.expr] for s in self.of_element] + [self.depth[c.expr.body] for c in self.nest.columns]
                              + [self.depth[a] - 1 for a in self._reductions()], default=0)

    def emit(self) -> None:
        plan, w = self.plan, self.w
        self._place_threads()
        if plan.cluster > 1 and self._reductions():
            w.line("tf::cluster_arrive();")  # waited for before a block writes into another, which must have started by then
        if not plan.walkers:
            self._row(f"group * {plan.columns}u", {})
        else:
            self._walk()

    def _walk(self) -> None:
        """Rows one after the other, the loads of the next under way while this one is worked on."""
        plan, w, step = self.plan, self.w, self.plan.walkers * self.plan.columns
        self.held |= self._arrays([ld for ld in plan.resident if axes_of(ld).isdisjoint(self.nest.kept)])
        self._fill(self.held)
        sums = self._declare_columns()
        here = self._arrays([ld for ld in plan.resident if ld not in self.held])
        ahead = self._arrays(list(here)) if plan.stages == 1 else {}
        row = self._row_variables()
        row_ahead = self._row_variables() if plan.stages else {}
        w.line(f"{self.unit_type} first = group * {plan.columns}u;")
        if plan.stages > 1:
            w.line("TF_DYNAMIC_SHARED(stages);")
            w.line("unsigned slot = 0;")
            with w.block(f"for (unsigned k = 0; k < {plan.stages - 1}u; ++k)"):
                self._fetch_row(f"first + k * {step}u", "k")
        if plan.stages:
            with w.block():
                self._place_row("first")
                self._fill(here if plan.stages == 1 else {})
                self._fill_row(row)
        self.held |= here
        self.row_held = row
        if plan.cluster > 1 and self._reductions():
            w.line("tf::cluster_wait();")
            self.cluster_started = True
        with w.block(f"for (; first < {plan.units}u; first += {step}u)"):
            if plan.stages > 1:
                self._fetch_row(f"first + {(plan.stages - 1) * step}u", f"(slot + {plan.stages - 1}u) % {plan.stages}u")
                w.line(f"tf::fetch_wait<{plan.stages - 1}>();")
                self._take(here)
            if ahead or row_ahead:
                with w.block(f"if (first + {step}u < {plan.units}u)"):
                    self._place_row(f"first + {step}u")
                    self._fill(ahead)
                    self._fill_row(row_ahead)
            if not plan.stages:
                with w.block():
                    self._place_row("first")
                    self._fill(here)
                    self._fill_row(row)
            self._row("first", sums)
            if ahead:
                w.line("#pragma unroll")
                with w.block(f"for (int s = 0; s < {plan.steps}; ++s)"):
                    for load in here:
                        w.line(f"{here[load]} = {ahead[load]};")
            for load in row_ahead:
                w.line(f"{row[load]} = {row_ahead[load]};")
            if plan.stages > 1:
                w.line(f"slot = (slot + 1u) % {plan.stages}u;")
            if self.passes < 3:  # the next row's first results must not overtake readers of this row's
                w.line("tf::cluster_sync();" if plan.cluster > 1 else "tf::sync();")
        self._store_columns(sums)

    def _fetch_row(self, first: str, slot: str) -> None:
        """Sends the loads of a row on their way into shared memory, where each thread has places of its own."""
        plan, w = self.plan, self.w

        def body(scope: Scope) -> None:
            for load in plan.staged:
                size, piece = plan.lanes * load.dtype.size, plan.access[load].width * load.dtype.size
                source = f"{self.names.buffers[load.buffer]} + ({scope.printer.text(load.address)})"
                w.line(f"tf::fetch<{size}, {min(piece, 16)}>({self._place(load, slot)}, {source});")

        with w.block(f"if ({first} < {plan.units}u)"):
            self._place_row(first)
            self._steps(body)
        w.line("tf::fetch_end();")

    def _place(self, load: Load, slot: str) -> str:
        plan = self.plan
        places, offset = plan.stages * plan.steps * plan.threads * plan.columns, 0
        for other in plan.staged:
            if other is load:
                break
            offset += places * plan.lanes * other.dtype.size
        size = plan.lanes * load.dtype.size
        return f"stages + {offset}u + ((({slot}) * {plan.steps}u + s) * {plan.threads * plan.columns}u + threadIdx.x) * {size}u"

    def _take(self, arrays: dict[Load, str]) -> None:
        """Reads a row that has arrived."""
        w = self.w
        w.line("#pragma unroll")
        with w.block(f"for (int s = 0; s < {self.plan.steps}; ++s)"):
            for load, element in arrays.items():
                w.line(f"{element} = *(const {self._vector(load.dtype.storage)}*)({self._place(load, 'slot')});")

    def _row_variables(self) -> dict[Load, str]:
        """A variable for each load of which a row has one element."""
        found = {}
        for load in self.nest.loads():
            if along_row(self.nest, load) or load.guards or self.depth[load] or set(axes_of(load)).isdisjoint(self.nest.kept):
                continue
            found[load] = self.names.fresh("of_row")
            self.w.line(f"{load.dtype.storage} {found[load]};")
        return found

    def _fill_row(self, variables: dict[Load, str]) -> None:
        scope = self._row_scope()
        scope.loaded = {}
        scope.load(list(variables))
        for load, name in variables.items():
            self.w.line(f"{name} = {scope.loaded[load]};")

    # threads and rows

    def _place_threads(self) -> None:
        plan, w = self.plan, self.w
        if plan.lane_is_reduced:
            w.line(f"const unsigned column = threadIdx.x / {plan.threads}u, part = threadIdx.x % {plan.threads}u;")
        else:
            w.line(f"const unsigned column = threadIdx.x % {plan.columns}u, part = threadIdx.x / {plan.columns}u;")
        share = plan.cluster * plan.split
        if plan.cluster > 1:
            w.line("const unsigned slice = tf::cluster_rank();")
        elif plan.split > 1:
            w.line(f"const unsigned slice = blockIdx.x % {share}u;")
        w.line(f"const {self.unit_type} group = blockIdx.x{f' / {share}u' if share > 1 else ''};")
        w.line(f"const {self.unit_type} along = part{f' + slice * {plan.threads}u' if share > 1 else ''};")

    @property
    def _all_in_range(self) -> bool:
        plan = self.plan
        return plan.units % plan.columns == 0

    def _place_row(self, first: str) -> None:
        """Declares which row this thread works on."""
        plan, w = self.plan, self.w
        w.line(f"const {self.unit_type} unit_of_thread = {first} + column;")
        if not self._all_in_range:
            w.line(f"const bool in_range = unit_of_thread < {plan.units}u;")
        w.line(f"const {self.unit_type} unit = {'unit_of_thread' if self._all_in_range else 'in_range ? unit_of_thread : 0u'};")
        unravel(w.line, row_major(plan.kept, plan.lanes, lane_last=not plan.lane_is_reduced), self.kept, "unit", self.index_type)

    def _row(self, first: str, sums: dict[Result, str]) -> None:
        """Everything for one row, its resident loads held."""
        self._place_row(first)
        self.texts, self.divisors = {}, {}
        if not self.plan.walkers:
            self.held |= self._arrays(list(self.plan.resident))
            self._fill(self.held)
        for depth in range(self.passes):
            self._pass(depth, sums)
        if self.of_row:
            conditions = ["part == 0"] + ["slice == 0"] * (self.plan.cluster > 1) + ["in_range"] * (not self._all_in_range)
            scope = self._row_scope()
            with self.w.block(f"if ({' && '.join(conditions)})"):
                results = Results(scope, self.of_row)
                results.load()
                results.evaluate()
                results.pack()
                results.write()

    def _arrays(self, loads: Sequence[Load]) -> dict[Load, str]:
        """Declares registers for loads that several passes read: an element, or vector, for each step."""
        found = {}
        for load in [e for e in self.nest.loads() if e in set(loads)]:
            name = self.names.fresh("held")
            one = self.plan.access[load].width == 0  # the same for all lanes
            self.w.line(f"{load.dtype.storage if one else self._vector(load.dtype.storage)} {name}[{self.plan.steps}];")
            found[load] = f"{name}[s]"
        return found

    def _fill(self, arrays: dict[Load, str]) -> None:
        """Issues the loads."""
        def fill(scope: Scope) -> None:
            scope.loaded = {}
            scope.load(list(arrays))
            for load, element in arrays.items():
                self.w.line(f"{element} = {scope.loaded[load]};")

        if arrays:
            self._steps(fill)

    def _vector(self, ctype: str) -> str:
        return f"tf::Vec<{ctype}, {self.plan.lanes}>" if self.plan.lanes > 1 else ctype

    # passes

    def _reductions(self) -> list[Accumulate]:
        along = set(self.nest.reduced)
        return [e for e in self.nest.exprs() if isinstance(e, Accumulate) and along.intersection(e.axes)]

    def _pass(self, depth: int, sums: dict[Result, str]) -> None:
        """One pass over the row: what needs `depth` reductions, one after the other."""
        group = [a for a in self._reductions() if self.depth[a.body] == depth]
        stores = [s for s in self.of_element if self.depth[s.expr] == depth]
        columns = [c for c in self.nest.columns if self.depth[c.expr.body] == depth]
        if not group and not stores and not columns:
            return
        self._know([a.body for a in group] + [s.expr for s in stores] + [c.expr.body for c in columns])
        arrays = {acc: self.names.fresh("acc") for acc in group}
        for acc, name in arrays.items():
            self.w.line(f"{acc.dtype.math} {name}[{self.plan.lanes}];")
            self.w.line(f"for (int l = 0; l < {self.plan.lanes}; ++l) {name}[l] = {identity(acc)};")

        def step(scope: Scope) -> None:
            scope.accumulated |= arrays
            for part in together(group):
                scope.accumulate(part)
            if not stores and not columns:
                return
            with nullcontext() if self._all_in_range else self.w.block("if (in_range)"):
                if columns:
                    scope.accumulated |= {c.expr: f"{sums[c]}[s]" for c in columns}
                    scope.accumulate([c.expr for c in columns])
                if stores:
                    results = Results(scope, stores)
                    results.load()
                    results.evaluate()
                    results.pack()
                    results.write()

        self._steps(step)
        self._meet(arrays)

    def _steps(self, body: Callable[[Scope], None]) -> None:
        """A loop over this thread's units of the row."""
        plan, w, kind = self.plan, self.w, self.unit_type
        if self.plan.resident or self.nest.columns:
            w.line("#pragma unroll")
            with w.block(f"for (int s = 0; s < {plan.steps}; ++s)"):
                w.line(f"const {kind} u = along + s * {plan.stride}u;")
                exact = plan.steps * plan.stride == plan.row_units
                with nullcontext() if exact else w.block(f"if (u < {plan.row_units}u)"):
                    body(self._element_scope())
        else:
            w.line(f"#pragma unroll {min(4, plan.steps)}")
            with w.block(f"for ({kind} u = along; u < {plan.row_units}u; u += {plan.stride}u)"):
                body(self._element_scope())

    def _element_scope(self) -> Scope:
        plan = self.plan
        unravel(self.w.line, row_major(plan.reduced, plan.lanes, lane_last=plan.lane_is_reduced), self.reduced, "u", self.index_type)
        printer = IndexPrinter({**self.kept, **self.reduced}, self.lane)
        scope = Scope(self.w, self.names, printer, plan.lanes, plan.access, self.index_type)
        scope.loaded, scope.known = dict(self.held), dict(self.texts)
        scope.divisors, scope.narrow = dict(self.divisors), self.narrow
        return scope

    def _row_scope(self) -> Scope:
        plan = self.plan
        printer = IndexPrinter({**self.kept, **self.part}, self.lane if self.row_lanes > 1 else None)
        scope = Scope(self.w, self.names, printer, self.row_lanes, plan.access, self.index_type)
        scope.loaded, scope.known = dict(self.row_held), dict(self.texts)
        return scope

    def _know(self, roots: Iterable[Expr]) -> None:
        """Computes what `roots` need of the row and not of its elements."""
        found: dict[Expr, None] = {}
        seen: set[Expr] = set()
        stack = list(roots)
        while stack:
            expr = stack.pop()
            if expr in seen or expr in self.texts:
                continue
            seen.add(expr)
            if self.varies[expr]:
                stack.extend(children(expr))
            elif not isinstance(expr, (Literal, Scalar)):
                found[expr] = None
        scope, w = self._row_scope(), self.w
        wanted = list(found)
        if self.row_lanes == 1:
            if wanted:
                scope.load(wanted)
                scope.reduce(wanted)
                self.texts |= {e: text for e, text in scope.statements(wanted).items() if e in found}
            self._declare_divisors([e for e in seen if isinstance(e, Apply)])
            return
        if not wanted:
            return
        scope.load(wanted)
        scope.reduce(wanted)
        kept = {expr: self.names.fresh("row") for expr in wanted}
        for expr, name in kept.items():
            w.line(f"tf::Vec<{expr.dtype.storage}, {self.row_lanes}> {name};")

        def keep(texts: dict[Expr, str]) -> None:
            for expr, name in kept.items():
                w.line(f"{name}.x[l] = {texts[expr]};")

        scope.for_each_lane(wanted, keep)
        self.texts |= {expr: f"{name}.x[l]" for expr, name in kept.items()}

    def _declare_divisors(self, exprs: Iterable[Apply]) -> None:
        """A reciprocal for each number of the row that its elements are divided by."""
        for expr in dict.fromkeys(e.args[1] for e in exprs if _is_long_division(e)):
            if expr in self.texts and expr not in self.divisors:
                self.divisors[expr] = name = self.names.fresh("divisor")
                self.w.line(f"const tf::Divisor {name} = tf::divisor({self.texts[expr]});")

    # where partial results meet

    def _meet(self, arrays: dict[Accumulate, str]) -> None:
        plan, w = self.plan, self.w
        if not arrays:
            return
        if plan.lane_is_reduced:
            for acc, name in arrays.items():
                if plan.lanes > 1:
                    w.line("#pragma unroll")
                    w.line(f"for (int l = 1; l < {plan.lanes}; ++l) {name}[0] = {combine(acc, f'{name}[0]', f'{name}[l]')};")
            meet_along_row(w, self.names, plan, arrays)
            if plan.cluster > 1:
                if not self.cluster_started:
                    w.line("tf::cluster_wait();")
                    self.cluster_started = True
                meet_across_cluster(w, self.names, plan, arrays)
        else:
            meet_across_rows(w, self.names, plan, arrays, self.memory)
        for acc, name in arrays.items():
            self.texts[acc] = self._result(acc, name)

    def _result(self, acc: Accumulate, name: str) -> str:
        """The reduction's result in its storage type, once for all readers."""
        ctype, total = acc.dtype.storage, self.names.fresh("total")
        if self.row_lanes == 1:
            self.w.line(f"const {ctype} {total} = {to_storage(f'{name}[0]', acc.dtype)};")
            return total
        self.w.line(f"tf::Vec<{ctype}, {self.row_lanes}> {total};")
        self.w.line("#pragma unroll")
        self.w.line(f"for (int l = 0; l < {self.row_lanes}; ++l) {total}.x[l] = {to_storage(f'{name}[l]', acc.dtype)};")
        return f"{total}.x[l]"

    # columns

    def _declare_columns(self) -> dict[Result, str]:
        sums = {c: self.names.fresh("column_sum") for c in self.nest.columns}
        for column, name in sums.items():
            self.w.line(f"{column.expr.dtype.math} {name}[{self.plan.steps}][{self.plan.lanes}];")
            self.w.line("#pragma unroll")
            self.w.line(f"for (int s = 0; s < {self.plan.steps}; ++s) for (int l = 0; l < {self.plan.lanes}; ++l) {name}[s][l] = {identity(column.expr)};")
        return sums

    def _store_columns(self, sums: dict[Result, str]) -> None:
        plan, w = self.plan, self.w

        def store(scope: Scope) -> None:
            for (column, name), buffer in zip(sums.items(), plan.partials):
                w.line("#pragma unroll")
                address = scope.printer.text(column.address, per_lane=plan.lanes > 1)
                walker = f"(group * {plan.columns}u + column) * {column.value.type.numel}ll"
                lane = "l" if plan.lanes > 1 else "0"
                w.line(f"for (int l = 0; l < {plan.lanes}; ++l) {self.names.buffers[buffer]}[{walker} + {address}] = "
                       f"{to_storage(f'{name}[s][{lane}]', buffer.dtype)};")

        self._steps(store)


def _varies(plan: RowPlan) -> dict[Expr, bool]:
    """Whether each expression differs from element to element of a row."""
    along, found = set(plan.nest.reduced), {}
    for expr in plan.nest.exprs():
        if isinstance(expr, Accumulate) and along.intersection(expr.axes):
            found[expr] = False
        else:
            found[expr] = not along.isdisjoint(axes_of(expr)) or any(found[c] for c in children(expr))
    return found


def _is_long_division(expr: Apply) -> bool:
    """Whether the hardware divides by a sequence of instructions that a reciprocal, taken once, would shorten."""
    return expr.op == "div" and expr.operand_dtype is F32 and all(a.dtype is F32 for a in expr.args)


def _narrow(plan: RowPlan) -> frozenset[Expr]:
    """Quotients of which nothing but a 16-bit rounding is used."""
    users: dict[Expr, list[Expr]] = {}
    for expr in plan.nest.exprs():
        for child in children(expr):
            users.setdefault(child, []).append(expr)
    stored = {s.expr for s in plan.nest.stores}
    return frozenset(e for e, by in users.items() if isinstance(e, Apply) and e.op == "div" and e not in stored
                     and all(isinstance(u, Convert) and u.dtype.kind == "float" and u.dtype.size == 2 for u in by))
