"""What keeps the code readable: short modules and functions, a docstring each, names that say something."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = [p for folder in ("thunder_fuser", "translators", "executors") for p in sorted((ROOT / folder).rglob("*.py"))]
OTHERS = [p for folder in ("tests", "benchmarks") for p in sorted((ROOT / folder).rglob("*.py"))]
EVERY_TEXT = [*PACKAGES, *OTHERS, *sorted((ROOT / "thunder_fuser").rglob("*.cuh")), *sorted((ROOT / "thunder_fuser").rglob("*.h")),
              *sorted((ROOT / "thunder_fuser").rglob("*.cpp"))]
MAX_MODULE, MAX_FUNCTION, MAX_LINE = 500, 60, 160
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}


def named(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=[str(p.relative_to(ROOT)) for p in paths])


@named(PACKAGES + OTHERS)
def test_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MAX_MODULE
    if path in PACKAGES or path.name != "__init__.py":
        assert ast.get_docstring(ast.parse(text)), f"{path} does not say what it answers"


@named(PACKAGES)
def test_functions_are_short(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = node.end_lineno - node.lineno + 1
            assert length <= MAX_FUNCTION, f"{path}:{node.lineno}: '{node.name}' has {length} lines"


@named(EVERY_TEXT)
def test_nothing_is_left_for_later(path: Path) -> None:
    words = "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"))
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        assert not re.search(rf"\b({words})\b", line), f"{path}:{number}: {line.strip()}"
        assert len(line) <= MAX_LINE, f"{path}:{number}: {len(line)} columns"
        assert "\t" not in line and line == line.rstrip(), f"{path}:{number}: tabs or blanks at the end"


@named(PACKAGES + OTHERS)
def test_names_say_something(path: Path) -> None:
    assert not EMPTY_NAMES & {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}


@named(PACKAGES)
def test_annotations_are_not_evaluated(path: Path) -> None:
    tree = ast.parse(path.read_text())
    if any(isinstance(n, (ast.FunctionDef, ast.ClassDef)) for n in tree.body):
        assert any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body)


def _public_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node


@named(PACKAGES)
def test_public_names_of_the_ends_have_docstrings(path: Path) -> None:
    """Classes everywhere; functions where users and stages meet, unless they are one line."""
    for node in _public_functions(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno < 6:
            continue
        assert ast.get_docstring(node), f"{path}:{node.lineno}: '{node.name}' has no docstring"
