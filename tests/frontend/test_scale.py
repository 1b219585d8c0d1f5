"""Long definitions: what recording, cutting, specialising and printing do grows with the program, not with its square.

Counted in Python calls, not in seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch

from thunder_fuser import FusionDefinition
from thunder_fuser.frontend.inputs import flatten
from thunder_fuser.frontend.specialize import specialize


def _chain(fd: FusionDefinition, n: int) -> None:
    t = y = fd.define_tensor([-1, -1])
    for k in range(n):
        y = fd.ops.neg(y) if k % 2 else fd.ops.add(y, t)
    fd.add_output(y)


def _with_products(fd: FusionDefinition, n: int) -> None:
    t = y = fd.define_tensor([-1, -1])
    for k in range(n):
        y = fd.ops.matmul(y, t) if k % 25 == 24 else fd.ops.add(y, t)
    fd.add_output(y)


def _side_by_side(fd: FusionDefinition, n: int) -> None:
    t = fd.define_tensor([-1, -1])
    for k in range(n):
        fd.add_output(fd.ops.mul(t, float(k)))


def _scalars(fd: FusionDefinition, n: int) -> None:
    t, s = fd.define_tensor([-1, -1]), fd.define_scalar(None)
    for _ in range(n):
        s = fd.ops.add(s, t.size(0))
    fd.add_output(fd.ops.mul(fd.ops.matmul(t, t), s))


def _work(build: Callable[[FusionDefinition, int], None], n: int) -> int:
    count = 0

    def profile(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    x = torch.zeros(4, 4)
    sys.setprofile(profile)
    try:
        with FusionDefinition() as fd:
            build(fd, n)
        said = fd.calls().said
        specialize(said, flatten(said.inputs, [x, 1.0][: len(said.inputs)]), torch.device("cpu"))
        repr(fd)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("build", [_chain, _with_products, _side_by_side, _scalars])
def test_work_grows_with_the_program(build: Callable[[FusionDefinition, int], None]) -> None:
    small, large = _work(build, 250), _work(build, 1000)
    assert large < 4.4 * small


def test_ten_thousand_ops_run(device: str) -> None:
    x = torch.randn(4, 4, device=device)
    with FusionDefinition() as fd:
        t = fd.from_pytorch(x)
        for k in range(10_000):
            t = fd.ops.neg(t) if k % 2 else fd.ops.add(t, float(k % 3))
        fd.add_output(t)
    (out,) = fd.execute([x])
    expected = x.double()
    for k in range(10_000):
        expected = -expected if k % 2 else expected + k % 3
    torch.testing.assert_close(out.double(), expected, rtol=1e-3, atol=1e-2)
