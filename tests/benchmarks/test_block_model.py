"""The generator of large graphs: chunks are functions of their number, the graph is as asked for, and so are files."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import big_graph
import block_model
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from block_model import SPLITS, BlockModel
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

GRAPH = BlockModel(60_001, 600_000, features=8, labelled=3_000, node_chunk=7_000, edge_chunk=50_001)
CHUNKS = (GRAPH.nodes_of, GRAPH.num_node_chunks), (GRAPH.pairs_of, GRAPH.num_edge_chunks)


@pytest.fixture(scope="module")
def pairs() -> np.ndarray:
    return np.hstack([np.stack(GRAPH.pairs_of(chunk)) for chunk in range(GRAPH.num_edge_chunks)])


@pytest.fixture(scope="module")
def nodes() -> dict[str, np.ndarray]:
    chunks = [GRAPH.nodes_of(chunk) for chunk in range(GRAPH.num_node_chunks)]
    return {name: np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in chunks[0].__annotations__}


ALONE = """
import json, sys
import numpy as np
from block_model import BlockModel
graph = BlockModel(**json.loads(sys.argv[1]))
np.savez(sys.argv[2], *graph.pairs_of(3), x=graph.nodes_of(3).x, block=graph.nodes_of(3).block)
"""


def test_a_chunk_made_alone_in_another_process_has_the_same_bytes(tmp_path: Path) -> None:
    in_order = [(GRAPH.nodes_of(chunk), GRAPH.pairs_of(chunk)) for chunk in range(4)]
    command = [sys.executable, "-c", ALONE, json.dumps(asdict(GRAPH)), str(tmp_path / "alone.npz")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(Path(block_model.__file__).parent)})
    nodes, pairs = in_order[3]
    with np.load(tmp_path / "alone.npz") as alone:
        for name, expected in {"arr_0": pairs[0], "arr_1": pairs[1], "x": nodes.x, "block": nodes.block}.items():
            assert alone[name].tobytes() == expected.tobytes()


def test_the_bytes_are_those_of_every_machine() -> None:
    """Recorded once: a change of the generator, or a machine that rounds otherwise, gives other graphs."""
    nodes = GRAPH.nodes_of(1)
    arrays = [nodes.id, nodes.x, nodes.block, nodes.label, nodes.split, *GRAPH.pairs_of(1)]
    found = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    assert found[:16] == "93f8de7d205dca43"


def test_every_node_and_every_pair_is_there_once(nodes: dict[str, np.ndarray], pairs: np.ndarray) -> None:
    np.testing.assert_array_equal(nodes["id"], np.arange(GRAPH.nodes))
    assert pairs.shape == (2, GRAPH.edges // 2)
    assert pairs.min() >= 0
    assert pairs.max() < GRAPH.nodes
    assert not (pairs[0] == pairs[1]).any()
    for make, count in CHUNKS:
        with pytest.raises(IndexError, match=f"there are {count}"):
            make(count)


@pytest.mark.parametrize("homophily", [0.0, 0.3, 0.8, 1.0])
def test_homophily_is_as_asked(homophily: float) -> None:
    graph = replace(GRAPH, homophily=homophily, tiny=0.0)
    source, target = (np.concatenate(ends) for ends in zip(*(graph.pairs_of(n) for n in range(6)), strict=True))
    assert np.mean(graph.block_of(source) == graph.block_of(target)) == pytest.approx(homophily, abs=0.003)


def test_blocks_labels_and_splits_are_as_asked(nodes: dict[str, np.ndarray]) -> None:
    block, label, split = nodes["block"], nodes["label"], nodes["split"]
    assert np.mean(block >= GRAPH.known_blocks) == pytest.approx(GRAPH.unknown_share, abs=1e-4)
    sizes = np.bincount(block)
    assert len(sizes) == 7
    assert np.ptp(sizes[:5]) <= 1
    assert np.ptp(sizes[5:]) <= 1
    assert (block[label >= 0] < GRAPH.known_blocks).all()
    np.testing.assert_array_equal(label[label >= 0], block[label >= 0])
    np.testing.assert_array_equal(label >= 0, split >= 0)
    assert np.bincount(split[split >= 0]).tolist() == [1_200, 600, 1_200]
    assert np.bincount(label[label >= 0]) == pytest.approx(600, abs=6)


@pytest.mark.parametrize(("tail", "exponent"), [(2, 3.0), (3, 2.5), (4, 7 / 3)])
def test_degrees_follow_the_power_law(tail: int, exponent: float) -> None:
    graph = replace(GRAPH, tail=tail, nodes=200_000, edges=4_000_000)
    assert graph.exponent == pytest.approx(exponent)
    ends = np.concatenate([np.concatenate(graph.pairs_of(chunk)) for chunk in range(graph.num_edge_chunks)])
    degree = np.bincount(ends, minlength=graph.nodes)
    # Hill's estimator of the tail, on the degrees that are large against their Poisson noise.
    large = np.sort(degree)[::-1][: graph.nodes // 200]
    assert 1 + 1 / np.mean(np.log(large / large[-1])) == pytest.approx(exponent, abs=0.25)


def test_some_nodes_are_isolated_and_some_in_tiny_components(pairs: np.ndarray) -> None:
    matrix = coo_array((np.ones(pairs.shape[1]), tuple(pairs)), shape=(GRAPH.nodes, GRAPH.nodes))
    sizes = np.bincount(connected_components(matrix, directed=False)[1])
    assert np.sum(sizes == 3) >= GRAPH.tiny * GRAPH.nodes / 3 - 7
    assert np.sum(sizes == 3) == pytest.approx(GRAPH.tiny * GRAPH.nodes / 3, abs=20)
    assert np.mean(np.bincount(pairs.ravel(), minlength=GRAPH.nodes) == 0) >= GRAPH.isolated - 7 / GRAPH.nodes
    assert sizes.max() > 0.9 * GRAPH.nodes


@pytest.mark.parametrize("workers", [1, 3])
def test_the_graph_in_memory_has_edges_both_ways(nodes: dict[str, np.ndarray], pairs: np.ndarray, workers: int) -> None:
    data = GRAPH.data(workers=workers)
    assert data.edge_index.shape == (2, GRAPH.edges)
    np.testing.assert_array_equal(data.edge_index[:, : GRAPH.pairs], pairs)
    assert torch.equal(data.edge_index[:, GRAPH.pairs :], data.edge_index[:, : GRAPH.pairs].flip(0))
    np.testing.assert_array_equal(data.x, nodes["x"])
    np.testing.assert_array_equal(data.y, nodes["block"])
    assert [int(data[f"{name}_mask"].sum()) for name in ("train", "val", "calibration")] == [1_200, 600, 1_200]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"edges": 601}, "even number"),
        ({"edges": 600, "tiny": 0.5}, "tiny components"),
        ({"nodes": 10, "labelled": 1}, "too few"),
        ({"labelled": 60_000}, "only 48001 nodes are in known blocks"),
        ({"tail": 1}, "tail is 1"),
        ({"unknown_blocks": 0}, "unknown_share is 0.2"),
        ({"known_blocks": 1}, "known_blocks is 1"),
    ],
)
def test_settings_that_cannot_be_met_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(GRAPH, **settings)


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
