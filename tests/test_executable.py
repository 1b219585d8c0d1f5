"""What a compiled fusion does around its kernels: plans by layout, bounded tables, inputs refused in one sentence."""

from __future__ import annotations

import math

import pytest
import torch

from thunder_fuser.compiler import compile_fusion
from thunder_fuser.errors import InputError
from thunder_fuser.executable import MAX_PLANS, Executable
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import DTYPES, DType
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.parser import parse

pytestmark = pytest.mark.usefixtures("compiled")


def program(signature: str, *lines: str, returns: str = "") -> Executable:
    body = "\n".join(f"  {line}" for line in lines)
    return compile_fusion(parse(f"fusion f({signature}) {{\n{body}\n  return {returns or lines[-1].split(':')[0]}\n}}"), "host")


def twice(shape: tuple[int, ...] = (4, 6)) -> Executable:
    return program(f"x: f32{list(shape)}", f"y: f32{list(shape)} = mul(x, 2.0)")


# plans

def test_a_plan_for_each_pattern_of_strides_and_alignment() -> None:
    exe, base = twice(), torch.arange(200, dtype=torch.float32)
    cases = [((6, 1), 0, 1), ((6, 1), 0, 1), ((6, 1), 4, 1), ((6, 1), 1, 2), ((6, 1), 5, 2), ((1, 4), 0, 3), ((12, 2), 0, 4), ((0, 1), 0, 5)]
    for strides, offset, plans in cases:
        x = base.as_strided((4, 6), strides, offset)
        assert torch.equal(exe(x)[0], x * 2)
        assert exe.cache_info()["plans_made"] == plans


def test_the_table_of_plans_is_bounded(compiled: bool) -> None:
    exe, base = twice((2,)), torch.arange(500, dtype=torch.float32)
    for stride in range(1, MAX_PLANS + 12):
        x = base.as_strided((2,), (stride,))
        assert exe(x)[0].tolist() == exe(x)[0].tolist() == [0.0, 2.0 * stride]
    assert exe.compiled_calls == (MAX_PLANS + 11 if compiled else 0)
    info = exe.cache_info()
    assert info["plans_held"] == MAX_PLANS == info["limit"] and info["plans_made"] == MAX_PLANS + 11
    assert exe(base.as_strided((2,), (1,)))[0].tolist() == [0.0, 2.0], "a dropped plan is made again"
    exe.cache_clear()
    assert exe.cache_info()["plans_held"] == 0
    with pytest.raises(InputError, match="has not been called yet"):
        exe.report()
    assert exe(base[:2])[0].tolist() == [0.0, 2.0]


def test_a_plan_prints_as_the_function_that_it_is() -> None:
    b = FusionBuilder()
    x, s = b.tensor(DTYPES["f32"], (4, 6)), b.scalar(DTYPES["f64"])
    b.output(b.mul(x, s))
    b.output(b.permute(x, [1, 0]))
    exe = compile_fusion(b.build(), "host")
    got = exe(torch.ones(4, 6), 3.0)
    assert torch.equal(got[0], torch.full((4, 6), 3.0)) and got[1].shape == (6, 4)
    from thunder_fuser.compiler import lower

    _, plan = lower(exe.fusion, [(6, 1), None], [16, 16])
    text = str(plan)
    assert text.startswith("def run(in0, in1") and "out0 = empty((4, 6), (6, 1), dtype0)" in text
    assert "as_strided(in0, (6, 4), (1, 6), in0.storage_offset())" in text and text.count("kernel0(") == 1
    compile(text, "plan", "exec")


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_any_alignment_of_any_dtype(dtype: DType) -> None:
    """Vectors are as wide as the pointer allows, whichever element of memory a tensor starts at."""
    b = FusionBuilder()
    x = b.tensor(dtype, (16, 64))
    b.output(b.where(b.eq(x, x), x, x))
    b.output(b.cat([b.slice(x, [0, 32], [16, 64]), b.slice(x, [0, 0], [16, 32])], 1))
    exe = compile_fusion(b.build(), "host")
    base = torch.randint(0, 2 if dtype.kind == "bool" else 9, (16 * 64 + 16,)).to(dtype.torch)
    for offset in range(16):
        given = base[offset:offset + 1024].view(16, 64)
        for got, want in zip(exe(given), evaluate(exe.fusion, given), strict=True):
            assert torch.equal(got, want)
    alignments = {math.gcd(16, offset * dtype.size) for offset in range(16)}
    assert exe.cache_info()["plans_made"] >= len(alignments)


# inputs

def test_zero_size_launches_nothing() -> None:
    exe = twice((0, 6))
    assert exe(torch.empty(0, 6))[0].shape == (0, 6)
    assert exe.report().kernels == ()
    empty = program("x: f32[3, 0]", "s: f32[3] = sum(x, dims=[1])")
    assert empty(torch.empty(3, 0))[0].tolist() == [0.0] * 3


def test_numbers_of_every_kind() -> None:
    exe = program("x: f32[4], s: f64, n: i64, b: b8", "y: f32[4] = mul(x, s)", "z: f32[4] = add(y, n)", "w: f32[4] = where(b, z, y)")
    x = torch.arange(4.0)
    assert exe(x, 2.0, 3, True)[0].tolist() == [3.0, 5.0, 7.0, 9.0]
    assert exe(x, 2.0, 3, False)[0].tolist() == [0.0, 2.0, 4.0, 6.0]
    assert exe(x, 2, -3, True)[0].tolist() == [-3.0, -1.0, 1.0, 3.0], "an int is a float too"
    assert exe(x, -0.5, 2**40, False)[0].tolist() == [0.0, -0.5, -1.0, -1.5]


def test_numbers_alone() -> None:
    exe = program("s: f64, n: i64", "y: f64[3] = full(s)", "i: i64[3] = iota(n, 2)", returns="y, i")
    got = exe(2.5, -4)
    assert got[0].tolist() == [2.5] * 3 and got[1].tolist() == [-4, -2, 0]


def test_more_than_a_hundred_inputs() -> None:
    b = FusionBuilder()
    given = [b.tensor(DTYPES["i64"], (7, 5)) for _ in range(130)]
    total = given[0]
    for value in given[1:]:
        total = b.add(total, value)
    b.output(total)
    b.output(b.cat(given, 1))
    tensors = [torch.full((7, 5), k) for k in range(130)]
    got = compile_fusion(b.build(), "host")(*tensors)
    assert torch.equal(got[0], torch.full((7, 5), 129 * 65)) and torch.equal(got[1], torch.cat(tensors, 1))


def test_overlapping_and_shared_inputs() -> None:
    """Windows that overlap, one tensor twice, views of each other: inputs are only read, so all of it is legal."""
    exe = program("x: f32[5, 4], y: f32[5, 4]", "z: f32[5, 4] = sub(x, y)", "s: f32[5] = sum(x, dims=[1])", "w: f32[4, 5] = permute(x, dims=[1, 0])",
                  returns="z, s, w")
    base = torch.arange(40, dtype=torch.float32)
    windows, other = base.as_strided((5, 4), (1, 1)), base.as_strided((5, 4), (2, 3), 1)
    for x, y in [(windows, windows), (windows, other), (other, windows), (base.as_strided((5, 4), (0, 0)), other)]:
        got = exe(x, y)
        assert torch.equal(got[0], x - y) and torch.equal(got[1], x.sum(1)) and torch.equal(got[2], x.T)
    assert torch.equal(base, torch.arange(40.0))


@pytest.mark.parametrize("numbers,message", [
    ((2.0, 3.5, True), "Input 2 of fusion 'f' is 3.5, expected an integer of 64 bits."),
    ((2.0, 2**70, True), "Input 2 of fusion 'f' is a 'int', expected an integer of 64 bits."),
    ((10**400, 3, True), "Input 1 of fusion 'f' is a 'int', expected a float."),
    ((2.0, 3, 2), "Input 3 of fusion 'f' is 2, expected a bool."),
    (("a", 3, True), "Input 1 of fusion 'f' is a 'str', expected a float."),
    ((None, 3, True), "Input 1 of fusion 'f' is a 'NoneType', expected a float."),
    ((1j, 3, True), "Input 1 of fusion 'f' is 1j, expected a float."),
    ((torch.tensor(2.0), 3, True), "Input 1 of fusion 'f' is a 'Tensor', expected a float."),
], ids=str)
def test_wrong_numbers(numbers: tuple, message: str) -> None:
    exe = program("x: f32[2], s: f64, n: i64, b: b8", "y: f32[2] = mul(x, s)", "z: f32[2] = add(y, n)", "w: f32[2] = where(b, z, y)")
    for planned in (False, True):
        if planned:
            exe(torch.ones(2), 2.0, 3, True)
        with pytest.raises(InputError) as error:
            exe(torch.ones(2), *numbers)
        assert str(error.value) == message


WRONG = [
    ((torch.zeros(4, 5),), "Input 0 of fusion 'f' is torch.float32 [4, 5], expected torch.float32 [4, 6]."),
    ((torch.zeros(4, 6, dtype=torch.float64),), "Input 0 of fusion 'f' is torch.float64 [4, 6], expected torch.float32 [4, 6]."),
    ((), "Fusion 'f' takes 1 inputs, got 0."),
    ((torch.zeros(4, 6), torch.zeros(4, 6)), "Fusion 'f' takes 1 inputs, got 2."),
    (([[0.0] * 6] * 4,), "Input 0 of fusion 'f' is a 'list', expected a tensor."),
    ((None,), "Input 0 of fusion 'f' is a 'NoneType', expected a tensor."),
    ((3.0,), "Input 0 of fusion 'f' is a 'float', expected a tensor."),
    ((torch.zeros(4, 6, device="meta"),), "Inputs of fusion 'f' are on 'meta', but its backend is 'host'."),
    ((torch.zeros(4, 6).to_sparse(),), "Input 0 of fusion 'f' has the layout torch.sparse_coo, expected torch.strided."),
]


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("inputs,message", WRONG, ids=[m for _, m in WRONG])
def test_wrong_inputs(inputs: tuple, message: str, planned: bool) -> None:
    """Also when the table already holds a plan for inputs that look alike."""
    exe = twice()
    if planned:
        exe(torch.zeros(4, 6))
    with pytest.raises(InputError) as error:
        exe(*inputs)
    assert str(error.value) == message


def test_wrong_backend() -> None:
    fusion = twice().fusion
    with pytest.raises(InputError, match="^The backend is 'cpu', expected 'cuda', 'host' or None.$"):
        compile_fusion(fusion, "cpu")
    with pytest.raises(InputError, match="are on 'cpu', but its backend is 'cuda'"):
        compile_fusion(fusion, "cuda")(torch.zeros(4, 6))


@pytest.mark.filterwarnings("ignore:.*data pointer:UserWarning")
def test_a_tensor_without_memory() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    exe = twice()
    exe(torch.zeros(4, 6))
    with FakeTensorMode():
        fake = torch.zeros(4, 6)
    with pytest.raises(InputError, match="is a 'FakeTensor' without memory"):
        exe(fake)
