"""Whether a definition's outputs are right: the reference in float64, and how far from it rounding explains.

Called by `FusionDefinition.validate`. The reference evaluates each fusion op by op in float64; what passes between fusions
and torch calls is rounded to its dtype, and torch's calls are their own reference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from thunder_fuser.frontend.program import FusionStep, Program, TorchStep, Variable
from thunder_fuser.ir.dtypes import DType
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.nodes import META_NODES, Fusion, Node, Pointwise, Random, Reduce, Scan, Scatter, TensorType, Value, operand_values
from thunder_fuser.ir.ops import POINTWISE

# Of an estimated error: what is still right.
MARGIN = 4
# Roundings that an op stands for whose result may be worse conditioned than its operands (exp of a large number).
TRANSCENDENTAL = 16


def references(program: Program, inputs: Sequence[Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The outputs of `program` for `inputs`, floats in float64 where a fusion makes them, and what the inputs that are
    updated hold afterwards. The inputs themselves are not written into, and torch's generators are left as they were, so that
    the next run draws the same seeds."""
    cuda = {t.device.index for t in _named(program, inputs).values() if isinstance(t, torch.Tensor) and t.device.type == "cuda"}
    with torch.random.fork_rng(sorted(cuda) or ([torch.cuda.current_device()] if torch.cuda.is_available() else [])):
        return _evaluated(program, inputs)


def _evaluated(program: Program, inputs: Sequence[Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    known = _inputs(program, inputs)
    dtypes: dict[str, torch.dtype] = {}
    for step in program.steps:
        if isinstance(step, FusionStep):
            given = [_as(_value(text, known), v) for text, v in zip(step.arguments, step.fusion.inputs)]
            known |= zip(step.outputs, evaluate(step.fusion, *given, dtype=torch.float64))
            dtypes |= {name: v.dtype.torch for name, v in zip(step.outputs, step.fusion.outputs)}
        else:
            made = step.call(*(_read(a, known, dtypes) for a in step.arguments))
            known |= zip(step.outputs, made if isinstance(made, (list, tuple)) else (made,))
    return [_value(text, known) for text in program.outputs], [known[name] for name in program.updated]


def assert_outputs(program: Program, outputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], inputs: Sequence[Any]) -> None:
    """Raises AssertionError if an output differs from the expected one by more than its dtypes and sums explain. Views of
    inputs that the program writes into show what was written: `assert_updates` compares that."""
    if len(outputs) != len(expected):
        raise AssertionError(f"The fusion has {len(outputs)} outputs, got {len(expected)} references.")
    error, given = errors(program), _named(program, inputs)
    written = {given[name].untyped_storage().data_ptr() for name in program.updated}
    for i, (name, out, reference) in enumerate(zip(program.outputs, outputs, expected)):
        if written and out.untyped_storage().data_ptr() in written:
            continue
        _assert_close(f"Output {i}", out, reference, error[name.partition(".")[0]])


def assert_updates(program: Program, inputs: Sequence[Any], expected: Sequence[torch.Tensor]) -> None:
    """As `assert_outputs`, for the inputs that the program writes into, after a call."""
    given, error = _named(program, inputs), errors(program)
    for name, reference in zip(program.updated, expected):
        _assert_close(f"Input {name}", given[name], reference, error[name])


def _assert_close(what: str, out: torch.Tensor, reference: torch.Tensor, error: float) -> None:
    want = torch.as_tensor(reference, device=out.device)
    if not (out.is_floating_point() or out.is_complex()):
        torch.testing.assert_close(out, want.to(out.dtype), rtol=0, atol=0, msg=lambda m: f"{what}: {m}")
        return
    wide = torch.complex128 if out.is_complex() else torch.float64
    want = want.to(wide)
    finite = want[want.isfinite()].abs()
    scale = finite.square().mean().sqrt().item() if finite.numel() else 0.0
    torch.testing.assert_close(out.to(wide), want, rtol=MARGIN * error, atol=MARGIN * error * scale, equal_nan=True, msg=lambda m: f"{what}: {m}")


def errors(program: Program) -> dict[str, float]:
    """The relative error to expect of each result, to first order, from the roundings on its way; by the names of the program,
    for an input that is updated that of what is written."""
    known: dict[str, float] = dict.fromkeys(program.tensors, 0.0)
    shapes: dict[str, tuple[int, ...]] = {}
    written: dict[str, float] = {}
    for step in program.steps:
        if isinstance(step, FusionStep):
            made = _fusion_errors(step.fusion, [known.get(text, 0.0) for text in step.arguments])
            known |= {name: made[v] for name, v in zip(step.outputs, step.fusion.outputs)}
            shapes |= {text: v.shape for text, v in zip(step.arguments, step.fusion.inputs)}
            shapes |= {name: v.shape for name, v in zip(step.outputs, step.fusion.outputs)}
            written |= {u.target.name: made[u.value] + _stored(u.value.dtype) for u in step.fusion.updates}
        else:
            known |= dict.fromkeys(step.outputs, _call_error(step, known, shapes))
    return {name: error + torch.finfo(torch.float64).eps for name, error in (known | written).items()}


def _fusion_errors(fusion: Fusion, given: Sequence[float]) -> dict[Value, float]:
    error = dict(zip(fusion.inputs, given))
    for node in fusion.nodes:
        before = max((error[v] for v in operand_values(node)), default=0.0)
        error[node.out] = before + _rounding(node)
    return error


def _rounding(node: Node) -> float:
    """What a node adds: one rounding, many for a transcendental function, the root of their number for a sum."""
    dtype = node.out.dtype
    if isinstance(node, META_NODES) or dtype.kind in ("bool", "int"):
        return 0.0
    stored = _stored(dtype)
    math_unit = max(torch.finfo(torch.float64).eps / 2, stored if not _narrow(dtype) else torch.finfo(torch.float32).eps / 2)
    if isinstance(node, Reduce):
        terms = math.prod(node.arg.shape[d] for d in node.dims)
        return stored + 2 * math_unit * math.sqrt(max(terms, 1))
    if isinstance(node, Scan):
        return stored + 2 * math_unit * math.sqrt(max(node.out.shape[node.dim], 1))
    if isinstance(node, Scatter) and node.accumulate:  # all of one place, at worst
        return stored + 2 * math_unit * math.sqrt(max(math.prod(node.updates.shape[d] for d in node.dims), 1))
    many = isinstance(node, Random) or (isinstance(node, Pointwise) and POINTWISE[node.op].cost > 2)
    return stored + (TRANSCENDENTAL * math_unit if many else math_unit)


def _stored(dtype: DType) -> float:
    return 0.0 if dtype.kind in ("bool", "int") else torch.finfo(dtype.torch).eps / 2


def _narrow(dtype: DType) -> bool:
    return dtype.size <= 2


def _call_error(step: TorchStep, known: dict[str, float], shapes: dict[str, tuple[int, ...]]) -> float:
    """Operands' errors, and the sums along the last dim of the first one. Torch may round to 10 bits inside (TF32)."""
    terms = max((shapes[n][-1] for n in step.names if shapes.get(n)), default=1)
    return max((known.get(n, 0.0) for n in step.names), default=0.0) * 2 + 2**-11 * math.sqrt(max(terms, 1))


def _named(program: Program, inputs: Sequence[Any]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for parameter, given in zip(program.parameters, inputs):
        known |= zip(parameter, given) if isinstance(parameter, list) else {parameter: given}
    return known


def _inputs(program: Program, inputs: Sequence[Any]) -> dict[str, Any]:
    return {name: v.detach().clone() if isinstance(v, torch.Tensor) else v for name, v in _named(program, inputs).items()}


def _value(text: str, known: dict[str, Any]) -> Any:
    return eval(text, {"float": float, "complex": complex}, known)


def _as(given: Any, value: Value) -> Any:
    return given.to(value.dtype.torch) if isinstance(value.type, TensorType) else given


def _read(argument: Any, known: dict[str, Any], dtypes: dict[str, torch.dtype]) -> Any:
    if not isinstance(argument, Variable):
        return argument
    return known[argument.name].to(dtypes.get(argument.name, known[argument.name].dtype))
