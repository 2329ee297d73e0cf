"""The layout of the source: short modules and functions, and packages that say what they may import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "oddnode"
MODULES = sorted(SOURCE.rglob("*.py"))
PACKAGES = [path for path in MODULES if path.name == "__init__.py" and path.parent != SOURCE]
MAX_MODULE_LINES = 350
MAX_FUNCTION_LINES = 60


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def gives_reason(tree: ast.Module) -> bool:
    """Whether the docstring of a module has a line that starts with "Long because"."""
    return any(line.startswith("Long because") for line in (ast.get_docstring(tree) or "").splitlines())


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Name and lines of every function, from its signature to its end, without decorators and docstring.

    Docstrings are not counted: a function with many parameters must document all of them.
    """
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                docstring = node.body[0]
                lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
            yield node.name, lines


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_and_functions_are_short_or_say_why_not(path: Path) -> None:
    tree = parse(path)
    if gives_reason(tree):
        return
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_MODULE_LINES
    assert {name: lines for name, lines in functions(tree) if lines > MAX_FUNCTION_LINES} == {}


def test_reasons_are_given_only_where_they_are_needed() -> None:
    needless = []
    for path in MODULES:
        tree = parse(path)
        is_short = len(path.read_text(encoding="utf-8").splitlines()) <= MAX_MODULE_LINES
        if gives_reason(tree) and is_short and all(lines <= MAX_FUNCTION_LINES for _, lines in functions(tree)):
            needless.append(name_of(path))
    assert needless == []


@pytest.mark.parametrize("path", PACKAGES, ids=name_of)
def test_packages_say_what_they_may_import(path: Path) -> None:
    docstring = ast.get_docstring(parse(path)) or ""
    assert any(line.startswith("May import") for line in docstring.splitlines())


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_imports_from_the_root_package(path: Path) -> None:
    """The names of `oddnode` itself are for users; inside, a name comes from the package that defines it."""
    imports = [node for node in ast.walk(parse(path)) if isinstance(node, ast.ImportFrom)]
    from_root = [alias.name for node in imports if node.module == "oddnode" and not node.level for alias in node.names]
    assert from_root == []


def test_the_measures_find_what_they_are_for() -> None:
    body = "\n".join(f"    x = {number}" for number in range(MAX_FUNCTION_LINES))
    function = f'@decorator\ndef long():\n    """Two\n    lines."""\n{body}\n'
    tree = ast.parse(f'"""Module.\n\nLong because it is a test.\n"""\n{function}')
    assert gives_reason(tree)
    assert not gives_reason(ast.parse('"""It is long because of tables."""'))
    assert list(functions(tree)) == [("long", MAX_FUNCTION_LINES + 1)]
