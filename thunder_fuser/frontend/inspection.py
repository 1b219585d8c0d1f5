"""What nvFuser's scripts look at: `fd.fusion`, `fd.fec`, and a refusal for what schedules by hand, `fd.sched`.

Made by `FusionDefinition`. Everything shown is what ran: before the first call there are no sizes, so no IR and no kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from thunder_fuser.errors import InputError, UnsupportedError
from thunder_fuser.frontend.program import FusionStep
from thunder_fuser.frontend.values import Symbol
from thunder_fuser.ir.nodes import Fusion

if TYPE_CHECKING:
    from thunder_fuser.frontend.calls import Calls, Specialization
    from thunder_fuser.frontend.definition import FusionDefinition


class FusionView:
    """`fd.fusion`: the program with the sizes of the last call, or before it with open sizes."""

    def __init__(self, fd: FusionDefinition) -> None:
        self._fd = fd

    def __str__(self) -> str:
        last = self._fd._last
        if last is None:
            return repr(self._fd)
        return "\n".join(str(s.fusion) if isinstance(s, FusionStep) else f"torch {s}" for s in last.program.steps)

    __repr__ = __str__

    @property
    def fusions(self) -> tuple[Fusion, ...]:
        """The IR of each fusion of the last call. Raises `InputError` before it."""
        return self._fd._executed().program.fusions

    def inputs(self) -> list[Symbol]:
        """The symbols of the inputs, in order."""
        return [declaration.symbol for declaration in self._fd._inputs]

    def outputs(self) -> list[Symbol]:
        """The symbols of the outputs, in order."""
        return list(self._fd._outputs)

    def print_math(self) -> None:
        """Prints `str`."""
        sys.stdout.write(f"{self}\n")

    def print_kernel(self) -> None:
        """Prints the CUDA C++ of the last call's kernels. Raises `InputError` before it."""
        sys.stdout.write(f"{self._fd.last_cuda_code()}\n")


class ExecutorCache:
    """`fd.fec`: what has been compiled. Where a call's strides made several kernels for the same sizes, those of the last
    call with these sizes are shown."""

    def __init__(self, calls: Calls, last: Specialization | None) -> None:
        self._calls = calls
        self._last = last

    def is_compiled(self, inputs: Sequence[Any], *, device: Any = None) -> bool:
        """Whether there has been a call with inputs of these sizes, dtypes and devices."""
        return self._calls.made_for(inputs, device) is not None

    def get_cuda_kernel(self, inputs: Sequence[Any], *, intrinsic_code: bool = False) -> str:
        """The CUDA C++ that runs for `inputs`, with the prelude of all kernels if `intrinsic_code`."""
        found = self._made(inputs)
        if intrinsic_code:
            return "\n".join(source.text for e in found.executables for source in e.stages().sources)
        return "\n".join(kernel.source for kernel in found.report().kernels)

    def get_scheduled_ir(self, inputs: Sequence[Any], *, tensor_transforms: bool = False) -> str:
        """The kernels' plans for `inputs`: loops, accesses and their widths; `tensor_transforms` adds nothing."""
        return _plans(self._made(inputs))

    def get_most_recent_scheduled_ir(self, *, tensor_transforms: bool = False) -> str:
        """`get_scheduled_ir` of the last call."""
        if self._last is None:
            raise InputError("This definition has not run yet: call 'execute' first.")
        return _plans(self._last)

    def get_output_shardings(self) -> Any:
        """Refused: there are no shardings on one device."""
        raise UnsupportedError("'fd.fec.get_output_shardings' is not supported: a definition runs on one device.")

    def _made(self, inputs: Sequence[Any]) -> Specialization:
        found = self._calls.made_for(inputs)
        if found is None:
            raise InputError("Nothing is compiled for inputs of these sizes: call 'execute' with them first.")
        return found


def _plans(found: Specialization) -> str:
    return "\n".join(kernel.plan for kernel in found.report().kernels)


class Schedules:
    """`fd.sched`: every schedule by hand is refused, in one sentence."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*_: Any, **__: Any) -> Any:
            raise UnsupportedError(f"'fd.sched.{name}' is not supported: the engine schedules, leave the schedule out.")

        return refuse
