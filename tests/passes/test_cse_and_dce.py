"""Merging equal nodes and dropping unused ones, on fusions that the builder would not make."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.recipes import all_values, check, programs
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import F32
from thunder_fuser.ir.nodes import Copy, Fusion, Pointwise, Reshape, Slice, TensorType, Value
from thunder_fuser.ir.verify import verify
from thunder_fuser.passes import PASSES, Pass, simplify
from thunder_fuser.passes.cse import cse
from thunder_fuser.passes.dce import dce
from thunder_fuser.passes.rewrite import substitute

TYPE = TensorType(F32, (4,))


def chain(*ops: tuple[str, str, str], outputs: tuple[str, ...]) -> Fusion:
    """Nodes `(result, op, operand names)` over one input x."""
    values = {"x": Value("x", TYPE)}
    nodes = []
    for name, op, args in ops:
        values[name] = Value(name, TYPE)
        operands = tuple(values[a] for a in args.split())
        nodes.append(Copy(values[name], *operands) if op == "copy" else Pointwise(values[name], op, operands))
    return Fusion("f", (values["x"],), tuple(nodes), tuple(values[o] for o in outputs))


def names(fusion: Fusion) -> list[str]:
    return [n.out.name for n in fusion.nodes]


def test_dce() -> None:
    fusion = chain(("a", "neg", "x"), ("b", "exp", "x"), ("c", "add", "a b"), ("d", "neg", "b"), outputs=("d",))
    assert names(dce(fusion)) == ["b", "d"]
    assert dce(dce(fusion)).inputs == fusion.inputs


def test_dce_without_outputs_keeps_inputs() -> None:
    fusion = chain(("a", "neg", "x"), outputs=())
    assert dce(fusion).nodes == () and len(dce(fusion).inputs) == 1


def test_cse_follows_merged_operands() -> None:
    fusion = chain(("a", "neg", "x"), ("b", "neg", "x"), ("c", "exp", "a"), ("d", "exp", "b"), ("e", "mul", "c d"),
                   outputs=("e",))
    merged = cse(fusion)
    assert names(merged) == ["a", "c", "e"]
    x = torch.randn(4)
    assert torch.equal(all_values(merged, x)[merged.outputs[0]], all_values(fusion, x)[fusion.outputs[0]])


def test_cse_leaves_copies_operand_order_and_constants_alone() -> None:
    fusion = chain(("a", "copy", "x"), ("b", "copy", "x"), ("c", "add", "a b"), ("d", "add", "b a"), ("e", "mul", "c d"),
                   outputs=("e",))
    assert cse(fusion) is fusion
    b = FusionBuilder()
    x = b.tensor(F32, (4,))
    b.output(b.add(b.add(x, 0.0), b.add(b.add(x, -0.0), b.add(b.mul(x, True), b.mul(x, 1)))))
    assert cse(b.build()).nodes == b.build().nodes


def test_two_equal_outputs_stay_two_tensors() -> None:
    fusion = chain(("a", "neg", "x"), ("b", "neg", "x"), outputs=("a", "b"))
    merged = cse(fusion)
    assert merged.outputs == fusion.outputs
    assert merged.nodes[1] == Copy(fusion.outputs[1], fusion.outputs[0])
    check(merged, [torch.randn(4)], fusion)
    assert cse(merged) is merged


def test_an_equal_value_under_a_returned_view_stays_apart() -> None:
    fusion = chain(("a", "neg", "x"), ("b", "neg", "x"), outputs=("a",))
    part = Value("part", TensorType(F32, (2,)))
    view = Slice(part, fusion.nodes[1].out, (1,), (3,), (1,))
    fusion = Fusion("f", fusion.inputs, (*fusion.nodes, view), (*fusion.outputs, part))
    merged = cse(fusion)
    assert isinstance(merged.nodes[1], Copy)
    check(merged, [torch.randn(4)], fusion)


@pytest.mark.parametrize("strides", [(6, 1), (1, 4)])
def test_equal_reshapes_of_a_returned_kind_stay_apart(strides: tuple[int, int]) -> None:
    """With one kind of strides the two are views of x, with the other they are two copies."""
    x = Value("x", TensorType(F32, (4, 6)))
    nodes = tuple(Reshape(Value(name, TensorType(F32, (24,))), x) for name in "ab")
    fusion = Fusion("f", (x,), nodes, tuple(n.out for n in nodes))
    assert cse(fusion) is fusion
    check(fusion, [torch.randn(24).as_strided((4, 6), strides)], fusion)


@given(programs(), st.data())
@settings(max_examples=150, deadline=None)
def test_programs_with_doubled_nodes(case: tuple[Fusion, list[torch.Tensor]], data: st.DataObject) -> None:
    """Each node may occur twice, and each use reads one or the other."""
    fusion, inputs = case
    nodes, twins = [], {}
    for node in fusion.nodes:
        pick = {v: w for v, w in twins.items() if data.draw(st.booleans())}
        nodes.append(substitute(node, pick))
        if data.draw(st.booleans()):
            twin = Value(node.out.name + "_twin", node.out.type)
            nodes.append(dataclasses.replace(substitute(node, twins), out=twin))
            twins[node.out] = twin
    outputs = tuple(twins.get(v, v) if data.draw(st.booleans()) else v for v in fusion.outputs)
    doubled = Fusion(fusion.name, fusion.inputs, tuple(nodes), outputs)
    verify(simplify(doubled))
    check(simplify(doubled), inputs, doubled)


@pytest.mark.parametrize("run", [p for p, _ in PASSES])
def test_nothing_to_do_is_the_same_object(run: Pass) -> None:
    fusion = chain(("a", "neg", "x"), ("b", "exp", "a"), outputs=("b",))
    assert run(fusion) is fusion
