"""docs/architecture.md shows real values: its blocks are made again from the code and compared.

`python -m tests.test_architecture` writes them into the page.
"""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

import torch

from thunder_fuser.compiler import compile_fusion
from thunder_fuser.ir.parser import parse
from thunder_fuser.maps import nests

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
BLOCK = re.compile(r"(<!-- stage: (\w+) -->\n```\w*\n)(.*?)(```)", re.DOTALL)

PROGRAM = """\
fusion rope(qkv: bf16[2, 4, 32], cos: f32[4, 8], sin: f32[4, 8]) {
  a: bf16[2, 4, 2, 2, 8] = reshape(qkv)
  b: bf16[2, 2, 2, 4, 8] = permute(a, dims=[2, 0, 3, 1, 4])
  c: bf16[1, 2, 2, 4, 8] = slice(b, starts=[0, 0, 0, 0, 0], stops=[1, 2, 2, 4, 8])
  q: bf16[2, 2, 4, 8] = squeeze(c, dims=[0])
  d: bf16[1, 2, 2, 4, 8] = slice(b, starts=[1, 0, 0, 0, 0], stops=[2, 2, 2, 4, 8])
  v: bf16[2, 2, 4, 8] = squeeze(d, dims=[0])
  w: f32[2, 2, 4, 8] = cast(q)
  left: f32[2, 2, 4, 4] = slice(w, starts=[0, 0, 0, 0], stops=[2, 2, 4, 4])
  right: f32[2, 2, 4, 4] = slice(w, starts=[0, 0, 0, 4], stops=[2, 2, 4, 8])
  turned: f32[2, 2, 4, 4] = neg(right)
  rotated: f32[2, 2, 4, 8] = cat(turned, left, dim=3)
  cosines: f32[2, 2, 4, 8] = broadcast(cos, dims=[2, 3])
  sines: f32[2, 2, 4, 8] = broadcast(sin, dims=[2, 3])
  x: f32[2, 2, 4, 8] = mul(w, cosines)
  y: f32[2, 2, 4, 8] = mul(rotated, sines)
  z: f32[2, 2, 4, 8] = add(x, y)
  out: bf16[2, 2, 4, 8] = cast(z)
  return out, v
}
"""


def stages():
    with mock.patch.object(nests, "BUSY_POINTS", 0):  # plans the small program as a large one
        executable = compile_fusion(parse(PROGRAM), "host")
        executable(torch.randn(2, 4, 32, dtype=torch.bfloat16), torch.randn(4, 8), torch.randn(4, 8))
    return {**executable.stages().texts(), "report": str(executable.report())}


def rewritten(text):
    texts = stages()
    return BLOCK.sub(lambda m: m[1] + texts[m[2]].rstrip() + "\n" + m[4], text)


def test_the_page_shows_what_the_stages_print():
    text = PAGE.read_text()
    assert {m[2] for m in BLOCK.finditer(text)} >= {"fusion", "aliases", "segments", "kernels", "sources", "launches"}
    assert rewritten(text) == text


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
