"""The counts of a walk, by hand on a toy package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import walk
from walk import Function

TOY = {
    "pyproject.toml": '[[tool.importlinter.contracts]]\nid = "layers"\nlayers = ["high", "left | right", "low"]\n',
    "toy/__init__.py": "",
    "toy/high/__init__.py": "from toy.left import work\n\ndef start():\n    return work(lambda n: -n)\n",
    "toy/left.py": "from toy.low.tools import apply\n\ndef work(key):\n    return apply(key) + apply(key)\n",
    "toy/low/__init__.py": "",
    "toy/low/tools.py": """
from threading import Thread

def apply(key):
    Thread(target=helper).start()
    return sorted([3, 1, 2], key=key)

def helper():
    return [n for n in range(3)]

def unused():
    return None
""",
}


def test_functions_crossings_and_upward_calls_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in TOY.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import toy.high  # type: ignore[import-not-found]

    passed = walk.watch(tmp_path / "toy", toy.high.start)
    start, key = Function("high/__init__.py", "start"), Function("high/__init__.py", "start.<locals>.<lambda>")
    work, apply, helper = Function("left.py", "work"), *(Function("low/tools.py", name) for name in ("apply", "helper"))
    inlined = sys.version_info >= (3, 12)  # a comprehension is no function of its own there
    comprehension = set() if inlined else {Function("low/tools.py", "helper.<locals>.<listcomp>")}
    assert passed.functions == {start, key, work, apply, helper} | comprehension
    layers = walk.layers_of(tmp_path / "pyproject.toml")
    assert layers == {"high": 0, "left": 1, "right": 1, "low": 2}
    assert walk.crossings(passed, layers) == {(start, work), (work, apply), (apply, key)}  # the last through sorted()
    counts = {"files": 3, "functions": 5 + len(comprehension), "packages": 3, "crossings": 3, "upward": 1}
    assert walk.count(passed, layers) == {**counts, "passes_large": False}
