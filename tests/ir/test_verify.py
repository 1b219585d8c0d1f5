"""The verifier: legal programs pass, and each kind of fault is named and shown in its place."""

from __future__ import annotations

from itertools import pairwise

import pytest

from thunder_fuser.errors import IRError
from thunder_fuser.ir.dtypes import BF16, F32, DType
from thunder_fuser.ir.nodes import Cat, Constant, Flip, Fusion, Pointwise, ScalarType, TensorType, Value
from thunder_fuser.ir.verify import verify

VECTOR = TensorType(F32, (4,))


def _chain(*nodes: object, outputs: tuple[Value, ...] = ()) -> Fusion:
    return Fusion("chain", (X, Y), nodes, outputs)


X, Y = Value("x", VECTOR), Value("y", VECTOR)
A, B = Value("a", VECTOR), Value("b", VECTOR)
LOST = Value("lost", VECTOR)


def test_a_legal_program_passes() -> None:
    verify(_chain(Pointwise(A, "neg", (X,)), Pointwise(B, "add", (A, Constant(2))), outputs=(B, A, X)))


@pytest.mark.parametrize("nodes,message", [
    ((Pointwise(A, "neg", (B,)), Pointwise(B, "neg", (X,))), "'b' is used before it is defined"),
    ((Pointwise(A, "neg", (LOST,)),), "'lost' is used before it is defined"),
    ((Pointwise(A, "neg", (Value("x", VECTOR),)),), "'x' is used before it is defined"),
    ((Pointwise(Value("x", VECTOR), "neg", (X,)),), "'x' is defined twice"),
    ((Pointwise(Value("a b", VECTOR), "neg", (X,)),), "'a b' is no name for a value"),
    ((Pointwise(Value("a", TensorType(F32, (5,))), "neg", (X,)),), r"'a' has type 'f32\[5\]', expected 'f32\[4\]'"),
    ((Pointwise(Value("a", TensorType(BF16, (4,))), "neg", (X,)),), r"'a' has type 'bf16\[4\]', expected 'f32\[4\]'"),
    ((Pointwise(Value("a", ScalarType(F32)), "neg", (X,)),), r"'a' has type 'f32', expected 'f32\[4\]'"),
    ((Pointwise(A, "lt", (X, Y)),), r"expected 'b8\[4\]'"),
    ((Pointwise(A, "nag", (X,)),), "'nag' is not a pointwise op"),
    ((Pointwise(A, "add", (X, Constant("two"))),), "is no literal"),
    ((Flip(A, X, (1,)),), "out of range"),
    ((Cat(A, (), 0),), "at least one tensor"),
])
def test_faults_are_named_and_shown(nodes: tuple[object, ...], message: str) -> None:
    with pytest.raises(IRError, match=message) as caught:
        verify(_chain(*nodes))
    text = str(caught.value)
    assert text.startswith("Fusion 'chain' is not legal: ")
    (marked,) = [line for line in text.splitlines() if line.startswith(">>>")]
    assert f" = {'flip' if isinstance(nodes[0], Flip) else 'cat' if isinstance(nodes[0], Cat) else nodes[0].op}(" in marked


def test_faults_of_inputs_and_outputs_are_shown() -> None:
    with pytest.raises(IRError, match="Output 'lost' is not defined") as caught:
        verify(_chain(outputs=(X, LOST)))
    assert ">>>   return x, lost" in str(caught.value)
    with pytest.raises(IRError, match="'x' is defined twice") as caught:
        verify(Fusion("twice", (X, X), (), ()))
    assert ">>> fusion twice(x: f32[4], x: f32[4])" in str(caught.value)
    with pytest.raises(IRError, match="no negative size"):
        verify(Fusion("negative", (Value("n", TensorType(F32, (-1,))),), (), ()))
    stranger = DType("f32", F32.torch, 4, "float", "float", "float")
    with pytest.raises(IRError, match="expected a known dtype"):
        verify(Fusion("stranger", (Value("n", TensorType(stranger, (1,))),), (), ()))


def test_only_the_surroundings_of_a_fault_are_shown() -> None:
    values = [X, *(Value(f"t{i}", VECTOR) for i in range(1000))]
    nodes = [Pointwise(out, "neg", (arg,)) for arg, out in pairwise(values)]
    nodes[500] = Pointwise(values[501], "neg", (LOST,))
    with pytest.raises(IRError) as caught:
        verify(Fusion("long", (X,), tuple(nodes), (values[-1],)))
    lines = str(caught.value).splitlines()
    assert len(lines) == 12 and lines[6].startswith(">>>   t500: ") and "t495" in lines[1] and "t505" in lines[11]
