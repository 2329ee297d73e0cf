"""Tables, figures and files of a small run."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from oddnode.bench.tables import paper_number
from oddnode.paper.experiments import ITEMS, Run, choose_items
from oddnode.paper.figures import NothingToDraw, draw_figure
from oddnode.paper.grid import Block, Entry, Row, Table, to_csv, to_latex, to_markdown
from oddnode.paper.make import make_all
from oddnode.paper.page import results_page
from oddnode.paper.plan import Plan, make_plan
from oddnode.paper.results import Results, paper_facts
from oddnode.paper.run import run_plan
from oddnode.paper.store import Store
from oddnode.paper.tables import _mean_entry, build_table
from tests.paper_helpers import CODE, TINY, tiny_plan


@pytest.fixture(scope="module")
def plan() -> Plan:
    return tiny_plan(*ITEMS, protocols=("clean", "published"), seeds=2)


@pytest.fixture(scope="module")
def folder(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("paper")
    run_plan(plan, path, CODE)
    return path


@pytest.fixture
def results(plan: Plan, folder: Path) -> Iterator[Results]:
    with Store(folder, CODE) as store:
        yield Results(plan, store)


TABLE = Table(
    "t",
    "Table 9",
    "A title",
    [
        Block(
            "FPR95 ↓",
            "clean",
            ("cora/label", "50 % of_it"),
            (
                Row("a", (Entry((10.0, 20.0), paper=12.34), Entry((1.0,))), group="no"),
                Row("b", (Entry((15.02,)), Entry((2.0,))), group="no"),
                Row("c", (Entry((99.0,)), Entry(text="not here")), trivial=True),
            ),
            "the caption",
        )
    ],
    ["a note"],
)


def test_markdown_has_spread_paper_and_the_best_in_bold() -> None:
    text = to_markdown(TABLE)
    assert "| a | **15.0 ± 7.1** | **1.0** |" in text  # shown as 15.0 both, so both are the best
    assert "| *paper* | *12.3* | *-* |" in text
    assert "| b | **15.0** | 2.0 |" in text
    assert "| *c* | 99.0 | not here |" in text
    assert "a note" in text


def test_latex_is_booktabs_and_escapes() -> None:
    text = to_latex(TABLE)
    assert text.count(r"\begin{tabular}{lrr}") == text.count(r"\end{tabular}") == 1
    assert r"\toprule" in text
    assert r"50 \% of\_it" in text
    assert r"\textbf{15.0 $\pm$ 7.1}" in text
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") - line.count(r"\&") for line in body} == {2}


def test_csv_has_every_number_unrounded() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert (rows[0]["row"], rows[0]["column"], float(rows[0]["mean"])) == ("a", "cora/label", 15.0)
    assert float(rows[0]["std"]) == stdev([10.0, 20.0])
    assert rows[0]["paper"] == "12.34"
    assert rows[-1]["text"] == "not here"


def test_a_minus_before_zero_is_not_shown() -> None:
    assert Entry((-0.001,)).shown() == "0.0"


def test_the_main_table_has_every_method_and_the_mean_of_its_seeds(results: Results, plan: Plan) -> None:
    table = build_table(results, "table1")
    assert [b.title for b in table.blocks if b.protocol == "clean"] == ["FPR95 ↓", "AUROC ↑", "AUPR ↑"]
    auroc = next(b for b in table.blocks if b.title == "AUROC ↑")
    row = next(r for r in auroc.rows if r.name == "nodesafe")
    expected = [m["auroc"] for m in results.metrics(Run("digits/label", "clean", "nodesafe"))]
    assert row.entries[0].mean == fmean(expected)
    assert len(expected) == plan.seeds
    assert [r.name for r in auroc.rows][-3:] == ["nonzeros", "degree", "neighbour-cosine"]


def test_the_papers_claims_follow_from_its_tables() -> None:
    claimed = {(row["type"], row["exposure"]): float(row["reduction"]) for row in paper_facts("claims")}
    gains = [
        (paper_number(f"{data}/structure", "gnnsafe", "fpr95") or 0)
        - (paper_number(f"{data}/structure", "nodesafe", "fpr95") or 0)
        for data in ("cora", "citeseer", "pubmed")
    ]
    assert fmean(gains) == pytest.approx(claimed["structure", "no"], abs=0.05)
    assert paper_number("twitch", "gnnsafe", "fpr95") - paper_number("twitch", "nodesafe", "fpr95") == pytest.approx(  # type: ignore[operator]
        claimed["graph", "no"], abs=0.05
    )


def test_claims_are_differences_of_fpr(results: Results) -> None:
    block = build_table(results, "claims").blocks[0]
    row = next(r for r in block.rows if r.name == "label, exposure: no")
    before, after = (results.values(Run("digits/label", "clean", m), "fpr95") for m in ("gnnsafe", "nodesafe"))
    assert list(row.entries[0].values) == pytest.approx([b - a for b, a in zip(before, after, strict=True)])
    assert row.entries[1].mean == 6.8


def test_agreement_is_the_distance_to_the_printed_numbers(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oddnode.paper.tables.paper_number", lambda task, method, metric: 50.0)
    block = build_table(results, "agreement").blocks[0]
    row = next(r for r in block.rows if r.name == "nodesafe")
    ours = fmean(results.values(Run("digits/label", "clean", "nodesafe"), "auroc"))
    assert row.entries[0].mean == pytest.approx(ours - 50)
    assert row.entries[1].mean == pytest.approx(abs(ours - 50))
    assert row.entries[2].text == ("1 of 1" if abs(ours - 50) <= 2 else "0 of 1")


def test_the_ablation_shows_what_is_left(results: Results) -> None:
    names = [row.name for row in build_table(results, "table3").blocks[0].rows]
    assert names[:3] == ["nodesafe", "nodesafe w/o uniform", "nodesafe w/o bound"]


def test_what_is_absent_is_said(plan: Plan, folder: Path) -> None:
    plan = tiny_plan("table5")
    plan.absent = {"arxiv": "no files in /data"}
    plan.scope.details["table5"] = ("arxiv",)
    try:
        with Store(folder, CODE) as store:
            text = to_markdown(build_table(Results(plan, store), "table5"))
    finally:
        del TINY.details["table5"]
    assert "arxiv is not here: its data was not found." in text
    assert "/data" not in text  # tables travel; folders of one machine do not


def test_the_page_names_absent_data_but_no_folder(tmp_path: Path) -> None:
    plan = tiny_plan("table1")
    plan.absent = {"arxiv": "no files in /data"}
    with Store(tmp_path, CODE) as store:
        page = results_page(Results(plan, store), "oddnode paper")
    assert "its data was not found: arxiv" in page
    assert "/data" not in page


@pytest.mark.parametrize("name", ["table1", "networks", "claims"])
def test_a_table_none_of_whose_data_is_here_has_no_numbers(tmp_path: Path, name: str) -> None:
    plan = tiny_plan(name)
    plan.absent = {"digits/label": "no files"}
    with Store(tmp_path, CODE) as store:
        rows = list(csv.DictReader(io.StringIO(to_csv(build_table(Results(plan, store), name)))))
    assert {row["seeds"] for row in rows if row["column"] in ("mean", "measured here")} <= {"0"}


def test_everything_is_written(plan: Plan, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    with Store(folder, CODE) as store:
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


def test_a_mean_over_cells_pairs_the_same_seeds_only() -> None:
    full = [Entry.of({0: 10.0, 1: 20.0}, paper=1.0), Entry.of({0: 30.0, 1: 60.0}, paper=3.0)]
    assert _mean_entry(full) == Entry.of({0: 20.0, 1: 40.0}, paper=2.0)
    other_seed = [full[0], Entry.of({0: 30.0, 2: 60.0}, paper=3.0)]
    assert _mean_entry(other_seed) == Entry(paper=2.0)
    assert _mean_entry([]).mean is None


def test_the_same_picture_gives_the_same_file(results: Results, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = (draw_figure(results, "figure5", tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_figure_without_runs_says_why(plan: Plan, tmp_path: Path) -> None:
    empty = tiny_plan("figure3")
    with Store(tmp_path / "empty", CODE) as store, pytest.raises(NothingToDraw, match="has no finished training"):
        draw_figure(Results(empty, store), "figure3", tmp_path)


def test_a_figure_is_drawn_for_the_protocol_that_has_runs(tmp_path: Path) -> None:
    run_plan(tiny_plan("figure3"), tmp_path, CODE)
    both = make_plan(replace(TINY, light=False), choose_items(["figure3"]), ("published", "clean"), 1)
    with Store(tmp_path, CODE) as store:
        written = draw_figure(Results(both, store), "figure3", tmp_path)
    assert [path.name for path in written] == ["figure3-clean.svg", "figure3-clean.png"]


def test_a_half_finished_plan_still_gives_tables(plan: Plan, tmp_path: Path) -> None:
    half = tiny_plan("table1", "table3", "table9", "table10", "claims", "wins", seeds=2)
    part = tiny_plan("table1", seeds=1)
    run_plan(part, tmp_path, CODE)
    with Store(tmp_path, CODE) as store:
        written, _ = make_all(half, store, tmp_path, "oddnode paper")
    assert (tmp_path / "tables/wins.md").exists()
    text = (tmp_path / "tables/wins.md").read_text()
    assert "nodesafe over gnnsafe" not in text  # of two seeds only one is there: nothing to compare yet
    assert all(path.exists() for path in written)
