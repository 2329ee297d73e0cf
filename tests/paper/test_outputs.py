"""All files of a small run: tables, figures and the page of results."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from oddnode.paper.experiments import ITEMS, choose_items
from oddnode.paper.figures import NothingToDraw, draw_figure
from oddnode.paper.outputs import make_all
from oddnode.paper.plan import make_plan
from oddnode.paper.results import Results
from oddnode.paper.run import run_plan
from oddnode.paper.store import Store
from tests.paper_helpers import CODE, TINY, detection_tables, tiny_plan

EVERYTHING = tiny_plan(*ITEMS, protocols=("clean", "published"), seeds=2)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of all trainings, made in this process."""
    folder = tmp_path_factory.mktemp("everything")
    run_plan(EVERYTHING, folder, CODE)
    return folder


def test_everything_is_written(everything: Path, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    with Store(everything, CODE) as store:
        written, notes = make_all(EVERYTHING, store, tmp_path, "oddnode paper --smoke")
        [again, _] = draw_figure(Results(EVERYTHING, store), "figure5", tmp_path)
    assert notes == []
    names = {path.relative_to(tmp_path).as_posix() for path in written}
    assert {"results.md", "tables/table1.tex", "tables/wins.csv", "figures/figure4-clean.png"} <= names
    assert {f"figures/figure{i}-clean.svg" for i in range(1, 7)} <= names
    assert all(path.stat().st_size > 50 for path in written)
    assert again.read_bytes() == (tmp_path / "figures" / again.name).read_bytes()  # the same picture, the same file
    page = (tmp_path / "results.md").read_text()
    assert "Made by `oddnode paper --smoke`" in page
    assert page.index("## Protocol clean") < page.index("## Protocol published")
    for line in re.findall(r"^\|.*\|$", page, flags=re.MULTILINE):
        assert "nan" not in line.lower().split()


def test_other_processes_give_the_numbers_of_every_method(everything: Path, tmp_path: Path) -> None:
    plan = tiny_plan("table1")
    assert run_plan(plan, tmp_path, CODE, jobs=2).made == len(plan.trainings)
    assert detection_tables(plan, tmp_path) == detection_tables(plan, everything)


def test_a_half_finished_plan_still_gives_tables(everything: Path, tmp_path: Path) -> None:
    half = tiny_plan("table1", "table3", "table9", "table10", "claims", "wins", seeds=2)
    kept = {training.identity for training in tiny_plan("table1").trainings}
    with Store(Path(shutil.copytree(everything, tmp_path / "store")), CODE) as store:
        for training in half.trainings:
            if training.identity not in kept:
                store.drop(training)
        written, _ = make_all(half, store, tmp_path, "oddnode paper")
    text = (tmp_path / "tables/wins.md").read_text()
    assert "nodesafe over gnnsafe" not in text  # of two seeds only one is there: nothing to compare yet
    assert all(path.exists() for path in written)


def test_a_figure_is_drawn_for_the_protocol_that_has_runs(tmp_path: Path) -> None:
    plan = tiny_plan("figure3")
    with Store(tmp_path, CODE) as store, pytest.raises(NothingToDraw, match="has no finished training"):
        draw_figure(Results(plan, store), "figure3", tmp_path)
    run_plan(plan, tmp_path, CODE)
    both = make_plan(replace(TINY, light=False), choose_items(["figure3"]), ("published", "clean"), 1)
    with Store(tmp_path, CODE) as store:
        written = draw_figure(Results(both, store), "figure3", tmp_path)
    assert [path.name for path in written] == ["figure3-clean.svg", "figure3-clean.png"]
