"""The API reference names things that exist, and all that `oddnode` exports."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import oddnode

PAGE = Path(__file__).parents[2] / "docs" / "reference.rst"


def listed() -> list[tuple[str, str]]:
    """Package and name of every entry."""
    package, entries = "", []
    text = PAGE.read_text(encoding="utf-8")
    for kind, name in re.findall(r"^\.\. (currentmodule|data|auto\w+):: (\S+)$", text, re.MULTILINE):
        if kind == "currentmodule":
            package = name
        else:
            entries.append((package, name))
    return entries


def test_every_entry_exists() -> None:
    assert listed()
    missing = [f"{package}.{name}" for package, name in listed() if not hasattr(import_module(package), name)]
    assert missing == []


def test_no_entry_is_listed_twice() -> None:
    assert len(listed()) == len(set(listed()))


def test_everything_that_oddnode_exports_is_listed() -> None:
    names = {name for _, name in listed()}
    assert [name for name in vars(oddnode)["__all__"] if name not in names | {"__version__"}] == []
