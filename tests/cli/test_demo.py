"""`thunder-fuser demo` on the host backend: what it prints, what it writes, and that a wrong result fails it."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import torch

from thunder_fuser.cli import results, rope
from thunder_fuser.cli.main import main

HEADS = rope.Heads("tiny", heads=4, groups=4, size=8, rotary=8, batch=2, tokens=5)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The demo's own heads, over fewer tokens still."""
    monkeypatch.setattr(rope.Heads, "small", lambda self: replace(self, batch=2, tokens=3))


def test_every_config_is_right_and_one_kernel_each_way(tmp_path, capsys):
    path = tmp_path / "figures.json"
    assert main(["demo", "--backend", "host", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert "host backend" in out and "small sizes, no times" in out and "µs" not in out and "bandwidth" not in out
    assert "All results are as near to float64 as eager torch's, or nearer." in out and "wrong" not in out
    record = json.loads(path.read_text())
    assert [r["heads"]["model"] for r in record["runs"]] == ["llama-2-7b", "llama-3-8b", "phi-2"]
    for run in record["runs"]:
        forward, backward = run["directions"]
        for direction in (forward, backward):
            (fusion,) = direction["fusions"]
            assert direction["others"] == []
            assert len(fusion["report"]["kernels"]) == 1 and fusion["timing"] is None
            assert fusion["report"]["kernels"][0]["source"].startswith('extern "C" __global__')
        assert [c["result"] for c in forward["comparisons"]] == ["q", "k", "v"]
        views = forward["fusions"][0]["report"]["views"]
        assert len(views) == (1 if run["heads"]["groups"] == run["heads"]["heads"] else 0)


def test_views_are_named_as_the_program_names_them(capsys):
    assert main(["demo", "--backend", "host", "--config", "phi-2"]) == 0
    out = capsys.readouterr().out
    # v starts behind q's and k's 80 features of each head; heads are 240 apart, tokens 7680
    assert re.search(r"v \(t\d+\) is a view of qkv, offset 160, strides \[23040, 240, 7680, 1\]: no kernel, no bytes", out)
    assert "llama" not in out


def test_prims_are_shortened_unless_asked_for(capsys):
    main(["demo", "--backend", "host", "--config", "llama-2-7b"])
    short = capsys.readouterr().out
    main(["demo", "--backend", "host", "--config", "llama-2-7b", "--prims"])
    whole = capsys.readouterr().out
    assert "more, shown by --prims" in short and "more, shown by --prims" not in whole
    assert whole.count("prims.cat(") > short.count("prims.cat(") and "TFuser0(qkv, cos, sin)" in short


def test_a_wrong_result_is_named_and_fails(capsys, monkeypatch):
    def broken(ours, *rest, compare=results._compare):
        return compare(ours, rest[0] + 0.01 if ours == "k" else rest[0], *rest[1:])

    monkeypatch.setattr(results, "_compare", broken)
    assert main(["demo", "--backend", "host", "--config", "llama-2-7b"]) == 1
    out = capsys.readouterr().out
    assert "wrong: llama-2-7b, forward: k is further from float64 than eager torch's" in out and "All results" not in out


@pytest.mark.parametrize("spoil, why", [
    (lambda t: t * float("nan"), "further from float64"),
    (lambda t: t.transpose(0, 1).contiguous().transpose(0, 1), "strides"),
    (lambda t: t.float(), "float32"),
])
def test_what_counts_as_wrong(spoil, why):
    eager = torch.randn(3, 4, dtype=torch.bfloat16)
    exact = eager.double()
    assert results._compare("x", eager.clone(), eager, exact).wrong is None
    assert why in results._compare("x", spoil(eager), eager, exact).wrong


def test_the_program_is_rotary_embedding():
    """Against complex numbers: features i and i + half are a number turned by the angle whose cosine and sine are given."""
    qkv, _, _ = HEADS.inputs(torch.device("cpu"), torch.float64)
    angles = torch.outer(torch.arange(5, dtype=torch.float64), torch.linspace(1, 0.1, 4, dtype=torch.float64))
    cos, sin = (f(angles).repeat(1, 2) for f in (torch.cos, torch.sin))
    q, k, v = rope.program(HEADS)(qkv, cos, sin)
    packed = qkv.view(2, 5, 4, 3, 8).permute(3, 0, 2, 1, 4)
    for given, x in ((q, packed[0]), (k, packed[1])):
        turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angles), angles)
        torch.testing.assert_close(given, torch.cat((turned.real, turned.imag), dim=-1))
    assert torch.equal(v, packed[2])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_device_is_one_sentence(capsys):
    assert main(["demo", "--backend", "cuda"]) == 1
    assert capsys.readouterr().err == ("thunder-fuser demo: There is no CUDA device that torch can use; "
                                       "'--backend host' runs without one.\n")


@pytest.mark.gpu
def test_times_on_the_gpu(tmp_path, capsys):
    path = tmp_path / "figures.json"
    assert main(["demo", "--backend", "cuda", "--config", "llama-2-7b", "--json", str(path)]) == 0
    assert "of copy bandwidth" in capsys.readouterr().out
    for direction in json.loads(path.read_text())["runs"][0]["directions"]:
        timing = direction["fusions"][0]["timing"]
        assert timing["microseconds"] > 0 and timing["share"] > 0
