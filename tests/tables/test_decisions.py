"""Which rows are flagged, ranked and written, and what is said about new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oddnode.detector import Calibration
from oddnode.functional import benjamini_hochberg, expected_precision, known_share
from oddnode.tables import Rule, TableError, TableModel
from oddnode.tables.decisions import DecidedRows
from tests.tables.examples import FIT, Rows, example, read_csv, write_csv

RNG = np.random.default_rng(0)
CALIBRATION = Calibration.from_scores(RNG.normal(size=300))
SCORES = np.r_[RNG.normal(size=400), RNG.normal(-4, 1, size=40)]
USE = np.r_[np.zeros(100), np.full(50, 2), np.full(290, -1)].astype(np.int8)
SEEN = np.arange(440) < 240


def decide(seen: np.ndarray | None = SEEN, days: np.ndarray | None = None, **rule: Any) -> DecidedRows:
    return DecidedRows(SCORES, CALIBRATION, USE, seen, Rule(**rule), days)


def test_new_rows_are_ranked_and_groups_counted() -> None:
    rows = decide()
    assert rows.rank[240:].tolist() == (SCORES[240:].argsort().argsort() + 1).tolist()
    assert not rows.rank[:240].any()
    p_values = CALIBRATION.p_values(SCORES).numpy()
    assert rows.precision[240:] == pytest.approx(expected_precision(p_values[240:]))
    flagged = CALIBRATION.detect(SCORES).numpy()
    assert [(each.name, each.num_rows, each.num_flagged) for each in rows.groups()] == [
        ("new", 200, flagged[240:].sum()),
        ("unlabelled", 90, flagged[150:240].sum()),
        ("labelled", 150, flagged[:150].sum()),
    ]
    assert rows.num_by_chance == pytest.approx(0.05 * 200)


def test_without_new_rows_those_that_were_not_trained_on_are_ranked() -> None:
    rows = decide(seen=np.ones(440, dtype=bool))
    assert (rows.rank > 0).tolist() == (USE != 0).tolist()
    unsure = decide(seen=None)
    assert (unsure.rank > 0).tolist() == (USE < 0).tolist()
    assert [each.name for each in unsure.groups()] == ["labelled", "other"]


def test_a_false_discovery_rate_is_benjamini_hochbergs_among_the_new_rows() -> None:
    rows = decide(fdr=0.1)
    expected = benjamini_hochberg(CALIBRATION.p_values(SCORES[240:]), 0.1)
    assert rows.is_ood.tolist() == [False] * 240 + expected.tolist()
    assert rows.num_by_chance == pytest.approx(0.1 * expected.sum())


def test_a_budget_flags_the_oddest_new_rows_of_the_batch_or_of_each_day() -> None:
    rows = decide(budget=30)
    assert rows.is_ood.tolist() == ((rows.rank > 0) & (rows.rank <= 30)).tolist()
    p_values = CALIBRATION.p_values(SCORES[240:]).numpy()
    # Among 200 known rows, 200 p have a p-value up to p; the 30 rows end amid rows that are alike.
    last, alike = np.sort(p_values)[29], p_values == np.sort(p_values)[29]
    before = p_values[p_values < last].max(initial=0.0)
    reached = before + (last - before) * (30 - (p_values < last).sum()) / alike.sum()
    assert rows.num_by_chance == pytest.approx(known_share(p_values) * 200 * reached)
    days = np.arange(440) % 7
    daily = decide(budget=3, days=days)
    for day in range(7):
        own = np.flatnonzero((days == day) & ~SEEN)
        assert np.flatnonzero(daily.is_ood & (days == day)).tolist() == sorted(own[SCORES[own].argsort()[:3]])
    assert (daily.num_days, int(daily.is_ood.sum())) == (7, 21)


def test_ways_to_decide_exclude_each_other() -> None:
    for rule, message in (
        ({"fdr": 0.1, "budget": 3}, "give one of them"),
        ({"fdr": 1.5}, "expected a share"),
        ({"budget": 0}, "1 or more"),
    ):
        with pytest.raises(TableError, match=message):
            Rule(**rule)
    with pytest.raises(TableError, match="leave out `only_new`"):
        decide(seen=None, only_new=True)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[TableModel, Rows, Rows]:
    nodes, edges = example(300)
    folder = tmp_path_factory.mktemp("fitted")
    paths = write_csv(folder / "n.csv", nodes), write_csv(folder / "e.csv", edges)
    model, report = TableModel.fit(*paths, **FIT, method="msp")
    assert report.accuracy == model.schema.accuracy
    assert report.accuracy is not None
    assert report.accuracy > 0.7
    assert report.rate_interval == model.detector.calibration_.rate_interval  # type: ignore[union-attr]
    model.save(folder / "model")
    return TableModel.load(folder / "model", device="cpu"), nodes, edges


def grown(nodes: Rows, edges: Rows, number: int = 200, **more: Any) -> tuple[Rows, Rows]:
    """The tables with new rows, which link to each other."""
    new, new_edges = example(number, seed=4)
    new = [row | {"name": "m" + row["name"], "kind": ""} | more for row in new]
    return nodes + new, edges + [{key: "m" + value for key, value in edge.items()} for edge in new_edges]


def notes(fitted: tuple[TableModel, Rows, Rows], tmp_path: Path, nodes: Rows, edges: Rows, **rule: Any) -> list[str]:
    paths = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    return fitted[0].score(*paths, tmp_path / "s.csv", **rule).notes


def test_only_new_rows_are_written_and_the_report_speaks_of_them(
    fitted: tuple[TableModel, Rows, Rows], tmp_path: Path
) -> None:
    model, nodes, edges = fitted
    more = grown(nodes, edges)
    assert notes(fitted, tmp_path, *more, only_new=True) == []
    rows = read_csv(tmp_path / "s.csv")
    assert {row["name"][0] for row in rows} == {"m"}
    assert {(row["seen"], row["group"]) for row in rows} == {("false", "new")}
    assert sorted(int(row["rank"]) for row in rows) == list(range(1, 201))
    report = model.score(tmp_path / "n.csv", tmp_path / "e.csv", tmp_path / "s.csv", budget=20)
    [sentence] = report.summary
    assert sentence.startswith("20 of 200 new rows are flagged; about ")
    [note] = notes(fitted, tmp_path, nodes, edges, only_new=True)
    assert "no row is new" in note
    assert read_csv(tmp_path / "s.csv") == []


def test_forgotten_edges_and_changed_columns_of_new_rows_are_noticed(
    fitted: tuple[TableModel, Rows, Rows], tmp_path: Path
) -> None:
    _, nodes, edges = fitted
    more, more_edges = grown(nodes, edges)
    assert notes(fitted, tmp_path, more, more_edges) == []
    assert "200 of the 200 new rows have no edge" in notes(fitted, tmp_path, more, edges)[0]
    few = edges + more_edges[len(edges) :][::2]
    pairs = {frozenset((edge["source"], edge["target"])) for edge in few if edge["source"][0] == "m"}
    share = 2 * sum(len(pair) == 2 for pair in pairs) / 200  # each is a link of both ends
    [note] = [note for note in notes(fitted, tmp_path, more, few) if "fewer links" in note]
    assert f"the 200 new rows have fewer links than the others ({share:.3g} on average" in note
    scaled = [row | {"size": float(row["size"]) * 100} if row["name"][0] == "m" else row for row in more]
    assert any("size (mean about" in note for note in notes(fitted, tmp_path, scaled, more_edges))
    emptied = [row | {"colour": ""} if row["name"][0] == "m" else row for row in more]
    [note] = [note for note in notes(fitted, tmp_path, emptied, more_edges) if "colour" in note]
    assert "colour (100 %, 0 % at fit)" in note


def test_a_budget_of_each_day_needs_dates(tmp_path: Path) -> None:
    nodes, edges = example(300)
    nodes = [row | {"day": f"2024-{1 + i // 100:02d}-{1 + i % 4:02d}"} for i, row in enumerate(nodes)]
    paths = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    model, _ = TableModel.fit(*paths, **FIT, time_column="day", train_until="2024-02-28", method="msp")
    scores = model.score_frame(*paths, budget=2).to_pandas()
    flagged = scores[scores["is_ood"]]["name"].str[1:].astype(int)
    assert (flagged >= 200).all()
    assert flagged.mod(4).value_counts().to_dict() == {0: 2, 1: 2, 2: 2, 3: 2}


def test_a_few_new_rows_are_no_column(fitted: tuple[TableModel, Rows, Rows], tmp_path: Path) -> None:
    _, nodes, edges = fitted
    few, few_edges = grown(nodes, edges, 8)
    few[-1] |= {"colour": "never seen"}
    assert not any("without a value" in note for note in notes(fitted, tmp_path, few, few_edges))
    for row in few[-3:]:
        row["colour"] = "never seen"
    assert any("colour (38 %, 0 % at fit)" in note for note in notes(fitted, tmp_path, few, few_edges))
    report = fitted[0].score(tmp_path / "n.csv", tmp_path / "e.csv", tmp_path / "s.csv")
    assert "of 8 new rows are flagged; less than one would be by chance" in report.summary[0]
