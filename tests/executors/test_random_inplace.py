"""Random in-place programs under Thunder: arguments, intermediates and views of them, written and read in any order, with
operators in between that are not fused.

Where Thunder with torch's executor is not right itself (it is not for every alias), there is nothing to compare with.
"""

from __future__ import annotations

import math
import warnings

import pytest
import thunder
import torch
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from tests.executors.jitted import jit
from tests.support.memory import copied

SHORT = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}


@st.composite
def functions(draw: st.DrawFn) -> str:
    """The source of `f(x, y)`, both of 4 x 6 small integers, whose names v0, v1, ... are new tensors, views or results of writes."""
    shapes = {"x": (4, 6), "y": (4, 6)}
    lines: list[str] = []

    def pick(shape: tuple[int, ...] | None = None, rank: int | None = None) -> str | None:
        fits = [n for n, s in shapes.items() if (shape is None or s == shape) and (rank is None or len(s) == rank)]
        return draw(st.sampled_from(fits)) if fits else None

    def define(text: str, shape: tuple[int, ...]) -> None:
        name = f"v{len(shapes) - 2}"
        lines.append(f"{name} = {text}")
        shapes[name] = shape

    def view() -> None:
        of = pick()
        shape = shapes[of]
        kind = draw(st.sampled_from(["part", "turn", "flat", "row"]))
        if kind == "part":
            d = draw(st.integers(0, len(shape) - 1))
            start, step = draw(st.integers(0, max(shape[d] - 1, 0))), draw(st.sampled_from([1, 1, 2]))
            index = ", ".join(f"{start}::{step}" if k == d else ":" for k in range(len(shape)))
            define(f"{of}[{index}]", tuple(-(-(n - start) // step) if k == d else n for k, n in enumerate(shape)))
        elif kind == "turn" and len(shape) == 2:
            define(f"{of}.t()", shape[::-1])
        elif kind == "row" and len(shape) == 2:
            define(f"{of}[{draw(st.integers(0, shape[0] - 1))}]", shape[1:])
        else:
            define(f"{of}.reshape({math.prod(shape)})", (math.prod(shape),))

    def compute() -> None:
        a = pick()
        b = pick(shapes[a])
        define(draw(st.sampled_from([f"{a} + {b}", f"{a} * 2", f"{a} - 1", f"torch.where({a} > 0, {a}, {b})", f"{a}.clone()"])), shapes[a])

    def write() -> None:
        a = pick()
        b = pick(shapes[a])
        how = draw(st.sampled_from([f"{a}.add_({b})", f"{a}.copy_({b})", f"{a}.mul_(2)", f"{a}.neg_()", f"{a}.sub_({b} * 3)", f"{a}.relu_()"]))
        if draw(st.booleans()):
            define(how, shapes[a])
        else:
            lines.append(how)

    def unfused() -> None:
        a = pick(rank=2)
        if a is not None:
            define(f"torch.matmul({a}, {a}.t())", (shapes[a][0], shapes[a][0]))

    steps = [view, view, compute, write, write, write, unfused]
    for _ in range(draw(st.integers(2, 9))):
        draw(st.sampled_from(steps))()
    returned = draw(st.lists(st.sampled_from(list(shapes)), min_size=1, max_size=4, unique=True))
    return "def f(x, y):\n" + "".join(f"    {line}\n" for line in lines) + f"    return {', '.join(returned)},\n"


def run(fn, inputs):
    """Results and inputs afterwards; what torch raises, by its class."""
    given = copied(inputs)
    try:
        return [*fn(*given), *given]
    except (RuntimeError, NotImplementedError) as error:
        return type(error)


def same(a, b) -> bool:
    return isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


@settings(max_examples=40, **SHORT)
@given(functions(), st.sampled_from(["plain", "turned", "gaps"]), st.integers(0, 99))
def test_random_inplace_programs(text: str, layout: str, seed: int) -> None:
    compare(text, layout, seed)


@pytest.mark.long
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(functions(), st.sampled_from(["plain", "turned", "gaps"]), st.integers(0, 99))
def test_many_random_inplace_programs(text: str, layout: str, seed: int) -> None:
    compare(text, layout, seed)


def compare(text: str, layout: str, seed: int) -> None:
    note(text)
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randint(-3, 4, (4, 6), generator=generator).float() for _ in range(2))
    if layout == "turned":
        x = x.t().contiguous().t()
    if layout == "gaps":
        x = torch.zeros(6, 8)[1:5, 1:7].copy_(x)
    namespace: dict = {"torch": torch}
    exec(compile(text, "<program>", "exec"), namespace)
    f = namespace["f"]
    want = run(f, [x, y])
    assume(isinstance(want, list))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assume(same(run(thunder.jit(f, executors=[]), [x, y]), want))
        jitted = jit(f, fuser_fallback="torch", debug_options=None)
        for _ in range(2):
            got = run(jitted, [x, y])
            assert same(got, want), f"{got}\nis not\n{want}\n{thunder.last_traces(jitted)[-1]}"
