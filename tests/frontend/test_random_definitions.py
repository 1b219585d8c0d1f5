"""Random definitions of fused ops, torch's calls, sizes, scalars and updates against the same program in eager float64."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thunder_fuser import DataType, FusionDefinition

N = 5
STATEMENTS = ["unary", "unary", "binary", "binary", "product", "linear", "rows", "topped", "moved", "half", "scaled", "sized", "filled", "numbered"]


class _Program:
    """Square matrices, each a symbol beside the same value in float64; values stay within a few units."""

    def __init__(self, draw: Any, fd: FusionDefinition, device: str) -> None:
        self.draw, self.fd = draw, fd
        generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
        self.inputs: list[Any] = []
        self.pool: list[tuple[Any, torch.Tensor]] = []
        for _ in range(draw(st.integers(1, 3))):
            x = torch.randn(N, N, generator=generator).to(device)
            x = x.t() if draw(st.booleans()) else x
            self.inputs.append(x)
            self.pool.append((fd.define_tensor([-1, -1], contiguity=True), x.double()))
        self.tensors = len(self.pool)
        self.scalar, self.factor = fd.define_scalar(None), draw(st.sampled_from([0.5, -1.25, 0.0]))
        self.inputs.append(self.factor)
        for _ in range(draw(st.integers(1, 12))):
            self.pool.append(getattr(self, draw(st.sampled_from(STATEMENTS)))())
        self.expected = [self.any() for _ in range(draw(st.integers(1, 4)))]
        for symbol, _ in self.expected:
            fd.add_output(symbol)
        targets = draw(st.lists(st.integers(0, self.tensors - 1), max_size=2, unique=True))
        self.updates = [(k, *self.computed()) for k in targets]
        for k, symbol, _ in self.updates:
            fd.add_output(symbol, alias_input=self.pool[k][0])

    def any(self) -> tuple[Any, torch.Tensor]:
        return self.draw(st.sampled_from(self.pool))

    def computed(self) -> tuple[Any, torch.Tensor]:
        return self.bounded(*self.any())

    def bounded(self, symbol: Any, value: torch.Tensor) -> tuple[Any, torch.Tensor]:
        return self.fd.ops.tanh(symbol), value.tanh()

    def unary(self) -> tuple[Any, torch.Tensor]:
        op = self.draw(st.sampled_from(["neg", "sin", "abs", "sigmoid"]))
        symbol, value = self.any()
        return getattr(self.fd.ops, op)(symbol), getattr(torch, op)(value)

    def binary(self) -> tuple[Any, torch.Tensor]:
        op = self.draw(st.sampled_from(["add", "sub", "mul", "maximum"]))
        (a, x), (b, y) = self.any(), self.any()
        return self.bounded(getattr(self.fd.ops, op)(a, b), getattr(torch, op)(x, y))

    def product(self) -> tuple[Any, torch.Tensor]:
        (a, x), (b, y) = self.any(), self.any()
        return self.bounded(self.fd.ops.matmul(a, b), x @ y)

    def linear(self) -> tuple[Any, torch.Tensor]:
        (a, x), (b, y), (c, z) = self.any(), self.any(), self.any()
        made = self.fd.ops.linear(a, b, self.fd.ops.select(c, 1, 0))
        return self.bounded(made, torch.nn.functional.linear(x, y, z[1]))

    def rows(self) -> tuple[Any, torch.Tensor]:
        symbol, value = self.any()
        total = self.fd.ops.sum(symbol, [1], keep_dim=True)
        return self.bounded(self.fd.ops.sub(symbol, total), value - value.sum(1, keepdim=True))

    def topped(self) -> tuple[Any, torch.Tensor]:
        """Sorted values alone: positions of equal ones may differ."""
        symbol, value = self.any()
        values, _ = self.fd.ops.topk(symbol, N, self.draw(st.sampled_from([0, 1])), True, True)
        dim = self.fd._records[-1].arguments["dim"]
        return values, value.sort(dim, descending=True).values

    def moved(self) -> tuple[Any, torch.Tensor]:
        symbol, value = self.any()
        return self.fd.ops.permute(symbol, [1, 0]), value.t()

    def half(self) -> tuple[Any, torch.Tensor]:
        (a, x), (b, y) = self.any(), self.any()
        pieces = [self.fd.ops.slice(a, [0, 2], [N, N]), self.fd.ops.slice(b, [0, 0], [N, 2])]
        return self.fd.ops.cat(pieces, 1), torch.cat([x[:, 2:], y[:, :2]], 1)

    def scaled(self) -> tuple[Any, torch.Tensor]:
        symbol, value = self.any()
        return self.fd.ops.mul(symbol, self.fd.ops.add(self.scalar, 0.25)), value * (self.factor + 0.25)

    def sized(self) -> tuple[Any, torch.Tensor]:
        (a, x), (b, _) = self.any(), self.any()
        return self.fd.ops.div(a, self.fd.ops.size(b, 0)), x / N

    def filled(self) -> tuple[Any, torch.Tensor]:
        symbol, value = self.any()
        return self.fd.ops.full(symbol.shape(), self.scalar, DataType.Float), torch.full_like(value, self.factor)

    def numbered(self) -> tuple[Any, torch.Tensor]:
        symbol, value = self.any()
        flat = self.fd.ops.reshape(symbol, [self.fd.ops.mul(symbol.size(0), symbol.size(1))])
        return self.fd.ops.reshape(self.fd.ops.neg(flat), symbol.shape()), -value


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_definitions_are_the_eager_program(data: st.DataObject) -> None:
    with FusionDefinition() as fd:
        program = _Program(data.draw, fd, "cpu")
    outputs = fd.execute(program.inputs)
    written = {program.inputs[k].data_ptr() for k, *_ in program.updates}
    compared = [(out, value) for out, (_, value) in zip(outputs, program.expected) if out.untyped_storage().data_ptr() not in written]
    compared += [(program.inputs[k], value) for k, _, value in program.updates]
    for out, expected in compared:
        torch.testing.assert_close(out.double(), expected, rtol=1e-3, atol=1e-4)
    fd.validate(program.inputs)
