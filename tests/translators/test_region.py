"""Translated regions against torch: each prim, its arguments and the types that it makes."""

from __future__ import annotations

import math

import pytest
import thunder
import torch
from thunder.core import prims
from thunder.core.devices import cpu
from thunder.core.dtypes import to_dtype
from thunder.core.proxies import TensorProxy, numberproxy
from thunder.core.pytree import tree_flatten
from thunder.core.trace import TraceCtx, tracectx

from thunder_fuser.errors import UnsupportedError
from thunder_fuser.ir.interpreter import evaluate
from thunder_fuser.ir.nodes import Copy
from thunder_fuser.ir.ops import POINTWISE
from thunder_fuser.translators import flatten, translate, why_not

SKIPPED = ("unpack_trivial", "python_return")


def region_of(fn, *args):
    """The bound symbols, inputs and outputs of a function as Thunder traces it."""
    jitted = thunder.jit(fn)
    jitted(*args)
    trace = thunder.last_traces(jitted)[0]
    bsyms = [b for b in trace.bound_symbols if b.sym.name not in SKIPPED]
    outputs = [p for p in tree_flatten(trace.output)[0] if isinstance(p, TensorProxy)]
    return bsyms, [p for p in trace.args if isinstance(p, TensorProxy)], outputs


def region_of_prim(prim, *args):
    """A region of one prim, for tensors and for numbers that are known at call time."""
    trace = TraceCtx()
    with tracectx(trace):
        inputs = [TensorProxy(shape=a.shape, device=cpu, dtype=to_dtype(a.dtype)) if isinstance(a, torch.Tensor)
                  else numberproxy(type(a), a) for a in args]
        out = prim(*inputs)
    return trace.bound_symbols, inputs, [out]


def check(fn, *args, expected=None):
    """The translated region computes what torch does, to the bit, with torch's shapes and dtypes."""
    fusion = translate(*region_of(fn, *args))
    given = evaluate(fusion, *[a for a in args if isinstance(a, torch.Tensor)])
    wanted = expected if expected is not None else fn(*args)
    wanted = [wanted] if isinstance(wanted, torch.Tensor) else list(wanted)
    assert len(given) == len(wanted)
    for g, w in zip(given, wanted):
        torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True)
    return fusion


def rand(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


SPECIAL = torch.tensor([0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 1e-40])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_arithmetic_keeps_dtype_and_special_values(dtype):
    x, y = SPECIAL.to(dtype), SPECIAL.flip(0).to(dtype)
    check(lambda x, y: (x + y, x * y, x - 2.0, 3 - y, -x, torch.maximum(x, y), torch.abs(x), x < y), x, y)


def test_a_chain_of_16_bit_floats_rounds_where_eager_does():
    x, c = rand(7, 8, dtype=torch.bfloat16), rand(8, dtype=torch.bfloat16)
    check(lambda x, c: (x * c + x).to(torch.float32), x, c)


def test_integers_and_bools():
    a = torch.tensor([5, -7, 0, 2**31 - 1], dtype=torch.int32)
    check(lambda a: (a + 3, a * a, a < 0, a.to(torch.float32), a.to(torch.bool)), a)


def test_where_of_tensors_and_numbers():
    m, x = torch.tensor([True, False, True]), SPECIAL[:3].to(torch.bfloat16)
    check(lambda m, x: (torch.where(m, x, 0.0), torch.where(m, 1.0, x)), m, x)


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1), (0, 3, 4)], ids=str)
def test_view_prims(shape):
    x = rand(*shape)
    check(lambda x: (x.reshape(-1 if x.numel() else 0, shape[-1]), x.permute(2, 0, 1), x[..., 1:]), x)
    check(lambda x: (x.unsqueeze(1), x.transpose(0, 2)), x)
    check(lambda x: x.unsqueeze(1).expand(shape[0], 5, *shape[1:]), x)
    check(lambda x: x.reshape(1, *shape).squeeze(0), x)


def test_strided_slices():
    x = rand(11, 7)
    check(lambda x: (x[1:10:3], x[:, ::2], x[2:2], x[..., 0:0]), x)


@pytest.mark.parametrize("config", [
    [(1, 2, 0), (0, 0, 0)], [(-1, 2, 0), (3, -2, 0)], [(0, 0, 2), (1, 1, 1)], [(-2, -2, 1), (0, 0, 0)]], ids=str)
def test_pad_with_negative_widths_and_dilation(config):
    x = rand(4, 5)
    shape = [low + n + (n - 1) * inner + high for n, (low, high, inner) in zip(x.shape, config)]
    expected = torch.full(shape, 0.5)
    for i in range(4):
        for j in range(5):
            r, c = config[0][0] + i * (config[0][2] + 1), config[1][0] + j * (config[1][2] + 1)
            if 0 <= r < shape[0] and 0 <= c < shape[1]:
                expected[r, c] = x[i, j]
    check(lambda x: prims.pad(x, 0.5, config), x, expected=expected)


def test_cat_of_uneven_and_empty_pieces():
    x, y, e = rand(2, 3), rand(2, 5), rand(2, 0)
    check(lambda x, y, e: (torch.cat((x, e, y), 1), torch.cat((y, e), -1), torch.cat((x,), 0)), x, y, e)


def test_flip_and_clone():
    x = rand(3, 4)
    fusion = check(lambda x: (x.flip(0), x.flip(1, 0), x.clone()), x)
    assert sum(isinstance(n, Copy) for n in fusion.nodes) == 1


@pytest.mark.parametrize("order", [(3, 0, 2, 1), (0, 1, 2, 3), (1, 3, 0, 2)], ids=str)
def test_stride_order_gives_the_strides_that_torch_gives(order):
    from thunder.executors.torchex import _stride_order_prim_impl

    x = rand(2, 3, 4, 5)
    fusion = check(lambda x: prims.stride_order(x, order), x, expected=x)
    assert evaluate(fusion, x)[0].stride() == _stride_order_prim_impl(x, order).stride()


def test_full_and_iota():
    x = rand(5)
    check(lambda x: (x + torch.arange(2, 12, 2).to(torch.float32), x * torch.full((5,), 3.0)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
def test_sums_accumulate_as_torch_does(dtype):
    x = (torch.rand(4, 33, 3) * 10).to(dtype)
    check(lambda x: (x.sum(1), x.sum((0, 2), keepdim=True), x.sum()), x)


def test_values_keep_the_names_of_the_trace():
    bsyms, inputs, outputs = region_of(lambda x: (x * 2.0).permute(1, 0), rand(2, 3))
    fusion = translate(bsyms, inputs, outputs, name="TFuser0")
    names = [b.output.name for b in flatten(bsyms)]
    assert [n.out.name for n in fusion.nodes] == names
    assert [v.name for v in fusion.inputs] == ["x"] and fusion.name == "TFuser0"


def test_equal_outputs_are_two_tensors_unless_shared_or_views():
    x = rand(3)
    region = region_of(lambda x: (x + 1.0, x + 1.0), x)
    first, second = translate(*region).outputs
    assert first is not second
    first, second = translate(*region, shared=True).outputs
    assert first is second
    first, second = translate(*region_of(lambda x: (x.reshape(3, 1), x.reshape(3, 1)), x)).outputs
    assert first is second


@pytest.mark.parametrize("number, dtype", [(3, torch.int64), (-0.5, torch.float32), (2.5, torch.float64)], ids=str)
def test_numbers_known_at_call_time_are_scalar_inputs_and_others_constants(number, dtype):
    x = torch.arange(4).to(dtype)
    bsyms, inputs, outputs = region_of_prim(prims.add, x, number)
    torch.testing.assert_close(evaluate(translate(bsyms, inputs, outputs), x, number + 1)[0], x + (number + 1))
    torch.testing.assert_close(evaluate(translate(bsyms, inputs[:1], outputs), x)[0], x + number)


def test_shallow_copy_is_the_same_value_under_another_name():
    x = rand(3)
    fusion = check(lambda x: (prims.shallow_copy(x) * 2.0,), x, expected=[x * 2.0])
    assert len(fusion.nodes) == 1


PRIMS = {p.id.name.lower(): p for p in vars(prims).values() if isinstance(getattr(p, "id", None), prims.PrimIDs)}


@pytest.mark.parametrize("op", sorted(POINTWISE.keys() & PRIMS.keys()))
def test_every_row_of_the_op_table_translates_to_itself(op):
    row, prim = POINTWISE[op], PRIMS[op]
    dtype = torch.float32 if "float" in row.accepts else torch.int32 if "int" in row.accepts else torch.complex64
    low, high = row.domain
    args = [(torch.rand(5) * (high - low) + low).to(dtype) for _ in range(row.arity)]
    if op == "where":
        args[0] = args[0] > 0
    given = evaluate(translate(*region_of_prim(prim, *args)), *args)[0]
    torch.testing.assert_close(given, row.torch(*args), rtol=0, atol=0, equal_nan=True)


def reason(fn, *args):
    bsyms, _, _ = region_of(fn, *args)
    return next(filter(None, map(why_not, flatten(bsyms))), None)


def test_reasons_name_what_is_missing():
    x = rand(2, 3)
    assert reason(lambda x: x + 1.0, x) is None
    assert "no translation" in reason(lambda x: torch.sort(x)[0], x)
    assert "float8_e5m2fnuz" in reason(lambda x: x.to(torch.float8_e5m2fnuz), x)
    assert "rank 9" in reason(lambda x: x.reshape(1, 1, 1, 1, 1, 1, 1, 2, 3), rand(1, 1, 1, 1, 1, 1, 1, 2, 3))


def test_what_cannot_be_translated_raises_naming_the_op():
    with pytest.raises(UnsupportedError, match="'sort'"):
        translate(*region_of(lambda x: torch.sort(x)[0] + 1.0, rand(2, 3)))


