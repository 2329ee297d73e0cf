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
    FolderTables,
    TableError,
    TableModel,
    TableSchema,
    TrainingTables,
    calibrate_folder,
    files_matching,
    fit_folder,
    folder_tables,
    score_folder,
)
from oddnode.tables.id_index import IdIndex, arrow_ids
from tests.tables.examples import example, read_csv, write_csv, write_parquet

COLUMNS: dict[str, Any] = {"id_column": "name", "label_column": "kind"}


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
    expected = TrainingTables(nodes, edges, **COLUMNS, directed=directed).read(0)
    folder = FolderTables(nodes, edges, **COLUMNS, directed=directed).prepare(tmp_path / "graph")
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
    directed = FolderTables(*tables(tmp_path), **COLUMNS, directed=True).prepare(tmp_path / "graph")
    _, report = fit_folder(directed, method="msp", epochs=1)
    assert not [note for note in report.notes if "one way" in note]
    masks = {name: torch.arange(len(directed.x)) % 2 == part for part, name in enumerate(("train_mask", "val_mask"))}
    assert directed.y is not None
    data = Data(x=directed.x, edge_index=directed.edge_index, y=directed.y.clamp_min(0), **masks)
    doubted = Detector(epochs=1, device="cpu").fit(folder_from_data(data, tmp_path / "unsaid"))
    assert [note for note in doubted.advice_ if "one way" in note]


def test_many_files_are_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_tables, "_EDGES_AT_ONCE", {"numbers": 10, "texts": 10})
    nodes, edges = tables(tmp_path)
    whole = FolderTables(nodes, edges, **COLUMNS).prepare(tmp_path / "whole")
    rows = read_csv(edges)
    for number in range(3):
        write_csv(tmp_path / f"part{number}.csv", rows[number::3])
    parts = FolderTables(nodes, files_matching([tmp_path / "part*.csv"]), **COLUMNS).prepare(tmp_path / "parts")
    assert torch.equal(parts.edge_index, whole.edge_index)
    with pytest.raises(TableError, match="no file matches"):
        files_matching([tmp_path / "none*.csv"])


@pytest.mark.parametrize("method", ["gnnsafe", None])  # the latter is the default
def test_a_model_from_a_folder_is_the_one_from_the_tables(tmp_path: Path, method: str | None) -> None:
    nodes, edges = tables(tmp_path)
    settings: dict[str, Any] = {"method": method, "epochs": 8, "seed": 2, "false_alarm_rate": 0.1}
    expected, _ = TableModel.fit(nodes, edges, **COLUMNS, device="cpu", **settings)
    folder = FolderTables(nodes, edges, **COLUMNS).prepare(tmp_path / "graph")
    model, report = fit_folder(folder, **settings)
    assert (report.num_train, report.num_validation, report.num_calibration) == (64, 32, 64)
    assert report.num_edges == folder.num_edges // 2
    assert model.detector.threshold_ == pytest.approx(expected.detector.threshold_, abs=1e-4)
    model.save(tmp_path / "model")
    model = TableModel.load(tmp_path / "model", "cpu")
    expected.score(nodes, edges, tmp_path / "expected.parquet", explain=True)
    score_folder(model, folder, tmp_path / "found.parquet", explain=True)
    found, wanted = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("found", "expected"))
    assert found.column_names == wanted.column_names
    for name in ("name", "predicted", "split", "nearest_class", "is_ood", "why"):
        assert found[name].to_pylist() == wanted[name].to_pylist()
    numbers = ("confidence", "score", "own_score", "neighbour_contribution")
    for name in numbers if method else numbers[:1]:
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-4)
    if not method:  # shares of the 64 calibration nodes: rounding of single precision may change a rank where nodes tie
        shares = np.exp([found["score"], wanted["score"]])
        assert np.abs(shares[0] - shares[1]).max() < 0.1
        assert np.mean(np.abs(shares[0] - shares[1]) > 1e-4) < 0.2
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
    folder = FolderTables(*paths, **COLUMNS, split_column="part").prepare(tmp_path / "graph")
    assert folder.train_mask is not None
    assert folder.train_mask.tolist() == [part == "train" for part in split]
    _, report = fit_folder(folder, epochs=2)
    assert report.num_calibration == split.count("calibration")


def test_another_graph_is_prepared_with_the_model_and_calibrated(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path)
    folder = FolderTables(nodes, edges, **COLUMNS).prepare(tmp_path / "graph")
    model, _ = fit_folder(folder, method="energy", epochs=3)
    later = example(180, seed=5)
    renamed = [
        [{k: v.replace("n", "m") if isinstance(v, str) else v for k, v in row.items()} for row in part]
        for part in later
    ]
    paths = write_csv(tmp_path / "n.csv", renamed[0]), write_csv(tmp_path / "e.csv", renamed[1])
    other = FolderTables.like(model.schema, *paths, label_column="kind").prepare(tmp_path / "later")
    direct = model.read(*paths)
    assert torch.equal(other.x, direct.data.x)
    report = calibrate_folder(model, other, 0.1)
    assert (report.num_calibration, report.num_left_out) == (120, 0)
    score_folder(model, other, tmp_path / "scores.csv")
    assert {row["split"] for row in read_csv(tmp_path / "scores.csv")} == {""}
    own = FolderTables(*paths, **COLUMNS).prepare(tmp_path / "own")
    with pytest.raises(TableError, match="was prepared with other features"):
        score_folder(model, own, tmp_path / "scores.csv")


def test_recalibration_leaves_trained_nodes_out(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path)
    folder = FolderTables(nodes, edges, **COLUMNS).prepare(tmp_path / "graph")
    model, report = fit_folder(folder, method="energy", epochs=3)
    before = model.detector.threshold_
    again = calibrate_folder(model, folder)
    assert again.num_calibration == report.num_calibration
    assert again.num_left_out == report.num_train + report.num_validation
    assert again.threshold == pytest.approx(before)


def test_edges_of_nodes_that_do_not_exist(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path)
    write_csv(tmp_path / "more.csv", [{"source": "n001", "target": "n002"}, {"source": "n001", "target": "ghost"}])
    both = [edges, tmp_path / "more.csv"]
    with pytest.raises(TableError, match=r"more.csv: an edge names a node .* 'ghost' in column 'target', line 3"):
        FolderTables(nodes, both, **COLUMNS).prepare(tmp_path / "graph")
    with pytest.raises(FolderError, match="was not finished"):
        GraphFolder(tmp_path / "graph")
    folder = FolderTables(nodes, both, **COLUMNS, ignore_unknown_edges=True).prepare(tmp_path / "graph")
    assert any(note.startswith("1 of ") and "were left out" in note for note in folder.manifest.notes)


def test_a_folder_without_tables_or_labels_is_refused(tmp_path: Path) -> None:
    from tests.large.graphs import as_folder, random_graph

    with pytest.raises(TableError, match="was not made from tables"):
        fit_folder(as_folder(random_graph(), tmp_path / "graph"))
    with pytest.raises(TableError, match="`exposure_column` is not supported"):
        FolderTables("n", "e", **COLUMNS, exposure_column="x").prepare(tmp_path / "graph")


def test_a_finished_folder_is_not_made_again_unless_a_file_changed(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path)
    FolderTables(nodes, edges, **COLUMNS).prepare(tmp_path / "graph")
    time = (tmp_path / "graph" / "x.bin").stat().st_mtime_ns
    FolderTables(nodes, edges, **COLUMNS).prepare(tmp_path / "graph")
    assert (tmp_path / "graph" / "x.bin").stat().st_mtime_ns == time
    write_csv(nodes, read_csv(nodes)[::-1])
    with pytest.raises(FolderError, match="made from other files or with other settings"):
        FolderTables(nodes, edges, **COLUMNS).prepare(tmp_path / "graph")


@pytest.mark.parametrize(
    "ids",
    [[0, 1, 2, 3], [10, 11, 12], [5, 3, 9], [2**60, -(2**60), 0], ["a", "7", "ö"], []],
    ids=["positions", "range", "table", "sorted", "texts", "none"],
)
def test_positions_of_ids(ids: list[Any]) -> None:
    kind = pa.string() if any(isinstance(each, str) for each in ids) else pa.int64()
    index = IdIndex(pa.array(ids, kind))
    for wanted in ([*ids[::-1], *ids], [0, 3, -1, 10**9, 7]):
        for type_ in (pa.string(), pa.int64()):
            if type_ == pa.int64() and any(isinstance(each, str) for each in wanted):
                continue
            array = pa.array([str(each) for each in wanted]) if type_ == pa.string() else pa.array(wanted, type_)
            texts = [str(each) for each in ids]
            expected = [texts.index(str(each)) if str(each) in texts else -1 for each in wanted]
            assert index.positions(array).tolist() == expected


def test_weights_of_edges_are_refused_unless_they_are_not_to_count(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path)
    plain = FolderTables(nodes, edges, **COLUMNS).prepare(tmp_path / "plain")
    weighted = write_csv(tmp_path / "weighted.csv", [row | {"weight": 2} for row in read_csv(edges)])
    refused = r"column 'weight' of the edges holds their weights.*graphs on disk.*`unweighted`"
    for name in (None, "weight"):
        with pytest.raises(TableError, match=refused):
            FolderTables(nodes, weighted, **COLUMNS, weight_column=name).prepare(tmp_path / "graph")
    assert not (tmp_path / "graph").exists()
    folder = FolderTables(nodes, weighted, **COLUMNS, unweighted=True).prepare(tmp_path / "graph")
    assert torch.equal(folder.edge_index, plain.edge_index)
    model, _ = TableModel.fit(nodes, weighted, **COLUMNS, method="nodesafe", epochs=2, device="cpu")
    for use in (
        lambda: FolderTables.like(model.schema, nodes, weighted),
        lambda: score_folder(model, folder, tmp_path / "scores.csv"),
        lambda: calibrate_folder(model, folder),
    ):
        with pytest.raises(TableError, match=f"the model: the {refused}"):
            use()
    assert not (tmp_path / "scores.csv").exists()
    unweighted, _ = fit_folder(folder, epochs=2)
    later = FolderTables.like(unweighted.schema, nodes, weighted).prepare(tmp_path / "later")
    assert torch.equal(later.edge_index, plain.edge_index)
