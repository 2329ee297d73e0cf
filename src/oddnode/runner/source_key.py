"""A hash of the source code that can change a result, by which a store decides which of its records are valid.

It covers the syntax trees of all modules that executing a training can import, without docstrings and imports for type
checkers. Comments, formatting and modules that no training reaches do not count.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from oddnode._utils.plugins import plugin_files

__all__ = ["reachable_modules", "source_key", "store_key"]

_PACKAGE = "oddnode"
_ROOT = Path(__file__).parent.parent
#: The module that executes trainings.
_ENTRY = "oddnode.runner.execute"
# The package's own __init__ exports names to users, and nothing inside imports from it; every record has the version.
_LEFT_OUT = (_PACKAGE, f"{_PACKAGE}._version")
# A module that is imported by name: "oddnode.tasks.twitch", or "oddnode.tasks.twitch:load".
_NAMED = re.compile(rf"({_PACKAGE}(?:\.\w+)+)(?::\w+)?")


def store_key() -> str:
    """Compute the key of the current source and the loaded plugins, which new records of a store carry."""
    return source_key(plugin_files())


@cache
def source_key(plugins: tuple[Path, ...] = (), root: Path = _ROOT, entry: str = _ENTRY) -> str:
    """Compute the key of the current source.

    Parameters
    ----------
    plugins : tuple of Path
        Files of loaded plugins.
    root : Path
        The folder of the package.
    entry : str
        The module that executes a training.

    Returns
    -------
    str
        Sixteen hexadecimal digits.
    """
    trees = {f"{number} {path.stem}": _parse(path) for number, path in enumerate(sorted(plugins))}
    modules = reachable_modules(root, {entry}.union(*(_imports(tree, "", root) for tree in trees.values())))
    digest = hashlib.sha256()
    for name, tree in sorted((modules | {f"plugin {name}": tree for name, tree in trees.items()}).items()):
        digest.update(f"{name}\n{''.join(_canonical(tree))}\n".encode())
    return digest.hexdigest()[:16]


def reachable_modules(root: Path = _ROOT, entries: Iterable[str] = (_ENTRY,)) -> dict[str, ast.Module]:
    """Find every module of the package that importing and running ``entries`` can import.

    Imports inside functions count, and so do names of modules in strings.

    Parameters
    ----------
    root : Path
        The folder of the package.
    entries : iterable of str
        Names of modules to start from.

    Returns
    -------
    dict of str to ast.Module
        The trees by the modules' full names.
    """
    found: dict[str, ast.Module] = {}
    waiting = set(entries)
    while waiting:
        name = waiting.pop()
        path = _file_of(name, root)
        if name in found or path is None or name in _LEFT_OUT:
            continue
        found[name] = tree = _parse(path)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        waiting |= {name.rpartition(".")[0]} | _imports(tree, package, root)
    return found


def _file_of(module: str, root: Path) -> Path | None:
    """The file of a module of the package; ``None`` if there is none."""
    head, *rest = module.split(".")
    path = root.joinpath(*rest)
    candidates = (path / "__init__.py", path.with_suffix(".py") if rest else path)
    return next((file for file in candidates if head == _PACKAGE and file.is_file()), None)


def _parse(path: Path) -> ast.Module:
    tree = ast.parse(path.read_bytes(), str(path))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:]
            node.body = [each for statement in node.body for each in _executed(statement)]
    return tree


def _executed(statement: ast.stmt) -> list[ast.stmt]:
    """The statement itself; of one that tells type checkers and Python different things, what it tells Python."""
    if isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING"):
        return statement.orelse
    return [statement]


def _imports(tree: ast.Module, package: str, root: Path) -> set[str]:
    """Names that may be modules of the package."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = _NAMED.fullmatch(node.value)
            found |= {named[1]} if named else set()
    return {name for name in found if _file_of(name, root) is not None}


def _canonical(value: object) -> Iterator[str]:
    """Write a syntax tree as text that is equal under all versions of Python: empty and absent fields are skipped."""
    if isinstance(value, ast.AST):
        yield f"({type(value).__name__}"
        for name, child in ast.iter_fields(value):
            if child is not None and child != [] and name not in ("kind", "type_comment", "ctx"):
                yield f" {name}="
                yield from _canonical(child)
        yield ")"
    elif isinstance(value, list):
        yield "["
        for child in value:
            yield from _canonical(child)
        yield "]"
    else:
        yield repr(value)
