"""The page on large graphs: its example runs, and its table of methods is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

from oddnode import RECIPES, Detector
from oddnode.detector.fitting import folder_blocker, full_batch_blocker

PAGE = (Path(__file__).parents[2] / "docs" / "large-graphs.md").read_text(encoding="utf-8")


def test_the_table_says_which_methods_work_and_why_others_do_not() -> None:
    shown = dict(re.findall(r"^\| `([^`]+)` \| (yes.*|no: .*) \|$", PAGE, re.MULTILINE))
    found = {}
    for name in RECIPES:
        detector = Detector.from_recipe(name, device="cpu")
        blocker = folder_blocker(detector)
        how = "yes" if full_batch_blocker(detector) is None else "yes, in mini-batches"
        found[name] = how if blocker is None else f"no: {blocker}"
    assert shown == found


def test_the_example_runs() -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    left: dict = {"__name__": "example"}
    exec(compile(code, "large-graphs.md", "exec"), left)
    assert len(left["scores"]) == left["folder"].num_nodes
    assert (left["other"].num_nodes, left["other"].num_edges) == (5000, 50_000)
