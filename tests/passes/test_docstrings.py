"""The fusions before and after, in each pass's docstring, are what the pass takes and makes."""

from __future__ import annotations

import inspect
import re

import pytest

from thunder_fuser.ir.parser import parse
from thunder_fuser.passes import PASSES, Pass


@pytest.mark.parametrize("run", dict.fromkeys(p for p, _ in PASSES))
def test_example(run: Pass) -> None:
    texts = re.findall(r"^fusion .*?^}$", inspect.cleandoc(run.__doc__).replace("\n    ", "\n"), re.DOTALL | re.MULTILINE)
    before, after = map(parse, texts)
    assert str(run(before)) == str(after)
    assert str(before) != str(after)
