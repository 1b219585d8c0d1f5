"""`FusionDefinition`: a fusion written in Python with nvFuser's spelling, and run.

    from thunder_fuser import DataType, FusionDefinition

    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
        fd.add_output(fd.ops.mul(fd.ops.exp(x), 2.0))
    (y,) = fd.execute([torch.randn(3, 4)])

A definition is recorded with open sizes and specialised to a static fusion for the shapes of each call.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder_fuser.compiler import compile_fusion
from thunder_fuser.errors import InputError, IRError, UnsupportedError
from thunder_fuser.executable import Executable
from thunder_fuser.frontend.datatype import DataType, from_torch, of_number
from thunder_fuser.frontend.inputs import Input, ScalarInput, TensorInput, VectorInput, call_device, flatten
from thunder_fuser.frontend.namespace import Ops
from thunder_fuser.frontend.records import Record
from thunder_fuser.frontend.rows import OpRow, Result
from thunder_fuser.frontend.specialize import Bound, Slot, key_of, slots, specialize
from thunder_fuser.frontend.translation import function_text, repro_script
from thunder_fuser.frontend.values import Number, Scalar, Symbol, TensorView, Vector, symbols_in
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.nodes import Fusion
from thunder_fuser.report import Report

MAX_SPECIALIZATIONS = 64
_ids = itertools.count()


@dataclass(frozen=True, slots=True)
class _Specialization:
    bound: Bound
    executable: Executable
    device: torch.device


class FusionDefinition:
    """A recorded fusion. Use it in a `with` block, or subclass it with a method `definition(self)`."""

    def __init__(self, id: int | None = None, max_length: int = 0) -> None:
        """`id` numbers the printed function (the next free number if None); `max_length`, which nvFuser took as a
        limit on statements, is accepted and not needed."""
        self.id = next(_ids) if id is None else id
        self.ops = Ops(self)
        self._records: list[Record] = []
        self._inputs: list[Input] = []
        self._outputs: list[TensorView] = []
        self._slots: tuple[Slot, ...] = ()
        self._count = 0
        self._made_by: dict[int, Record] = {}
        self._static: set[int] = set()
        self._open = False
        self._finished = False
        self._specializations: OrderedDict[Any, _Specialization] = OrderedDict()
        self._lock = threading.Lock()
        self._last: _Specialization | None = None
        self._last_inputs: list[Any] | None = None

    # defining

    def __enter__(self) -> FusionDefinition:
        if self._finished:
            raise IRError("This definition is complete: start another FusionDefinition.")
        self._open = True
        return self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        self._open = False
        self._finished = kind is None
        self._slots = slots(self._inputs)

    def definition(self) -> None:
        """Overridden by subclasses: the statements of the definition, on `self`."""
        raise IRError("This FusionDefinition is empty: define it in a 'with' block or override 'definition'.")

    def define_tensor(
        self, shape: Sequence[int] | None = None, contiguity: bool | Sequence[bool | None] | None = None,
        dtype: DataType = DataType.Float, is_cpu: bool = False, stride_order: Sequence[int] | None = None, *,
        sizes: Sequence[int] | None = None, strides: Sequence[int] | None = None, static_sizes: bool = False,
    ) -> TensorView:
        """A tensor input. `shape` holds a size or -1 (any) per dim. `sizes` with `strides` describe one sample tensor:
        its sizes other than 1 are open unless `static_sizes`. `contiguity` and `stride_order` are kept for the printed
        text only: the strides that a call brings decide. Raises `IRError` on claims of the wrong length."""
        if isinstance(contiguity, (list, tuple)) and contiguity and all(type(c) is int for c in contiguity):
            strides, contiguity = contiguity, None  # nvFuser's other overload: define_tensor(sizes, strides, ...)
        if (shape is None) == (sizes is None):
            raise IRError("'define_tensor' takes either shape or sizes.")
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
        dtype.ir  # noqa: B018  raises for a dtype that the engine has no row for
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

    def define_scalar(self, value: Number | None = None, dtype: DataType | None = None) -> Scalar:
        """A constant, or with value None a number given at `execute` (Double unless `dtype` says else)."""
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
        """Returns `output` from the fusion, in memory of `stride_order` if given."""
        if alias_input is not None:
            raise UnsupportedError("'add_output' with alias_input is not supported: return the result and copy it yourself.")
        if not isinstance(output, TensorView):
            raise IRError(f"'add_output' takes a TensorView, got '{output!r}'.")
        self._own("add_output", output)
        if stride_order is not None:
            output = self.ops.stride_order(output, stride_order)
        self._add(Record("add_output", {"output": output}))
        self._outputs.append(output)

    # running

    def execute(
        self, inputs: Sequence[Any], *, device: torch.device | str | int | None = None, save_repro_inputs: bool = False,
        _enable_options: Sequence[str] = (), _disable_options: Sequence[str] = (),
    ) -> list[torch.Tensor]:
        """Runs the fusion on `inputs` (tensors, numbers for scalars, lists for vectors, in the order of definition) and
        returns its outputs. `device` places a fusion without tensor inputs. `save_repro_inputs` keeps what
        `last_repro_script` needs. Raises `InputError` if an input does not fit its declaration."""
        if _enable_options or _disable_options:
            warnings.warn(f"nvFuser options {[*_enable_options, *_disable_options]} have no effect here.", stacklevel=2)
        specialization, flat = self._specialization(inputs, device)
        if save_repro_inputs:
            self._last_inputs = list(inputs)
        self._last = specialization
        return _run(specialization, flat)

    def validate(self, inputs: Sequence[Any], reference_outputs: Sequence[torch.Tensor] | None = None) -> None:
        """Runs the fusion and compares with `reference_outputs`, or with the fusion evaluated in float64. Raises
        AssertionError where they differ by more than the outputs' precision explains."""
        outputs = self.execute(inputs)
        if reference_outputs is None:
            specialization, flat = self._specialization(inputs, None)
            reference_outputs = evaluate(specialization.bound.fusion, *specialization.bound.arguments(flat), dtype=torch.float64)
        if len(outputs) != len(reference_outputs):
            raise AssertionError(f"The fusion has {len(outputs)} outputs, got {len(reference_outputs)} references.")
        for i, (out, reference) in enumerate(zip(outputs, reference_outputs)):
            expected = torch.as_tensor(reference).to(device=out.device, dtype=out.dtype)
            torch.testing.assert_close(out, expected, equal_nan=True, msg=lambda m, i=i: f"Output {i}: {m}")

    # looking

    def __repr__(self) -> str:
        return function_text(self._function_name(), self._records)

    @property
    def fusion(self) -> Fusion:
        """The IR of the last execution; its `str` is the program with the sizes of that call."""
        return self._executed().bound.fusion

    def report(self) -> Report:
        """What the last execution ran: kernels, vector widths, bytes, buffers and views."""
        return self._executed().executable.report()

    def last_cuda_code(self) -> str:
        """The CUDA C++ of the last execution's kernels."""
        return "\n".join(kernel.source for kernel in self.report().kernels)

    def repro_script_for(self, inputs: Sequence[Any]) -> str:
        """A script that runs this definition on random inputs of the same shapes, strides and dtypes."""
        return repro_script(self._function_name(), self._records, inputs)

    def last_repro_script(self) -> str:
        """`repro_script_for` the last `execute` that was given `save_repro_inputs=True`."""
        if self._last_inputs is None:
            raise InputError("There are no saved inputs: call 'execute' with save_repro_inputs=True first.")
        return self.repro_script_for(self._last_inputs)

    # inside

    def _function_name(self) -> str:
        return f"nvfuser_fusion_id{self.id}"

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

    def _specialization(self, inputs: Sequence[Any], device: Any) -> tuple[_Specialization, list[Any]]:
        if not self._finished:
            self._define_by_method()
        flat = flatten(self._inputs, inputs)
        place = call_device(self._inputs, inputs, device)
        key = key_of(self._slots, self._static, flat, place)
        with self._lock:
            found = self._specializations.get(key)
            if found is not None:
                self._specializations.move_to_end(key)
                return found, flat
        bound = specialize(self._function_name(), self._records, self._outputs, self._slots, self._static, flat, place)
        backend = "host" if place.type == "cpu" else "cuda"
        found = _Specialization(bound, compile_fusion(bound.fusion, backend, check_inputs=False), place)
        with self._lock:
            self._specializations[key] = found
            while len(self._specializations) > MAX_SPECIALIZATIONS:
                self._specializations.popitem(last=False)
        return found, flat

    def _define_by_method(self) -> None:
        if self._open:
            raise IRError("'execute' belongs after the 'with' block that defines the fusion.")
        with self:
            self.definition()

    def _executed(self) -> _Specialization:
        if self._last is None:
            raise InputError("This definition has not run yet: call 'execute' first.")
        return self._last


def _constant(value: Any, dtype: DataType) -> Number:
    if not isinstance(value, (bool, int, float)):
        raise IRError(f"'define_scalar' takes a number or None, got '{value!r}'.")
    if dtype.kind == "int" and float(value) != int(value):
        raise IRError(f"'define_scalar' cannot hold {value!r} in dtype '{dtype}'.")
    return {"bool": bool, "int": int, "float": float}[dtype.kind](value)


def _run(specialization: _Specialization, flat: Sequence[Any]) -> list[torch.Tensor]:
    device = specialization.device
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        return specialization.executable(*specialization.bound.arguments(flat))
