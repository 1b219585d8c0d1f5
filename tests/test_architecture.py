"""docs/architecture.md shows real values: its blocks are made again from the code and compared, its names looked up.

`pytest tests/test_architecture.py --update-golden` writes the blocks into the page.
"""

from __future__ import annotations

import difflib
import functools
import re
from pathlib import Path
from unittest import mock

import pytest
import torch

from tests.test_layering import ALLOWED
from thunder_fuser.compiler import compile_fusion
from thunder_fuser.ir.parser import parse
from thunder_fuser.maps import nests
from thunder_fuser.maps.pullback import Pullback
from thunder_fuser.passes import simplify
from thunder_fuser.schedule import pointwise

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
DECISIONS = ROOT / "docs" / "decisions"
BLOCK = re.compile(r"(<!-- made: (\w+) -->\n```\w*\n)(.*?)(```)", re.DOTALL)
ORDER = ["imports", "definition", "simplify", "layouts", "aliases", "segments", "nests", "kernels", "sources", "launches", "report"]

PROGRAM = """\
fusion rope(qkv: bf16[4, 32], cos: f32[4, 8], sin: f32[4, 8]) {
  a: bf16[4, 2, 2, 8] = reshape(qkv)
  b: bf16[2, 2, 4, 8] = permute(a, dims=[1, 2, 0, 3])
  c: bf16[1, 2, 4, 8] = slice(b, starts=[0, 0, 0, 0], stops=[1, 2, 4, 8])
  q: bf16[2, 4, 8] = squeeze(c, dims=[0])
  d: bf16[1, 2, 4, 8] = slice(b, starts=[1, 0, 0, 0], stops=[2, 2, 4, 8])
  v: bf16[2, 4, 8] = squeeze(d, dims=[0])
  w: f32[2, 4, 8] = cast(q)
  left: f32[2, 4, 4] = slice(w, starts=[0, 0, 0], stops=[2, 4, 4])
  right: f32[2, 4, 4] = slice(w, starts=[0, 0, 4], stops=[2, 4, 8])
  turned: f32[2, 4, 4] = neg(right)
  rotated: f32[2, 4, 8] = cat(turned, left, dim=2)
  cosines: f32[2, 4, 8] = broadcast(cos, dims=[1, 2])
  sines: f32[2, 4, 8] = broadcast(sin, dims=[1, 2])
  x: f32[2, 4, 8] = mul(w, cosines)
  y: f32[2, 4, 8] = mul(rotated, sines)
  y16: bf16[2, 4, 8] = cast(y)
  y32: f32[2, 4, 8] = cast(y16)
  z: f32[2, 4, 8] = add(x, y32)
  out: bf16[2, 4, 8] = cast(z)
  return out, v
}
"""


def inputs():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 32, generator=generator).bfloat16(), torch.randn(4, 8, generator=generator), torch.randn(4, 8, generator=generator)


@functools.cache
def program():
    """The program, compiled and called once, with the plans of a large tensor."""
    with mock.patch.object(nests, "BUSY_POINTS", 0), mock.patch.object(pointwise, "SMALL", 0):
        executable = compile_fusion(parse(PROGRAM), "host")
        outputs = executable(*inputs())
        stages = executable.stages()
        where = {v: stages.layouts[v].strides for v in stages.fusion.inputs}
        walked = nests.build(Pullback(stages.fusion.producers(), where), stages.segments.segments[0].targets)
    return executable, outputs, "\n".join(map(str, walked))


def imports():
    """Who may import whom within the engine and around it, as the layering test has it."""
    short = {room: room.removeprefix("thunder_fuser.") for room in ALLOWED if room.startswith("thunder_fuser.")}
    everyone, fronts = ("errors", "config"), ("cli", "__main__")
    rows = [(name, sorted(r.removeprefix("thunder_fuser.") for r in ALLOWED[room]))
            for room, name in short.items() if name not in (*everyone, *fronts)]
    return "\n".join(f"{name:12} -> {', '.join(targets) or '-'}" for name, targets in rows)


def blocks():
    executable, _, walked = program()
    before, after = PROGRAM.splitlines(), str(simplify(parse(PROGRAM))).splitlines()
    changes = [line for line in difflib.unified_diff(before, after, lineterm="", n=0) if not line.startswith(("---", "+++", "@@"))]
    return {"imports": imports(), "definition": PROGRAM, "simplify": "\n".join(changes), **executable.stages().texts(), "nests": walked,
            "report": str(executable.report())}


def rewritten(text):
    made = blocks()
    return BLOCK.sub(lambda m: m[1] + made[m[2]].rstrip() + "\n" + m[4], text)


def test_the_page_shows_what_the_code_prints(request):
    text = PAGE.read_text()
    assert [m[2] for m in BLOCK.finditer(text)] == ORDER
    now = rewritten(text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(now)
        text = now
    assert text == now, "\n".join(difflib.unified_diff(text.splitlines(), now.splitlines(), "page", "now", lineterm=""))


def test_the_program_of_the_page_is_rope():
    qkv, cos, sin = inputs()
    out, v = program()[1]
    q, want_v = qkv.view(4, 2, 2, 8).permute(1, 2, 0, 3)
    wide = q.double()
    rotated = torch.cat([-wide[..., 4:], wide[..., :4]], -1)
    torch.testing.assert_close(out.double(), wide * cos.double() + rotated * sin.double(), rtol=2**-8, atol=2**-12)
    assert torch.equal(v, want_v) and v.stride() == want_v.stride() and v.storage_offset() == want_v.storage_offset()


def test_a_view_of_a_moved_input():
    executable = program()[0]
    made = executable.cache_info()["plans_made"]
    qkv, cos, sin = inputs()
    moved = torch.cat([torch.zeros(1, 32, dtype=torch.bfloat16), qkv])[1:]
    out, v = executable(moved, cos, sin)
    assert executable.cache_info()["plans_made"] == made
    assert v.storage_offset() == 32 + 16 and torch.equal(v, program()[1][1]) and torch.equal(out, program()[1][0])


def test_zeros_of_a_pad_take_part_in_arithmetic():
    text = """\
    fusion f(x: f32[2], y: f32[4]) {
      p: f32[4] = pad(x, 0.0, widths=[(1, 1, 0)])
      s: f32[4] = add(p, y)
      t: f32[4] = mul(p, y)
      return s, t
    }
    """
    x, y = torch.tensor([-0.0, 2.0]), torch.tensor([-0.0, -0.0, torch.nan, torch.nan])
    for got, want in zip(compile_fusion(parse(text), "host")(x, y), (torch.nn.functional.pad(x, (1, 1)) + y, torch.nn.functional.pad(x, (1, 1)) * y)):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(got.signbit()[:2], want.signbit()[:2])


def test_files_and_tests_named_on_the_page_exist():
    text = BLOCK.sub("", PAGE.read_text())
    named = re.findall(r"`([\w./]+\.(?:py|md|h|cuh))(?:::(\w+))?`", text)
    assert len(named) > 20
    for file, test in named:
        path = next((p for p in (ROOT / file, ROOT / "thunder_fuser" / file) if p.exists()), None)
        assert path is not None, file
        assert f"def {test}(" in path.read_text() if test else True, f"{file}::{test}"


def pages():
    return sorted(p for p in DECISIONS.glob("*.md") if p.name != "README.md")


def test_every_decision_is_listed_once():
    rows = re.findall(r"^\| \[(\d{4})\]\((\S+\.md)\) \| .+ \|$", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    assert [file for _, file in rows] == [p.name for p in pages()]
    assert all(file.startswith(number) for number, file in rows)


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.stem)
def test_a_decision_has_its_number_and_names_what_exists(page):
    text = page.read_text()
    assert text.startswith(f"# {page.name[:4]}: ")
    for file in re.findall(r"`((?:thunder_fuser|translators|executors|tests|benchmarks)/[\w./]+)`", text):
        assert (ROOT / file).exists(), file
    for number in re.findall(r"\[decision (\d{4})\]", text):
        assert list(DECISIONS.glob(f"{number}-*.md")), number
