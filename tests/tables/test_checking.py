"""Rows that a person checks: the draw, the estimates and the threshold, against the truth of simulated tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from oddnode.detector import Calibration
from oddnode.functional import CalibrationError
from oddnode.tables import TableError, TableModel, open_table, sample_to_check
from oddnode.tables.checking import CheckedRows
from oddnode.tables.scores import check_random
from tests.tables.examples import FIT, example, read_csv, write_csv

NUM_KNOWN, NUM_UNKNOWN = 1500, 150


def population(seed: int = 0) -> dict[str, Any]:
    """Scores of new rows, known ones first. The old threshold flags 12 % of the known ones in place of 5."""
    rng = np.random.default_rng(seed)
    scores = np.concatenate([rng.normal(size=NUM_KNOWN), rng.normal(-2, 1, size=NUM_UNKNOWN)])
    size = len(scores)
    return {
        "id": [f"r{i}" for i in range(size)],
        "score": scores,
        "is_ood": scores < -1.2,
        "rank": np.arange(1, size + 1),
    }


def answered(drawn: Path) -> dict[str, Any]:
    """The drawn rows with the right answers."""
    [batch] = open_table(drawn, "rows").batches(["id", "is_ood", "weight", "num_alike"])
    columns = dict(zip(("id", "is_ood", "weight", "num_alike"), batch.arrays, strict=True))
    known = ["yes" if int(text[1:]) < NUM_KNOWN else "no" for text in columns["id"].to_pylist()]
    return columns | {"known": known}


def draws(scores: dict[str, Any], folder: Path, number: int) -> Iterator[CheckedRows]:
    for seed in range(number):
        sample_to_check(scores, folder / f"{seed}.parquet", "id", n=120, seed=seed)
        yield CheckedRows.read(answered(folder / f"{seed}.parquet"), "id", pa.array(scores["id"]))


def test_estimates_are_unbiased_and_their_intervals_hold(tmp_path: Path) -> None:
    scores = population()
    is_known, flagged = np.arange(NUM_KNOWN + NUM_UNKNOWN) < NUM_KNOWN, scores["is_ood"]
    truth = {
        "precision": np.mean(~is_known[flagged]),
        "recall": np.mean(flagged[~is_known]),
        "observed_false_alarm_rate": np.mean(flagged[is_known]),
    }
    all_checked = list(draws(scores, tmp_path, 150))
    estimates = [each.estimates() for each in all_checked]
    for name, true in truth.items():
        values = [getattr(each, name) for each in estimates]
        error = np.std(values) / np.sqrt(len(values))
        # A ratio of two unbiased estimates has a small bias of its own.
        assert np.mean(values) == pytest.approx(true, abs=3 * error + 0.01)
        intervals = [getattr(each, f"{name}_interval".replace("false_alarm_rate_", "")) for each in estimates]
        assert np.mean([low <= true <= high for low, high in intervals]) >= 0.93
    # The recalibrated threshold has the rate that was asked for, although half of the rows were flagged ones.
    rates, holds = [], []
    for each in all_checked:
        known, weights = each.rows[each.is_known], each.weights()[each.is_known]
        calibration = Calibration.from_scores(scores["score"][known], weights=weights)
        rates.append(np.mean(scores["score"][is_known] < calibration.threshold))
        low, high = calibration.rate_interval
        holds.append(low <= rates[-1] <= high)
    assert np.mean(rates) == pytest.approx(0.05, abs=0.006)
    assert np.mean(holds) >= 0.9


def test_the_draw_is_at_random_and_weights_add_up(tmp_path: Path) -> None:
    scores = population()
    report = sample_to_check(scores, tmp_path / "a.csv", "id", n=100)
    rows = read_csv(tmp_path / "a.csv")
    num_flagged = int(scores["is_ood"].sum())
    assert (report.num_drawn, report.num_drawn_flagged, report.num_flagged) == (100, 50, num_flagged)
    assert list(rows[0]) == ["id", "score", "is_ood", "weight", "num_alike", "known"]
    for flagged, size in (("true", num_flagged), ("false", report.num_others)):
        own = [row for row in rows if row["is_ood"] == flagged]
        assert sum(float(row["weight"]) for row in own) == pytest.approx(size)
        assert {row["num_alike"] for row in own} == {str(size)}
    assert {row["known"] for row in rows} == {""}
    counts = np.zeros(len(scores["id"]))
    for each in draws(scores, tmp_path, 150):
        counts[each.rows] += 1
    flagged = scores["is_ood"]
    assert counts[flagged].mean() / 150 == pytest.approx(60 / num_flagged)
    # Nobody is drawn much more often than others: binomial counts, five standard deviations.
    share = 60 / num_flagged
    assert np.abs(counts[flagged] - 150 * share).max() < 5 * np.sqrt(150 * share * (1 - share))


def test_rows_without_a_rank_are_not_drawn(tmp_path: Path) -> None:
    scores = population()
    scores["rank"] = pa.array(np.arange(len(scores["id"])), mask=np.arange(len(scores["id"])) >= 40)
    report = sample_to_check(scores, tmp_path / "few.csv", "id", n=30)
    assert report.num_flagged + report.num_others == 40
    assert max(int(row["id"][1:]) for row in read_csv(tmp_path / "few.csv")) < 40


def test_bad_draws_and_answers_are_named(tmp_path: Path) -> None:
    scores, ids = population(), pa.array(population()["id"])
    sample_to_check(scores, tmp_path / "a.csv", "id", n=40)
    with pytest.raises(FileExistsError, match="perhaps with answers"):
        sample_to_check(scores, tmp_path / "a.csv", "id", n=40)
    with pytest.raises(TableError, match="'rank'"):
        sample_to_check({"id": ["a"], "is_ood": [True]}, tmp_path / "b.csv", "id")
    rows = answered(tmp_path / "a.csv")
    with pytest.raises(TableError, match="has 'maybe', expected yes, no or nothing"):
        CheckedRows.read(rows | {"known": ["maybe", *rows["known"][1:]]}, "id", ids)
    few = ids.filter(pa.array(~np.isin(ids.to_pylist(), rows["id"].to_pylist()[:20])))
    with pytest.raises(TableError, match=r"20 of \d+ rows of .* are not in the table of nodes"):
        CheckedRows.read(rows, "id", few)
    with pytest.raises(TableError, match=r"first '4,00638E\+12'; a spreadsheet has rounded the ids"):
        CheckedRows.read(rows | {"id": ["4,00638E+12"] * 40}, "id", ids)
    german = [{"true": "WAHR", "false": "FALSCH"}[each] for each in rows["is_ood"].cast("string").to_pylist()]
    in_german = CheckedRows.read(rows | {"is_ood": german}, "id", ids)
    assert (in_german.is_flagged == CheckedRows.read(rows, "id", ids).is_flagged).all()
    flagged = rows["is_ood"].cast("string").to_pylist()
    for kind, message in (("true", "was not flagged"), ("false", "was flagged")):
        some = [word if each == kind else None for word, each in zip(rows["known"], flagged, strict=True)]
        with pytest.raises(CalibrationError, match=message):
            CheckedRows.read(rows | {"known": some}, "id", ids)
    some = [word if i % 3 else None for i, word in enumerate(rows["known"])]
    read = CheckedRows.read(rows | {"known": some}, "id", ids)
    assert read.num_unanswered == 14
    assert read.weights().sum() == pytest.approx(len(ids))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A model, and grown tables with known new nodes."""
    folder = tmp_path_factory.mktemp("shop")
    nodes, edges = example(400)
    model, _ = TableModel.fit(
        write_csv(folder / "n.csv", nodes), write_csv(folder / "e.csv", edges), **FIT | {"epochs": 30}, method="energy"
    )
    model.save(folder / "model")
    new, new_edges = example(300, seed=3)
    rng = np.random.default_rng(0)
    new = [row | {"name": "m" + row["name"], "kind": "", "size": row["size"] + 3 * rng.normal()} for row in new]
    new_edges = [{key: "m" + value for key, value in edge.items()} for edge in new_edges]
    write_csv(folder / "n.csv", nodes + new)
    write_csv(folder / "e.csv", edges + new_edges)
    return folder / "model", folder / "n.csv", folder / "e.csv"


def marked(shop: tuple[Path, Path, Path], tmp_path: Path, names: set[str]) -> Path:
    rows = [row | {"ok": str(row["name"] in names)} for row in read_csv(shop[1])]
    return write_csv(tmp_path / "marked.csv", rows)


def test_calibrating_on_alarms_is_refused_and_on_a_random_draw_is_not(
    shop: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    model = TableModel.load(shop[0], device="cpu")
    before = model.detector.threshold_
    scores = model.score_frame(*shop[1:]).to_pandas()
    new = scores[~scores["seen"]]
    alarms, rng = set(new[new["is_ood"]]["name"]), np.random.default_rng(0)
    assert len(alarms) >= 20
    drawn = set(rng.choice(new["name"], 70, replace=False))
    for names in (alarms, alarms | drawn):
        with pytest.raises(CalibrationError, match="no random draw of known rows"):
            model.calibrate(marked(shop, tmp_path, names), shop[2], "ok")
    assert model.detector.threshold_ == before
    unflagged = set(new[~new["is_ood"]]["name"])
    report = model.calibrate(marked(shop, tmp_path, unflagged), shop[2], "ok")
    assert any("because they were not flagged" in note for note in report.notes)
    report = TableModel.load(shop[0], device="cpu").calibrate(marked(shop, tmp_path, drawn), shop[2], "ok")
    assert report.num_calibration == 70


def test_a_table_of_marked_rows_alone_is_refused_only_if_all_are_flagged() -> None:
    rng = np.random.default_rng(0)
    calibration = Calibration.from_scores(rng.normal(size=300))
    every = np.ones(60, dtype=bool)
    with pytest.raises(CalibrationError, match="60 of the 60 rows marked as known are flagged"):
        check_random(rng.normal(-6, 1, size=60), every, every, calibration)
    [note] = check_random(rng.normal(-1.5, 1, size=60), every, every, calibration)  # perhaps another graph
    assert "if some were marked because they were flagged" in note
    assert check_random(rng.normal(size=60), every, every, calibration) == []


def test_random_draws_are_hardly_ever_refused() -> None:
    rng = np.random.default_rng(1)
    calibration = Calibration.from_scores(rng.normal(size=300))
    for _ in range(500):
        scores = rng.normal(-1, 1, size=400)  # another graph, all known
        marked = np.arange(400) < 100
        check_random(scores, marked, np.ones(400, dtype=bool), calibration)


def test_checked_rows_set_the_threshold_by_their_weights(shop: tuple[Path, Path, Path], tmp_path: Path) -> None:
    model = TableModel.load(shop[0], device="cpu")
    model.score(*shop[1:], tmp_path / "scores.csv")
    sample_to_check(tmp_path / "scores.csv", tmp_path / "check.csv", "name", n=100)
    with pytest.raises(TableError, match="either as `known_column` or as `checked`"):
        model.calibrate(*shop[1:])
    with pytest.raises(CalibrationError, match="no answer"):
        model.calibrate(*shop[1:], checked=tmp_path / "check.csv")
    rows = [row | {"known": "yes"} for row in read_csv(tmp_path / "check.csv")]
    report = model.calibrate(*shop[1:], checked=write_csv(tmp_path / "done.csv", rows))
    assert report.checked is not None
    assert (report.checked.precision, report.checked.recall) == (0.0, None)
    scores = model.score_frame(*shop[1:]).to_pandas()
    new = scores[~scores["seen"]]
    # All new rows are known, so that the threshold is their quantile up to the error of the draw.
    assert new["is_ood"].mean() == pytest.approx(0.05, abs=0.025)
    model.save(tmp_path / "model")
    again = TableModel.load(tmp_path / "model", device="cpu")
    assert again.score_frame(*shop[1:]).equals(model.score_frame(*shop[1:]))
