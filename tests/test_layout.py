"""The layout of the source: a budget of lines, short functions, and packages that say what they may import."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "oddnode"
MODULES = sorted(SOURCE.rglob("*.py"))
PACKAGES = [path for path in MODULES if path.name == "__init__.py" and path.parent != SOURCE]
MAX_FUNCTION_LINES = 60


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Name and lines of every function's body: without its signature, which may declare many options, and docstring."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            yield node.name, (node.end_lineno or node.lineno) - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_the_source_keeps_its_budget_of_lines(folder: str) -> None:
    """Whoever raises a budget adds a line to the changelog that says what a user gets for it."""
    budget = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["oddnode"]["max-lines"]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py"))
    assert lines <= budget[folder]


def test_functions_are_short_and_nothing_imports_from_the_root_package() -> None:
    """The names of `oddnode` itself are for users; inside, a name comes from the package that defines it."""
    too_long, from_root = [], []
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        too_long += [(path, name) for name, lines in functions(tree) if lines > MAX_FUNCTION_LINES]
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        from_root += [path for node in imports if node.module == "oddnode" and not node.level]
    assert (too_long, from_root) == ([], [])


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.parent.name)
def test_packages_say_what_they_may_import(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert any(line.startswith("May import") for line in docstring.splitlines())
