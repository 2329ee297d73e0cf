"""The rows that a model was fitted on are known again, and their ids are nowhere in its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from oddnode.detector import ModelFileError
from oddnode.functional import CalibrationError
from oddnode.tables import Split, TableModel, UsedRows
from oddnode.tables.used_rows import uses_of, words_of
from tests.saved_models import rewrite
from tests.tables.examples import FIT, example, write_csv

NO_EDGES = np.empty((2, 0), dtype=np.int64)


def test_every_row_is_known_by_its_use() -> None:
    rng = np.random.default_rng(0)
    ids, order = [f"id {i}" for i in range(1000)], rng.permutation(1000)
    split = Split(np.sort(order[:300]), np.sort(order[300:400]), np.sort(order[400:700]))
    rows = UsedRows.of(pa.array(ids), split, np.zeros((1000, 2)), NO_EDGES)
    assert rows is not None
    expected = dict.fromkeys(split.train, "train") | dict.fromkeys(split.validation, "validation")
    expected |= dict.fromkeys(split.calibration, "calibration")
    shuffled = rng.permutation(1000)
    found = words_of(uses_of(rows, pa.array([ids[i] for i in shuffled] + ["a new one"]))).to_pylist()
    assert found == [expected.get(i) for i in shuffled] + [None]
    seen = rows.seen_rows(pa.array(["a new one", *ids[::-1]]))
    assert seen is not None
    assert seen.tolist() == [False] + [True] * 1000


def test_a_number_and_its_text_are_the_same_id() -> None:
    split = Split(np.array([0]), np.array([1]), np.array([], dtype=int))
    rows = UsedRows.of(pa.array([7, 8]), split, np.zeros((2, 1)), NO_EDGES)
    assert rows is not None
    assert words_of(uses_of(rows, pa.array(["8", "7"]))).to_pylist() == ["validation", "train"]


def test_the_split_is_written_and_no_id_is_in_the_folder(tmp_path: Path) -> None:
    nodes, edges = example()
    for i, row in enumerate(nodes):
        row["part"] = ["train", "Validation", "calibration", "test"][i % 4] if row["kind"] else ""
    paths = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    model, _ = TableModel.fit(*paths, **FIT, split_column="part", false_alarm_rate=0.1)
    model.save(tmp_path / "model")
    scored = TableModel.load(tmp_path / "model").score_frame(*paths)
    parts = [row["part"].lower() if row["part"] not in ("", "test") else None for row in nodes]
    assert scored["split"].to_pylist() == parts
    content = b"".join(path.read_bytes() for path in (tmp_path / "model").iterdir())
    assert b"n001" not in content


def test_calibrating_leaves_out_rows_that_were_trained_on(tmp_path: Path) -> None:
    nodes, edges = (pa.Table.from_pylist(rows) for rows in example(300))
    model, report = TableModel.fit(nodes, edges, **FIT)
    marked = nodes.append_column("ok", pa.array([kind != "" for kind in nodes["kind"].to_pylist()]))
    before = model.detector.threshold_
    again = model.calibrate(marked, edges, "ok")
    # What remains of the labelled rows are those that fit calibrated on.
    assert (again.num_calibration, again.num_left_out) == (
        report.num_calibration,
        report.num_train + report.num_validation,
    )
    assert again.threshold == before


def test_calibrating_on_rows_that_were_trained_on_alone_is_refused() -> None:
    nodes, edges = (pa.Table.from_pylist(rows) for rows in example(300))
    model, report = TableModel.fit(nodes, edges, **FIT)
    trained = [use in ("train", "validation") for use in model.score_frame(nodes, edges)["split"].to_pylist()]
    marked = nodes.append_column("ok", pa.array(trained))
    left_out = report.num_train + report.num_validation
    with pytest.raises(CalibrationError, match=f"there are 0; .*{left_out} more nodes are marked as known, but"):
        model.calibrate(marked, edges, "ok")
    assert model.calibrate(marked, edges, "ok", new_ids=True).num_calibration == left_out


def test_another_rate_needs_no_tables(tmp_path: Path) -> None:
    nodes, edges = (pa.Table.from_pylist(rows) for rows in example(300))
    model, report = TableModel.fit(nodes, edges, **FIT)
    fresh, _ = TableModel.fit(nodes, edges, **FIT, false_alarm_rate=0.2)
    changed = model.set_false_alarm_rate(0.2)
    assert (changed.threshold, changed.old_threshold) == (fresh.detector.threshold_, report.threshold)
    assert changed.num_calibration == report.num_calibration
    model.save(tmp_path / "model")
    assert TableModel.load(tmp_path / "model").detector.threshold_ == fresh.detector.threshold_
    with pytest.raises(CalibrationError, match="needs at least 999 calibration nodes"):
        model.set_false_alarm_rate(0.001)


def test_reference_rows_are_known_by_their_id_and_their_features() -> None:
    split = Split(np.array([0]), np.array([1]), np.array([2, 3, 4]))
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    edges = np.array([[0, 2, 0, 3, 1, 4], [2, 0, 3, 0, 4, 1]])
    rows = UsedRows.of(pa.array(list("abcde")), split, x, edges)
    assert rows is not None
    order = [4, 0, 3, 2, 1]  # another order, and the features of c have changed
    moved = x[order]
    moved[3, 0] += 1
    place = np.argsort(order)
    mask, found = rows.reference_rows(pa.array([*"edabc"])[:0], moved[:0], np.zeros(0, dtype=int))
    assert (mask, found) == (None, "0 of the 3 reference rows are in these tables")
    mask, found = rows.reference_rows(pa.array([*"eadcb"]), moved, np.bincount(place[edges][1], minlength=5))
    assert mask is not None
    assert mask.tolist() == [True, False, True, False, False]
    assert found == "3 of the 3 reference rows are in these tables, 1 of them with changed features"


@pytest.mark.parametrize(
    "change",
    [
        {"key": "zz"},
        {"key": "00" * 65},
        {"sizes": [1, 2]},
        {"sizes": [0, 0, 0, 0, 1]},
        {"sizes": [-1, 2, 3, 4, 5]},
        {"num_reference_edges": -1},
        {"more": "x"},
    ],
)
def test_a_damaged_record_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    nodes, edges = (pa.Table.from_pylist(rows) for rows in example())
    TableModel.fit(nodes, edges, **FIT)[0].save(tmp_path / "model")
    rewrite(tmp_path / "model", lambda config: config["table_rows"].update(change))
    with pytest.raises(ModelFileError, match="table_rows"):
        TableModel.load(tmp_path / "model")
