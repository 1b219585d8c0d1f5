"""What happens while a definition is written: `Recorder`, the half of `FusionDefinition` that takes statements down.

Inputs, ops and outputs become records, in order, over symbols of known dtype and rank; nothing is computed. Claims that
cannot be right are refused here, what depends on sizes when a call brings them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from thunder_fuser.errors import IRError
from thunder_fuser.frontend.datatype import DataType, from_torch, of_number
from thunder_fuser.frontend.inputs import Input, ScalarInput, TensorInput, VectorInput
from thunder_fuser.frontend.namespace import Ops
from thunder_fuser.frontend.records import Record
from thunder_fuser.frontend.rows import OpRow, Result
from thunder_fuser.frontend.values import Number, Scalar, Symbol, TensorView, Vector, symbols_in

_ids = itertools.count()


class Recorder:
    """The statements of one definition."""

    def __init__(self, id: int | None) -> None:
        """`id` numbers the printed function: the next free number if None."""
        self.id = next(_ids) if id is None else id
        self.ops = Ops(self)
        self._records: list[Record] = []
        self._inputs: list[Input] = []
        self._outputs: list[TensorView] = []
        self._updates: list[tuple[TensorView, TensorView]] = []
        self._count = 0
        self._made_by: dict[int, Record] = {}
        self._static: set[int] = set()
        self._open = False
        self._finished = False

    # defining

    def _begin(self) -> None:
        if self._finished:
            raise IRError("This definition is complete: start another FusionDefinition.")
        self._open = True

    def _end(self, finished: bool) -> None:
        self._open = False
        self._finished = finished

    def define_tensor(
        self, shape: Sequence[int] | int | None = None, contiguity: bool | Sequence[bool | None] | None = None,
        dtype: DataType = DataType.Float, *rest: Any, is_cpu: bool = False, stride_order: Sequence[int] | None = None,
        sizes: Sequence[int] | None = None, strides: Sequence[int] | None = None, static_sizes: bool = False,
    ) -> TensorView:
        """A tensor input, in any of nvFuser's forms: (shape, contiguity, dtype, is_cpu, stride_order), where `shape` holds a
        size or -1 (any) per dim, or is the number of dims; or (sizes, strides, dtype, static_sizes, is_cpu) of a sample
        tensor, whose sizes other than 1 are open unless `static_sizes`. `contiguity` and `stride_order` are kept for the
        printed text only: the strides that a call brings decide. Raises `IRError` on claims of the wrong length."""
        of_sample = isinstance(contiguity, (list, tuple)) and bool(contiguity) and all(type(c) is int for c in contiguity)
        if of_sample:
            strides, contiguity = contiguity, None
        if len(rest) > 2:
            raise IRError(f"'define_tensor' takes at most 5 arguments by position, got {3 + len(rest)}.")
        if of_sample or sizes is not None:
            static_sizes, is_cpu = (*rest, *(static_sizes, is_cpu)[len(rest):])
        else:
            is_cpu, stride_order = (*rest, *(is_cpu, stride_order)[len(rest):])
        if (shape is None) == (sizes is None):
            raise IRError("'define_tensor' takes either shape or sizes.")
        shape = [-1] * shape if isinstance(shape, int) else shape
        extents = [int(n) for n in (sizes if shape is None else shape)]
        if (sizes is not None or strides is not None) and not static_sizes:
            extents = [n if n == 1 else -1 for n in extents]
        if any(n < -1 for n in extents):
            raise IRError(f"'define_tensor' takes sizes of at least 0, or -1 for any, got {extents}.")
        for name, claim in (("contiguity", contiguity), ("stride_order", stride_order), ("strides", strides)):
            if isinstance(claim, (list, tuple)) and len(claim) != len(extents):
                raise IRError(f"'define_tensor' takes {len(extents)} entries as {name}, got {len(claim)}.")
        if not isinstance(dtype, DataType):
            raise IRError(f"'define_tensor' takes a DataType as dtype, got '{dtype!r}'.")
        dtype.torch  # noqa: B018  raises for a dtype that the engine has no row for
        symbol = TensorView(self, self._next(), dtype, len(extents))
        arguments = {"shape": extents, "contiguity": contiguity, "dtype": dtype, "is_cpu": bool(is_cpu),
                     "stride_order": stride_order}
        self._add(Record("define_tensor", arguments, symbol))
        self._inputs.append(TensorInput(symbol, tuple(extents), bool(is_cpu)))
        return symbol

    def from_pytorch(self, tensor: torch.Tensor, static_sizes: bool = False) -> TensorView:
        """A tensor input like `tensor`: its dtype and rank, and its sizes where they are 1 or `static_sizes`."""
        sizes = [n if static_sizes or n == 1 else -1 for n in tensor.shape]
        order = sorted(range(tensor.ndim), key=lambda d: (tensor.stride(d), -d))
        contiguity: list[bool | None] = [None] * tensor.ndim
        expected = 1
        for d in order:
            if tensor.shape[d] != 1 and tensor.stride(d) != 0:
                contiguity[d] = tensor.stride(d) == expected
                expected = tensor.stride(d) * tensor.shape[d]
        stride_order = [order.index(d) for d in range(tensor.ndim)]
        return self.define_tensor(sizes, contiguity, from_torch(tensor.dtype), tensor.is_cpu and tensor.ndim == 0, stride_order)

    def define_scalar(self, value: Number | DataType | None = None, dtype: DataType | None = None) -> Scalar:
        """A constant, or with value None a number given at `execute` (Double unless `dtype` says else). A DataType alone
        is an input of it."""
        if isinstance(value, DataType):
            value, dtype = None, value
        dtype = dtype or (DataType.Double if value is None else of_number(value))
        if value is not None:
            value = _constant(value, dtype)
        dtype.ir  # noqa: B018  raises for a dtype that the engine has no row for
        symbol = Scalar(self, self._next(), dtype, value)
        self._add(Record("define_scalar", {"value": value, "dtype": dtype}, symbol))
        if value is None:
            self._inputs.append(ScalarInput(symbol))
        return symbol

    def define_vector(self, values: Sequence[Scalar | int] | int, dtype: DataType = DataType.Int) -> Vector:
        """A list of sizes; from a number n it is an input: a list of n numbers given at `execute`."""
        if isinstance(values, int):
            vector = Vector(self, self._next(), values, dtype)
            scalars = tuple(Scalar(self, self._next(), dtype) for _ in range(values))
            vector = Vector(self, vector.index, values, dtype, scalars)
            self._inputs.append(VectorInput(vector, scalars))
        else:
            if not isinstance(values, (list, tuple)) or not all(isinstance(v, (Scalar, int)) for v in values):
                raise IRError(f"'define_vector' takes integers and Scalars, got '{values!r}'.")
            self._own("define_vector", values)
            vector = Vector(self, self._next(), len(values), dtype, tuple(values))
        self._add(Record("define_vector", {"values": values, "dtype": dtype}, vector))
        return vector

    def add_output(
        self, output: TensorView, alias_input: TensorView | None = None, *, stride_order: Sequence[int] | None = None,
    ) -> None:
        """Returns `output` from the fusion, in memory of `stride_order` if given. With `alias_input`, a tensor input, the value
        is written into that input at the end of the call instead, and not returned."""
        if not isinstance(output, TensorView):
            raise IRError(f"'add_output' takes a TensorView, got '{output!r}'.")
        self._own("add_output", [output, alias_input])
        if stride_order is not None:
            output = self.ops.stride_order(output, stride_order)
        self._add(Record("add_output", {"output": output, "alias_input": alias_input}))
        if alias_input is None:
            self._outputs.append(output)
            return
        declared = next((d for d in self._inputs if d.symbol is alias_input), None)
        if not isinstance(declared, TensorInput):
            raise IRError(f"'add_output' takes a tensor input as alias_input, got '{alias_input!r}'.")
        if (alias_input.dtype, alias_input.ndim) != (output.dtype, output.ndim):
            raise IRError(f"'add_output' takes an alias_input of the output's dtype and rank, {output.dtype} and {output.ndim}, "
                          f"got {alias_input.dtype} and {alias_input.ndim}.")
        self._updates.append((alias_input, output))

    # inside

    def _next(self) -> int:
        self._require_open()
        self._count += 1
        return self._count - 1

    def _require_open(self) -> None:
        if not self._open:
            raise IRError("This definition is complete." if self._finished else
                          "Statements of a definition belong inside 'with FusionDefinition() as fd:'.")

    def _add(self, record: Record) -> None:
        self._records.append(record)
        for symbol in record.outs:
            self._made_by[symbol.index] = record

    def _own(self, op: str, argument: Any) -> None:
        for symbol in symbols_in(argument):
            if symbol.fd is not self:
                raise IRError(f"'{op}' was given {symbol!r} of another FusionDefinition.")

    def _call(self, row: OpRow, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Symbol | tuple[Symbol, ...]:
        """Records one op; called by `ops`."""
        self._require_open()
        try:
            bound = row.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise IRError(f"'{row.name}': {error}.") from None
        bound.apply_defaults()
        self._own(row.name, list(bound.arguments.values()))
        result = row.infer(**bound.arguments)
        out = tuple(map(self._symbol, result)) if isinstance(result, tuple) else self._symbol(result)
        self._add(Record(row.name, dict(bound.arguments), out, row, result))
        for parameter in row.static:
            self._mark_static(bound.arguments[parameter])
        return out

    def _symbol(self, result: Result) -> Symbol:
        index = self._next()
        if result.kind == "tensor":
            return TensorView(self, index, result.dtype, result.extent)
        if result.kind == "scalar":
            return Scalar(self, index, result.dtype)
        return Vector(self, index, result.extent, result.dtype)

    def _mark_static(self, argument: Any) -> None:
        """Marks the scalar inputs that `argument` is computed from: calls are specialised for their values."""
        todo = list(symbols_in(argument))
        while todo:
            symbol = todo.pop()
            if isinstance(symbol, TensorView) or symbol.index in self._static:
                continue
            self._static.add(symbol.index)
            todo += symbols_in(getattr(symbol, "elements", None))
            made_by = self._made_by.get(symbol.index)
            todo += symbols_in(list(made_by.arguments.values())) if made_by else ()


def _constant(value: Any, dtype: DataType) -> Number:
    if not isinstance(value, (bool, int, float, complex)):
        raise IRError(f"'define_scalar' takes a number or None, got '{value!r}'.")
    if isinstance(value, complex) and dtype.kind != "complex":
        raise IRError(f"'define_scalar' cannot hold {value!r} in dtype '{dtype}'.")
    if dtype.kind == "int" and float(value) != int(value):
        raise IRError(f"'define_scalar' cannot hold {value!r} in dtype '{dtype}'.")
    return {"bool": bool, "int": int, "complex": complex}.get(dtype.kind, float)(value)
