"""docs/fusion_definition.md says what is true: its example is run, its lists are those of the code, its names exist.

`pytest tests/frontend/test_page.py --update-golden` writes the output of the example and the lists into the page.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import thunder_fuser
from thunder_fuser import FusionDefinition
from thunder_fuser.frontend.namespace import UNSUPPORTED
from thunder_fuser.frontend.rows import OPS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fusion_definition.md"
BLOCK = re.compile(r"(<!-- made: (\w+) -->\n```\w*\n)(.*?)(```)", re.DOTALL)
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n(```text\n)(.*?)```", re.DOTALL)


def _ops() -> str:
    """Each op with its parameters; those that torch runs are marked."""
    return "\n".join(f"{name}({', '.join(row.signature.parameters)}){'  # torch' if row.torch else ''}" for name, row in sorted(OPS.items()))


def _refused() -> str:
    return "\n".join(f"{name}: {what}" for name, what in sorted(UNSUPPORTED.items()) if name not in OPS)


def test_lists_are_those_of_the_code(pytestconfig: pytest.Config) -> None:
    made = {"ops": _ops(), "refused": _refused()}
    text = PAGE.read_text()
    if pytestconfig.getoption("--update-golden"):
        PAGE.write_text(BLOCK.sub(lambda m: f"{m[1]}{made[m[2]]}\n{m[4]}", text))
        return
    found = {m[2]: m[3].rstrip("\n") for m in BLOCK.finditer(text)}
    assert found == made


def test_example_prints_what_the_page_says(pytestconfig: pytest.Config) -> None:
    text = PAGE.read_text()
    (example,) = EXAMPLE.finditer(text)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", example[1]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = re.sub(r"_[0-9a-f]{12}\b", "_HASH", done.stdout)
    if pytestconfig.getoption("--update-golden"):
        PAGE.write_text(text[: example.start(3)] + printed + text[example.end(3):])
        return
    assert printed == example[3]


def test_every_named_attribute_exists() -> None:
    x = torch.ones(2, 2)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.neg(fd.from_pytorch(x)))
    fd.execute([x])
    rows = re.findall(r"^\| (.*?) \| .* \|$", PAGE.read_text(), re.MULTILINE)
    named = 0
    for row in rows:
        for path in re.findall(r"`fd\.(\w+)", row):
            owner = getattr(fd, path)
            named += 1
            if path in ("fusion", "fec"):
                for method in re.findall(r"`(\w+)\(", row):
                    assert callable(getattr(owner, method)), method
                    named += 1
    assert named > 20 and thunder_fuser.LruFusionCache(max_fusions=2).num_fusions() == 0


def test_every_op_is_either_there_or_refused() -> None:
    """nvFuser's list."""
    listed = """
        abs acos acosh asin asinh atan atanh ceil cos cosh exp exp2 expm1 erf erfc erfinv erfcinv floor frac lgamma log log10 log1p log2 neg
        logical_not bitwise_not relu rand_like randn_like reciprocal round rsqrt set segment_set sign sigmoid signbit silu sin sinh sqrt tan tanh
        trunc isfinite isinf isnan isneginf isposinf isreal real imag add atan2 div truediv fmod mul nextafter pow remainder sub minimum maximum
        mod eq ge gt le lt ne logical_and logical_or bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift
        logical_right_shift gcd lerp where addcmul clamp threshold max min prod sum var var_mean welford cumsum cumprod cummin cummax reshape
        permute squeeze broadcast broadcast_in_dim expand slice pad cat stride_order size shape gather take_along_axis index_select select
        scatter embedding_fwd argsort topk triu full iota uniform normal cast complex matmul linear grouped_mm scaled_mm
        cutlass_nvfp4_grouped_mm sdpfa_fwd sdpfa_bwd nv_block_quantize nv_grouped_block_quantize preprocess_grouped_matmul_input_sf
    """.split()
    with FusionDefinition() as fd:
        for name in listed:
            assert name in OPS or name in UNSUPPORTED, name
            assert callable(getattr(fd.ops, name))
