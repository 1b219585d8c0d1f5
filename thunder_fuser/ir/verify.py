"""What must hold of every fusion; called by tests, after each pass when checks are on, and before a fusion is compiled."""

from __future__ import annotations

from collections.abc import Sequence

from thunder_fuser.errors import IRError
from thunder_fuser.ir.dtypes import DTYPES
from thunder_fuser.ir.nodes import VIEW_NODES, Constant, Fusion, Node, ScalarType, TensorType, Value, is_legal_name, operands
from thunder_fuser.ir.printer import print_header, print_node, print_return, print_type
from thunder_fuser.ir.rules import infer

_MARGIN = 5  # lines shown on either side of a fault


def verify(fusion: Fusion) -> None:
    """Checks that names are unique, operands come first, types are those that the rules infer, and outputs exist.

    Raises `IRError` that says what is wrong and shows the program around the place, marked `>>>`."""
    defined: set[Value] = set()
    names: set[str] = set()
    for place, step in enumerate((None, *fusion.nodes, None)):
        try:
            if step is not None:
                _check_node(step, defined)
                _define(step.out, defined, names)
            elif place == 0:
                for value in fusion.inputs:
                    _define(value, defined, names)
            else:
                _check_outputs(fusion, defined)
                _check_effects(fusion, defined)
        except IRError as e:
            raise IRError(f"Fusion '{fusion.name}' is not legal: {e}\n{_around(fusion, place)}") from None


def _define(value: Value, defined: set[Value], names: set[str]) -> None:
    if not is_legal_name(value.name):
        raise IRError(f"'{value.name}' is no name for a value, expected letters, digits and underscores.")
    if value.name in names:
        raise IRError(f"'{value.name}' is defined twice.")
    if DTYPES.get(value.dtype.name) is not value.dtype or any(n < 0 for n in value.shape):
        raise IRError(f"'{value.name}' has type '{print_type(value.type)}', expected a known dtype and no negative size.")
    defined.add(value)
    names.add(value.name)


def _check_node(node: Node, defined: set[Value]) -> None:
    for operand in operands(node):
        if isinstance(operand, Constant):
            if not isinstance(operand.value, (bool, int, float, complex)):
                raise IRError(f"'{operand.value!r}' is no literal, expected a number.")
        elif operand not in defined:
            raise IRError(f"'{operand!r}' is used before it is defined.")
    declared = node.out.type
    inferred = infer(node, TensorType(declared.dtype, ()) if isinstance(declared, ScalarType) else declared)
    if inferred != declared:
        raise IRError(f"'{node.out.name}' has type '{print_type(declared)}', expected '{print_type(inferred)}'.")


def _check_outputs(fusion: Fusion, defined: set[Value]) -> None:
    for value in fusion.outputs:
        if value not in defined:
            raise IRError(f"Output '{value!r}' is not defined.")


def _check_effects(fusion: Fusion, defined: set[Value]) -> None:
    inputs = {v for v in fusion.inputs if isinstance(v.type, TensorType)}
    of_input = set(inputs)
    for node in fusion.nodes:
        if isinstance(node, VIEW_NODES) and node.arg in of_input:
            of_input.add(node.out)
    for update in fusion.updates:
        if update.target not in of_input:
            raise IRError(f"'{update.target!r}' is updated, expected an input or a view of one.")
        if update.value not in defined or update.value.type != update.target.type:
            raise IRError(f"'{update.value!r}' updates '{update.target.name}', expected a value of type '{print_type(update.target.type)}'.")
    for value, count in fusion.apart:
        if value not in inputs or not 0 < count <= len(fusion.updates):
            raise IRError(f"'{value!r}' is to share no memory with the first {count} updates, expected a tensor input and 1 to {len(fusion.updates)}.")
    made = {n.out: n for n in fusion.nodes}
    for value in fusion.views:
        if value not in inputs and not isinstance(made.get(value), VIEW_NODES):
            raise IRError(f"'{value!r}' is to be a view, expected the result of a view node.")


def _around(fusion: Fusion, place: int) -> str:
    """The lines of the program near line `place`, which is marked."""
    def text(i: int) -> str:
        if i == 0:
            return print_header(fusion)
        return f"  {print_return(fusion)}" if i == len(fusion.nodes) + 1 else f"  {print_node(fusion.nodes[i - 1])}"

    shown: Sequence[int] = range(max(0, place - _MARGIN), min(len(fusion.nodes) + 2, place + _MARGIN + 1))
    return "\n".join(f"{'>>>' if i == place else '   '} {text(i)}" for i in shown)
