"""The counts of a walk: by hand on a toy package, and against cProfile on a real fit."""

from __future__ import annotations

import cProfile
import pstats
import sys
from pathlib import Path

import pytest
import walk
from torch_geometric.data import Data
from walk import Function

import oddnode

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


def test_functions_crossings_and_upward_calls_of_a_toy_are_those_counted_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_fit_passes_the_functions_that_cprofile_sees(two_groups: Data) -> None:
    root = Path(oddnode.__file__).parent

    def fit() -> None:
        oddnode.Detector.from_recipe("nodesafe", epochs=2).fit(two_groups)

    fit()  # what is computed only once is not of this walk
    passed = walk.watch(root, fit)
    with cProfile.Profile() as profile:
        fit()
    entries = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    expected = {(Path(file), name) for file, _, name in entries if Path(file).is_relative_to(root)}
    assert {(root / function.file, function.name.split(".")[-1]) for function in passed.functions} == expected
