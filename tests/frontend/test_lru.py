"""`LruFusionCache`: equal definitions share what is compiled, different ones never do."""

from __future__ import annotations

import pytest
import torch

from thunder_fuser import DataType, FusionDefinition, LruFusionCache
from thunder_fuser.errors import InputError


def _defining(cache: LruFusionCache):
    @cache
    def scaled(factor: float, dtype: DataType = DataType.Float) -> FusionDefinition:
        """Multiplies by a constant."""
        with FusionDefinition() as fd:
            t = fd.define_tensor([-1], dtype=dtype)
            fd.add_output(fd.ops.mul(t, factor))
        return fd
    return scaled


def test_equal_definitions_share_their_specialisations() -> None:
    scaled, x = _defining(LruFusionCache(max_fusions=8)), torch.randn(5)
    assert scaled.__doc__ == "Multiplies by a constant." and scaled.num_fusions() == 0
    one, two, other = scaled(2.0), scaled(2.0), scaled(-2.0)
    assert scaled.num_fusions() == 2
    for fd, factor in ((one, 2.0), (two, 2.0), (other, -2.0)):
        assert torch.equal(fd.execute([x])[0], x * factor)
    assert one is not two and one.calls() is two.calls() and one.calls() is not other.calls()
    assert two.report().kernels[0].name == one.report().kernels[0].name
    assert scaled.stats().splitlines()[0] == "2 fusions of at most 8, 3 look-ups, 1 hits"


@pytest.mark.parametrize("first, second", [(0.0, -0.0), (1, 1.0), (1, True), (float("inf"), float("-inf"))])
def test_numbers_that_compare_equal_are_different_definitions(first: float, second: float) -> None:
    scaled, x = _defining(LruFusionCache()), torch.tensor([1.0, -3.0])
    a, b = scaled(first), scaled(second)
    assert scaled.num_fusions() == 2
    for fd, factor in ((a, first), (b, second)):
        (out,) = fd.execute([x])
        assert torch.equal(out, x * factor) and torch.equal(out.signbit(), (x * factor).signbit())


def test_the_least_recently_used_is_dropped() -> None:
    scaled = _defining(LruFusionCache(max_fusions=2))
    kept, dropped = scaled(1.0), scaled(2.0)
    scaled(1.0)
    scaled(3.0)
    assert scaled.num_fusions() == 2
    assert scaled(1.0).calls() is kept.calls() and scaled(2.0).calls() is not dropped.calls()


def test_misuse_is_said() -> None:
    with pytest.raises(InputError, match="max_fusions of at least 1, got '0'"):
        LruFusionCache(max_fusions=0)
    with pytest.raises(InputError, match="'nothing' returned a 'NoneType', expected a FusionDefinition"):
        @LruFusionCache()
        def nothing() -> None:
            return None
        nothing()
