"""Tables as graphs on disk: the same graph, the same model and the same scores as from the tables in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from torch_geometric.data import Data

from oddnode import Detector
from oddnode.large import FolderError, GraphFolder, folder_from_data
from oddnode.tables import (
    TableError,
    TableModel,
    TableSchema,
    TrainingTables,
    calibrate_folder,
    files_matching,
    fit_tables,
    score_folder,
)
from oddnode.tables.edges import IdIndex
from oddnode.tables.used_rows import arrow_ids
from tests.tables.examples import example, options, read_csv, training_tables, write_csv, write_parquet


def tables(folder: Path, numbered: bool = False, num_nodes: int = 240) -> tuple[Path, Path]:
    nodes, edges = example(num_nodes)
    if numbered:
        nodes = [row | {"name": 7 * i + 3} for i, row in enumerate(nodes)]
        edges = [{end: 7 * int(name[1:]) + 3 for end, name in row.items()} for row in edges]
    edges = [*edges, *edges[:20], {"source": nodes[0]["name"], "target": nodes[0]["name"]}]
    write = write_parquet if numbered else write_csv
    suffix = "parquet" if numbered else "csv"
    return write(folder / f"nodes.{suffix}", nodes), write(folder / f"edges.{suffix}", edges)


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_a_folder_has_the_graph_of_the_tables(tmp_path: Path, numbered: bool, directed: bool) -> None:
    nodes, edges = tables(tmp_path, numbered)
    expected = training_tables(nodes, edges, directed=directed).read(0)
    folder = training_tables(nodes, edges, directed=directed).prepare(tmp_path / "graph")
    assert torch.equal(folder.x, expected.data.x)
    assert folder.y is not None
    assert torch.equal(folder.y, expected.data.y)
    order = torch.from_numpy(np.lexsort(expected.data.edge_index.numpy()))
    assert torch.equal(folder.edge_index, expected.data.edge_index[:, order])
    assert folder.manifest.classes == ["a", "b"]
    assert TableSchema.from_json(folder.manifest.table, 4, 2) == expected.schema
    ids = [row["name"] for row in (read_csv(nodes) if not numbered else parquet.read_table(nodes).to_pylist())]
    assert folder.ids().tolist() == ids
    assert arrow_ids(folder.id_arrays(), 5, 9).to_pylist() == ids[5:9]


def test_edges_that_are_meant_to_lead_one_way_are_not_doubted(tmp_path: Path) -> None:
    directed = training_tables(*tables(tmp_path), directed=True).prepare(tmp_path / "graph")
    _, report = fit_tables(directed, method="msp", epochs=1)
    assert not [note for note in report.notes if "reverse edge" in note]
    masks = {name: torch.arange(len(directed.x)) % 2 == part for part, name in enumerate(("train_mask", "val_mask"))}
    assert directed.y is not None
    data = Data(x=directed.x, edge_index=directed.edge_index, y=directed.y.clamp_min(0), **masks)
    doubted = Detector(epochs=1, device="cpu").fit(folder_from_data(data, tmp_path / "unsaid"))
    assert [note for note in doubted.advice_ if "reverse edge" in note]


def test_many_files_are_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oddnode.tables.edges._EDGES_AT_ONCE", {"numbers": 10, "strings": 10})
    nodes, edges = tables(tmp_path)
    whole = training_tables(nodes, edges).prepare(tmp_path / "whole")
    rows = read_csv(edges)
    for number in range(3):
        write_csv(tmp_path / f"part{number}.csv", rows[number::3])
    parts = training_tables(nodes, files_matching([tmp_path / "part*.csv"])).prepare(tmp_path / "parts")
    assert torch.equal(parts.edge_index, whole.edge_index)
    with pytest.raises(TableError, match="no file matches"):
        files_matching([tmp_path / "none*.csv"])


@pytest.mark.parametrize("method", ["gnnsafe", None])  # the latter is the default
def test_a_model_from_a_folder_is_the_one_from_the_tables(tmp_path: Path, method: str | None) -> None:
    nodes, edges = tables(tmp_path)
    settings: dict[str, Any] = {"method": method, "epochs": 8, "seed": 2, "false_alarm_rate": 0.1}
    expected, _ = TableModel.fit(nodes, edges, options(), device="cpu", **settings)
    folder = training_tables(nodes, edges).prepare(tmp_path / "graph")
    model, report = fit_tables(folder, **settings)
    assert (report.num_train, report.num_validation, report.num_calibration) == (64, 32, 64)
    assert report.num_edges == folder.num_edges // 2
    assert model.detector.threshold_ == pytest.approx(expected.detector.threshold_, abs=1e-4)
    model.save(tmp_path / "model")
    model = TableModel.load(tmp_path / "model", "cpu")
    expected.score(nodes, edges, tmp_path / "expected.parquet", explain=True)
    score_folder(model, folder, tmp_path / "found.parquet", explain=True)
    found, wanted = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("found", "expected"))
    assert found.column_names == wanted.column_names
    for name in ("name", "predicted", "split", "nearest_class", "is_ood"):
        assert found[name].to_pylist() == wanted[name].to_pylist()
    assert found["why"].is_null().equals(wanted["why"].is_null())  # reasons name columns only for tables in memory
    numbers = ("confidence", "score", "own_score", "neighbour_contribution")
    for name in numbers if method else numbers[:1]:
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-4)
    if not method:  # shares of the 64 calibration nodes: rounding of single precision may change a rank where nodes tie
        shares = np.exp([found["score"], wanted["score"]])
        assert np.abs(shares[0] - shares[1]).max() < 0.15
        assert np.abs(shares[0] - shares[1]).mean() < 0.01
    # A model that was fitted on a folder reads tables as well.
    model.score(nodes, edges, tmp_path / "tables.csv")
    score_folder(model, folder, tmp_path / "folder.csv")
    pairs = zip(read_csv(tmp_path / "tables.csv"), read_csv(tmp_path / "folder.csv"), strict=True)
    for one, other in pairs:
        assert one["name"] == other["name"]
        if method:
            assert float(one["score"]) == pytest.approx(float(other["score"]), abs=1e-5)


def test_a_split_column_is_used(tmp_path: Path) -> None:
    nodes, edges = example(240)
    words = ["train", "validation", "calibration"]
    split = [words[(i // 2) % 3] if row["kind"] else "" for i, row in enumerate(nodes)]
    nodes = [row | {"part": part} for row, part in zip(nodes, split, strict=True)]
    paths = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    folder = training_tables(*paths, split_column="part").prepare(tmp_path / "graph")
    assert folder.train_mask is not None
    assert folder.train_mask.tolist() == [part == "train" for part in split]
    _, report = fit_tables(folder, epochs=2)
    assert report.num_calibration == split.count("calibration")


def test_another_graph_is_prepared_with_the_model_and_calibrated(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path)
    folder = training_tables(nodes, edges).prepare(tmp_path / "graph")
    model, _ = fit_tables(folder, method="energy", epochs=3)
    later = example(180, seed=5)
    renamed = [
        [{k: v.replace("n", "m") if isinstance(v, str) else v for k, v in row.items()} for row in part]
        for part in later
    ]
    paths = write_csv(tmp_path / "n.csv", renamed[0]), write_csv(tmp_path / "e.csv", renamed[1])
    other = TrainingTables(*paths, model.schema.with_labels("kind")).prepare(tmp_path / "later")
    direct = model.read(*paths)
    assert torch.equal(other.x, direct.data.x)
    report = calibrate_folder(model, other, 0.1)
    assert (report.num_calibration, report.num_left_out) == (120, 0)
    score_folder(model, other, tmp_path / "scores.csv")
    assert {row["split"] for row in read_csv(tmp_path / "scores.csv")} == {""}
    own = training_tables(*paths).prepare(tmp_path / "own")
    with pytest.raises(TableError, match="was prepared with features that differ"):
        score_folder(model, own, tmp_path / "scores.csv")


def test_a_graph_that_has_grown_has_the_splits_and_the_new_rows_of_the_tables(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path)
    more = [row | {"name": "m" + row["name"], "kind": ""} for row in example(60, seed=3)[0]]
    model, report = fit_tables(training_tables(nodes, edges).prepare(tmp_path / "graph"), method="energy", epochs=3)
    model.save(tmp_path / "model")
    model = TableModel.load(tmp_path / "model", "cpu")
    both = [nodes, write_csv(tmp_path / "more.csv", more)]
    grown = TrainingTables(both, edges, model.schema).prepare(tmp_path / "grown")
    from_folder = score_folder(model, grown, tmp_path / "folder.csv")
    from_tables = model.score(both, edges, tmp_path / "tables.csv")
    assert from_folder.summary == from_tables.summary
    assert from_folder.num_edges == from_tables.num_edges == report.num_edges
    rows = read_csv(tmp_path / "folder.csv")
    for name in ("split", "seen", "group"):
        assert [row[name] for row in rows] == [row[name] for row in read_csv(tmp_path / "tables.csv")]
    assert sum(row["seen"] == "false" for row in rows) == 60
    score_folder(model, grown, tmp_path / "new.csv", only_new=True)
    assert {row["name"][0] for row in read_csv(tmp_path / "new.csv")} == {"m"}


def test_the_order_of_a_graph_that_has_grown_does_not_matter(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path)
    more = [row | {"name": "m" + row["name"], "kind": ""} for row in example(40, seed=3)[0]]
    model, _ = fit_tables(training_tables(nodes, edges).prepare(tmp_path / "graph"), epochs=4)
    both = [write_csv(tmp_path / "more.csv", more), nodes]
    grown = TrainingTables(both, edges, model.schema).prepare(tmp_path / "grown")
    report = score_folder(model, grown, tmp_path / "folder.parquet")
    assert not any("reference rows" in note for note in report.notes)
    model.score(both, edges, tmp_path / "tables.parquet")
    found, wanted = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("folder", "tables"))
    assert found["name"].equals(wanted["name"])
    # Ranks among 64 rows: single precision may break ties differently.
    assert np.mean(np.abs(found["p_value"].to_numpy() - wanted["p_value"].to_numpy()) > 0.02) < 0.05


def test_recalibration_leaves_trained_nodes_out(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path)
    folder = training_tables(nodes, edges).prepare(tmp_path / "graph")
    model, report = fit_tables(folder, method="energy", epochs=3)
    before = model.detector.threshold_
    again = calibrate_folder(model, folder)
    assert again.num_calibration == report.num_calibration
    assert again.num_left_out == report.num_train + report.num_validation
    assert again.threshold == pytest.approx(before)


def test_edges_of_nodes_that_do_not_exist(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path)
    write_csv(tmp_path / "more.csv", [{"source": "n001", "target": "n002"}, {"source": "n001", "target": "ghost"}])
    both = [edges, tmp_path / "more.csv"]
    with pytest.raises(TableError, match=r"more.csv: 1 of .* edges name a node .* 'ghost' in column 'target', line 3"):
        training_tables(nodes, both).prepare(tmp_path / "graph")
    with pytest.raises(FolderError, match="was not finished"):
        GraphFolder(tmp_path / "graph")
    folder = training_tables(nodes, both, ignore_unknown_edges=True).prepare(tmp_path / "graph")
    assert any(note.startswith("1 of ") and "were left out" in note for note in folder.manifest.notes)


def test_a_folder_without_tables_or_labels_is_refused(tmp_path: Path) -> None:
    from tests.large.graphs import as_folder, random_graph

    with pytest.raises(TableError, match="was not made from tables"):
        fit_tables(as_folder(random_graph(), tmp_path / "graph"))
    with pytest.raises(TableError, match="`exposure_column` is not supported"):
        training_tables("n", "e", exposure_column="x").prepare(tmp_path / "graph")


def test_a_finished_folder_is_not_made_again_unless_a_file_changed(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path)
    training_tables(nodes, edges).prepare(tmp_path / "graph")
    time = (tmp_path / "graph" / "x.bin").stat().st_mtime_ns
    training_tables(nodes, edges).prepare(tmp_path / "graph")
    assert (tmp_path / "graph" / "x.bin").stat().st_mtime_ns == time
    write_csv(nodes, read_csv(nodes)[::-1])
    with pytest.raises(FolderError, match="made from other files or with other settings"):
        training_tables(nodes, edges).prepare(tmp_path / "graph")


@pytest.mark.parametrize(
    "ids",
    [[0, 1, 2, 3], [10, 11, 12], [5, 3, 9], [2**60, -(2**60), 0], ["a", "7", "ö"], []],
    ids=["positions", "range", "table", "sorted", "texts", "none"],
)
def test_indices_of_ids(ids: list[Any]) -> None:
    kind = pa.string() if any(isinstance(each, str) for each in ids) else pa.int64()
    index = IdIndex(pa.array(ids, kind))
    for wanted in ([*ids[::-1], *ids], [0, 3, -1, 10**9, 7]):
        for type_ in (pa.string(), pa.int64()):
            if type_ == pa.int64() and any(isinstance(each, str) for each in wanted):
                continue
            array = pa.array([str(each) for each in wanted]) if type_ == pa.string() else pa.array(wanted, type_)
            texts = [str(each) for each in ids]
            expected = [texts.index(str(each)) if str(each) in texts else -1 for each in wanted]
            assert index.indices(array).tolist() == expected


def weighted(folder: Path, column: str = "weight") -> tuple[Path, Path]:
    """Tables whose edges have weights, some of them 0; a few edges are repeated."""
    nodes, edges = tables(folder)
    rng = np.random.default_rng(3)
    rows = [
        row | {column: round(float(rng.random()) + 0.1, 3) if i % 9 else 0} for i, row in enumerate(read_csv(edges))
    ]
    return nodes, write_csv(folder / f"{column}.csv", rows)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("column", [None, "amount"])
def test_a_folder_has_the_weights_of_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directed: bool, column: str | None
) -> None:
    monkeypatch.setattr("oddnode.tables.edges._EDGES_AT_ONCE", {"numbers": 50, "strings": 50})
    nodes, edges = weighted(tmp_path, column or "weight")
    settings: dict[str, Any] = {"directed": directed, "weight_column": column}
    expected = training_tables(nodes, edges, **settings).read(0)
    folder = training_tables(nodes, edges, **settings).prepare(tmp_path / "graph")
    order = torch.from_numpy(np.lexsort(expected.data.edge_index.numpy()))
    assert torch.equal(folder.edge_index, expected.data.edge_index[:, order])
    assert folder.edge_weight is not None
    torch.testing.assert_close(folder.edge_weight, expected.data.edge_weight[order].float())
    assert TableSchema.from_json(folder.manifest.table, 4, 2) == expected.schema
    in_memory = [note for note in expected.notes if "weight" in note]
    [added_up] = [note for note in in_memory if "weights add up" in note]
    count, rest = added_up.split(" of ")
    on_disk = [note for note in folder.manifest.notes if "weight" in note]
    assert on_disk == [
        *(note for note in in_memory if note != added_up),
        f"{count} {rest.split(' ', 1)[1]}",  # all rows are not counted
    ]


def test_a_model_with_weights_from_a_folder_is_the_one_from_the_tables(tmp_path: Path) -> None:
    nodes, edges = weighted(tmp_path)
    settings: dict[str, Any] = {"method": "gnnsafe", "epochs": 8, "seed": 2}
    expected, _ = TableModel.fit(nodes, edges, options(), device="cpu", **settings)
    folder = training_tables(nodes, edges).prepare(tmp_path / "graph")
    model, report = fit_tables(folder, **settings)
    assert model.schema == expected.schema
    assert any("holds their weights" in note for note in report.notes)
    expected.score(nodes, edges, tmp_path / "expected.parquet")
    score_folder(model, folder, tmp_path / "found.parquet")
    found, wanted = (parquet.read_table(tmp_path / f"{name}.parquet")["score"] for name in ("found", "expected"))
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    later = TrainingTables(nodes, edges, model.schema.with_labels()).prepare(tmp_path / "later")
    assert torch.equal(later.edge_weight, folder.edge_weight)  # type: ignore[arg-type]
    score_folder(model, later, tmp_path / "later.parquet")
    assert parquet.read_table(tmp_path / "later.parquet")["score"].equals(found)


def test_weights_that_are_not_to_count_do_not(tmp_path: Path) -> None:
    nodes, edges = weighted(tmp_path)
    plain = training_tables(nodes, tables(tmp_path)[1]).prepare(tmp_path / "plain")
    folder = training_tables(nodes, edges, unweighted=True).prepare(tmp_path / "graph")
    assert folder.edge_weight is None
    assert torch.equal(folder.edge_index, plain.edge_index)
    assert any("unused columns: weight; if one holds weights" in note for note in folder.manifest.notes)
    model, _ = fit_tables(folder, epochs=2)
    later = TrainingTables(nodes, edges, model.schema.with_labels()).prepare(
        tmp_path / "later"
    )  # as with tables in memory
    assert later.edge_weight is None
    assert torch.equal(later.edge_index, plain.edge_index)


def test_a_folder_with_other_weights_than_the_model_is_refused(tmp_path: Path) -> None:
    nodes, edges = weighted(tmp_path)
    with_weights = training_tables(nodes, edges).prepare(tmp_path / "weights")
    without = training_tables(nodes, edges, unweighted=True).prepare(tmp_path / "without")
    weighted_model, _ = fit_tables(with_weights, method="energy", epochs=2)
    model, _ = fit_tables(without, method="energy", epochs=2)
    column, none = "the column 'weight' as weights of edges", "no weights of edges"
    for fitted, folder, found, expected in (
        (weighted_model, without, none, column),
        (model, with_weights, column, none),
    ):
        message = f"was prepared with {found}, but the model was fitted with {expected}; prepare it with `model`"
        with pytest.raises(TableError, match=message):
            score_folder(fitted, folder, tmp_path / "scores.csv")
        with pytest.raises(TableError, match=message):
            calibrate_folder(fitted, folder)
    assert not (tmp_path / "scores.csv").exists()
    unnamed = TrainingTables(nodes, tables(tmp_path)[1], weighted_model.schema.with_labels())
    for refused in (unnamed.check_columns, lambda: unnamed.prepare(tmp_path / "unnamed")):
        with pytest.raises(TableError, match="has no weight column 'weight'"):
            refused()
    assert not (tmp_path / "unnamed").exists()


def test_missing_counts_and_a_graph_without_edges_are_as_from_the_tables(tmp_path: Path) -> None:
    rows = [
        row | {f"w{j}": "" if (i + j) % 11 == 0 else (i * i + j) % 5 // 4 for j in range(6)}
        for i, row in enumerate(example(120)[0])
    ]
    nodes = write_csv(tmp_path / "nodes.csv", rows)
    edges = write_csv(tmp_path / "edges.csv", [{"source": "n000", "target": "n000"}])
    expected = training_tables(nodes, edges).read(0)
    folder = training_tables(nodes, edges).prepare(tmp_path / "graph")
    assert len(expected.schema.features.profiles) == 2
    assert torch.equal(folder.x, expected.data.x)
    assert TableSchema.from_json(folder.manifest.table, folder.x.shape[1], 2) == expected.schema
    note = "there are no edges between different nodes, so every node is scored by its features alone"
    assert note in expected.notes
    assert note in folder.manifest.notes  # which `fit --graph` prints
