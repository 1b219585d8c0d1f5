"""Kernel texts and stages of small programs, word for word: one a schedule. `--update-golden` writes them anew.

A change here is a change of what people read and of what compilers get: look at the difference, then update.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from thunder_fuser.analysis.layout import format_layouts
from thunder_fuser.codegen.kernel import kernel_text
from thunder_fuser.compiler import Stages, lower
from thunder_fuser.ir.builder import FusionBuilder
from thunder_fuser.ir.dtypes import BF16, F32, I32
from thunder_fuser.ir.nodes import Fusion
from thunder_fuser.passes import simplify
from thunder_fuser.runtime.launch_plan import LaunchPlan
from thunder_fuser.schedule import pointwise

FOLDER = Path(__file__).parent
MAX_LINES = 160


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    def compare(name: str, text: str) -> None:
        path = FOLDER / f"{name}.txt"
        assert text.count("\n") <= MAX_LINES, f"{name} has {text.count(chr(10))} lines: too many to read"
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert path.exists(), f"{path.name} is missing, write it with --update-golden"
        want = path.read_text()
        assert text == want, "\n".join(difflib.unified_diff(want.splitlines(), text.splitlines(), path.name, "now", lineterm=""))

    return compare


def lowered(fusion: Fusion, *strides: tuple[int, ...], large: bool = True) -> tuple[Stages, LaunchPlan]:
    """As on a tensor that is large enough for the widest vectors."""
    with mock.patch.object(pointwise, "SMALL", 0) if large else contextlib.nullcontext():
        return lower(simplify(fusion), strides, [16] * len(strides))


def kernels(fusion: Fusion, *strides: tuple[int, ...]) -> str:
    return "\n".join(kernel_text(s) for s in lowered(fusion, *strides)[0].sources)


def rope() -> Fusion:
    b = FusionBuilder("rope")
    x, cos, sin = b.tensor(BF16, (2, 16, 64), "x"), b.tensor(BF16, (16, 64), "cos"), b.tensor(BF16, (16, 64), "sin")
    low, high = b.slice(x, [0, 0, 0], [2, 16, 32]), b.slice(x, [0, 0, 32], [2, 16, 64])
    turned = b.cat([b.neg(high), low], -1)
    wide = [b.cast(b.broadcast(t, (2, 16, 64), [1, 2]), F32) for t in (cos, sin)]
    b.output(b.cast(b.add(b.mul(b.cast(x, F32), wide[0]), b.mul(b.cast(turned, F32), wide[1])), BF16))
    b.output(b.permute(x, [1, 0, 2]))
    return b.build()


def test_pointwise(golden) -> None:
    b = FusionBuilder()
    b.output(b.mul(b.exp(b.tensor(F32, (64, 32))), 2.0))
    golden("pointwise", kernels(b.build(), (32, 1)))


def test_tail(golden) -> None:
    b = FusionBuilder()
    b.output(b.neg(b.tensor(F32, (1001,))))
    golden("tail", kernels(b.build(), (1,)))


def test_halves_walked_together(golden) -> None:
    with mock.patch("thunder_fuser.maps.nests.BUSY_POINTS", 0):
        golden("halves", kernels(rope(), (16 * 64, 64, 1), (64, 1), (64, 1)))


def test_pieces_side_by_side(golden) -> None:
    b = FusionBuilder()
    x, y = b.tensor(F32, (8, 32)), b.tensor(F32, (8, 16))
    b.output(b.cat([x, b.neg(y)], 1))
    golden("pieces", kernels(b.build(), (32, 1), (16, 1)))


def test_reduction_along_rows(golden) -> None:
    b = FusionBuilder()
    b.output(b.sum(b.tensor(BF16, (6, 1024)), [1]))
    golden("reduction_inner", kernels(b.build(), (1024, 1)))


def test_reduction_along_columns(golden) -> None:
    b = FusionBuilder()
    b.output(b.sum(b.tensor(F32, (100, 64)), [0]))
    golden("reduction_outer", kernels(b.build(), (64, 1)))


def test_softmax(golden) -> None:
    b = FusionBuilder()
    x = b.tensor(F32, (16, 512))
    e = b.exp(b.sub(x, b.broadcast(b.amax(x, [1]), (16, 512), [0])))
    b.output(b.div(e, b.broadcast(b.sum(e, [1]), (16, 512), [0])))
    golden("rows", kernels(b.build(), (512, 1)))


def test_gradients_of_a_norm(golden) -> None:
    b = FusionBuilder()
    x, grad = b.tensor(F32, (4096, 256)), b.tensor(F32, (4096, 256))
    mean = b.sum(b.mul(x, grad), [1])
    b.output(b.sub(grad, b.mul(x, b.broadcast(mean, (4096, 256), [0]))))
    b.output(b.sum(grad, [0]))
    golden("rows_walked", kernels(b.build(), (256, 1), (256, 1)))


def test_row_of_a_cluster(golden) -> None:
    b = FusionBuilder()
    x = b.tensor(BF16, (64, 65536))
    b.output(b.mul(x, b.broadcast(b.sum(x, [1]), (64, 65536), [0])))
    golden("rows_cluster", kernels(b.build(), (65536, 1)))


def test_short_reduction(golden) -> None:
    b = FusionBuilder()
    b.output(b.sum(b.tensor(F32, (64, 4, 32)), [1]))
    golden("reduction_short", kernels(b.build(), (128, 32, 1)))


def test_repeated_stores(golden) -> None:
    b = FusionBuilder()
    b.output(b.neg(b.broadcast(b.tensor(F32, (6, 32)), (6, 5, 32), [0, 2])))
    golden("repeats", kernels(b.build(), (32, 1)))


def test_guarded(golden) -> None:
    b = FusionBuilder()
    pieces = b.cat([b.tensor(I32, (3, 2)), b.tensor(I32, (2, 2))], 0)
    b.output(b.sum(pieces, [0]))
    golden("guarded", kernels(b.build(), (2, 1), (2, 1)))


def test_divided(golden) -> None:
    b = FusionBuilder()
    b.output(b.reshape(b.permute(b.reshape(b.tensor(I32, (210,)), (14, 15)), [1, 0]), (10, 21)))
    golden("divided", kernels(b.build(), (1,)))


def test_stages_of_rope(golden) -> None:
    """What a person sees who prints the stages one after the other."""
    stages, plan = lowered(rope(), (16 * 64, 64, 1), (64, 1), (64, 1), large=False)
    golden("rope_program", _parts(fusion=stages.fusion, layouts=format_layouts(stages.layouts), aliases=stages.aliases, segments=stages.segments))
    golden("rope_plans", _parts(kernel=stages.kernels[0], launch=plan))


def _parts(**parts: object) -> str:
    return "\n".join(f"== {name}\n{value}" for name, value in parts.items()).rstrip() + "\n"


def test_every_golden_is_used() -> None:
    asked = set(re.findall(r'^ +golden\("(\w+)"', Path(__file__).read_text(), re.MULTILINE))
    assert asked == {p.stem for p in FOLDER.glob("*.txt")}
