"""The knobs `dump` and `check`: what they print, what they refuse, and that they are off by default."""

from __future__ import annotations

import pytest
import torch

from thunder_fuser import config, passes
from thunder_fuser.compiler import compile_fusion
from thunder_fuser.errors import InputError, IRError
from thunder_fuser.ir.nodes import Fusion
from thunder_fuser.ir.parser import parse

FUSION = parse("fusion double(x: f32[2, 3]) {\n  y: f32[2, 3] = mul(x, 2.0)\n  t: f32[3, 2] = permute(x, dims=[1, 0])\n  return y, t\n}")
STAGES = ["fusion", "layouts", "aliases", "segments", "kernels", "sources", "launches"]


def run(**knobs):
    with config.override(**knobs):
        executable = compile_fusion(FUSION, "host")
        outputs = executable(torch.arange(6.0).view(2, 3))
    assert outputs[0].tolist() == [[0, 2, 4], [6, 8, 10]]
    return executable


def test_nothing_by_default(capsys):
    run(dump="")
    assert capsys.readouterr() == ("", "")


def test_all_stages_in_order(capsys):
    executable = run(dump="all")
    out, err = capsys.readouterr()
    assert out == ""
    assert [line for line in err.splitlines() if line.startswith("---")] == [f"--- double: {name} ---" for name in STAGES]
    texts = executable.stages().texts()
    assert list(texts) == STAGES and all(text in err for text in texts.values())
    assert texts["fusion"] == str(FUSION) and "  t = x as [3, 2] strides [1, 3] offset 0" in texts["aliases"]
    assert texts["sources"].startswith('extern "C" __global__') and texts["launches"].startswith("def run(in0")


def test_some_stages(capsys):
    run(dump="sources, aliases")
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("---")] == ["--- double: aliases ---", "--- double: sources ---"]


def test_a_stage_that_does_not_exist():
    with pytest.raises(InputError, match="THUNDER_FUSER_DUMP names 'cuda', expected 'all' or some of fusion, layouts"):
        run(dump="fusion,cuda")


def test_the_knob_says_which_stages_there_are():
    assert ", ".join(STAGES) in config.KNOBS["dump"].help


def test_check_names_the_pass_at_fault(monkeypatch):
    def loses_the_producer(fusion):
        return Fusion(fusion.name, fusion.inputs, fusion.nodes[1:], fusion.outputs)

    monkeypatch.setattr(passes, "PASSES", ((passes.dce, ""), (loses_the_producer, "")))
    assert len(passes.simplify(FUSION).nodes) == 1
    with config.override(check=True), pytest.raises(IRError, match="Pass 'loses_the_producer' left a fusion that does not verify"):
        passes.simplify(FUSION)
