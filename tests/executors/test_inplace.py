"""In-place code under Thunder: torch's results, torch's aliases, the order of reads and writes; and how it is cut into fusions."""

from __future__ import annotations

import copy

import pytest
import thunder
import torch

from tests.executors.jitted import backward, forward, fusions, jit, operators
from tests.support.memory import copied
from thunder_fuser.errors import UnsupportedError


def check(fn, *inputs, count: int | None = 1):
    """Results, inputs afterwards, and which results are which inputs; `count` fusions and nothing outside of them."""
    jitted = jit(fn)
    for _ in range(2):
        mine, theirs = copied(inputs), copied(inputs)
        got, want = jitted(*mine), fn(*theirs)
        got, want = (r if isinstance(r, tuple) else (r,) for r in (got, want))
        for a, b in zip((*got, *mine), (*want, *theirs), strict=True):
            if isinstance(b, torch.Tensor):
                torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
            else:
                assert a == b
        assert [_same(r, mine) for r in got] == [_same(r, theirs) for r in want]
        for r, s in zip(got, want):
            if isinstance(s, torch.Tensor):
                assert [_shares(r, x) for x in (*mine, *got)] == [_shares(s, x) for x in (*theirs, *want)]
    if count is not None:
        trace = forward(jitted)
        assert len(fusions(trace)) == count and not operators(trace), str(trace)
    return jitted


def _same(result, inputs):
    return next((k for k, x in enumerate(inputs) if x is result), None)


def _shares(a, b) -> bool:
    return isinstance(b, torch.Tensor) and isinstance(a, torch.Tensor) and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def numbers(*shape: int) -> torch.Tensor:
    return torch.randint(-9, 10, shape).float()


def add_then_read(x, y):
    x.add_(y)
    return x * 2


def through_a_view(x, y):
    x.view(-1).mul_(2)
    return x + y


def a_view_made_before(x, y):
    z = x.t()
    x.add_(y)
    return z * 2, z


def intermediate(x, y):
    a = x * y
    b = a + 1
    a.relu_()
    a += b
    return a, b


def views_of_an_intermediate(x, y):
    a = x + y
    b, c = a[1:], a.t()
    b.mul_(3)
    c.add_(1)
    return a, b, c


def copies(x, y):
    x.copy_(y)
    x.copy_(y * 2)
    w = x + 1
    x.mul_(w)
    return w, x


def swapped(x, y):
    a = x.clone()
    x.copy_(y)
    y.copy_(a)


def parts(x, y):
    x[1:].add_(1)
    x[:, :2].mul_(y[:, :2])
    x[::2].neg_()
    return x.sum()


def set_items(x, y):
    x[:, 0] = 3.0
    x[1] = y[0]
    return x * y


def the_same_twice(x, y):
    x.add_(y)
    return x, x, x.t()


def value_and_target(x, y):
    z = x + y
    x.copy_(z)
    return z, x


def other_dtype(x, y):
    x.copy_(y.to(torch.bfloat16) + 1)
    return x


CASES = [add_then_read, through_a_view, a_view_made_before, intermediate, views_of_an_intermediate, copies, swapped, parts, the_same_twice,
         value_and_target, other_dtype]


@pytest.mark.parametrize("fn", CASES, ids=lambda f: f.__name__)
def test_one_fusion(fn) -> None:
    for shape in ((4, 6), (1, 1), (5, 3)):
        if 1 in shape and fn is parts:
            continue
        check(fn, numbers(*shape), numbers(*shape))


def test_items_are_set() -> None:
    check(set_items, numbers(4, 6), numbers(4, 6), count=None)


def test_a_transposed_target() -> None:
    for fn in (add_then_read, a_view_made_before, copies, parts, value_and_target):
        check(fn, numbers(6, 4).t(), numbers(4, 6))


def test_an_expanded_target_is_torchs_error() -> None:
    jitted, x = jit(add_then_read, fuser_fallback="torch"), numbers(1, 6).expand(4, 6)
    with pytest.warns(RuntimeWarning, match="several elements in one place of memory"), pytest.raises(RuntimeError, match="written-to tensor"):
        jitted(x, numbers(4, 6))
    with pytest.raises(UnsupportedError, match="clone it first"):
        jit(add_then_read)(x, numbers(4, 6))


def test_a_write_between_operators() -> None:
    def fn(x, y):
        x += y
        z = torch.matmul(x, y)
        x.mul_(z)
        v = x.t()
        v.add_(1)
        return v, x + 1

    check(fn, numbers(4, 4), numbers(4, 4), count=None)


def test_a_tensor_and_its_view_from_outside_of_the_region() -> None:
    """The view is made by an operator that is not fused, so the region that writes into it knows two tensors and not how they
    lie: what is read through the other one is read by the next region."""
    def fn(x, y):
        v = x[1:3]
        z = torch.matmul(y, y)
        v.add_(z[1:3])
        return x + y, v * 2

    check(fn, numbers(4, 4), numbers(4, 4), count=None)


def test_old_values_are_not_computed_again_from_new_ones() -> None:
    """A cheap value that a later region needs follows from a tensor which has changed by then."""
    def fn(x, y):
        a = x * 2
        x.add_(1)
        return torch.matmul(a, y) + a, x

    check(fn, numbers(4, 4), numbers(4, 4), count=None)


def test_equal_expressions_before_and_after_a_write() -> None:
    def fn(x, y):
        a = x * y
        x.add_(1)
        b = x * y
        c = y + 1
        return a, b, c, y + 1

    check(fn, numbers(4, 4), numbers(4, 4))


def test_a_made_contiguous_tensor_may_be_its_argument() -> None:
    def fn(x, y):
        z = x.contiguous()
        z.add_(y)
        return x * 2, z

    check(fn, numbers(4, 6), numbers(4, 6), count=None)


def test_arguments_that_overlap_are_refused() -> None:
    """Thunder takes tensors of one storage for the same tensor; told not to, it asks nothing and the engine sees it."""
    def fn(x, y):
        x.add_(1)
        return y * 2

    base = numbers(20)
    jitted = jit(fn, skip_inplace_alias_updates=True, fuser_fallback="torch")
    assert torch.equal(jitted(base[:8], base[8:16]), base[8:16] * 2)
    with pytest.warns(RuntimeWarning, match="share memory"):
        want = (base[4:12] + torch.tensor([1.0] * 6 + [0.0] * 2)) * 2
        assert torch.equal(jitted(base[2:10], base[4:12]), want)


# gradients

def test_gradients_through_intermediates() -> None:
    def fn(x, y):
        z = x * y
        z.add_(1)
        w = z + 1
        z.mul_(2)
        return z + w

    inputs = [numbers(4, 4), numbers(4, 4)]
    mine, theirs = ([t.clone().requires_grad_() for t in inputs] for _ in range(2))
    jit(fn)(*mine).sum().backward()
    fn(*theirs).sum().backward()
    for a, b in zip(mine, theirs):
        assert torch.equal(a.grad, b.grad)


def test_a_buffer_that_only_the_forward_writes() -> None:
    """Nothing of what the region returns is needed by the forward: it must not end in the backward for that."""
    def fn(x, buffer):
        buffer.copy_(torch.ones_like(buffer) * 3)
        return x.matmul(x)

    jitted, x, buffer = jit(fn), numbers(4, 4).requires_grad_(), torch.zeros(4)
    out = jitted(x, buffer)
    assert torch.equal(buffer, torch.full((4,), 3.0))
    buffer.zero_()
    out.sum().backward()
    assert torch.equal(buffer, torch.zeros(4))
    assert len(fusions(forward(jitted))) == 1 and not any("copy_" in str(b) for b in backward(jitted).bound_symbols)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(training: bool) -> None:
    torch.manual_seed(0)
    module = torch.nn.BatchNorm2d(5).train(training)
    mine, theirs = copy.deepcopy(module), copy.deepcopy(module)
    jitted = jit(mine)
    for step in range(3):
        x = torch.randn(4, 5, 3, 3)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        got, want = jitted(a), theirs(b)
        got.sin().sum().backward()
        want.sin().sum().backward()
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)
        for name, value in theirs.state_dict().items():
            torch.testing.assert_close(mine.state_dict()[name], value, msg=f"{name} at step {step}")
    for (name, p), (_, q) in zip(mine.named_parameters(), theirs.named_parameters()):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4, msg=name)


def test_a_leaf_that_requires_a_gradient() -> None:
    x = torch.randn(3, requires_grad=True)
    for how in (jit, thunder.jit):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
            how(lambda x: x.add_(1))(x)
    with torch.no_grad():
        before = x.clone()
        jit(lambda x: x.add_(1))(x)
    assert torch.equal(x, before + 1)


def test_a_reshape_after_a_write() -> None:
    """It is a view of what was written, or a copy of it: a fusion that cannot know waits for the strides."""
    def fn(x, y):
        x.add_(y)
        return x.reshape(-1), x.reshape(-1)[2:]

    check(fn, numbers(4, 6), numbers(4, 6))
    jitted, x, y = jit(fn, fuser_fallback="torch"), numbers(6, 4).t(), numbers(4, 6)
    want = (x + y).reshape(-1)
    with pytest.warns(RuntimeWarning, match="is no view of"):
        got, part = jitted(x, y)
    assert torch.equal(got, want) and torch.equal(part, want[2:])


def test_a_reshape_before_a_write() -> None:
    def fn(x, y):
        z = x.reshape(-1)
        x.add_(y)
        return z

    for x in (numbers(4, 6), numbers(6, 4).t()):
        check(fn, x, numbers(4, 6))
