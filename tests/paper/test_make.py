"""All files of a small run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oddnode.paper.experiments import ITEMS
from oddnode.paper.outputs import make_all
from oddnode.paper.run import run_plan
from oddnode.paper.store import Store
from tests.paper_helpers import CODE, tiny_plan


def test_everything_is_written(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    plan = tiny_plan(*ITEMS, protocols=("clean", "published"), seeds=2)
    run_plan(plan, tmp_path / "store", CODE)
    with Store(tmp_path / "store", CODE) as store:
        written, notes = make_all(plan, store, tmp_path, "oddnode paper --smoke")
    assert notes == []
    names = {path.relative_to(tmp_path).as_posix() for path in written}
    assert {"results.md", "tables/table1.tex", "tables/wins.csv", "figures/figure4-clean.png"} <= names
    assert {f"figures/figure{i}-clean.svg" for i in range(1, 7)} <= names
    assert all(path.stat().st_size > 50 for path in written)
    page = (tmp_path / "results.md").read_text()
    assert "Made by `oddnode paper --smoke`" in page
    assert page.index("## Protocol clean") < page.index("## Protocol published")
    for line in re.findall(r"^\|.*\|$", page, flags=re.MULTILINE):
        assert "nan" not in line.lower().split()


def test_a_half_finished_plan_still_gives_tables(tmp_path: Path) -> None:
    half = tiny_plan("table1", "table3", "table9", "table10", "claims", "wins", seeds=2)
    part = tiny_plan("table1", seeds=1)
    run_plan(part, tmp_path, CODE)
    with Store(tmp_path, CODE) as store:
        written, _ = make_all(half, store, tmp_path, "oddnode paper")
    assert (tmp_path / "tables/wins.md").exists()
    text = (tmp_path / "tables/wins.md").read_text()
    assert "nodesafe over gnnsafe" not in text  # of two seeds only one is there: nothing to compare yet
    assert all(path.exists() for path in written)
