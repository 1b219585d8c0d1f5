"""Every row of the op tables: its C++ against its torch reference, on random and on special values.

One shared object holds a loop for each row and arithmetic type, so that the compiler runs once."""

from __future__ import annotations

import ctypes
import itertools
import math
import shutil
import subprocess
from importlib import resources

import pytest
import torch

from thunder_fuser.codegen.literals import cuda_literal
from thunder_fuser.codegen.prelude import prelude
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, BOOL, C64, DTYPES, F16, F32, F64, I8, I32, I64, U8, DType, as_number, real_of
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.ops import POINTWISE, REDUCTIONS, PointwiseOp
from thunder_fuser.runtime import driver
from thunder_fuser.runtime.nvrtc import compile_cubin
from thunder_fuser.runtime.options import CompileOptions
from thunder_fuser.runtime.source import KernelSource

MATH = [d for d in DTYPES.values() if d.storage == d.math]
ROWS = [(op, d) for op in POINTWISE.values() for d in MATH if op.takes(d)]
FOLDS = [(op, d) for op in REDUCTIONS.values() for d in MATH if d.kind in op.accepts]
LITERALS = [
    (v, d) for d in MATH for v in (
        True, 0, 1, -1, 5, 0.0, -0.0, 0.1, -0.1, 1e-40, 1e-45, 5e-324, 3.4e38, 1e39, -1e39, 1e16, 2**24 + 1, 1 / 3, 127, 128,
        -128, 255, 300, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**64, math.inf, -math.inf, math.nan, 1 + 2j, complex(-0.0, -0.5),
        complex(math.nan, -math.inf))
    if not (d.kind == "int" and isinstance(v, float) and not math.isfinite(v)) and not (isinstance(v, complex) and d.kind != "complex")
]


def test_rows_have_the_shape_that_others_count_on() -> None:
    for op in POINTWISE.values():
        assert op.arity in (1, 2, 3) and op.out in ("same", "bool", "real", "complex")
        assert hasattr(FusionBuilder, op.name)
    assert POINTWISE["where"].arity == 3 and not POINTWISE["nextafter"].takes(BF16)


def _function(op: PointwiseOp, dtype: DType) -> str:
    out = op.result(dtype).math
    first = "bool" if op.name == "where" else dtype.math
    value = op.expression(dtype).format("a[i]", "b[i]", "c[i]")
    return (f"ENTRY {op.name}_{dtype}(const {first}* a, const {dtype.math}* b, const {dtype.math}* c, {out}* out, long long n) "
            f"{{ for (long long i = 0; i < n; ++i) out[i] = {value}; }}\n")


def _unit() -> str:
    lines = [_function(op, d) for op, d in ROWS]
    for op, d in FOLDS:
        identity, combine = op.identity.format(T=d.math), op.combine.format("t", "a[i]", T=d.math)
        lines.append(f"ENTRY fold_{op.name}_{d}(const {d.math}* a, {d.math}* out, long long n) "
                     f"{{ {d.math} t = {identity}; for (long long i = 0; i < n; ++i) t = {combine}; *out = t; }}\n")
    for d in MATH:
        values = "".join(f"  out[{i}] = {cuda_literal(v, e)};\n" for i, (v, e) in enumerate(LITERALS) if e is d)
        lines.append(f"ENTRY literals_{d}({d.math}* out) {{\n{values}}}\n")
    return "".join(lines)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("ops")
    cuda = resources.files("thunder_fuser.codegen") / "cuda"
    math_text = "".join((cuda / name).read_text() for name in ("complex.cuh", "math.cuh", "complex_math.cuh"))
    (folder / "ops.cpp").write_text(f"#define ENTRY extern \"C\" void\n{math_text}\n{_unit()}")
    compiler = shutil.which("c++") or pytest.skip("no C++ compiler")
    warnings = ["-Wall", "-Werror", "-Wno-overflow", "-Wno-int-in-bool-context"]
    command = [compiler, "-O1", "-std=c++17", *warnings, "-ffp-contract=off", "-shared", "-fPIC", "-DTF_HOST",
               str(folder / "ops.cpp"), "-o", str(folder / "ops.so"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(folder / "ops.so"))


def _floats(dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    sizes = [0.0, info.smallest_normal / 8, info.smallest_normal, 1e-3, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 100.5,
             2.0**25 + 2, info.max, math.inf]
    return torch.tensor([s * x for x in sizes for s in (1, -1)] + [math.nan], dtype=dtype)


def _values(op: PointwiseOp, dtype: DType) -> list[torch.Tensor]:
    """Operands: all pairs of special values, then random ones from the row's domain."""
    generator = torch.Generator().manual_seed(0)
    if dtype.kind == "bool":
        special, drawn = torch.tensor([False, True]), torch.randint(2, (op.arity, 100), generator=generator).bool()
    elif dtype.kind == "int":
        info = torch.iinfo(dtype.torch)
        picked = [info.min, info.min + 1, -1 if info.min else 4, 0, 1, 2, 3, 7, 8, 31, 63, 64, info.max]
        special = torch.tensor(picked, dtype=dtype.torch)
        drawn = torch.randint(info.min, info.max, (op.arity, 2000), dtype=dtype.torch, generator=generator)
        drawn[:, :1000] %= 12
    elif dtype.kind == "complex":
        parts = torch.tensor([0.0, -0.0, 1e-3, 0.5, 1.0, -1.0, 2.0, -7.5], dtype=real_of(dtype).torch)
        special = torch.complex(*(p.flatten() for p in torch.meshgrid(parts, parts, indexing="ij")))
        drawn = torch.randn(op.arity, 2000, dtype=dtype.torch, generator=generator) * 2
    else:
        special = _floats(dtype.torch)
        low, high = op.domain
        drawn = torch.rand(op.arity, 2000, dtype=dtype.torch, generator=generator) * (high - low) + low
    pairs = torch.tensor(list(itertools.product(range(len(special)), repeat=min(op.arity, 2)))).T
    columns = [torch.cat([special[pairs[k % len(pairs)].roll(k // 2)], drawn[k]]) for k in range(op.arity)]
    if op.name == "where":
        columns[0] = (columns[0].real if columns[0].is_complex() else columns[0]) > 0
    return columns


def _defined(op: PointwiseOp, dtype: DType, args: list[torch.Tensor]) -> torch.Tensor:
    """Where torch itself has an answer: its CPU kernels fault on a division by zero, or by -1 of the least integer."""
    if dtype.kind == "int" and op.name in ("div", "fmod", "remainder"):
        return (args[1] != 0) & ~((args[0] == torch.iinfo(dtype.torch).min) & (args[1] == (-1 if dtype is not U8 else 0)))
    if op.name == "gcd":  # the magnitude of the least integer is no integer
        return (args[0] != torch.iinfo(dtype.torch).min) & (args[1] != torch.iinfo(dtype.torch).min) | (dtype is U8)
    if dtype.kind == "float" and op.name in ("fmod", "remainder"):  # its vectorised kernels divide: NaN if that overflows
        return ~((args[0] / args[1]).isinf() & args[0].isfinite() & (args[1] != 0))
    if op.name == "pow" and dtype.kind == "complex":  # 0 ** 0 is NaN with a tensor as exponent, 1 with a number
        return (args[0] != 0) | (args[1].real > 0)
    if op.name == "lerp":  # a fused multiply-add, which both may use, overflows later
        return ((args[0].abs() < 1e30) & (args[1].abs() < 1e30)) | args[0].isinf() | args[1].isinf()
    return torch.ones_like(args[0], dtype=torch.bool)


def _run(host: ctypes.CDLL, name: str, args: list[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
    pointers = [ctypes.c_void_p(a.data_ptr()) for a in args]
    pointers += [ctypes.c_void_p(None)] * (3 - len(pointers))
    getattr(host, name)(*pointers, ctypes.c_void_p(out.data_ptr()), ctypes.c_longlong(args[0].numel()))
    return out


@pytest.mark.parametrize("op,dtype", ROWS, ids=[f"{op.name}-{d}" for op, d in ROWS])
def test_generated_expression_is_torch(host: ctypes.CDLL, op: PointwiseOp, dtype: DType) -> None:
    args = _values(op, dtype)
    defined = _defined(op, dtype, args)
    args = [a[defined].contiguous() for a in args]
    want = op.torch(*args)
    _assert_right(op, dtype, args, _run(host, f"{op.name}_{dtype}", args, torch.empty_like(want)), want)


@pytest.mark.gpu
@pytest.mark.parametrize("op,dtype", ROWS, ids=[f"{op.name}-{d}" for op, d in ROWS])
def test_generated_expression_is_torch_on_the_card(cubin: bytes, op: PointwiseOp, dtype: DType) -> None:
    args = _values(op, dtype)
    defined = _defined(op, dtype, args)
    args = [a[defined].cuda() for a in args]
    want = op.torch(*args)
    got = torch.empty_like(want)
    launch = driver.load(cubin, f"{op.name}_{dtype}", 0).launcher(1, 1, 0, ["ptr"] * 4 + ["i64"])
    pointers = [a.data_ptr() for a in args] + [0] * (3 - len(args))
    launch(torch.cuda.current_stream().cuda_stream, *pointers, got.data_ptr(), got.numel())
    _assert_right(op, dtype, [a.cpu() for a in args], got.cpu(), want.cpu())


@pytest.fixture(scope="module")
def cubin() -> bytes:
    unit = f"#define ENTRY extern \"C\" __global__ void\n{prelude()}\n{_unit()}"
    return compile_cubin(KernelSource("ops", unit), driver.arch(0), CompileOptions())


def _assert_right(op: PointwiseOp, dtype: DType, args: list[torch.Tensor], got: torch.Tensor, want: torch.Tensor) -> None:
    """Integers and bools equal torch's. Floats equal torch's or are within 16 units in the last place of the float64
    result; NaN, infinities and the sign of zero are torch's."""
    if op.name == "complex":
        assert torch.equal(torch.view_as_real(got).nan_to_num(7.0), torch.view_as_real(want).nan_to_num(7.0))
        return
    if dtype.kind == "complex" and op.out != "bool":
        _assert_near(op, dtype, args, got, want)
        return
    if dtype.kind != "float" or op.out == "bool":
        assert torch.equal(got, want), _first_difference(got != want, args, got, want)
        return
    exact = op.torch(*(a.double() if a.is_floating_point() else a for a in args))
    scale = (args[0].abs() + args[1].abs()).double() * (1 + args[2].abs()) if op.name == "lerp" else exact.abs()
    tolerance = 16 * torch.finfo(dtype.torch).eps * scale.clamp(min=torch.finfo(dtype.torch).smallest_normal)
    close = (got.double() - exact).abs() <= tolerance
    zeros = (got == 0) & (want == 0) & (got.signbit() == want.signbit())
    right = ((got == want) & (want != 0)) | (got.isnan() & want.isnan()) | zeros | (close & (exact != 0))
    if op.name in ("maximum", "minimum", "relu", "lerp"):  # torch's CPU kernels do not tell zeros apart
        right |= (got == 0) & (want == 0)
    assert right.all(), _first_difference(~right, args, got, want)


def _assert_near(op: PointwiseOp, dtype: DType, args: list[torch.Tensor], got: torch.Tensor, want: torch.Tensor) -> None:
    """Complex numbers are within 32 units in the last place of the exact ones' size, or are torch's where those are not finite."""
    exact = op.torch(*(a.to(torch.complex128) if a.is_complex() else a for a in args))
    tolerance = 32 * torch.finfo(real_of(dtype).torch).eps * exact.abs().clamp(min=torch.finfo(real_of(dtype).torch).smallest_normal)
    if op.name == "pow":
        tolerance = tolerance * (1 + args[1].abs() * (1 + args[0].abs().log().abs().nan_to_num(posinf=1.0)))
    right = ((got - exact).abs() <= tolerance) | (~exact.isfinite() & ~got.isfinite())
    assert right.all(), _first_difference(~right, args, got, want)


def _first_difference(wrong: torch.Tensor, args: list[torch.Tensor], got: torch.Tensor, want: torch.Tensor) -> str:
    rows = [f"({', '.join(repr(a[i].item()) for a in args)}): {got[i].item()!r}, torch {want[i].item()!r}"
            for i in wrong.nonzero()[:8, 0]]
    return f"{int(wrong.sum())} of {wrong.numel()} wrong: " + "; ".join(rows)


@pytest.mark.parametrize("dtype", [d for d in MATH if d.kind == "int"], ids=str)
def test_integer_division_by_zero_is_no_fault(host: ctypes.CDLL, dtype: DType) -> None:
    info = torch.iinfo(dtype.torch)
    a = torch.tensor([7, 0, info.min, info.max, info.min], dtype=dtype.torch)
    b = torch.tensor([0, 0, 0, 0, -1 if info.min else 255], dtype=dtype.torch)
    minus_one = torch.tensor(-1).to(dtype.torch)
    assert _run(host, f"div_{dtype}", [a, b], torch.empty_like(a))[:4].eq(minus_one).all()
    for name in ("fmod", "remainder"):
        assert _run(host, f"{name}_{dtype}", [a, b], torch.empty_like(a))[:4].equal(a[:4])
    overflow = _run(host, f"div_{dtype}", [a, b], torch.empty_like(a))[4].item()
    assert overflow == info.min  # the quotient wraps around


def test_maximum_and_minimum_tell_zeros_apart(host: ctypes.CDLL) -> None:
    for dtype in (F32, F64):
        a, b = (torch.tensor(v, dtype=dtype.torch) for v in ([0.0, -0.0], [-0.0, 0.0]))
        assert not _run(host, f"maximum_{dtype}", [a, b], torch.empty_like(a)).signbit().any()
        assert _run(host, f"minimum_{dtype}", [a, b], torch.empty_like(a)).signbit().all()


@pytest.mark.parametrize("op,dtype", FOLDS, ids=[f"{op.name}-{d}" for op, d in FOLDS])
@pytest.mark.parametrize("length", [0, 1, 13])
def test_generated_reduction_is_torch(host: ctypes.CDLL, op: object, dtype: DType, length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    inexact = dtype.kind in ("float", "complex")
    x = torch.randn(length, dtype=dtype.torch, generator=generator) if inexact else torch.randint(0, 100, (length,), generator=generator).to(dtype.torch)
    out = torch.empty((), dtype=dtype.torch)
    call = [ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_longlong(length)]
    getattr(host, f"fold_{op.name}_{dtype}")(*call)
    want = op.torch(x, (0,))
    torch.testing.assert_close(out, want, rtol=1e-5 if dtype in (F32, C64) else 1e-13 if inexact else 0, atol=0)
    if inexact and length:
        x[length // 2] = math.nan
        getattr(host, f"fold_{op.name}_{dtype}")(*call)
        assert out.isnan() and op.torch(x, (0,)).isnan()


@pytest.mark.parametrize("dtype", MATH, ids=str)
def test_literals_are_exact(host: ctypes.CDLL, dtype: DType) -> None:
    out = torch.zeros(len(LITERALS), dtype=dtype.torch)
    getattr(host, f"literals_{dtype}")(ctypes.c_void_p(out.data_ptr()))
    for i, (value, d) in enumerate(LITERALS):
        if d is not dtype:
            continue
        want = torch.tensor(as_number(value, dtype), dtype=dtype.torch)
        for part, wanted in zip(torch.view_as_real(out[i]), torch.view_as_real(want)) if dtype.kind == "complex" else [(out[i], want)]:
            assert part.isnan() if wanted.isnan() else torch.equal(part, wanted), cuda_literal(value, dtype)
            assert part.signbit() == wanted.signbit(), cuda_literal(value, dtype)


def test_literals_read_well() -> None:
    assert cuda_literal(0.5, BF16) == "0.5f" and cuda_literal(0.1, F16) == "0.1f"
    assert cuda_literal(-2, F32) == "(-2.0f)" and cuda_literal(0.1, F64) == "0.1"
    assert cuda_literal(-0.0, F32) == "(-0.0f)" and cuda_literal(math.inf, F64) == "tf::infinity<double>()"
    assert cuda_literal(-(2**63), I64) == "(-9223372036854775807LL - 1)" and cuda_literal(3, I64) == "3LL"
    assert cuda_literal(1 - 2j, C64) == "tf::complex64(1.0f, (-2.0f))"
    assert cuda_literal(-5, I8) == "(signed char)(-5)" and cuda_literal(7, I32) == "7" and cuda_literal(2, BOOL) == "true"


def test_every_row_compiles_with_nvrtc() -> None:
    unit = f"#define ENTRY extern \"C\" __global__ void\n{prelude()}\n{_unit()}"
    for arch in ("sm_75", "sm_90"):
        assert compile_cubin(KernelSource("ops", unit), arch, CompileOptions())


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("name", [op.name for op in POINTWISE.values() if op.takes(BF16)])
def test_sixteen_bit_floats_are_computed_wide_and_rounded_once(name: str, dtype: DType) -> None:
    op = POINTWISE[name]
    args = _values(op, dtype)
    b = FusionBuilder()
    values = [b.tensor(BOOL if name == "where" and i == 0 else dtype, a.shape) for i, a in enumerate(args)]
    b.output(b.pointwise(name, *values))
    (got,) = evaluate(b.build(), *args)
    want = op.torch(*(a.float() if a.is_floating_point() else a for a in args)).to(got.dtype)
    assert torch.equal(got.nan_to_num(), want.nan_to_num()) and torch.equal(got.isnan(), want.isnan())
    assert got.dtype is (torch.bool if op.out == "bool" else dtype.torch)
