"""Random definitions survive being printed, run as Python and defined again: same text, same results, bit for bit."""

from __future__ import annotations

import re

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thunder_fuser import DataType, FusionDefinition
from thunder_fuser.frontend.values import TensorView

DTYPES = [DataType.Float, DataType.Double, DataType.BFloat16, DataType.Half, DataType.Int, DataType.Int32, DataType.Bool]
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -0.0, float("inf"), float("nan"), True]))

STATEMENTS = [
    "unary", "binary", "number", "scalar", "choose", "cast", "slice", "cat", "pad", "reshape", "permute", "expand", "sum"]


def _numeric(fd: FusionDefinition, t: TensorView) -> TensorView:
    return fd.ops.cast(t, DataType.Int) if t.dtype is DataType.Bool else t


class _Program:
    """A random definition over tensors of shape (4, 6), drawn statement by statement."""

    def __init__(self, draw: st.DrawFn, fd: FusionDefinition) -> None:
        self.draw, self.fd, self.inputs = draw, fd, []
        self.pool: list[TensorView] = []
        for _ in range(draw(st.integers(1, 3))):
            self._input()
        for _ in range(draw(st.integers(1, 8))):
            self.pool.append(getattr(self, draw(st.sampled_from(STATEMENTS)))())
        for t in draw(st.lists(st.sampled_from(self.pool), min_size=1, max_size=3)):
            fd.add_output(t)

    def _input(self) -> None:
        dtype, static = self.draw(st.sampled_from(DTYPES)), self.draw(st.booleans())
        transposed = self.draw(st.booleans())
        data = torch.randint(0, 5, (6, 4) if transposed else (4, 6)).to(dtype.ir.torch)
        self.inputs.append(data.t() if transposed else data)
        self.pool.append(self.fd.from_pytorch(self.inputs[-1], static_sizes=static))

    def any(self) -> TensorView:
        return self.draw(st.sampled_from(self.pool))

    def unary(self) -> TensorView:
        op = self.draw(st.sampled_from(["neg", "abs", "exp", "tanh", "relu"]))
        return getattr(self.fd.ops, op)(_numeric(self.fd, self.any()))

    def binary(self) -> TensorView:
        op = self.draw(st.sampled_from(["add", "sub", "mul", "maximum", "lt"]))
        return getattr(self.fd.ops, op)(_numeric(self.fd, self.any()), _numeric(self.fd, self.any()))

    def number(self) -> TensorView:
        return self.fd.ops.mul(_numeric(self.fd, self.any()), self.draw(NUMBERS))

    def scalar(self) -> TensorView:
        value = self.draw(st.one_of(st.none(), NUMBERS))
        s = self.fd.define_scalar(value, dtype=DataType.Double)
        if value is None:
            self.inputs.append(0.75)
        return self.fd.ops.add(_numeric(self.fd, self.any()), self.fd.ops.mul(s, 2.0))

    def choose(self) -> TensorView:
        return self.fd.ops.where(self.fd.ops.lt(self.any(), 1), self.any(), self.draw(NUMBERS))

    def cast(self) -> TensorView:
        return self.fd.ops.cast(self.any(), self.draw(st.sampled_from(DTYPES[:4])))

    def slice(self) -> TensorView:
        t, low = self.any(), self.draw(st.integers(0, 2))
        cut = self.fd.ops.slice(t, [low, 0], [t.size(0), 6], [self.draw(st.integers(1, 2)), 1])
        return self.fd.ops.broadcast_in_dim(self.fd.ops.slice(cut, [0, 0], [1, 6]), [4, 6], [0, 1])

    def cat(self) -> TensorView:
        x, y = (self.fd.ops.slice(self.any(), [0, 0], [4, 3]) for _ in range(2))
        return self.fd.ops.cat([x, y], self.draw(st.sampled_from([1, -1])))

    def pad(self) -> TensorView:
        width = self.draw(st.integers(-2, 3))
        return self.fd.ops.pad(self.any(), [width, -width], self.draw(st.one_of(st.none(), st.integers(0, 1))))

    def reshape(self) -> TensorView:
        t = self.any()
        return self.fd.ops.reshape(self.fd.ops.reshape(t, [2, -1]), t.shape())

    def permute(self) -> TensorView:
        return self.fd.ops.reshape(self.fd.ops.permute(self.any(), [1, 0]), self.fd.define_vector([4, self.fd.define_scalar(6)]))

    def expand(self) -> TensorView:
        row = self.fd.ops.squeeze(self.fd.ops.slice(self.any(), [1, 0], [2, 6]), [0])
        return self.fd.ops.expand(self.fd.ops.broadcast(row, [True, False]), [4, -1])

    def sum(self) -> TensorView:
        total = self.fd.ops.sum(self.any(), [self.draw(st.sampled_from([1, -1]))], keepdim=True)
        return self.fd.ops.expand(total, [-1, 6])


def _defined_again(fd: FusionDefinition) -> FusionDefinition:
    names: dict[str, object] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), names)
    with FusionDefinition(fd.id) as again:
        names[re.match(r"def (\w+)\(", repr(fd))[1]](again)
    return again


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_printed_definition_is_the_definition(data: st.DataObject) -> None:
    with FusionDefinition() as fd:
        program = _Program(data.draw, fd)
    again = _defined_again(fd)
    assert repr(again) == repr(fd)
    for out, expected in zip(again.execute(program.inputs), fd.execute(program.inputs)):
        assert out.dtype is expected.dtype and out.shape == expected.shape
        assert torch.equal(out.nan_to_num(7.0), expected.nan_to_num(7.0))
