"""`FusionDefinition`: a fusion written in Python with nvFuser's spelling, and run.

    from thunder_fuser import DataType, FusionDefinition

    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
        fd.add_output(fd.ops.mul(fd.ops.exp(x), 2.0))
    (y,) = fd.execute([torch.randn(3, 4)])

A definition is recorded with open sizes and specialised for the shapes of each call, to fusions and the torch calls between
them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from thunder_fuser.errors import InputError, IRError, UnsupportedError
from thunder_fuser.frontend.calls import MISFITS, Calls, Specialization
from thunder_fuser.frontend.inspection import ExecutorCache, FusionView, Schedules
from thunder_fuser.frontend.recording import Recorder
from thunder_fuser.frontend.records import Statements
from thunder_fuser.frontend.report import DefinitionReport
from thunder_fuser.frontend.translation import function_text, repro_script
from thunder_fuser.frontend.validation import assert_outputs, assert_updates, references


class FusionDefinition(Recorder):
    """A recorded fusion. Use it in a `with` block, or subclass it with a method `definition(self)`."""

    def __init__(self, id: int | None = None, max_length: int = 0) -> None:
        """`id` numbers the printed function (the next free number if None); `max_length`, which nvFuser took as a
        limit on statements, is accepted and not needed."""
        super().__init__(id)
        self.sched = Schedules()
        self._calls: Calls | None = None
        self._last: Specialization | None = None
        self._last_inputs: list[Any] | None = None

    def __enter__(self) -> FusionDefinition:
        self._begin()
        return self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        self._end(finished=kind is None)

    def definition(self) -> None:
        """Overridden by subclasses: the statements of the definition, on `self`."""
        raise IRError("This FusionDefinition is empty: define it in a 'with' block or override 'definition'.")

    # running

    def execute(
        self, inputs: Sequence[Any], *, device: torch.device | str | int | None = None, save_repro_inputs: bool = False,
        auto_schedule: bool = True, _enable_options: Sequence[str] = (), _disable_options: Sequence[str] = (),
    ) -> list[torch.Tensor]:
        """Runs the fusion on `inputs` (tensors, numbers for scalars, lists for vectors, in the order of definition) and
        returns its outputs. `device` places a fusion without tensor inputs. `save_repro_inputs` keeps what
        `last_repro_script` needs. Raises `InputError` if an input does not fit its declaration."""
        calls = self._calls or self._complete()
        found = None
        if device is None and inputs.__class__ is list:
            try:
                key = calls.key(*inputs)
                found = calls.known.get(key)
            except MISFITS:
                calls.check(inputs)
                raise
        if found is None:
            found = self._last = calls.find(inputs, device)
        elif found is not self._last:
            calls.touch(key)
            self._last = found
        if save_repro_inputs or _enable_options or _disable_options or not auto_schedule:
            self._remark(inputs if save_repro_inputs else None, [*_enable_options, *_disable_options], auto_schedule)
        try:
            return found.run(*inputs)
        except MISFITS:  # not ours: see what does not fit
            calls.check(inputs)
            raise

    def manual_execute(self, inputs: Sequence[Any], heuristic_params: Any = None) -> list[torch.Tensor]:
        """`execute`, for scripts that schedule by hand elsewhere: the engine schedules. Raises `UnsupportedError` for parameters."""
        if heuristic_params is not None:
            raise UnsupportedError("'manual_execute' with heuristic_params is not supported: the engine schedules, call 'execute'.")
        return self.execute(inputs)

    def validate(self, inputs: Sequence[Any], reference_outputs: Sequence[torch.Tensor] | None = None) -> None:
        """Runs the fusion and compares with `reference_outputs`, or with the fusion evaluated in float64. Raises
        AssertionError where they differ by more than the precision of the dtypes and the sizes of the sums explain."""
        program = self.calls().find(inputs).program
        expected, written = references(program, inputs)  # before the run, which may write into the inputs
        outputs = self.execute(inputs)
        assert_outputs(program, outputs, expected if reference_outputs is None else reference_outputs, inputs)
        if reference_outputs is None:
            assert_updates(program, inputs, written)

    def manual_validate(self, inputs: Sequence[Any], reference_outputs: Sequence[torch.Tensor] | None = None) -> None:
        """`validate`: there are no schedules of the user's."""
        self.validate(inputs, reference_outputs)

    # looking

    def __repr__(self) -> str:
        return function_text(self._function_name(), self._records)

    @property
    def fusion(self) -> FusionView:
        """The program: `print_math()`, `print_kernel()`, `inputs()`, `outputs()`. Its `str` is the IR of the last call."""
        return FusionView(self)

    @property
    def fec(self) -> ExecutorCache:
        """What has been compiled: `is_compiled(inputs)`, `get_cuda_kernel(inputs)`, `get_scheduled_ir(inputs)`."""
        return ExecutorCache(self.calls(), self._last)

    def report(self) -> DefinitionReport:
        """What the last call ran: kernels, vector widths, bytes, buffers and views, and the calls left to torch."""
        return self._executed().report()

    def last_cuda_code(self) -> str:
        """The CUDA C++ of the last call's kernels."""
        return "\n".join(kernel.source for kernel in self.report().kernels)

    def repro_script_for(self, inputs: Sequence[Any] | None = None) -> str:
        """A script that runs this definition on random inputs of the same shapes, strides and dtypes as `inputs`."""
        return repro_script(self._function_name(), self._records, inputs or ())

    def last_repro_script(self) -> str:
        """`repro_script_for` the last `execute` that was given `save_repro_inputs=True`."""
        if self._last_inputs is None:
            raise InputError("There are no saved inputs: call 'execute' with save_repro_inputs=True first.")
        return self.repro_script_for(self._last_inputs)

    # sharing what is compiled, for `LruFusionCache`

    def calls(self) -> Calls:
        """What finds or makes the specialisation of a call. Raises `IRError` for a definition that is not complete."""
        return self._calls or self._complete()

    def text(self) -> str:
        """The printed definition under a name that all have: equal for definitions that say the same."""
        return function_text("definition", self._records)

    def share(self, calls: Calls) -> None:
        """Uses the specialisations of an equal definition."""
        self._calls = calls

    # inside

    def _function_name(self) -> str:
        return f"nvfuser_fusion_id{self.id}"

    def _complete(self) -> Calls:
        if self._open:
            raise IRError("'execute' belongs after the 'with' block that defines the fusion.")
        if not self._finished:
            with self:
                self.definition()
        self._calls = Calls(Statements(self._function_name(), self._records, self._inputs, self._outputs, self._updates, self._static))
        return self._calls

    def _remark(self, inputs: Sequence[Any] | None, options: Sequence[str], auto_schedule: bool) -> None:
        """The rare wishes of `execute`."""
        if not auto_schedule:
            raise UnsupportedError("'execute' with auto_schedule=False is not supported: the engine schedules.")
        if options:
            warnings.warn(f"nvFuser options {options} have no effect here.", stacklevel=3)
        if inputs is not None:
            self._last_inputs = list(inputs)

    def _executed(self) -> Specialization:
        if self._last is None:
            raise InputError("This definition has not run yet: call 'execute' first.")
        return self._last
