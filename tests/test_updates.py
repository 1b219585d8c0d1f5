"""Values written into inputs: torch's result for every layout of the target, or a refusal; never an early or a lost write."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.support.memory import copied
from tests.support.programs import programs
from thunder_fuser.compiler import compile_fusion
from thunder_fuser.errors import UnsupportedError
from thunder_fuser.executable import Executable
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, F32, I32
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.nodes import Fusion, Update
from thunder_fuser.ir.parser import parse
from thunder_fuser.ir.verify import verify

pytestmark = pytest.mark.usefixtures("compiled_calls")


def program(signature: str, *lines: str, returns: str = "") -> Executable:
    body = "\n".join(f"  {line}" for line in lines)
    fusion = parse(f"fusion f({signature}) {{\n{body}\n  return{f' {returns}' if returns else ''}\n}}")
    verify(fusion)
    return compile_fusion(fusion, "host")


def check(exe: Executable, *inputs) -> list[torch.Tensor]:
    """Runs `exe` on copies of the inputs and compares results and inputs with the interpreter's; returns the copies. Twice,
    since compiled code answers only then."""
    _check_once(exe, *inputs)
    return _check_once(exe, *inputs)


def _check_once(exe: Executable, *inputs) -> list[torch.Tensor]:
    mine, theirs = copied(inputs), copied(inputs)
    for got, want in zip(exe(*mine), evaluate(exe.fusion, *theirs), strict=True):
        assert torch.equal(got, want)
    for k, (a, b) in enumerate(zip(mine, theirs)):
        if isinstance(a, torch.Tensor):
            whole = [x.new_empty(0).set_(x.untyped_storage(), 0, (x.untyped_storage().nbytes() // x.element_size(),), (1,)) for x in (a, b)]
            assert torch.equal(*whole), f"input {k} or what lies around it differs"
    return mine


def numbers(*shape: int) -> torch.Tensor:
    """Small integers as floats: every order of summation gives the same."""
    return torch.randint(-9, 10, shape[0] if isinstance(shape[0], tuple) else shape).float()


LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.t().contiguous().t(),
    "offset": lambda t: torch.cat([torch.zeros(3), t.reshape(-1)])[3:].view(t.shape),
    "gaps": lambda t: torch.zeros(t.shape[0] + 2, t.shape[1] + 5)[1:-1, 2:-3].copy_(t),
    "steps": lambda t: torch.zeros(2 * t.shape[0], 3 * t.shape[1])[::2, 1::3].copy_(t),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(8, 64), (5, 7), (1, 1), (33, 1), (0, 4)], ids=str)
def test_a_target_of_any_layout(layout: str, shape: tuple[int, int]) -> None:
    exe = program(f"x: f32{list(shape)}, y: f32{list(shape)}", f"z: f32{list(shape)} = add(x, y)", "update x = z")
    x, y = LAYOUTS[layout](numbers(shape)), numbers(shape)
    given, _ = check(exe, x, y)
    assert torch.equal(given, x + y)
    report = exe.report()
    assert not report.buffers and len(report.kernels) == (0 not in shape), "each element is read where it is written"


def test_versions_tell_autograd() -> None:
    exe = program("x: f32[4], y: f32[4]", "z: f32[4] = mul(x, y)", "update y = z", returns="z")
    x, y = numbers(4), numbers(4)
    exe(x, y)
    assert (x._version, y._version) == (0, 1)
    w = torch.randn(4, requires_grad=True)
    loss = (w * y).sum()
    exe(x, y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("read", ["permute(x, dims=[1, 0])", "flip(x, dims=[0])", "flip(x, dims=[1])"])
def test_elements_read_elsewhere_are_read_first(read: str) -> None:
    exe = program("x: f32[64, 64]", f"a: f32[64, 64] = {read}", "z: f32[64, 64] = mul(a, 2.0)", "update x = z")
    check(exe, numbers(64, 64))
    assert [b.output for b in exe.report().buffers] == [False], "a buffer, and a copy at the end"


def test_a_long_reduction_of_the_target() -> None:
    exe = program("x: f32[6, 400]", "m: f32[6] = amax(x, dims=[1])", "n: f32[6, 400] = broadcast(m, dims=[0])",
                  "z: f32[6, 400] = sub(x, n)", "update x = z", returns="m")
    check(exe, numbers(6, 400))


def test_other_outputs_see_the_old_target() -> None:
    exe = program("x: f32[40, 8], y: f32[40, 8]", "z: f32[40, 8] = add(x, y)", "w: f32[8, 40] = permute(x, dims=[1, 0])",
                  "v: f32[8, 40] = mul(w, 3.0)", "s: f32[8] = sum(x, dims=[0])", "update x = z", returns="z, v, s")
    check(exe, numbers(40, 8), numbers(40, 8))


def test_views_of_the_target_show_what_was_written() -> None:
    exe = program("x: f32[4, 6]", "t: f32[6, 4] = permute(x, dims=[1, 0])", "z: f32[4, 6] = neg(x)", "update x = z", returns="t, x")
    x = numbers(4, 6)
    old = x.clone()
    t, same = exe(x)
    assert same is x and torch.equal(x, -old) and torch.equal(t, -old.t()) and t.data_ptr() == x.data_ptr()


def test_part_of_an_input() -> None:
    exe = program("x: f32[6, 8], y: f32[3, 4]", "v: f32[3, 4] = slice(x, starts=[1, 2], stops=[6, 6], steps=[2, 1])",
                  "z: f32[3, 4] = mul(v, y)", "update v = z")
    for layout in LAYOUTS.values():
        check(exe, layout(numbers(6, 8)), numbers(3, 4))
    assert not exe.report().buffers


def test_a_row_of_halves_at_every_alignment() -> None:
    b = FusionBuilder()
    x, y = b.tensor(BF16, (4, 32)), b.tensor(BF16, (4, 16))
    b.update(b.slice(x, [0, 8], [4, 24]), b.mul(y, 2.0))
    exe = compile_fusion(b.build(), "host")
    base = numbers(4 * 32 + 16).bfloat16()
    for offset in range(9):
        check(exe, base[offset:offset + 128].view(4, 32), numbers(4, 16).bfloat16())


def test_two_updates_of_one_input() -> None:
    lines = ("v: f32[4, 8] = slice(x, starts=[0, 0], stops=[4, 8])", "w: f32[4, 8] = slice(x, starts=[2, 0], stops=[6, 8])",
             "a: f32[4, 8] = neg(w)", "c: f32[4, 8] = mul(v, 3.0)")
    x = numbers(6, 8)
    for updates in (("update v = a", "update w = c"), ("update w = c", "update v = a")):
        got, = check(program("x: f32[6, 8]", *lines, *updates), x)
        assert torch.equal(got[2:4], (x[:2] * 3 if updates[1].startswith("update w") else -x[4:6]))


def test_the_builder_converts_and_broadcasts() -> None:
    b = FusionBuilder()
    x, y = b.tensor(I32, (3, 4)), b.tensor(F32, (4,))
    b.update(x, y)
    exe = compile_fusion(b.build(), "host")
    y = torch.tensor([1.7, -2.3, 0.0, 9.9])
    got, _ = check(exe, torch.zeros(3, 4, dtype=torch.int32), y)
    assert torch.equal(got, torch.zeros(3, 4, dtype=torch.int32).copy_(y))


def test_the_last_of_two_values_counts() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (5,))
    b.update(x, b.neg(x))
    b.update(x, b.mul(x, 3.0))
    given, = check(compile_fusion(b.build(), "host"), x := numbers(5))
    assert torch.equal(given, x * 3)


# what is refused

@pytest.mark.parametrize("strides", [(0, 1), (1, 0), (1, 1), (2, 3)], ids=str)
def test_a_target_that_overlaps_itself(strides: tuple[int, int]) -> None:
    exe = program("x: f32[4, 6], y: f32[4, 6]", "z: f32[4, 6] = add(x, y)", "update x = z")
    x = numbers(40).as_strided((4, 6), strides)
    with pytest.raises(UnsupportedError, match="several elements in one place of memory"):
        exe(x, numbers(4, 6))


def test_a_reshape_that_copies_is_no_target() -> None:
    exe = program("x: f32[4, 6]", "v: f32[24] = reshape(x)", "z: f32[24] = neg(v)", "update v = z")
    check(exe, numbers(4, 6))
    with pytest.raises(UnsupportedError, match="'v' of fusion 'f' is no view for the strides given"):
        exe(numbers(6, 4).t())


def test_views_that_must_be_views() -> None:
    exe = program("x: f32[4, 6]", "v: f32[24] = reshape(x)", "z: f32[4, 6] = neg(x)", "w: f32[24] = reshape(z)", "a: f32[24] = mul(w, 3.0)",
                  "update x = z", "views v", returns="a")
    check(exe, numbers(4, 6))
    with pytest.raises(UnsupportedError, match="'v' of fusion 'f' is no view of 'x'"):
        exe(numbers(6, 4).t())


def test_inputs_that_must_not_share_memory() -> None:
    lines = ("z: f32[6, 8] = add(x, y)", "w: f32[6, 8] = mul(z, y)", "update x = z", "apart y, 1")
    exe = program("x: f32[6, 8], y: f32[6, 8]", *lines, returns="w")
    base = numbers(200)
    check(exe, base[:48].view(6, 8), base[48:96].view(6, 8))
    for y in (base[47:95].view(6, 8), base[:48].view(6, 8), base[95:143].view(6, 8)):
        x = base[48:96].view(6, 8)
        if y.storage_offset() in (47, 95):
            with pytest.raises(UnsupportedError, match="Inputs 'y' and 'x' of fusion 'f' share memory"):
                exe(x, y)
        else:
            check(exe, x, y)


# inputs that share memory

WINDOWS = [(0, (8, 1)), (1, (8, 1)), (8, (8, 1)), (60, (8, 1)), (0, (1, 6)), (5, (0, 1)), (3, (1, 1))]


@pytest.mark.parametrize("aligned", [False, True])
def test_overlapping_inputs_are_read_before_any_is_written(aligned: bool) -> None:
    """Every pair of windows into one tensor; plans of one pair are not taken for another."""
    exe = program("x: f32[6, 8], y: f32[6, 8]", "z: f32[6, 8] = add(x, y)", "w: f32[6, 8] = mul(x, y)", "update x = z", returns="w")
    base = numbers(400)
    for (a, _), (b, strides) in itertools.product([w for w in WINDOWS if w[1] == (8, 1)], WINDOWS):
        scale = 4 if aligned else 1
        x, y = base.as_strided((6, 8), (8, 1), a * scale), base.as_strided((6, 8), strides, b * scale)
        want, product = x + y, x * y
        mx, my = copied([x, y])
        (w,) = exe(mx, my)
        assert torch.equal(mx, want) and torch.equal(w, product)


def test_the_same_tensor_as_target_and_operand() -> None:
    exe = program("x: f32[64], y: f32[64]", "r: f32[64] = flip(y, dims=[0])", "z: f32[64] = add(x, r)", "update x = z")
    x = numbers(64)
    want = x + x.flip(0)
    exe(x, x)
    assert torch.equal(x, want)


# any program

@st.composite
def updating_programs(draw: st.DrawFn):
    """A random program that writes some of its values, or views of inputs moved, into inputs of their types."""
    fusion, inputs = draw(programs(max_nodes=10))
    values = [*fusion.inputs, *(n.out for n in fusion.nodes)]
    updates = []
    for target in fusion.inputs:
        fits = [v for v in values if v.type == target.type and v is not target]
        if isinstance(inputs[fusion.inputs.index(target)], torch.Tensor) and fits and draw(st.integers(0, 3)):
            updates.append(Update(target, draw(st.sampled_from(fits))))
    changed = dataclasses.replace(fusion, updates=tuple(updates))
    note(str(changed))
    return changed, inputs


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(updating_programs())
def test_random_programs(drawn: tuple[Fusion, list]) -> None:
    fusion, inputs = drawn
    verify(fusion)
    assert str(parse(str(fusion))) == str(fusion)
    exe = compile_fusion(fusion, "host")
    try:
        exe(*copied(inputs))
    except UnsupportedError:
        targets = [inputs[fusion.inputs.index(u.target)] for u in fusion.updates]
        overlapping = [x for x in targets if _places(x) < x.numel()]
        assert overlapping
        try:
            evaluate(fusion, *copied(inputs))
        except RuntimeError as error:
            assert "more than one element of the written-to tensor" in str(error)
        else:  # torch sees strides of 0 alone; what windows that overlap hold after a write, it leaves open
            assert all(0 not in _strides_that_count(x) for x in overlapping)
        return
    check(exe, *inputs)


def _strides_that_count(x: torch.Tensor) -> list[int]:
    return [s for s, n in zip(x.stride(), x.shape) if n > 1]


def _places(x: torch.Tensor) -> int:
    """How many elements of memory a tensor has its own in."""
    at = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(x.shape, x.stride()):
        at = at[..., None] + torch.arange(size) * stride
    return at.unique().numel()
