"""The paper's figures from a small run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oddnode.paper.experiments import choose_items
from oddnode.paper.figures import NothingToDraw, draw_figure
from oddnode.paper.plan import make_plan
from oddnode.paper.results import Results
from oddnode.paper.run import run_plan
from oddnode.paper.store import Store
from tests.paper_helpers import CODE, TINY, tiny_plan


def test_the_same_picture_gives_the_same_file(tmp_path: Path) -> None:
    plan = tiny_plan("figure5")
    run_plan(plan, tmp_path, CODE)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with Store(tmp_path, CODE) as store:
        first, second = (draw_figure(Results(plan, store), "figure5", tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_figure_without_runs_says_why(tmp_path: Path) -> None:
    empty = tiny_plan("figure3")
    with Store(tmp_path / "empty", CODE) as store, pytest.raises(NothingToDraw, match="has no finished training"):
        draw_figure(Results(empty, store), "figure3", tmp_path)


def test_a_figure_is_drawn_for_the_protocol_that_has_runs(tmp_path: Path) -> None:
    run_plan(tiny_plan("figure3"), tmp_path, CODE)
    both = make_plan(replace(TINY, light=False), choose_items(["figure3"]), ("published", "clean"), 1)
    with Store(tmp_path, CODE) as store:
        written = draw_figure(Results(both, store), "figure3", tmp_path)
    assert [path.name for path in written] == ["figure3-clean.svg", "figure3-clean.png"]
