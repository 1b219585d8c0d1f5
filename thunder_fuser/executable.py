"""Something callable for a fusion: a bounded table of plans, one a pattern of strides, alignments and device.

The hot path is: make the key, look it up, run the plan's function. Planning and compiling happen on the first call with
a new key, under a lock; a fault in them is an error that the caller may answer by running the fusion otherwise, a fault
at or after a launch (`LaunchError`) is not.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from thunder_fuser.errors import InputError, UnsupportedError
from thunder_fuser.ir.dtypes import F32, F64, DType, number_of, real_of
from thunder_fuser.ir.nodes import Fusion, Scatter, TensorType
from thunder_fuser.ir.script import script
from thunder_fuser.report import Report
from thunder_fuser.runtime.compile_pool import POOL
from thunder_fuser.runtime.launch import CODES, Launcher
from thunder_fuser.runtime.native.compiled_call import CompiledCall, ItemPattern, NumberPattern, Pattern, TensorPattern
from thunder_fuser.runtime.options import CompileOptions

if TYPE_CHECKING:
    from thunder_fuser.compiler import Stages
    from thunder_fuser.runtime.launch_plan import LaunchPlan

MAX_PLANS = 64


class Executable:
    """Call it with the fusion's inputs; see `report()` for what the last call ran."""

    def __init__(self, fusion: Fusion, lower: Callable[..., tuple[Stages, LaunchPlan]], *, backend: str | None = None,
                 options: CompileOptions | None = None, check_inputs: bool = True) -> None:
        if backend not in (None, "cuda", "host"):
            raise InputError(f"The backend is '{backend}', expected 'cuda', 'host' or None.")
        self.fusion = fusion
        self.backend = backend
        self.options = options or CompileOptions.from_config()
        self._lower = lower
        self._plans: OrderedDict[Any, Callable[..., list[Any]]] = OrderedDict()
        self._reports: dict[Any, tuple[Report, Stages]] = {}
        self._lock = threading.Lock()
        self._tensors = [k for k, v in enumerate(fusion.inputs) if isinstance(v.type, TensorType)]
        self._sizes: dict[Any, list[int]] = {}  # bytes that each tensor spans, by the key of strides
        self._updated = fusion.updated_inputs()
        self._last: list[Any] = [None]  # the key of the last call
        self._any_order = any(isinstance(n, Scatter) and n.accumulate and n.out.dtype.kind == "float" for n in fusion.nodes)
        self.plans_made = 0
        self.call, self._key = self._functions(check_inputs)
        self._compiled = CompiledCall(self.call, self._last, len(fusion.inputs), self._use)

    def __call__(self, *inputs: Any) -> list[Any]:
        """Runs the fusion. Raises `InputError`, `CompileError`, `UnsupportedError`, `LaunchError`."""
        try:
            return self.call(*inputs)
        except (AttributeError, TypeError, RuntimeError, OverflowError, struct.error):  # not ours: see what does not fit
            self._check(inputs)
            raise

    def prepare(self, *inputs: Any) -> None:
        """Plans and compiles for inputs of these layouts, and runs nothing. Raises as a call does."""
        key = self._key(*inputs)
        if key not in self._plans:
            self._plan(key, inputs)

    def is_planned(self, *inputs: Any) -> bool:
        """Whether these inputs have a plan, so that an error of a call with them did not come from planning or compiling."""
        return self._key(*inputs) in self._plans

    def report(self) -> Report:
        """What the plan of the last call consists of. Raises `InputError` before the first call."""
        return self._of_last_call()[0]

    def stages(self) -> Stages:
        """What each stage made of the fusion for the last call's strides; every field prints itself. Raises as `report`."""
        return self._of_last_call()[1]

    def repro_script_for(self, inputs: Sequence[Any] = ()) -> str:
        """A script that makes these inputs (random ones if none are given), runs the fusion, and compares with torch."""
        return script(self.fusion, inputs, backend=self.backend or "host")

    def _of_last_call(self) -> tuple[Report, Stages]:
        found = self._reports.get(self._last[0])
        if found is None:
            raise InputError(f"Fusion '{self.fusion.name}' has not been called yet, so there is no plan to report on.")
        return found

    def cache_info(self) -> dict[str, int]:
        """Plans made so far, and plans held."""
        return {"plans_made": self.plans_made, "plans_held": len(self._plans), "limit": MAX_PLANS}

    @property
    def compiled_calls(self) -> int:
        """Calls so far that compiled code answered, from reading the inputs to making the outputs."""
        return self._compiled.served

    def cache_clear(self) -> None:
        with self._lock:
            self._plans.clear()
            self._reports.clear()
            self._compiled.remove(None)
            self._last[0] = None

    def _functions(self, check_inputs: bool) -> tuple[Callable[..., list[Any]], Callable[..., Any]]:
        """`call(in0, in1, ...)`, which is `__call__` for inputs that fit, and `key(in0, in1, ...)`: strides and alignment of
        each tensor, with shape, dtype and device, and the classes of numbers, where the caller does not guard them.

        Source code, since a loop over the inputs would cost a microsecond each."""
        names = [f"in{k}" for k in range(len(self.fusion.inputs))]
        pointers = [f"p{k}" for k in self._tensors]
        parts = []
        for k in self._tensors:
            parts += [f"in{k}.stride()", f"p{k} & 15"]
            if check_inputs:  # `device`, since a meta tensor's get_device() is that of the CPU
                parts += [f"in{k}.device", f"in{k}.shape", f"in{k}.dtype", f"in{k}.__class__"]
            elif torch.cuda.device_count() > 1:
                parts.append(f"in{k}.get_device()")
            elif not self.fusion.inputs[k].shape:  # it may be on the CPU beside others on a card
                parts.append(f"in{k}.is_cpu")
        if check_inputs:
            parts += [f"in{k}.__class__" for k in range(len(names)) if k not in self._tensors]
        if not self._tensors:
            parts.append("current_device()")
        inputs, key = ", ".join(names), f"({', '.join(parts)},)"
        read = "".join(f"{self._resolved(k)}    p{k} = in{k}.data_ptr()\n" for k in self._tensors)
        make = f"    key = {key}\n"
        if self._updated:
            make += f"    key = (key, overlaps(key, ({', '.join(f'in{k}' for k in self._tensors)},), ({', '.join(pointers)},)))\n"
        text = (f"def key({inputs}):\n{read}{make}    return key\n"
                f"def call({inputs}):\n{read}{make}    run = find(key)\n"
                f"    if run is None: run = plan(key, [{inputs}])\n"
                f"    last[0] = key\n    return run({', '.join([*names, *pointers])})\n")
        namespace: dict[str, Any] = {"find": self._plans.get, "plan": self._plan, "last": self._last, "overlaps": self._overlaps, "refuse": self._refuse,
                                     "current_device": lambda: torch.cuda.current_device() if torch.cuda.is_available() else -1}
        exec(compile(text, f"<call of fusion {self.fusion.name}>", "exec"), namespace)
        return namespace["call"], namespace["key"]

    def _overlaps(self, key: Any, tensors: Sequence[torch.Tensor], pointers: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Pairs of inputs, the first of which is updated, whose memory has bytes in common (or lies between each other's).
        `key` has their strides."""
        sizes = self._sizes.get(key)
        if sizes is None:
            if len(self._sizes) >= MAX_PLANS:
                self._sizes.clear()
            sizes = self._sizes[key] = [_bytes_spanned(t) for t in tensors]
        end = 0
        for low, size in sorted(zip(pointers, sizes)):
            if low < end and size:
                break
            end = max(end, low + size)
        else:
            return ()
        spans = [(k, p, p + size) for k, p, size in zip(self._tensors, pointers, sizes)]
        return tuple((k, other) for k, low, high in spans if k in self._updated
                     for other, first, last in spans if other != k and low < last and first < high)

    def _resolved(self, k: int) -> str:
        """Statements that make input k of `call` a tensor whose memory holds its values: torch conjugates and negates some
        views of complex tensors, and of their parts, only when they are read. Nothing can be written into those."""
        kind, dtype = self.fusion.inputs[k].dtype.kind, self.fusion.inputs[k].dtype
        lazy = (["conj"] if kind == "complex" else []) + (["neg"] if kind == "complex" or dtype in (F32, F64) else [])
        does = f"refuse({k})" if k in self._updated else "in{0} = in{0}.resolve_{1}()"
        return "".join(f"    if in{k}.is_{what}(): {does.format(k, what)}\n" for what in lazy)

    def _refuse(self, k: int) -> None:
        raise InputError(f"Input {k} of fusion '{self.fusion.name}' is a view that torch conjugates or negates when it is read, "
                         "expected plain memory, since the fusion writes into it.")

    def _plan(self, key: Any, inputs: Sequence[Any]) -> Callable[..., list[Any]]:
        with self._lock:
            run = self._plans.get(key)
            if run is not None:
                return run
            device = self._check(inputs)
            numbers = [k for k in self._tensors if device.type == "cuda" and inputs[k].is_cpu]
            strides = [t.stride() if isinstance(t, torch.Tensor) else None for t in inputs]
            alignments = [_alignment(t) if isinstance(t, torch.Tensor) else 16 for t in inputs]
            stages, plan = self._lower(self.fusion, strides, alignments, key[1] if self._updated else (), numbers)
            futures = [POOL.kernel(c.source, device, self.options) for c in plan.calls]
            kernels = [f.result() for f in futures]
            launchers = [k.launcher(c.blocks, c.threads, c.shared_bytes, c.kinds) for k, c in zip(kernels, plan.calls)]
            run = plan.bind(len(inputs), self._tensors, device, launchers)
            if device.type == "cuda" and torch.cuda.device_count() > 1:
                run = _on_device(run, device)
            if self._any_order:
                run = _unless_deterministic(run, self.fusion.name)
            self.plans_made += 1
            self._plans[key] = run
            self._reports[key] = (Report.make(stages, plan, kernels, device, self.options), stages)
            if len(self._plans) > MAX_PLANS:
                old, _ = self._plans.popitem(last=False)
                self._reports.pop(old, None)
                self._compiled.remove(old)
            self._compile_call(key, inputs, plan, launchers, device)
            return run

    def _use(self, call: Callable[..., list[Any]]) -> None:
        self.call = call

    def _compile_call(self, key: Any, inputs: Sequence[Any], plan: LaunchPlan, launchers: Sequence[Launcher], device: torch.device) -> None:
        """Lets compiled code answer for inputs like these, if it need not ask torch, nor look how they overlap."""
        if self._any_order or not self._tensors or (self._updated and key[1]):
            return
        patterns: list[Pattern] = []
        for k, (given, value) in enumerate(zip(inputs, self.fusion.inputs)):
            number = number_of(value.dtype) if k in plan.items else value.dtype
            code, is_complex = CODES.get(real_of(number).name, ""), number.kind == "complex"
            if k in plan.items:
                patterns.append(ItemPattern(given.dtype, code, is_complex))
            elif isinstance(given, torch.Tensor):
                patterns.append(TensorPattern(value.shape, given.stride(), given.dtype, given.data_ptr() & 15, _bytes_spanned(given)))
            elif code:
                patterns.append(NumberPattern(code, is_complex))
        if len(patterns) == len(inputs):
            self._compiled.add(key, patterns, plan, launchers, device)

    def _check(self, inputs: Sequence[Any]) -> torch.device:
        """The device to run on. Raises `InputError` with one sentence if the inputs do not fit the fusion."""
        name, want = self.fusion.name, self.fusion.inputs
        if len(inputs) != len(want):
            raise InputError(f"Fusion '{name}' takes {len(want)} inputs, got {len(inputs)}.")
        devices: dict[torch.device, list[int]] = {}
        for k, (given, value) in enumerate(zip(inputs, want)):
            if not isinstance(value.type, TensorType):
                _check_number(f"Input {k} of fusion '{name}'", given, value.dtype)
                continue
            if not isinstance(given, torch.Tensor):
                raise InputError(f"Input {k} of fusion '{name}' is a '{type(given).__name__}', expected a tensor.")
            if given.layout is not torch.strided:
                raise InputError(f"Input {k} of fusion '{name}' has the layout {given.layout}, expected torch.strided.")
            if given.dtype is not value.dtype.torch or tuple(given.shape) != value.shape:
                raise InputError(f"Input {k} of fusion '{name}' is {given.dtype} {list(given.shape)}, "
                                 f"expected {value.dtype.torch} {list(value.shape)}.")
            if given.device.type in ("cpu", "cuda") and given.numel() and not given.data_ptr():
                raise InputError(f"Input {k} of fusion '{name}' is a '{type(given).__name__}' without memory, expected a tensor with data.")
            devices.setdefault(given.device, []).append(k)
        return self._device(devices)

    def _device(self, devices: dict[torch.device, list[int]]) -> torch.device:
        """The one device of the inputs, given by device. Tensors of rank 0 may be on the CPU all the same, if nothing is
        written into them."""
        cpu = torch.device("cpu")
        if len(devices) > 1 and all(not self.fusion.inputs[k].shape and k not in self._updated for k in devices.get(cpu, ())):
            devices = {d: ks for d, ks in devices.items() if d != cpu}
        if len(devices) > 1:
            raise InputError(f"Inputs of fusion '{self.fusion.name}' are on {' and '.join(map(str, devices))}, expected one device.")
        device = next(iter(devices), None)
        if device is None:
            device = torch.device("cpu") if self.backend == "host" or not torch.cuda.is_available() else torch.device("cuda", torch.cuda.current_device())
        want = {"cuda": "cuda", "host": "cpu"}.get(self.backend or "", device.type)
        if device.type not in ("cuda", "cpu") or device.type != want:
            raise InputError(f"Inputs of fusion '{self.fusion.name}' are on '{device}', but its backend is '{self.backend or 'cuda or host'}'.")
        return device


def _check_number(what: str, given: Any, dtype: DType) -> None:
    """Raises `InputError` for what is no number of the dtype's kind, or out of its range."""
    if dtype.kind == "bool":
        fits, expected = isinstance(given, bool), "a bool"
    elif dtype.kind == "int":
        fits, expected = isinstance(given, int) and -(2**63) <= given < 2**63, "an integer of 64 bits"
    elif dtype.kind == "complex":
        fits, expected = isinstance(given, (complex, float)) or (isinstance(given, int) and abs(given) < 2**1023), "a complex number"
    else:
        fits, expected = isinstance(given, float) or (isinstance(given, int) and abs(given) < 2**1023), "a float"
    if not fits:
        raise InputError(f"{what} is {_shown(given)}, expected {expected}.")


def _shown(given: Any) -> str:
    return repr(given) if isinstance(given, (bool, int, float, complex)) and abs(given) < 2**70 else f"a '{type(given).__name__}'"


def _bytes_spanned(tensor: torch.Tensor) -> int:
    """From the first element's first byte to the last one's last."""
    if not tensor.numel():
        return 0
    return (1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))) * tensor.element_size()


def _alignment(tensor: torch.Tensor) -> int:
    """The largest power of two up to 16 that divides the tensor's address."""
    low = tensor.data_ptr() & 15
    return low & -low if low else 16


def _unless_deterministic(run: Callable[..., list[Any]], name: str) -> Callable[..., list[Any]]:
    """`run` of a fusion that adds floats in an order that may differ from run to run."""
    def guarded(*inputs: Any) -> list[Any]:
        if torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled():
            raise UnsupportedError(f"Fusion '{name}' adds floats at computed places in any order, but torch.use_deterministic_algorithms is on.")
        return run(*inputs)

    return guarded


def _on_device(run: Callable[..., list[Any]], device: torch.device) -> Callable[..., list[Any]]:
    """`run` with `device` current: allocations and launches go to the current device."""
    current = torch._C._cuda_getDevice

    def guarded(*inputs: Any) -> list[Any]:
        if current() == device.index:
            return run(*inputs)
        with torch.cuda.device(device):
            return run(*inputs)

    return guarded


