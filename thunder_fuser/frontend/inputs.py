"""The inputs of a definition: what was declared, and whether what `execute` was given fits it.

`definition` keeps one declaration per input; `flatten` checks a call's inputs against them and gives the flat list
that a specialisation runs on. Every misfit is an `InputError` of one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from thunder_fuser.errors import InputError
from thunder_fuser.frontend.values import Number, Scalar, TensorView, Vector


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A tensor input: sizes (-1 for any), and whether it was declared to live on the CPU."""

    symbol: TensorView
    sizes: tuple[int, ...]
    is_cpu: bool


@dataclass(frozen=True, slots=True)
class ScalarInput:
    """A number given at `execute`."""

    symbol: Scalar


@dataclass(frozen=True, slots=True)
class VectorInput:
    """A list of numbers given at `execute`, one for each of `scalars`."""

    symbol: Vector
    scalars: tuple[Scalar, ...]


Input: TypeAlias = TensorInput | ScalarInput | VectorInput


def flatten(declared: Sequence[Input], given: Sequence[Any]) -> list[torch.Tensor | Number]:
    """The tensors and numbers of a call in order, lists opened. Raises `InputError` on the first that does not fit."""
    if not isinstance(given, (list, tuple)):
        raise InputError(f"'execute' takes a list of inputs, got '{type(given).__name__}'.")
    if len(given) != len(declared):
        raise InputError(f"The fusion takes {len(declared)} inputs, got {len(given)}.")
    flat: list[torch.Tensor | Number] = []
    for position, (declaration, value) in enumerate(zip(declared, given)):
        where = f"Input {position} ({declaration.symbol!r})"
        if isinstance(declaration, TensorInput):
            _check_tensor(where, declaration, value)
            flat.append(value)
        elif isinstance(declaration, ScalarInput):
            flat.append(_number(where, declaration.symbol, value))
        else:
            flat += _vector(where, declaration, value)
    return flat


def call_device(declared: Sequence[Input], given: Sequence[Any], asked: torch.device | str | int | None) -> torch.device:
    """The device that a call runs on: that of its tensors (0-dim CPU ones declared `is_cpu` aside), or the asked one,
    or else the current GPU if there is one and the CPU if not. Raises `InputError` if tensors disagree."""
    device: torch.device | None = None
    first, on_cpu = "", []
    for position, (declaration, value) in enumerate(zip(declared, given)):
        if not isinstance(declaration, TensorInput):
            continue
        where = f"Input {position} ({declaration.symbol!r})"
        if declaration.is_cpu:
            if value.device.type != "cpu":
                raise InputError(f"{where} is on '{value.device}', expected 'cpu' since it is declared with is_cpu=True.")
            on_cpu.append((where, value))
        elif device is None:
            device, first = value.device, where
        elif value.device != device:
            raise InputError(f"{where} is on '{value.device}', but {first} is on '{device}'.")
    if asked is not None:
        wanted = torch.device(asked)
        wanted = torch.device("cuda", torch.cuda.current_device()) if wanted == torch.device("cuda") else wanted
        if device is not None and device != wanted:
            raise InputError(f"{first} is on '{device}', but the call asks for device '{wanted}'.")
        device = wanted
    if device is None and on_cpu:
        device = torch.device("cpu")
    if device is None:
        device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"{first or 'The call'} is on '{device}', expected a CPU or CUDA device.")
    for where, value in on_cpu:
        if device.type != "cpu" and value.ndim:
            raise InputError(f"{where} is a CPU tensor of shape {list(value.shape)} in a call on '{device}', "
                             "expected a 0-dim one.")
    return device


def _check_tensor(where: str, declaration: TensorInput, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise InputError(f"{where} is a '{type(value).__name__}', expected a tensor.")
    expected = declaration.symbol.dtype.torch
    if value.dtype is not expected:
        raise InputError(f"{where} has dtype '{value.dtype}', expected '{expected}'.")
    if value.layout is not torch.strided:
        raise InputError(f"{where} has layout '{value.layout}', expected '{torch.strided}'.")
    if value.ndim != len(declaration.sizes):
        raise InputError(f"{where} has {value.ndim} dims, expected {len(declaration.sizes)}.")
    for dim, (size, expected_size) in enumerate(zip(value.shape, declaration.sizes)):
        if expected_size not in (-1, size):
            raise InputError(f"{where} has size {size} in dim {dim}, expected {expected_size}.")


def _number(where: str, symbol: Scalar, value: Any) -> Number:
    kind = symbol.dtype.kind
    allowed = {"bool": bool, "int": int, "float": (int, float), "float8": (int, float), "complex": (int, float, complex)}[kind]
    if not isinstance(value, allowed) or (kind != "bool" and isinstance(value, bool)):
        expected = {"bool": "True or False", "int": "an integer"}.get(kind, "a number")
        raise InputError(f"{where} is '{value!r}', expected {expected} for a scalar of dtype '{symbol.dtype}'.")
    return {"float": float, "float8": float, "complex": complex}.get(kind, type(value))(value)


def _vector(where: str, declaration: VectorInput, value: Any) -> list[Number]:
    if not isinstance(value, (list, tuple)) or len(value) != len(declaration.scalars):
        raise InputError(f"{where} is '{value!r}', expected a list of {len(declaration.scalars)} numbers.")
    return [_number(where, s, v) for s, v in zip(declaration.scalars, value)]
