"""A hash of the source code that can change a result, by which a store decides which of its records are valid.

It covers the syntax trees, without docstrings, of all modules except packages that no training imports. Comments and
formatting do not matter.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from oddnode._utils.plugins import plugin_files

_ROOT = Path(__file__).parent.parent
# Packages and modules that no training imports; the root's __init__ exports names to users, and every record has the
# version.
_FILES = ("__init__.py", "__main__.py", "_version.py")
_LEFT_OUT = (*_FILES, "bench", "cli", "online", "paper", "service", "tables", "watch", "webpage")


def store_key() -> str:
    """Compute the key of the current source and the loaded plugins, which new records of a store carry."""
    return source_key(plugin_files())


@cache
def source_key(plugins: tuple[Path, ...] = (), root: Path = _ROOT) -> str:
    """Compute the key of the current source, sixteen hexadecimal digits.

    Parameters
    ----------
    plugins : tuple of Path
        Files of loaded plugins.
    root : Path
        The folder of the package.
    """
    files = {f"plugin {number} {path.stem}": path for number, path in enumerate(sorted(plugins))}
    digest = hashlib.sha256()
    for name, path in sorted((files | hashed_modules(root)).items()):
        tree = ast.parse(path.read_bytes(), str(path))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                node.body = node.body[ast.get_docstring(node, clean=False) is not None :]
        digest.update(f"{name}\n{''.join(_canonical(tree))}\n".encode())
    return digest.hexdigest()[:16]


def hashed_modules(root: Path = _ROOT) -> dict[str, Path]:
    """Find the files of all modules that the key covers, by the modules' full names.

    Parameters
    ----------
    root : Path
        The folder of the package.
    """
    files = {path.relative_to(root): path for path in root.rglob("*.py")}
    return {
        ".".join(["oddnode", *path.with_suffix("").parts]).removesuffix(".__init__"): file
        for path, file in files.items()
        if path.parts[0] not in _LEFT_OUT
    }


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
