"""Who may import whom. The engine's rooms point one way, and none of them knows Thunder."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"thunder_fuser": ROOT / "thunder_fuser", "thunder_fuser.translators": ROOT / "translators", "thunder_fuser.executors": ROOT / "executors"}
EVERYONE = {"thunder_fuser.errors", "thunder_fuser.config", "thunder_fuser.__version__"}

# What the modules below a prefix may import of the package, besides each other and EVERYONE. The longest prefix counts.
ALLOWED: dict[str, set[str]] = {
    "thunder_fuser.errors": set(),
    "thunder_fuser.config": set(),
    "thunder_fuser.ir": set(),
    "thunder_fuser.analysis": {"thunder_fuser.ir"},
    "thunder_fuser.passes": {"thunder_fuser.ir", "thunder_fuser.analysis"},
    "thunder_fuser.maps": {"thunder_fuser.ir", "thunder_fuser.analysis"},
    "thunder_fuser.schedule": {"thunder_fuser.ir", "thunder_fuser.analysis", "thunder_fuser.maps"},
    "thunder_fuser.codegen": {"thunder_fuser.ir", "thunder_fuser.maps", "thunder_fuser.schedule", "thunder_fuser.runtime.source"},
    "thunder_fuser.runtime": set(),
    "thunder_fuser.report": {"thunder_fuser.codegen", "thunder_fuser.ir"},
    "thunder_fuser.executable": {"thunder_fuser.ir", "thunder_fuser.runtime", "thunder_fuser.report"},
    "thunder_fuser.compiler": {f"thunder_fuser.{room}" for room in (
        "analysis", "codegen", "debug", "executable", "ir", "maps", "passes", "runtime", "schedule")},
    "thunder_fuser.frontend": {"thunder_fuser.ir", "thunder_fuser.compiler", "thunder_fuser.executable", "thunder_fuser.report",
                               "thunder_fuser.runtime.generator"},
    "thunder_fuser.debug": {"thunder_fuser.ir"},
    "thunder_fuser.translators": {"thunder_fuser.ir", "thunder"},
    "thunder_fuser.executors": {"thunder_fuser.translators", "thunder_fuser.compiler", "thunder_fuser.executable", "thunder_fuser.ir",
                                "thunder_fuser.report", "thunder_fuser.runtime.options", "thunder_fuser.runtime.generator", "thunder"},
    "thunder_fuser.cli": {"thunder_fuser", "thunder"},
    "thunder_fuser.__main__": {"thunder_fuser.cli"},
    "thunder_fuser": set(),
}


def _sources() -> list[tuple[str, Path]]:
    found = []
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found.append((".".join((package, *(p for p in parts if p != "__init__"))), path))
    return found


def _under(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def _room(module: str) -> str:
    return max((p for p in ALLOWED if _under(module, p)), key=len)


def _imports(tree: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
    """Every imported module, those named for type checkers alone left out: they are no dependency."""
    typing_only = {id(n) for block in ast.walk(tree) if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
                   for n in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from package import module` names a module too
            yield from ((node, f"{node.module}.{alias.name}" if node.module == "thunder_fuser" else node.module or "") for alias in node.names)


SOURCES = _sources()


@pytest.mark.parametrize("module,path", SOURCES, ids=[m for m, _ in SOURCES])
def test_imports_point_one_way(module: str, path: Path) -> None:
    room = _room(module)
    allowed = ALLOWED[room] | EVERYONE | {room}
    for node, target in _imports(ast.parse(path.read_text())):
        ours = _under(target, "thunder_fuser") or _under(target, "thunder")
        if room == "thunder_fuser":
            assert not ours, f"{path}:{node.lineno}: the package's front imports '{target}' when it is imported"
        assert not ours or any(_under(target, a) for a in allowed), f"{path}:{node.lineno}: '{room}' may not import '{target}'"


@pytest.mark.parametrize("module,path", SOURCES, ids=[m for m, _ in SOURCES])
def test_imports_are_absolute_and_by_the_installed_name(module: str, path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
    for node, target in _imports(ast.parse(path.read_text())):
        assert target.split(".")[0] not in ("executors", "translators"), f"{path}:{node.lineno}: '{target}' has no such name once installed"


def test_every_room_has_a_rule() -> None:
    rooms = {m for m, p in SOURCES if m.count(".") == 1}
    assert {r for r in rooms if _room(r) == "thunder_fuser"} <= {"thunder_fuser.__main__"}


def test_a_breach_is_found() -> None:
    """The walk sees imports inside functions, and those for type checkers are not counted."""
    tree = ast.parse("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import thunder\ndef f():\n    from thunder_fuser import codegen\n")
    assert [t for _, t in _imports(tree)] == ["typing", "thunder_fuser.codegen"]


def test_engine_runs_without_thunder() -> None:
    """All of the engine imports, and runs a fusion on the host, in a process that has no Thunder."""
    others = ("thunder_fuser.translators", "thunder_fuser.executors", "thunder_fuser.cli", "thunder_fuser.__main__")
    modules = [m for m, _ in SOURCES if not any(_under(m, other) for other in others)]
    program = f"""
import sys
sys.modules["thunder"] = None
import importlib
for module in {modules!r}:
    importlib.import_module(module)
import torch
from thunder_fuser.compiler import compile_fusion
from thunder_fuser.ir.parser import parse
fusion = parse("fusion f(x: f32[3]) {{\\n  y: f32[3] = mul(x, 2.0)\\n  return y\\n}}")
print(compile_fusion(fusion, "host")(torch.tensor([1.0, 2.0, 3.0]))[0].tolist())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "[2.0, 4.0, 6.0]"
