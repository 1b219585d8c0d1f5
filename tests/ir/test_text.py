"""Text in and out: `parse(str(f))` is f, `str(parse(text))` is text, and broken text is refused with its line."""

from __future__ import annotations

import cProfile
import dataclasses
import math
import textwrap

import pytest
from hypothesis import given, settings

from tests.support.programs import programs
from thunder_fuser.errors import IRError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, F32, F64, I64
from thunder_fuser.ir.nodes import Constant, Fusion, Pointwise, Value, operands
from thunder_fuser.ir.parser import parse
from thunder_fuser.ir.verify import verify

EVERY_NODE = textwrap.dedent("""\
    fusion every_node(x: bf16[2, 3, 4], y: bf16[2, 3, 4], r: f32[], s: f64, empty: i64[0, 5]) {
      t0: f32[2, 3, 4] = cast(x)
      t1: f64 = add(s, 1)
      t2: f32[2, 3, 4] = mul(t0, t1)
      t3: b8[2, 3, 4] = lt(t2, -0.0)
      t4: f32[2, 3, 4] = where(t3, inf, t2)
      t5: f32[2] = sum(t4, dims=[1, 2])
      t6: f32[4] = full(nan)
      t7: i64[5] = iota(-3, 9223372036854775807)
      t8: bf16[6, 4] = reshape(x)
      t9: bf16[4, 2, 3] = permute(x, dims=[2, 0, 1])
      t10: bf16[1, 3, 2] = slice(x, starts=[0, 0, 1], stops=[1, 3, 4], steps=[1, 1, 2])
      t11: bf16[1, 3, 4] = slice(x, starts=[0, 0, 0], stops=[1, 3, 4])
      t12: bf16[3, 4] = squeeze(t11, dims=[0])
      t13: bf16[3, 7, 4] = broadcast(t12, dims=[0, 2])
      t14: bf16[3, 7] = pad(t12, 0.1, widths=[(0, 0, 0), (-1, 1, 1)])
      t15: bf16[4, 3, 4] = cat(x, y, dim=0)
      t16: bf16[2, 3, 4] = flip(x, dims=[0])
      t17: bf16[2, 3, 4] = copy(x)
      t18: bf16[2, 3, 4] = copy(x, order=[2, 0, 1])
      t19: b8[3] = full(True)
      t20: f32[] = add(r, 1e-45)
      return t5, t6, t20, t5, x, s
    }""")


def same(a: Fusion, b: Fusion) -> bool:
    """Whether two fusions are one program but for the identity of their values."""
    def shape(f: Fusion) -> tuple[object, ...]:
        def seen(x: object) -> object:
            return (x.name, x.type) if isinstance(x, Value) else tuple(map(seen, x)) if isinstance(x, tuple) else x
        return (f.name, seen(f.inputs), seen(f.outputs),
                [(type(n), *(seen(getattr(n, field.name)) for field in dataclasses.fields(n))) for n in f.nodes])
    return shape(a) == shape(b)


def test_every_kind_of_node_round_trips() -> None:
    fusion = parse(EVERY_NODE)
    verify(fusion)
    assert str(fusion) == EVERY_NODE
    assert same(parse(str(fusion)), fusion)
    assert fusion.outputs[0] is fusion.outputs[3] and fusion.outputs[4] is fusion.inputs[0]


@settings(max_examples=150, deadline=None)
@given(programs())
def test_random_programs_round_trip(program) -> None:
    fusion, _ = program
    verify(fusion)
    text = str(fusion)
    again = parse(text)
    verify(again)
    assert same(again, fusion) and str(again) == text


@pytest.mark.parametrize("value", [
    0, -1, 2**63 - 1, -(2**63), True, False, 0.0, -0.0, 0.1, 1e300, 5e-324, -1e-7, 1e16, math.inf, -math.inf, math.nan])
def test_literals_keep_type_and_bits(value: bool | int | float) -> None:
    b = FusionBuilder()
    b.output(b.full((1,), value, F64))
    (node,) = parse(str(b.build())).nodes
    assert node.value == Constant(value) and type(node.value.value) is type(value)


def test_equal_nodes_stay_two() -> None:
    text = "fusion f(x: f32[2]) {\n  a: f32[2] = neg(x)\n  b: f32[2] = neg(x)\n  return a, b\n}"
    assert len(parse(text).nodes) == 2 and str(parse(text)) == text


def test_comments_and_blank_lines_are_passed_over() -> None:
    text = "fusion f() {\n  return\n}"
    assert str(parse("# seen in a report\n\nfusion f() {\n\n  // nothing\n  return\n}\n")) == text


def test_ten_thousand_nodes_take_work_in_proportion() -> None:
    def calls(count: int) -> int:
        b = FusionBuilder()
        value = b.tensor(F32, (4, 8))
        for i in range(count):
            value = b.add(value, float(i)) if i % 3 else b.flip(value, [i % 2])
        b.output(value)
        fusion = b.build()
        profile = cProfile.Profile()
        again = profile.runcall(lambda: parse(str(fusion)))
        profile.runcall(verify, again)
        assert str(again) == str(fusion)
        return sum(entry.callcount for entry in profile.getstats())

    few, many = calls(1_000), calls(10_000)
    assert many < 10.5 * few


def test_one_node_with_ten_thousand_operands() -> None:
    b = FusionBuilder()
    pieces = [b.tensor(I64, (1,)) for _ in range(10_000)]
    b.output(b.cat(pieces))
    (node,) = parse(str(b.build())).nodes
    assert len(operands(node)) == 10_000


@pytest.mark.parametrize("line,message", [
    ("t: f32[2] = neg(z)", "'z' is not defined here"),
    ("t: f32[3] = neg(x)", r"'neg' makes type 'f32\[2\]', the text says 'f32\[3\]'"),
    ("t: f32 = neg(x)", r"makes type 'f32\[2\]', the text says 'f32'"),
    ("t: f32[2] = nag(x)", "'nag' is not an op"),
    ("t: f99[2] = neg(x)", "'f99' is not a dtype"),
    ("t: f32[2,2] = neg(x)", r"'\[2,2\]' is not a shape"),
    ("x: f32[2] = neg(x)", "'x' is defined twice"),
    ("nan: f32[2] = neg(x)", "'nan' is no name"),
    ("t: f32[2] = neg(x, x)", "'neg' takes 1 operands, got 2"),
    ("t: f32[2] = flip(x, x, dims=[0])", "'flip' takes 1 operands, got 2"),
    ("t: f32[2] = flip(x)", r"'flip' has the attributes \['dims'\]"),
    ("t: f32[2] = flip(x, dims=[0], dim=0)", "has the attributes"),
    ("t: f32[2] = flip(x, dims=[0.5])", "'\\[0.5\\]' is no value of 'dims'"),
    ("t: f32[2] = flip(x, dims=0)", "'0' is no value of 'dims'"),
    ("t: f32[2] = cat(x, dim=[0])", "is no value of 'dim'"),
    ("t: f32[2] = pad(x, 0.0, widths=[(0, 0)])", "is no value of 'widths'"),
    ("t: f32[2] = flip(x, dims=[0] + 1)", "are no attributes of 'flip'"),
    ("t: f32[2] = flip(x, dims=[5])", "out of range"),
    ("t: f32[2] = neg(2.0)", "makes type 'f64'"),
    ("t: f32[2] = flip(2.0, dims=[0])", "takes a tensor"),
    ("t = neg(x)", "Expected 'NAME: TYPE"),
    ("t: f32[2] = neg(__import__)", "not defined here"),
])
def test_broken_lines_are_shown(line: str, message: str) -> None:
    with pytest.raises(IRError, match=message) as caught:
        parse(f"fusion f(x: f32[2]) {{\n  {line}\n  return x\n}}")
    assert str(caught.value).startswith("Line 2: ") and f">>> {line}" in str(caught.value)


@pytest.mark.parametrize("text,message", [
    ("", "A program has"),
    ("fusion f(x) {\nreturn\n}", "Expected inputs as in"),
    ("fuse f() {\nreturn\n}", "Expected 'fusion NAME"),
    ("fusion f() {\nreturn y\n}", "'y' is not defined here"),
    ("fusion f(x: f32[2]) {\nx\n}", "Expected 'return NAME"),
    ("fusion f(x: f32[2]) {\nreturn x\n", "A program has"),
    ("fusion f(x: f32[2]) {\nreturn x\nreturn x", "closes no program"),
])
def test_broken_programs_are_refused(text: str, message: str) -> None:
    with pytest.raises(IRError, match=message):
        parse(text)


def test_builder_refuses_names_that_text_could_not_hold() -> None:
    b = FusionBuilder()
    for name in ("inf", "a b", "1x", "True", ""):
        with pytest.raises(IRError, match="no name for a value"):
            b.tensor(BF16, (), name=name)
    with pytest.raises(IRError, match="no name for a fusion"):
        FusionBuilder("my fusion")


def test_printed_pointwise_node_is_short() -> None:
    b = FusionBuilder("scale")
    x = b.tensor(F32, (4, 8))
    b.output(b.mul(x, 2.0))
    assert isinstance(b.build().nodes[0], Pointwise)
    assert str(b.build()) == "fusion scale(t0: f32[4, 8]) {\n  t1: f32[4, 8] = mul(t0, 2.0)\n  return t1\n}"
