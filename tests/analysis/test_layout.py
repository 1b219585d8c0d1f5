"""Layouts against eager torch: each rule on its own over any strides, then random programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.recipes import all_values
from tests.analysis.strided import Strided, factorings, strided, tensor
from tests.support.programs import programs
from thunder_fuser.analysis.layout import Layout, format_layouts, layouts
from thunder_fuser.errors import InputError
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, BOOL, C64, F32, I64
from thunder_fuser.ir.nodes import Fusion, TensorType, Value
from thunder_fuser.ir.ops import POINTWISE, REDUCTIONS

Build = Callable[..., Value]
many = settings(max_examples=120, deadline=None)


def check(specs: list[Strided], build: Build, run: Callable[..., torch.Tensor], dtypes: list | None = None) -> None:
    """The layout of the one node that `build` makes equals strides, offset and storage of what torch makes."""
    dtypes = dtypes or [F32] * len(specs)
    b = FusionBuilder()
    values = [b.tensor(d, shape) for d, (shape, _) in zip(dtypes, specs)]
    out = b.output(build(b, *values))
    tensors = [tensor(s, d.torch, offset=3) for d, s in zip(dtypes, specs)]
    want = run(*tensors)
    got = layouts(b.build(), [s for _, s in specs])[out]
    assert got.strides == want.stride(), (specs, tuple(want.shape))
    owner = next((v for v, t in zip(values, tensors) if t.untyped_storage()._cdata == want.untyped_storage()._cdata), out)
    assert got.base is owner
    assert got.offset == want.storage_offset() - (3 if owner is not out else 0)


def same_shape(count: int) -> st.SearchStrategy[list[Strided]]:
    def draw_rest(first: Strided) -> st.SearchStrategy[list[Strided]]:
        rest = [st.one_of(st.just(first), strided(shape=first[0])) for _ in range(count - 1)]
        return st.tuples(st.just(first), *rest).map(list)
    return strided().flatmap(draw_rest)


@pytest.mark.parametrize("op", sorted(POINTWISE))
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_pointwise(op: str, data: st.DataObject) -> None:
    row = POINTWISE[op]
    dtype = F32 if "float" in row.accepts else I64 if "int" in row.accepts else C64 if "complex" in row.accepts else BOOL
    dtypes = [dtype] * row.arity
    if op == "where":
        dtypes[0] = BOOL
    fresh = torch.neg if dtype is C64 else row.torch  # torch answers these with views, here they are memory of their own
    check(data.draw(same_shape(row.arity)), lambda b, *a: b.pointwise(op, *a), fresh, dtypes)


@given(same_shape(2))
@many
def test_add(specs: list[Strided]) -> None:
    check(specs, lambda b, x, y: b.add(x, y), torch.add)


@given(same_shape(3))
@many
def test_where(specs: list[Strided]) -> None:
    check(specs, lambda b, c, x, y: b.where(c, x, y), torch.where, [BOOL, F32, F32])


TAKE_NUMBERS = {op for op, row in POINTWISE.items() if row.arity == 2} - {
    "atan2", "complex", "gcd", "logical_and", "logical_or", "maximum", "minimum", "nextafter"}


@pytest.mark.parametrize("op", sorted(TAKE_NUMBERS))
@given(spec=strided())
@settings(max_examples=40, deadline=None)
def test_tensor_with_number(op: str, spec: Strided) -> None:
    row = POINTWISE[op]
    dtype = F32 if "float" in row.accepts else I64
    check([spec], lambda b, x: b.pointwise(op, x, 2), lambda x: row.torch(x, 2), [dtype])


@pytest.mark.parametrize("op", ["sub", "mul", "pow", "bitwise_left_shift"])
@given(spec=strided())
@settings(max_examples=40, deadline=None)
def test_number_with_tensor(op: str, spec: Strided) -> None:
    check([spec], lambda b, x: b.pointwise(op, 2, x), lambda x: getattr(torch, op)(2, x) if op == "pow" else
          POINTWISE[op].torch(torch.tensor(2), x), [I64])


@given(same_shape(2))
@many
def test_lerp_by_a_number(specs: list[Strided]) -> None:
    check(specs, lambda b, x, y: b.lerp(x, y, 0.5), lambda x, y: torch.lerp(x, y, 0.5))


@given(same_shape(2))
@many
def test_lerp_to_a_number(specs: list[Strided]) -> None:
    check(specs, lambda b, x, w: b.lerp(x, 2.0, w), lambda x, w: torch.lerp(x, torch.tensor(2.0), w))


@given(spec=strided())
@many
def test_where_with_number(spec: Strided) -> None:
    check([spec, spec], lambda b, c, x: b.where(c, x, 0.0), lambda c, x: torch.where(c, x, 0.0), [BOOL, F32])


@given(strided())
@many
def test_cast(spec: Strided) -> None:
    check([spec], lambda b, x: b.cast(x, BF16), lambda x: x.to(torch.bfloat16, copy=True))


@given(strided())
@many
def test_cast_to_the_same_dtype(spec: Strided) -> None:
    check([spec], lambda b, x: b.cast(x, F32), lambda x: x.to(torch.float32, copy=True))


@given(strided())
@many
def test_clone(spec: Strided) -> None:
    check([spec], lambda b, x: b.copy(x), torch.clone)


@given(strided(), st.randoms(use_true_random=False))
@many
def test_copy_in_an_order(spec: Strided, random: object) -> None:
    order = list(range(len(spec[0])))
    random.shuffle(order)

    def run(x: torch.Tensor) -> torch.Tensor:
        back = [order.index(d) for d in range(len(order))]
        outer = [spec[0][d] for d in order]
        strides = [1] * len(order)
        for i in range(len(order) - 2, -1, -1):
            strides[i] = strides[i + 1] * outer[i + 1]
        return torch.empty_strided(outer, strides).permute(back)
    check([spec], lambda b, x: b.copy(x, order), run)


def test_channels_last_order() -> None:
    spec = ((2, 3, 4, 5), (60, 20, 5, 1))
    check([spec], lambda b, x: b.copy(x, (0, 2, 3, 1)), lambda x: x.contiguous(memory_format=torch.channels_last))


@given(strided(), st.data())
@many
def test_flip(spec: Strided, data: st.DataObject) -> None:
    dims = data.draw(st.lists(st.sampled_from(range(len(spec[0]))), unique=True)) if spec[0] else []
    check([spec], lambda b, x: b.flip(x, dims), lambda x: torch.flip(x, dims))


@given(same_shape(3), st.data())
@many
def test_cat(specs: list[Strided], data: st.DataObject) -> None:
    specs = [s if s[0] else ((2,), (1,)) for s in specs][: data.draw(st.integers(1, 3))]
    dim = data.draw(st.integers(0, len(specs[0][0]) - 1))
    check(specs, lambda b, *a: b.cat(a, dim), lambda *a: torch.cat(a, dim))


@given(same_shape(2), st.data())
@many
def test_cat_of_channels_last(specs: list[Strided], data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=4, max_size=5))
    rank = len(sizes)
    strides = torch.empty(sizes).contiguous(memory_format=torch.channels_last if rank == 4 else torch.channels_last_3d).stride()
    pieces = [(tuple(sizes), strides), data.draw(st.one_of(st.just((tuple(sizes), strides)), strided(shape=tuple(sizes))))]
    check(pieces, lambda b, *a: b.cat(a, 1), lambda *a: torch.cat(a, 1))


@given(strided(), st.data())
@many
def test_pad(spec: Strided, data: st.DataObject) -> None:
    widths = []
    for n in spec[0]:
        inner = data.draw(st.sampled_from([0, 0, 0, 1, 2]))
        size = n + max(n - 1, 0) * inner
        low = data.draw(st.integers(-size, 2))
        high = data.draw(st.integers(max(-size, -(size + low)), 2))
        widths.append((low, high, inner))
    check([spec], lambda b, x: b.pad(x, widths, 1.0), lambda x: thunder_pad(x, widths, 1.0))


def thunder_pad(x: torch.Tensor, widths: list[tuple[int, int, int]], value: float) -> torch.Tensor:
    """prims.pad as Thunder runs it: interior padding through a full tensor, the rest through torch's pad."""
    if any(w[2] for w in widths):
        full = torch.full([n + max(n - 1, 0) * w[2] for n, w in zip(x.shape, widths)], value, dtype=x.dtype)
        full[tuple(slice(None, None, w[2] + 1) for w in widths)] = x
        x = full
    return torch.nn.functional.pad(x, [w for low, high, _ in reversed(widths) for w in (low, high)], value=value)


@given(strided(), st.data())
@many
def test_pad_by_little(spec: Strided, data: st.DataObject) -> None:
    widths = [(data.draw(st.integers(-1, 1)) if n > 1 else 0, 0, 0) for n in spec[0]]
    check([spec], lambda b, x: b.pad(x, widths, 1.0), lambda x: thunder_pad(x, widths, 1.0))


@pytest.mark.parametrize("op", sorted(REDUCTIONS))
@given(spec=strided(), data=st.data())
@settings(max_examples=100, deadline=None)
def test_reduce(op: str, spec: Strided, data: st.DataObject) -> None:
    spec = spec if spec[0] and 0 not in spec[0] else ((2, 3), (1, 2))
    dims = data.draw(st.lists(st.sampled_from(range(len(spec[0]))), unique=True, min_size=1))
    dtype = F32 if "float" in REDUCTIONS[op].accepts else BOOL
    b = FusionBuilder()
    out = b.output(b.reduce(op, b.tensor(dtype, spec[0]), dims))
    want = REDUCTIONS[op].torch(tensor(spec, dtype.torch), sorted(dims)).stride()
    assert layouts(b.build(), [spec[1]])[out] == Layout(out, want, 0)


@given(strided(), st.data())
@many
def test_reshape(spec: Strided, data: st.DataObject) -> None:
    numel = 1
    for n in spec[0]:
        numel *= n
    shape = data.draw(st.one_of(st.just(spec[0]), st.sampled_from(factorings(numel, 4))))
    check([spec], lambda b, x: b.reshape(x, shape), lambda x: torch.reshape(x, shape))


@given(strided(), st.randoms(use_true_random=False))
@many
def test_permute(spec: Strided, random: object) -> None:
    dims = list(range(len(spec[0])))
    random.shuffle(dims)
    check([spec], lambda b, x: b.permute(x, dims), lambda x: x.permute(dims))


@given(strided(), st.data())
@many
def test_slice(spec: Strided, data: st.DataObject) -> None:
    parts = []
    for n in spec[0]:
        start = data.draw(st.integers(0, n))
        parts.append((start, data.draw(st.integers(start, n)), data.draw(st.integers(1, 5))))
    starts, stops, steps = zip(*parts) if parts else ((), (), ())
    check([spec], lambda b, x: b.slice(x, starts, stops, steps), lambda x: x[tuple(slice(*p) for p in parts)])


@given(strided(), st.data())
@many
def test_squeeze(spec: Strided, data: st.DataObject) -> None:
    ones = [d for d, n in enumerate(spec[0]) if n == 1]
    dims = data.draw(st.lists(st.sampled_from(ones), unique=True)) if ones else []
    check([spec], lambda b, x: b.squeeze(x, dims), lambda x: x.squeeze(tuple(dims)))


@given(strided(max_rank=4), st.data())
@many
def test_broadcast(spec: Strided, data: st.DataObject) -> None:
    rank = len(spec[0]) + data.draw(st.integers(0, 3))
    dims = sorted(data.draw(st.permutations(range(rank)))[: len(spec[0])])
    shape = [data.draw(st.sampled_from([1, 2, 3, 0])) for _ in range(rank)]
    for n, d in zip(spec[0], dims):
        shape[d] = n if n != 1 else shape[d]

    def run(x: torch.Tensor) -> torch.Tensor:
        for d in range(rank):
            if d not in dims:
                x = x.unsqueeze(d)
        return x.expand(shape)
    check([spec], lambda b, x: b.broadcast(x, shape, dims), run)


@given(programs())
@settings(max_examples=200, deadline=None)
def test_random_programs(case: tuple[Fusion, list]) -> None:
    fusion, inputs = case
    table = layouts(fusion, [x.stride() if isinstance(x, torch.Tensor) else None for x in inputs])
    values = all_values(fusion, *inputs)
    for value in values:
        if isinstance(value.type, TensorType):
            base, layout = table[value].base, table[value]
            assert layout.strides == values[value].stride(), str(fusion)
            assert values[base].untyped_storage()._cdata == values[value].untyped_storage()._cdata
            assert layout.offset == values[value].storage_offset() - values[base].storage_offset()


def test_full_and_iota_are_contiguous() -> None:
    b = FusionBuilder()
    full, iota = b.full((2, 0, 3), 1.0, F32), b.iota(5, I64)
    table = layouts(b.build(), [])
    assert table == {full: Layout(full, (3, 3, 1), 0), iota: Layout(iota, (1,), 0)}


def test_a_chain_of_views_accumulates_offsets() -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (4, 6, 8))
    view = b.slice(b.permute(b.slice(x, (1, 0, 0), (4, 6, 8)), (2, 1, 0)), (0, 2, 0), (8, 6, 3), (4, 2, 1))
    table = layouts(b.build(), [(48, 8, 1)])
    want = torch.empty(4, 6, 8)[1:].permute(2, 1, 0)[::4, 2:6:2]
    assert table[view] == Layout(x, want.stride(), want.storage_offset())
    assert format_layouts(table).splitlines()[-1] == f"{view}: {x}{list(want.stride())}+{want.storage_offset()}"


def test_numbers_have_no_layout() -> None:
    b = FusionBuilder()
    x, n = b.tensor(F32, (2,)), b.scalar(I64)
    scaled = b.output(b.mul(x, b.add(n, 1)))
    assert list(layouts(b.build(), [(1,), None])) == [x, scaled]


@pytest.mark.parametrize("given_strides, message", [
    ([(1,)], "has 2 inputs, got strides for 1"),
    ([(1,), (1,)], "expected None, since it is a number"),
    ([(1, 2), None], "expected 1 strides"),
    ([None, None], "expected 1 strides"),
])
def test_strides_that_do_not_fit(given_strides: list, message: str) -> None:
    b = FusionBuilder()
    b.tensor(F32, (2,)), b.scalar(I64)
    with pytest.raises(InputError, match=message):
        layouts(b.build(), given_strides)
