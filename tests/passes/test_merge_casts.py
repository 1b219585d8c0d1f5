"""Which roundings are dropped, and that values, strides and aliases stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings

from tests.analysis.recipes import all_values, check, programs
from tests.support.programs import programs as all_programs
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, F16, F32, F64, I32, DType
from thunder_fuser.ir.nodes import Cast, Copy, Fusion, Value
from thunder_fuser.ir.verify import verify
from thunder_fuser.passes import simplify
from thunder_fuser.passes.dce import dce
from thunder_fuser.passes.merge_casts import merge_casts

Path = Callable[[FusionBuilder, Value], Value]


def program(path: Path, see: Callable[[FusionBuilder, Value, Value], object] = lambda *_: None, narrow: DType = BF16) -> Fusion:
    """exp, rounded to 16 bits, moved along `path`, widened, negated; `see` looks at the rounded and the moved value."""
    b = FusionBuilder()
    x = b.tensor(F32, (4, 6))
    rounded = b.cast(b.exp(x), narrow)
    moved = path(b, rounded)
    b.output(b.neg(b.cast(moved, F32)))
    see(b, rounded, moved)
    return b.build()


def straight(b: FusionBuilder, v: Value) -> Value:
    return v


MOVES: dict[str, Path] = {
    "nothing": straight,
    "permute": lambda b, v: b.permute(v, (1, 0)),
    "slice": lambda b, v: b.slice(v, (1, 0), (4, 6), (2, 1)),
    "reshape": lambda b, v: b.reshape(b.permute(v, (1, 0)), (24,)),
    "broadcast": lambda b, v: b.expand(v, (3, 4, 6)),
    "squeeze": lambda b, v: b.squeeze(b.slice(v, (1, 0), (2, 6)), (0,)),
    "pad": lambda b, v: b.pad(v, [(1, -2, 0), (0, 1, 1)], 0.5),
    "flip": lambda b, v: b.flip(v, (1,)),
    "copy": lambda b, v: b.copy(v, (1, 0)),
    "cat of two roundings": lambda b, v: b.cat([v, b.cast(b.neg(b.tensor(F32, (2, 6))), BF16)], 0),
    "cat with zeros": lambda b, v: b.cat([b.full((2, 6), 0.0, BF16), v], 0),
}


@pytest.mark.parametrize("path", MOVES.values(), ids=MOVES)
def test_an_unseen_rounding_is_dropped(path: Path) -> None:
    fusion = program(path)
    merged = merge_casts(fusion)
    assert not any(v.dtype is BF16 for v in merged.producers())
    assert not any(isinstance(n, Cast) for n in merged.nodes)
    inputs = [torch.randn(v.shape) for v in fusion.inputs]
    got, rounded = all_values(merged, *inputs)[merged.outputs[0]], all_values(fusion, *inputs)[fusion.outputs[0]]
    assert got.stride() == rounded.stride()
    assert torch.equal(got.bfloat16(), rounded.bfloat16())
    assert not torch.equal(got, rounded)


SEEN = {
    "an output": (straight, lambda b, r, m: b.output(r)),
    "an output through a view": (straight, lambda b, r, m: b.output(b.permute(r, (1, 0)))),
    "an output through a copy": (straight, lambda b, r, m: b.output(b.copy(r))),
    "an output through a pad": (straight, lambda b, r, m: b.output(b.pad(r, [(1, 0, 0), (0, 0, 0)]))),
    "the moved value is an output": (MOVES["slice"], lambda b, r, m: b.output(m)),
    "compared": (straight, lambda b, r, m: b.output(b.lt(r, 1.0))),
    "compared after a move": (MOVES["slice"], lambda b, r, m: b.output(b.lt(m, 1.0))),
    "cast to an integer": (straight, lambda b, r, m: b.output(b.cast(r, I32))),
    "cast to another float": (straight, lambda b, r, m: b.output(b.cast(r, F64))),
    "cast to the other half": (straight, lambda b, r, m: b.output(b.cast(r, F16))),
    "computed with": (straight, lambda b, r, m: b.output(b.mul(r, 2.0))),
    "summed": (straight, lambda b, r, m: b.output(b.sum(r, (0,)))),
}


@pytest.mark.parametrize("path, see", SEEN.values(), ids=SEEN)
def test_a_seen_rounding_stays_for_all_uses(path: Path, see: Callable) -> None:
    fusion = program(path, see)
    assert merge_casts(fusion) is fusion


KEPT = {
    "next to an input": lambda b, v: b.cat([v, b.tensor(BF16, (4, 6))], 1),
    "next to arithmetic": lambda b, v: b.cat([v, b.neg(b.tensor(BF16, (4, 6)))], 1),
    "next to a rounded f64": lambda b, v: b.cat([v, b.cast(b.tensor(F64, (4, 6)), BF16)], 1),
    "padded with a number that rounds": lambda b, v: b.pad(v, [(1, 0, 0), (0, 0, 0)], 0.1),
}


@pytest.mark.parametrize("path", KEPT.values(), ids=KEPT)
def test_what_cannot_be_wide_stays_rounded(path: Path) -> None:
    fusion = program(path)
    assert merge_casts(fusion) is fusion


def test_f32_is_not_taken_for_a_rounding_of_f64() -> None:
    b = FusionBuilder()
    b.output(b.cast(b.cast(b.exp(b.tensor(F64, (3,))), F32), F64))
    fusion = b.build()
    assert merge_casts(fusion) is fusion


@pytest.mark.parametrize("narrow, wide", [(BF16, F64), (F16, F32), (F16, F64)])
def test_all_pairs_of_dtypes(narrow: DType, wide: DType) -> None:
    b = FusionBuilder()
    b.output(b.neg(b.cast(b.cast(b.exp(b.tensor(wide, (3,))), narrow), wide)))
    assert not any(isinstance(n, Cast) for n in merge_casts(b.build()).nodes)


def test_every_use_gets_the_same_wide_value() -> None:
    b = FusionBuilder()
    rounded = b.cast(b.exp(b.tensor(F32, (4, 6))), BF16)
    b.output(b.sub(b.cast(rounded, F32), b.permute(b.cast(b.permute(rounded, (1, 0)), F32), (1, 0))))
    fusion = merge_casts(b.build())
    assert torch.equal(all_values(fusion, torch.randn(4, 6))[fusion.outputs[0]], torch.zeros(4, 6))


def test_a_returned_cast_has_storage_of_its_own() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (4, 6))
    y = b.neg(x)
    b.output(y), b.output(b.cast(b.cast(y, BF16), F32)), b.output(b.cast(b.cast(x, BF16), F32))
    fusion = merge_casts(b.build())
    assert [type(fusion.producers()[v]) for v in fusion.outputs[1:]] == [Copy, Copy]
    check(fusion, [torch.ones(4, 6)], b.build())


def test_a_cast_of_a_view_keeps_its_dense_strides() -> None:
    b = FusionBuilder()
    rounded = b.cast(b.neg(b.tensor(F32, (4, 6))), BF16)
    b.output(b.neg(b.permute(b.cast(b.expand(rounded, (3, 4, 6)), F32), (2, 0, 1))))
    fusion = merge_casts(b.build())
    assert fusion is not b.build() and not any(isinstance(n, Cast) for n in fusion.nodes)
    check(fusion, [torch.ones(4, 6)], b.build())


def test_a_cast_of_an_input_keeps_its_dense_strides() -> None:
    b = FusionBuilder()
    rounded = b.cast(b.tensor(F32, (3, 4)), BF16)
    b.output(b.neg(b.cast(b.permute(rounded, (1, 0)), F32)))
    fusion = merge_casts(b.build())
    assert not any(isinstance(n, Cast) for n in fusion.nodes)
    check(fusion, [torch.ones(4).expand(3, 4)], b.build())


def test_rounding_written_twice_and_seen_once() -> None:
    b = FusionBuilder()
    y = b.exp(b.tensor(F32, (4,)))
    b.output(b.neg(b.cast(b.cast(y, BF16), F32)))
    first = b.build()
    again = Cast(Value("again", first.nodes[1].out.type), y)
    seen = Fusion(first.name, first.inputs, (*first.nodes, again), (*first.outputs, again.out))
    fusion = simplify(seen)
    x = torch.randn(4)
    values = all_values(fusion, x)
    assert torch.equal(-values[fusion.outputs[0]], values[fusion.outputs[1]].float())
    assert sum(isinstance(n, Cast) for n in fusion.nodes) == 2


def test_keep_rounding() -> None:
    fusion = program(straight)
    assert simplify(fusion, keep_rounding=True) is fusion
    assert len(simplify(fusion).nodes) == 2


@given(programs(rounding=True))
@settings(max_examples=300, deadline=None)
def test_values_strides_and_aliases_stay(case: tuple[Fusion, list[torch.Tensor]]) -> None:
    fusion, inputs = case
    verify(simplify(fusion))
    check(simplify(fusion), inputs, fusion)
    merged = merge_casts(dce(fusion))
    assert merge_casts(merged) is merged


@given(all_programs(dtypes=(F32, BF16)))
@settings(max_examples=200, deadline=None)
def test_programs_of_all_ops(case: tuple[Fusion, list]) -> None:
    fusion, inputs = case
    verify(simplify(fusion))
    check(simplify(fusion), inputs, fusion)
