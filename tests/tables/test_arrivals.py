"""Rows after a given time are kept out of everything that is learnt, and check the fitted model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import load_file

from oddnode import Evidence, MaxSoftmax
from oddnode.tables import TableError, TableModel, open_table
from oddnode.tables.reader import ChosenRows
from tests.tables.examples import FIT, Rows, example, read_csv, training_tables, write_csv

TIMES: dict[str, Any] = {"time_column": "joined", "train_until": "2024-06-30"}


def _tables(share: float = 0.3) -> tuple[Rows, Rows]:
    """Rows with days; those of the second half of the year are arrivals, a few of them with the label c."""
    nodes, edges = example(400)
    rng = np.random.default_rng(1)
    for i, row in enumerate(nodes):
        late = rng.random() < share
        row["joined"] = f"2024-{rng.integers(7, 13) if late else rng.integers(1, 7):02d}-{rng.integers(1, 29):02d}"
        if late and i % 5 == 0:
            row |= {"kind": "c", "size": 40.0, "colour": "violet"}
    return nodes, edges


def _is_late(row: dict[str, Any]) -> bool:
    return row["joined"] > "2024-06-30"


def _saved_tensors(nodes: Rows, edges: Rows, folder: Path, **options: Any) -> dict[str, np.ndarray]:
    folder.mkdir()
    paths = write_csv(folder / "n.csv", nodes), write_csv(folder / "e.csv", edges)
    TableModel.fit(*paths, **(FIT | TIMES | options))[0].save(folder / "model")
    tensors = load_file(folder / "model" / "model.safetensors")
    del tensors["extra.table_rows"]  # hashes with a random key
    return tensors


def _features(nodes: Rows, edges: Rows) -> tuple[Rows, Rows]:
    return [row | ({"size": 1e6, "colour": f"c{i % 7}"} if _is_late(row) else {}) for i, row in enumerate(nodes)], edges


def _labels(nodes: Rows, edges: Rows) -> tuple[Rows, Rows]:
    return [row | ({"kind": "abcd"[i % 4]} if _is_late(row) else {}) for i, row in enumerate(nodes)], edges


def _edges(nodes: Rows, edges: Rows) -> tuple[Rows, Rows]:
    late = {row["name"] for row in nodes if _is_late(row)}
    kept = [edge for edge in edges if not late & set(edge.values())]
    return nodes, [{"source": name, "target": nodes[0]["name"]} for name in sorted(late - {nodes[0]["name"]})] + kept


def _none(nodes: Rows, edges: Rows) -> tuple[Rows, Rows]:
    late = {row["name"] for row in nodes if _is_late(row)}
    nodes = [row for row in nodes if not _is_late(row)]
    return nodes, [edge for edge in edges if not late & set(edge.values())]


@pytest.mark.parametrize("change", [_features, _labels, _edges, _none])
@pytest.mark.parametrize("method", ["nodesafe-evidence", "nodesafe"])
def test_nothing_of_arrivals_is_learnt(
    tmp_path: Path, method: str, change: Callable[[Rows, Rows], tuple[Rows, Rows]]
) -> None:
    nodes, edges = _tables()
    before = _saved_tensors(nodes, edges, tmp_path / "before", method=method)
    after = _saved_tensors(*change(nodes, edges), tmp_path / "after", method=method)
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert value.tobytes() == after[name].tobytes(), name


def test_arrivals_are_counted_named_and_judged(tmp_path: Path) -> None:
    nodes, edges = _tables()
    paths = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    model, report = TableModel.fit(*paths, **(FIT | TIMES))
    model.save(tmp_path / "model")
    TableModel.load(tmp_path / "model", device="cpu").score(*paths, tmp_path / "s.csv")
    rows = read_csv(tmp_path / "s.csv")
    late = [_is_late(row) for row in nodes]
    assert [row["split"] == "arrival" for row in rows] == late
    names = {row["name"] for row in nodes if _is_late(row)}
    pairs = {frozenset(edge.values()) for edge in edges}
    num_edges = sum(bool(pair & names) for pair in pairs)
    assert (report.num_nodes, report.num_edges) == (400 - sum(late), len(pairs) - num_edges)
    assert (report.num_arrivals, report.num_arrival_edges) == (sum(late), num_edges)
    note = f"{sum(late)} of 400 rows are later than 2024-06-30 (joined); they and their {num_edges} edges are kept out"
    assert any(note in each for each in report.notes)
    flagged = {
        kinds: [
            row["is_ood"] == "true"
            for row, node in zip(rows, nodes, strict=True)
            if _is_late(node) and node["kind"] in kinds
        ]
        for kinds in (("a", "b"), ("c",), ("",))
    }
    assert report.labels == ["a", "b"]
    assert report.num_known_arrivals == len(flagged["a", "b"])
    assert report.observed_false_alarm_rate == pytest.approx(np.mean(flagged["a", "b"]))
    assert (report.num_new_label_arrivals, report.num_new_label_flagged) == (len(flagged[("c",)]), sum(flagged[("c",)]))
    assert sum(flagged[("c",)]) > len(flagged[("c",)]) / 3  # at 5 % false alarms
    assert (report.num_unlabelled_arrivals, report.num_unlabelled_flagged) == (len(flagged[("",)]), sum(flagged[("",)]))
    assert sum(map(len, flagged.values())) == report.num_arrivals


def test_the_most_recent_labelled_rows_before_are_the_reference_rows() -> None:
    rows = _tables()
    nodes, edges = (pa.Table.from_pylist(each) for each in rows)
    model, report = TableModel.fit(nodes, edges, **(FIT | TIMES))
    table = model.score_frame(nodes, edges).to_pylist()
    days: dict[str, list[str]] = {"train": [], "calibration": []}
    for row, scored in zip(rows[0], table, strict=True):
        days.setdefault(scored["split"] or "", []).append(row["joined"])
    assert len(days["calibration"]) == report.num_calibration > 20
    assert min(days["calibration"]) >= max(days["train"])
    assert max(days["calibration"]) <= TIMES["train_until"]
    evidence = Evidence((MaxSoftmax(),))
    assert model.detector.scorer.fewest_known == evidence.expecting_drift().fewest_known  # type: ignore[union-attr]
    usual, _ = TableModel.fit(nodes, edges, **FIT, drop_columns=("joined",))
    assert usual.detector.scorer.fewest_known == evidence.fewest_known  # type: ignore[union-attr]


def test_a_time_after_all_rows_is_noted() -> None:
    nodes, edges = (pa.Table.from_pylist(rows) for rows in _tables())
    _, report = TableModel.fit(nodes, edges, **(FIT | TIMES | {"train_until": "2025-06-30"}))
    assert report.num_arrivals == 0
    assert any(note.startswith("no row is later than 2025-06-30 (joined)") for note in report.notes)


def test_the_time_column_is_a_feature_only_if_it_is_named() -> None:
    nodes, edges = _tables()
    rows = pa.Table.from_pylist([row | {"joined": int(row["joined"].replace("-", ""))} for row in nodes])
    until = TIMES | {"train_until": "20240630"}
    model, report = TableModel.fit(rows, pa.Table.from_pylist(edges), **FIT, **until)
    assert model.schema.features.names == ["size", "colour"]
    assert [str(column.read_as) for column in report.columns if column.name == "joined"] == ["time"]
    named, _ = TableModel.fit(rows, pa.Table.from_pylist(edges), **FIT, **until, feature_columns=["size", "joined"])
    assert named.schema.features.names == ["size", "joined"]
    assert "arrival" in named.score_frame(rows, pa.Table.from_pylist(edges))["split"].to_pylist()


def test_a_scored_table_without_times_says_what_is_missing() -> None:
    nodes, edges = (pa.Table.from_pylist(rows) for rows in _tables())
    model, _ = TableModel.fit(nodes, edges, **FIT, **TIMES)
    graph = model.read(nodes.drop_columns("joined"), edges)
    assert graph.notes[0] == "there is no column 'joined', so the column split does not say which rows are arrivals"
    assert "arrival" not in model.score_graph(graph)["split"].to_pylist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_until": None}, "give both `time_column` and `train_until`"),
        ({"time_column": None}, "give both `time_column` and `train_until`"),
        ({"time_column": "joind"}, "no time column 'joind'; did you mean 'joined'"),
        ({"time_column": "kind"}, "`time_column` is 'kind', which has another role"),
        ({"train_until": "2023-12-31"}, "no row is from 2023-12-31 or earlier"),
        ({"train_until": "2024"}, "expected a number, like the value of `train_until`"),
    ],
)
def test_bad_times_are_named(options: dict[str, Any], message: str) -> None:
    nodes, edges = (pa.Table.from_pylist(rows) for rows in _tables())
    with pytest.raises(TableError, match=message):
        TableModel.fit(nodes, edges, **FIT, **(TIMES | options))


def test_a_missing_time_names_its_line(tmp_path: Path) -> None:
    nodes, edges = _tables()
    nodes[6]["joined"] = ""
    paths = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    with pytest.raises(TableError, match=r"n\.csv: column 'joined' has no time in line 8"):
        TableModel.fit(*paths, **(FIT | TIMES))


def test_edges_of_nodes_in_no_table_are_still_an_error() -> None:
    nodes, edges = _tables()
    edges.append({"source": "nobody", "target": "n001"})
    with pytest.raises(TableError, match="first 'nobody'"):
        TableModel.fit(pa.Table.from_pylist(nodes), pa.Table.from_pylist(edges), **FIT, **TIMES)


def test_batches_of_chosen_rows_do_not_depend_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oddnode.tables.reader.ROWS", 10)
    values = np.arange(95)
    keep = np.random.default_rng(0).random(95) < 0.6
    batches = list(ChosenRows(open_table({"x": values}, "nodes"), keep).batches(["x"]))
    assert [batch.num_rows for batch in batches[:-1]] == [10] * (len(batches) - 1)
    found = np.concatenate([batch.arrays[0].to_numpy() for batch in batches])
    assert found.tolist() == values[keep].tolist()
    assert batches[1].row_name(3) == f"row {values[keep][13] + 1}"


def test_numbers_of_rows_are_those_of_the_file(tmp_path: Path) -> None:
    nodes, edges = _tables()
    line = next(i for i, row in enumerate(nodes) if not _is_late(row) and i > 50)
    nodes[line]["size"] = "big"
    paths = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    with pytest.raises(TableError, match=f"first 'big' in line {line + 2}"):
        training_tables(*paths, **TIMES).read(seed=0)
