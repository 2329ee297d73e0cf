"""Tables in memory and several tables as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from oddnode.tables import TableError, TableModel, learn_features, open_table, read_nodes
from tests.tables.examples import FIT, Rows, example, write_csv, write_parquet


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    nodes, edges = example()
    return write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)


def test_a_networkx_graph_is_both_tables(paths: tuple[Path, Path]) -> None:
    nodes, edges = example()
    graph = nx.Graph()
    # An attribute called id is not the key of the node.
    graph.add_nodes_from((row["name"], row | {"id": 0, "kind": row["kind"] or None}) for row in nodes)
    graph.add_edges_from((row["source"], row["target"], {"weight": 2}) for row in edges)
    from_files = TableModel.fit(*paths, **FIT)[0].score_frame(*paths)
    settings = FIT | {"id_column": "id", "drop_columns": ["name"]}
    model, report = TableModel.fit(graph, graph, **settings, unweighted=True)
    scored = model.score_frame(graph, graph)
    assert scored["id"].to_pylist() == from_files["name"].to_pylist()
    assert scored["score"].equals(from_files["score"])
    assert any("unused columns: weight" in note for note in report.notes)
    weighted, _ = TableModel.fit(graph, graph, **settings)
    assert set(weighted.read(graph, graph).data.edge_weight.tolist()) == {2.0}


def test_an_index_without_a_name_is_no_column() -> None:
    assert open_table({"id": [1], "__index_level_0__": [0]}, "nodes").columns == ["id"]


def test_several_tables_are_read_as_one(paths: tuple[Path, Path], tmp_path: Path) -> None:
    nodes, edges = example()
    new = [{key: value for key, value in row.items() if key != "kind"} for row in nodes[100:]]
    parts = [write_csv(tmp_path / "old.csv", nodes[:100]), write_parquet(tmp_path / "new.parquet", new)]
    halves = [write_csv(tmp_path / "e1.csv", edges[:100]), pa.Table.from_pylist(edges[50:])]
    model, _ = TableModel.fit(*paths, **FIT)
    whole = model.score_frame(*paths)
    assert model.score_frame(parts, halves).equals(whole)


@pytest.mark.parametrize(("count", "named"), [(1, "{0}"), (3, "{0} + {1} + {2}"), (4, "{0} and 3 more tables")])
def test_messages_name_no_more_than_a_few_tables(tmp_path: Path, count: int, named: str) -> None:
    files = [write_csv(tmp_path / f"{place}.csv", example()[0][:5]) for place in range(count)]
    assert open_table(files, "nodes").name == named.format(*files)


def test_messages_count_lines_as_an_editor_does_and_name_the_file(paths: tuple[Path, Path], tmp_path: Path) -> None:
    model, _ = TableModel.fit(*paths, **FIT)
    new: Rows = [{"name": "m1", "size": 1, "colour": "red"}, {"name": "m2", "size": "big", "colour": "red"}]
    bad = write_csv(tmp_path / "new.csv", new)
    assert bad.read_text().splitlines()[3 - 1].startswith("m2")
    with pytest.raises(TableError, match=r"^\S+/new.csv: column 'size' has the text 'big' in line 3, but"):
        model.score_frame([paths[0], bad], paths[1])
    frame = pa.table({"name": ["m1", "m2"], "size": ["1", "big"], "colour": ["red", "red"]})
    with pytest.raises(TableError, match=r"^the table of nodes: column 'size' has the text 'big' in row 2, but"):
        model.score_frame(frame, paths[1])


def test_every_one_of_several_tables_needs_the_features(paths: tuple[Path, Path], tmp_path: Path) -> None:
    model, _ = TableModel.fit(*paths, **FIT)
    bad = write_csv(tmp_path / "new.csv", [{"name": "m1", "size": 1}])
    with pytest.raises(TableError, match=r"new.csv lacks 1 \(colour\) of the 2 feature columns"):
        model.score_frame([paths[0], bad], paths[1])
    with pytest.raises(TableError, match=r"new.csv has no feature column 'colour'. It has 'name', 'size'"):
        TableModel.fit([paths[0], bad], paths[1], **FIT)


STRANGE = {
    "timestamp": pa.array([0] * 120, pa.timestamp("us")),
    "date": pa.array([0] * 120, pa.date32()),
    "time": pa.array([0] * 120, pa.time64("us")),
    "duration": pa.array([0] * 120, pa.duration("s")),
    "list": pa.array([[1.0]] * 120),
    "struct": pa.array([{"a": 1}] * 120),
    "map": pa.array([[("a", 1)]] * 120, pa.map_(pa.string(), pa.int64())),
    "binary": pa.array([b"1234"] * 120, pa.binary(4)),
}


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("column", ["size", "colour", "ok", "name"])
def test_no_error_of_pyarrow_leaves_the_package(kind: str, column: str, paths: tuple[Path, Path]) -> None:
    nodes, edges = (pa.Table.from_pylist(rows) for rows in example())
    model, _ = TableModel.fit(*paths, **FIT)
    nodes = nodes.append_column("ok", pa.array([True] * 120))
    nodes = nodes.set_column(nodes.column_names.index(column), column, STRANGE[kind])
    with pytest.raises(TableError, match=f"the table of nodes: column '{column}' (holds|has|marks)"):
        model.calibrate(nodes, edges, "ok", new_ids=True)


@pytest.mark.parametrize("kind", STRANGE)
def test_a_column_that_is_neither_numbers_nor_text_can_be_dropped(kind: str, paths: tuple[Path, Path]) -> None:
    nodes = pa.Table.from_pylist(example()[0]).append_column("strange", STRANGE[kind])
    with pytest.raises(
        TableError, match=r"column 'strange' holds .* or leave it out when fitting: `drop_columns` strange"
    ):
        TableModel.fit(nodes, paths[1], **FIT)
    model, report = TableModel.fit(nodes, paths[1], **FIT, drop_columns=["strange"])
    assert model.schema.features.names == ["size", "colour"]
    assert report.notes == []


def test_short_floats_are_numbers() -> None:
    table = open_table({"id": ["a", "b", "c"], "x": pa.array([0.5, None, 1.5], pa.float16())}, "nodes")
    recipe, _ = learn_features(table, ["x"])
    assert read_nodes(table, "id", recipe).x.tolist() == [[-1, 0], [0, 1], [1, 0]]


def test_ids_beyond_64_bits_with_sign_are_ids(paths: tuple[Path, Path]) -> None:
    nodes, edges = example()
    big = {row["name"]: 2**64 - 1 - i for i, row in enumerate(nodes)}
    frames: list[Any] = [
        {"name": pa.array([big[row["name"]] for row in nodes], pa.uint64())}
        | {key: [row[key] for row in nodes] for key in ("kind", "size", "colour")},
        {key: pa.array([big[row[key]] for row in edges], pa.uint64()) for key in ("source", "target")},
    ]
    expected = TableModel.fit(*paths, **FIT)[0].score_frame(*paths)
    scored = TableModel.fit(*frames, **FIT)[0].score_frame(frames[0], frames[1])
    assert scored["name"].to_pylist()[:2] == ["18446744073709551615", "18446744073709551614"]
    assert scored["score"].equals(expected["score"])


@pytest.mark.parametrize("column", ["name", "kind", "colour"])
def test_texts_that_are_not_utf8_are_named(tmp_path: Path, column: str) -> None:
    nodes, edges = example(60)
    table = pa.Table.from_pylist(nodes)
    texts = [text.encode() for text in table[column].to_pylist()]
    texts[7] = b"\xb8" + texts[7]
    length = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    broken = pa.Array.from_buffers(pa.string(), 60, [None, pa.py_buffer(length), pa.py_buffer(b"".join(texts))])
    table = table.set_column(table.column_names.index(column), column, broken)
    parquet.write_table(table, tmp_path / "nodes.parquet")
    for given in (table, tmp_path / "nodes.parquet"):
        with pytest.raises(TableError, match=r"cannot be read.*UTF8"):
            TableModel.fit(given, pa.Table.from_pylist(edges), **FIT)
