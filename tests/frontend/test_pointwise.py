"""Every elementwise op of `fd.ops` against torch, and the dtypes that mixed operands meet in."""

from __future__ import annotations

import itertools

import pytest
import torch

from thunder_fuser import DataType, FusionDefinition
from thunder_fuser.errors import UnsupportedError
from thunder_fuser.frontend.pointwise import KEEP_DTYPE
from thunder_fuser.ir.ops import POINTWISE

TABLE = [name for name in POINTWISE if name != "where"]


def _operands(name: str, dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    row = POINTWISE[name]
    low, high = row.domain
    if dtype is torch.float8_e5m2:
        return [torch.randint(-9, 9, (5, 7), device=device).float().to(dtype) for _ in range(row.arity)]
    if dtype.is_complex:
        return [torch.randn(5, 7, dtype=dtype, device=device) for _ in range(row.arity)]
    if dtype.is_floating_point:
        return [torch.empty(5, 7, dtype=dtype, device=device).uniform_(low, high) for _ in range(row.arity)]
    if dtype is torch.bool:
        return [torch.rand(5, 7, device=device) > 0.5 for _ in range(row.arity)]
    return [torch.randint(1, 9, (5, 7), dtype=dtype, device=device) for _ in range(row.arity)]


DTYPES = {"float": [torch.float32, torch.float64], "int": [torch.int32, torch.int64], "bool": [torch.bool], "complex": [torch.complex64, torch.complex128],
          "float8": [torch.float8_e5m2]}
TAKEN = [(name, dtype) for name in TABLE for kind in sorted(POINTWISE[name].accepts) for dtype in DTYPES[kind]]


@pytest.mark.parametrize("name, dtype", TAKEN)
def test_table_op(name: str, dtype: torch.dtype, device: str, run_one) -> None:
    row = POINTWISE[name]
    operands = _operands(name, dtype, device)
    out = run_one(lambda fd, *xs: getattr(fd.ops, name)(*xs), *operands)
    if out.dtype.is_floating_point:
        expected = row.torch(*(t.to(torch.complex128) if t.is_complex() else t.double() for t in operands))
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-6)
    elif out.is_complex():
        torch.testing.assert_close(out, row.torch(*operands), rtol=1e-5, atol=1e-6)
    else:
        assert torch.equal(out, row.torch(*operands))


FLOAT_UNARY = [n for n in TABLE if POINTWISE[n].arity == 1 and POINTWISE[n].accepts == {"float"}]


@pytest.mark.parametrize("name", [n for n in FLOAT_UNARY if n not in KEEP_DTYPE and POINTWISE[n].out == "same"])
def test_float_op_of_integers_and_halves_is_float(name: str) -> None:
    with FusionDefinition() as fd:
        for dtype in (DataType.Int, DataType.BFloat16, DataType.Half):
            assert getattr(fd.ops, name)(fd.define_tensor([-1], dtype=dtype)).dtype is DataType.Float


COMPOSITES = {"truediv": torch.div, "mod": torch.fmod, "where": lambda x, y: torch.where(x < 0, x, y)}


@pytest.mark.parametrize("name", COMPOSITES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_derived_op(name: str, dtype: torch.dtype, device: str, run_one) -> None:
    x, y = (torch.randint(-9, 9, (4, 9), device=device).to(dtype), torch.randint(1, 5, (4, 9), device=device).to(dtype))
    def body(fd: FusionDefinition, x: object, y: object) -> object:
        return fd.ops.where(fd.ops.lt(x, 0), x, y) if name == "where" else getattr(fd.ops, name)(x, y)

    out, expected = run_one(body, x, y), COMPOSITES[name](x, y)
    assert out.dtype is expected.dtype
    torch.testing.assert_close(out.double(), expected.double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["isfinite", "isnan", "isinf"])
def test_predicates_of_integers(name: str, device: str, run_one) -> None:
    x = torch.randint(-5, 5, (7,), device=device)
    assert torch.equal(run_one(lambda fd, x: getattr(fd.ops, name)(x), x), getattr(torch, name)(x))


def test_relu_and_clamp_keep_nan(device: str, run) -> None:
    x = torch.tensor([float("nan"), float("-inf"), -1.0, -0.0, 0.0, 2.0, float("inf")], device=device)
    relu, clamp, low_only = run(lambda fd, x: [fd.ops.relu(x), fd.ops.clamp(x, -0.5, 1.5), fd.ops.clamp(x, 0.5)], x)
    assert torch.equal(relu.nan_to_num(99.0), torch.relu(x).nan_to_num(99.0))
    assert torch.equal(clamp.nan_to_num(99.0), torch.clamp(x, -0.5, 1.5).nan_to_num(99.0))
    assert torch.equal(low_only.nan_to_num(99.0), torch.clamp(x, 0.5).nan_to_num(99.0))


def test_threshold_keeps_nan(device: str, run_one) -> None:
    x = torch.tensor([float("nan"), float("-inf"), 0.5, 2.0, float("inf")], device=device)
    out = run_one(lambda fd, x: fd.ops.threshold(x, 0.5, 7.0), x)
    assert torch.equal(out.nan_to_num(99.0), torch.nn.functional.threshold(x, 0.5, 7.0).nan_to_num(99.0))


def test_addcmul(device: str, run_one) -> None:
    x, y, z = (torch.randn(3, 5, device=device) for _ in range(3))
    out = run_one(lambda fd, x, y, z: fd.ops.addcmul(x, y, z, value=0.25), x, y, z)
    torch.testing.assert_close(out.double(), torch.addcmul(x.double(), y.double(), z.double(), value=0.25), rtol=1e-5, atol=1e-6)


def test_silu_of_bfloat16_is_rounded_once(device: str, run_one) -> None:
    x = torch.randn(64, device=device).bfloat16()
    out = run_one(lambda fd, x: fd.ops.silu(x), x)
    assert out.dtype is torch.bfloat16
    torch.testing.assert_close(out.double(), torch.nn.functional.silu(x.double()), rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("left, right", list(itertools.product(
    [torch.bool, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64], repeat=2))[1:])
def test_mixed_tensors_meet_as_in_torch_with_halves_as_float(left: torch.dtype, right: torch.dtype, run_one) -> None:
    expected = torch.promote_types(left, right)
    x, y = (torch.randint(0, 2, (6,)).to(d) if d is not torch.bool else torch.rand(6) > 0.5 for d in (left, right))
    out = run_one(lambda fd, x, y: fd.ops.add(x, y), x, y)
    assert out.dtype is (torch.float32 if expected in (torch.float16, torch.bfloat16) else expected)
    assert torch.equal(out.double(), x.double() + y.double())


@pytest.mark.parametrize("dtype, number, expected", [
    (torch.float32, 2.5, torch.float32), (torch.float32, 3, torch.float32), (torch.float64, 2.5, torch.float64),
    (torch.bfloat16, 2.5, torch.float32), (torch.bfloat16, 3, torch.float32), (torch.int64, 3, torch.int64),
    (torch.int32, 3, torch.int32), (torch.int32, True, torch.int32), (torch.int64, 0.5, torch.float64),
    (torch.int32, 0.5, torch.float64), (torch.bool, 3, torch.int64), (torch.bool, 0.5, torch.float64),
])
def test_tensor_with_number(dtype: torch.dtype, number: float, expected: torch.dtype, device: str, run_one) -> None:
    x = (torch.randint(0, 2, (9,), device=device)).to(dtype)
    for body in (lambda fd, x: fd.ops.add(x, number), lambda fd, x: x + fd.define_scalar(number), lambda fd, x: number + x):
        out = run_one(body, x)
        assert out.dtype is expected
        assert torch.equal(out.double(), x.double() + number)


def test_zero_dim_tensor_gives_way_to_a_tensor_with_dims(run_one) -> None:
    x, s = torch.randn(5), torch.tensor(0.1, dtype=torch.float64)
    assert run_one(lambda fd, x, s: fd.ops.mul(x, s), x, s).dtype is torch.float32
    i = torch.arange(5)
    assert run_one(lambda fd, x, s: fd.ops.mul(x, s), i, s).dtype is torch.float64


def test_where_keeps_halves_and_comparison_is_bool(device: str, run) -> None:
    x = torch.randn(7, device=device).bfloat16()
    chosen, flag = run(lambda fd, x: [fd.ops.where(fd.ops.lt(x, 0.0), x, 1.0), fd.ops.lt(x, 0)], x)
    assert chosen.dtype is torch.bfloat16 and torch.equal(chosen, torch.where(x < 0, x, 1.0))
    assert flag.dtype is torch.bool and torch.equal(flag, x < 0)


def test_where_of_two_numbers(device: str, run_one) -> None:
    x = torch.randn(7, device=device)
    out = run_one(lambda fd, x: fd.ops.where(fd.ops.lt(x, 0.0), 2, -3), x)
    assert out.dtype is torch.int64 and torch.equal(out, torch.where(x < 0, 2, -3))


@pytest.mark.parametrize("shapes", [((3, 1), (1, 4)), ((5,), (2, 3, 5)), ((), (4,)), ((1,), (0,)), ((2, 0, 1), (1, 3))])
def test_operands_broadcast(shapes: tuple[tuple[int, ...], tuple[int, ...]], device: str, run_one) -> None:
    x, y = (torch.randn(s, device=device) for s in shapes)
    out = run_one(lambda fd, x, y: fd.ops.sub(x, y), x, y)
    assert out.shape == (x - y).shape and torch.equal(out, x - y)


@pytest.mark.parametrize("make", [
    lambda: torch.randn(6, 8).t(), lambda: torch.randn(1, 5).expand(4, 5), lambda: torch.randn(10, 10)[1:8:3, 2:],
    lambda: torch.randn(0, 3), lambda: torch.randn(1, 1, 1), lambda: torch.randn(33)[1:], lambda: torch.randn(()),
    lambda: torch.randn(2, 3, 5, 7).permute(0, 2, 3, 1),
])
def test_strides_of_the_call_decide(make: object, device: str) -> None:
    source = make()
    x = torch.empty_strided(source.shape, source.stride(), device=device) if source.numel() else source.to(device)
    x.copy_(source) if 0 not in source.stride() else x.set_(source.to(device))
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1] * x.ndim, contiguity=True, dtype=DataType.Float)
        fd.add_output(fd.ops.add(fd.ops.neg(t), 1.0))
    (out,) = fd.execute([x])
    assert torch.equal(out, 1.0 - x)


def test_operators_record_the_ops(device: str, run) -> None:
    x, y = torch.randn(6, device=device), torch.rand(6, device=device) + 0.5
    outs = run(lambda fd, x, y: [x + y, x - 1.5, 2.0 * x, -x, abs(x), x < y, 1.0 - y], x, y)
    for out, expected in zip(outs, [x + y, x - 1.5, 2.0 * x, -x, x.abs(), x < y, 1.0 - y]):
        assert torch.equal(out, expected)


def test_scalar_inputs_and_scalar_arithmetic(device: str) -> None:
    x = torch.randn(6, device=device)
    with FusionDefinition() as fd:
        t, a, n = fd.from_pytorch(x), fd.define_scalar(None, DataType.Double), fd.define_scalar(None, DataType.Int)
        fd.add_output(fd.ops.mul(t, fd.ops.add(fd.ops.mul(a, 2.0), n)))
    for a, n in ((0.5, 3), (-1.25, 0)):
        (out,) = fd.execute([x, a, n])
        torch.testing.assert_close(out.double(), x.double() * (2 * a + n), rtol=1e-6, atol=1e-6)
    assert len(fd._calls.known) == 1  # neither number decides a size


def test_bitwise_op_of_floats_is_refused() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.Float)
        with pytest.raises(UnsupportedError, match="'bitwise_and' of dtype 'DataType.Float' is not supported"):
            fd.ops.bitwise_and(x, x)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8], ids=str)
def test_logical_right_shift_brings_in_zeros(dtype: torch.dtype, device: str, run_one) -> None:
    info = torch.iinfo(dtype)
    x = torch.tensor([0, 1, 37, info.min, info.max, info.min + 5], device=device, dtype=dtype).repeat_interleave(5)
    by = torch.tensor([0, 1, info.bits - 1, info.bits, info.bits + 3], device=device, dtype=dtype).repeat(6)
    out = run_one(lambda fd, x, n: fd.ops.logical_right_shift(x, n), x, by)
    expected = [(v % 2**info.bits) >> n if n < info.bits else 0 for v, n in zip(x.tolist(), by.tolist())]
    assert [v % 2**info.bits for v in out.tolist()] == expected and out.dtype is dtype


def test_logical_right_shift_by_less_than_nothing(device: str, run_one) -> None:
    x = torch.tensor([5, -5], device=device)
    assert run_one(lambda fd, x: fd.ops.logical_right_shift(x, -1), x).tolist() == [0, 0]
    with FusionDefinition() as fd, pytest.raises(UnsupportedError, match="'logical_right_shift' of dtype 'DataType.Float'"):
        fd.ops.logical_right_shift(fd.define_tensor([-1]), 1)


@pytest.mark.parametrize("x", [torch.tensor([1 + 0j, 2j, complex(float("nan"), 0.0), complex(0, float("nan")), complex(3, -0.0)]),
                               torch.tensor([1.0, float("nan"), float("inf")]), torch.tensor([1, 0]), torch.tensor([True, False])], ids=str)
def test_isreal(x: torch.Tensor, device: str, run_one) -> None:
    x = x.to(device)
    assert torch.equal(run_one(lambda fd, x: fd.ops.isreal(x), x), torch.isreal(x))


def test_complex_definitions_with_numbers_given_at_the_call(device: str) -> None:
    z, y = torch.randn(5, dtype=torch.complex64, device=device), torch.randn(5, device=device)
    with FusionDefinition() as fd:
        t, r, c = fd.from_pytorch(z), fd.from_pytorch(y), fd.define_scalar(None, DataType.ComplexDouble)
        made = fd.ops.mul(fd.ops.add(t, c), r)
        fd.add_output(made)
        fd.add_output(fd.ops.real(made))
        fd.add_output(fd.ops.complex(fd.ops.imag(t), r))
    for c in (2j, 1.5, 3):
        outs = fd.execute([z, y, c])
        want = (z.cdouble() + c) * y.double()
        for out, expected in zip(outs, (want, want.real, torch.complex(z.imag.double(), y.double()))):
            torch.testing.assert_close(out, expected.to(out.dtype), rtol=1e-5, atol=1e-6)
        fd.validate([z, y, c])
    for lazy in (z.conj(), torch.randn(5, dtype=torch.complex64, device=device).conj()):
        (out, *_) = fd.execute([lazy, y, 1j])
        torch.testing.assert_close(out, (lazy.resolve_conj() + 1j) * y)
