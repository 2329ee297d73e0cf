"""The files of a large graph: they hold its chunks, and a run that was stopped goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import big_graph
import numpy as np
import pyarrow.parquet as pq
import pytest
from block_model import SPLITS, BlockModel

GRAPH = BlockModel(60_001, 600_000, features=8, labelled=3_000, node_chunk=7_000, edge_chunk=50_001)


def test_the_files_hold_the_chunks_and_can_be_completed(tmp_path: Path) -> None:
    big_graph.write(GRAPH, tmp_path, workers=2)
    assert big_graph.read_settings(tmp_path) == GRAPH
    nodes = pq.read_table(tmp_path / "nodes")
    assert nodes.column_names == ["id", *(f"x{n}" for n in range(8)), "label", "split"]
    assert [str(nodes.schema.field(name).type) for name in ("id", "x0", "label", "split")] == [
        *("int64", "float", "int64", "string")
    ]
    part = GRAPH.nodes_of(1)
    table = nodes.slice(GRAPH.node_chunk, GRAPH.node_chunk)
    np.testing.assert_array_equal(table["id"].to_numpy(), part.id)
    np.testing.assert_array_equal(table["x3"].to_numpy(), part.x[:, 3])
    assert table["label"].to_pylist() == [None if label < 0 else label for label in part.label.tolist()]
    assert table["split"].to_pylist() == [None if place < 0 else SPLITS[place] for place in part.split.tolist()]
    edges = pq.read_table(tmp_path / "edges")
    assert edges.num_rows == GRAPH.pairs
    np.testing.assert_array_equal(edges["target"].to_numpy()[: GRAPH.edge_chunk], GRAPH.pairs_of(0)[1])

    lost, kept = (big_graph.edge_file(tmp_path, chunk) for chunk in (2, 1))
    before, time = lost.read_bytes(), kept.stat().st_mtime_ns
    lost.unlink()
    big_graph.write(GRAPH, tmp_path)
    assert lost.read_bytes() == before
    assert kept.stat().st_mtime_ns == time
    with pytest.raises(ValueError, match="other settings"):
        big_graph.write(replace(GRAPH, seed=5), tmp_path)
    assert json.loads((tmp_path / "settings.json").read_text())["seed"] == 0


def test_the_command_writes_the_graph_that_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["--nodes", "2e3", "--edges", "1e4", "--features", "4", "--labelled", "500", "--seed", "3", "--out"]
    monkeypatch.setattr("sys.argv", ["big_graph.py", *arguments, str(tmp_path)])
    big_graph.main()
    assert big_graph.read_settings(tmp_path) == BlockModel(2_000, 10_000, 4, 500, seed=3)
    assert capsys.readouterr().out.startswith("2 files, 0.00 GB in ")
