"""Programs: what a region's content compiles to, shared by all regions of equal content.

The layers of a network give equal regions under other names; they share one `Program`, found by a canonical key.
Nothing is translated or compiled before a program is first called. A program that cannot be translated or compiled
runs through torch, with one warning that names the op and the reason, or raises if the options say so.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from thunder.core.codeutils import SigInfo
from thunder.core.prims import python_return
from thunder.core.proxies import NumberProxy, Proxy, TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, tracectx

from thunder_fuser.compiler import compile_fusion
from thunder_fuser.errors import FuserError, InputError, LaunchError, UnsupportedError
from thunder_fuser.executable import Executable
from thunder_fuser.executors.inplace import written_inputs
from thunder_fuser.executors.options import FusionOptions
from thunder_fuser.executors.random import seed_inputs
from thunder_fuser.executors.regions import unfused
from thunder_fuser.ir.nodes import Fusion
from thunder_fuser.runtime.generator import like_captured
from thunder_fuser.translators import results, translate

# Programs kept for regions to come. Those that a trace uses live as long as it does.
MAX_PROGRAMS = 1024

Runner = Callable[..., Sequence[Any]]


class Program:
    """One region's content. `target.call(*inputs)` gives the outputs in order, at the least cost: `target` is the program
    until it is first called, then the executable, whose `call` changes when there is a quicker one."""

    def __init__(self, name: str, prims: Sequence[BoundSymbol], inputs: Sequence[Proxy], outputs: Sequence[Proxy],
                 *, shared: bool, options: FusionOptions, tensors: Sequence[int] = ()) -> None:
        """`tensors` are the inputs, numbers in the trace, that come as tensors."""
        self.name = name
        self.options = options
        self._region = (tuple(prims), tuple(inputs), tuple(outputs))
        self._shared = shared
        self._tensors = tuple(tensors)
        self._lock = threading.RLock()
        self._fusion: Fusion | None = None
        self._runner: Runner | None = None
        self.target: Any = self
        self._repeats: tuple[int, ...] = ()  # outputs that are the same value as an earlier output or an input
        self.fallback_reason: str | None = None
        self.seeds = () if tensors else seed_inputs(prims, inputs)
        self._captured: Program | None = None  # the same program with its seeds in tensors
        self._prepared = 0  # plans of the runner that `_captured` has too
        places = {p.name: i for i, p in enumerate(inputs)}
        self.leaves = tuple(places[p.name] for p, tracked in written_inputs(prims) if tracked)  # inputs that must be no leaves of autograd

    @property
    def fusion(self) -> Fusion:
        """The translated region. Raises `UnsupportedError` if it has no translation."""
        with self._lock:
            if self._fusion is None:
                self._fusion = translate(*self._region, name=self.name, shared=self._shared, tensors=self._tensors)
            return self._fusion

    @property
    def runner(self) -> Runner:
        """The compiled fusion, or what stands in for it; made once, whichever thread comes first."""
        self._make()
        return self._runner

    def call(self, *inputs: Any) -> Sequence[Any]:
        """The first call."""
        self._make()
        return self.target.call(*inputs)

    def _make(self) -> None:
        if self._runner is None:
            with self._lock:
                if self._runner is None:
                    self._build()

    def _set(self, runner: Runner) -> None:
        target = runner if isinstance(runner, Executable) else _Function(runner)
        target = _Detaching(target, self._repeats) if self._repeats else target
        self.target = _Seeded(self, target) if self.seeds and isinstance(runner, Executable) else target
        self._runner = runner

    @property
    def captured(self) -> Program:
        with self._lock:
            if self._captured is None:
                self._captured = Program(self.name, *self._region, shared=self._shared, options=self.options, tensors=self.seeds)
            return self._captured

    def prepare_capture(self, inputs: Sequence[Any]) -> None:
        """Plans for a call like this one with its seeds in tensors: by the time a graph is captured it is too late."""
        runner = self._runner
        if not isinstance(runner, Executable) or runner.plans_made == self._prepared:
            return
        self._prepared = runner.plans_made
        device = next((x.device for x in inputs if isinstance(x, torch.Tensor)), None)
        other = self.captured.runner
        if device is not None and device.type == "cuda" and isinstance(other, Executable):
            given = list(inputs)
            for i in self.seeds:
                given[i] = like_captured(device)
            other.prepare(*given)

    def check_leaves(self, inputs: Sequence[Any]) -> None:
        """Raises torch's own error for a leaf that requires a gradient and would be written into."""
        if any(inputs[i].is_leaf and inputs[i].requires_grad for i in self.leaves):
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")

    def clear(self) -> None:
        """Forgets what was compiled; the next call compiles again."""
        with self._lock:
            self._runner, self.target = None, self
            self.fallback_reason = None

    def after(self, error: Exception, inputs: Sequence[Any]) -> None:
        """After a call has raised: lets torch run it if the error came from planning, compiling or loading for these
        inputs. Raises it again if it came from the launch, from running, or from inputs that do not fit; and while a CUDA
        graph is captured, which would keep what stands in for good."""
        runner = self._runner
        for given in inputs:
            if isinstance(given, torch.Tensor) and given.layout is not torch.strided:
                return self.fall_back(UnsupportedError(f"An input of fusion '{self.name}' has layout {given.layout}, expected {torch.strided}."))
        planned = not isinstance(runner, Executable) or runner.is_planned(*inputs)
        capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
        if planned or capturing or isinstance(error, (LaunchError, InputError)):
            raise error
        self.fall_back(error)

    def fall_back(self, error: Exception) -> None:
        """Lets torch run this program from now on, since it could not be translated, compiled or loaded.

        Raises the error if the options ask for that."""
        with self._lock:
            if self.options.fallback == "error":
                raise error
            first = self.fallback_reason is None
            self.fallback_reason = _reason(error)
            if first:
                warnings.warn(f"Fusion '{self.name}' runs through torch: {self.fallback_reason} "
                              "Set THUNDER_FUSER_FALLBACK=error to make this an error.", RuntimeWarning, stacklevel=2)
            self._set(_through_torch(*self._region))

    def _build(self) -> None:
        try:
            fusion = self.fusion
            self._repeats = () if self._shared else _repeats(fusion)
            self._set(_compile(fusion, self.options))
        except LaunchError:
            raise
        except Exception as error:
            self.fall_back(error)


class _Function:
    """A plain function as a program's target."""

    def __init__(self, call: Runner) -> None:
        self.call = call


class _Detaching:
    """A target some of whose outputs are new tensors: autograd must not be handed one tensor object twice, nor an input as an output."""

    def __init__(self, target: Any, positions: tuple[int, ...]) -> None:
        self._target, self._positions = target, positions

    def call(self, *inputs: Any) -> Sequence[Any]:
        outputs = list(self._target.call(*inputs))
        for i in self._positions:
            outputs[i] = outputs[i].detach()
        return outputs


class _Seeded:
    """A target that takes seeds as numbers, or as the tensors that they are while a CUDA graph is captured."""

    def __init__(self, program: Program, target: Any) -> None:
        self._program, self._target, self._seed = program, target, program.seeds[0]

    def call(self, *inputs: Any) -> Sequence[Any]:
        if isinstance(inputs[self._seed], torch.Tensor):
            return self._program.captured.target.call(*inputs)
        outputs = self._target.call(*inputs)
        self._program.prepare_capture(inputs)
        return outputs


def _repeats(fusion: Fusion) -> tuple[int, ...]:
    """Positions of the outputs that are an input, or an earlier output, once more. An input that is written into is
    returned itself, as torch's in-place functions do."""
    seen = set(fusion.inputs)
    written = {fusion.inputs[i] for i in fusion.updated_inputs()}
    repeats = []
    for i, value in enumerate(fusion.outputs):
        if value in seen and value not in written:
            repeats.append(i)
        seen.add(value)
    return tuple(repeats)


def _reason(error: Exception) -> str:
    """The error's sentence; of one that is not ours, its type too."""
    text = str(error).strip().split("\n")[0] or "no reason given"
    return text if isinstance(error, FuserError) else f"{type(error).__name__}: {text}."


def _compile(fusion: Fusion, options: FusionOptions) -> Runner:
    """The engine's executable. Shapes and dtypes are guarded by Thunder's prologue, strides and alignment by nobody but it."""
    return compile_fusion(fusion, options=options.compile, keep_rounding=options.keep_rounding, check_inputs=False)


def _through_torch(prims: Sequence[BoundSymbol], inputs: Sequence[Proxy], outputs: Sequence[Proxy]) -> Runner:
    """The same prims as a function of torch operators, made by Thunder's torch executor."""
    from thunder.executors.passes import transform_for_execution
    from thunder.extend import get_always_executors

    trace = TraceCtx(None)
    trace.args = tuple(inputs)
    trace.kwargs = {}
    trace._siginfo = SigInfo.from_name_and_args("region", trace.args)
    trace.bound_symbols = unfused(prims)
    trace.names = {p.name for b in prims for p in (*b.flat_proxy_args, *b.flat_proxy_outs)}
    with tracectx(trace):
        python_return(tuple(outputs))
    return transform_for_execution(trace, get_always_executors()).python_callable()


_programs: OrderedDict[Any, Program] = OrderedDict()
_programs_lock = threading.Lock()


def program_for(name: str, prims: Sequence[BoundSymbol], inputs: Sequence[Proxy], outputs: Sequence[Proxy],
                *, shared: bool, options: FusionOptions) -> Program:
    """The program of a region: one that exists if a region of equal content was seen before, in any trace."""
    key = (content_key(prims, inputs, outputs), shared, options)
    with _programs_lock:
        program = _programs.get(key)
        if program is None:
            program = _programs[key] = Program(name, prims, inputs, outputs, shared=shared, options=options)
            if len(_programs) > MAX_PROGRAMS:
                _programs.popitem(last=False)
        else:
            _programs.move_to_end(key)
        return program


def content_key(prims: Sequence[BoundSymbol], inputs: Sequence[Proxy], outputs: Sequence[Proxy]) -> tuple[Any, ...]:
    """What a region computes, whatever its values are called."""
    numbers = {p.name: i for i, p in enumerate(inputs)}

    def canonical(arg: Any) -> Any:
        if isinstance(arg, Proxy) and arg.name in numbers:
            return Proxy, numbers[arg.name]
        if isinstance(arg, NumberProxy):
            return canonical(arg.value)
        if isinstance(arg, (tuple, list)):
            return tuple(map(canonical, arg))
        if isinstance(arg, dict):
            return tuple((k, canonical(v)) for k, v in sorted(arg.items()))
        return type(arg), repr(arg)

    body = []
    for prim in prims:
        outputs_ = prim.output if isinstance(prim.output, (tuple, list)) else (prim.output,)
        body.append((prim.sym.id, canonical(prim.args), canonical(prim.kwargs), tuple(map(_metadata, outputs_))))
        for proxy in results(prim):
            numbers[proxy.name] = len(numbers)
    return tuple(map(_metadata, inputs)), tuple(body), tuple(numbers[p.name] for p in outputs)


def _metadata(proxy: Proxy) -> tuple[Any, ...]:
    if isinstance(proxy, TensorProxy):
        return proxy.dtype, tuple(proxy.shape), str(proxy.device)
    return (proxy.python_type,) if isinstance(proxy, NumberProxy) else (type(proxy),)
