"""The recommended method on graphs on disk, and the parts of graphs that it learns from."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from oddnode import Detector
from oddnode.graph import Graph, one_way_share
from oddnode.large import FolderGraph, buffers, ranks
from oddnode.large import graph as large_graph
from oddnode.scoring import links
from tests.large.graphs import as_folder, graphs, random_graph


@pytest.fixture
def tiny_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven rows, two columns and 64 edges at a time, and every result in a file."""
    real = large_graph.row_chunks
    monkeypatch.setattr(large_graph, "row_chunks", lambda rows, size, *limit: real(rows, size, 7 * size))
    monkeypatch.setattr(large_graph, "_EDGES_AT_ONCE", 64)
    monkeypatch.setattr(ranks, "memory_share", lambda: 2 * 8 * 150)
    monkeypatch.setattr(buffers, "_LARGEST_IN_MEMORY", 0)

    def few_columns(graph: Graph) -> list[slice]:
        width = graph.x.shape[1]
        return [slice(first, min(first + 3, width)) for first in range(0, width, 3)]

    monkeypatch.setattr(links, "_column_groups", few_columns)


def undirected(num_nodes: int) -> Data:
    """A graph whose first nodes and edges do not depend on the number of nodes."""
    data = random_graph(num_nodes=200, num_edges=900)
    nodes = torch.arange(num_nodes)
    data.edge_index = to_undirected(data.edge_index)
    data.edge_index = data.edge_index[:, (data.edge_index < num_nodes).all(dim=0)]
    for name in ("x", "y", "train_mask", "val_mask", "calibration_mask"):
        data[name] = data[name][nodes]
    return data


def weighted(data: Data) -> Data:
    """Weights that are the same in both directions; some edges are repeated with another weight."""
    data.edge_index = torch.cat([data.edge_index, data.edge_index[:, data.edge_index.sum(dim=0) % 7 == 0]], dim=1)
    first = torch.arange(data.num_edges) < data.num_edges - int((data.edge_index.sum(dim=0) % 7 == 0).sum()) // 2
    data.edge_weight = (data.edge_index.sum(dim=0) % 5 + 1).double() * torch.where(first, 1.0, 0.5)
    return data


@pytest.mark.usefixtures("tiny_parts")
@pytest.mark.parametrize("with_weights", [False, True])
def test_tiny_parts_give_the_scores_and_sentences_of_the_graph_in_memory(tmp_path: Path, with_weights: bool) -> None:
    data, grown = undirected(150), undirected(180)
    if with_weights:
        data, grown = weighted(data), weighted(grown)
    assert Graph.from_data(data).is_symmetric
    on_disk = [as_folder(each, tmp_path / str(each.num_nodes)) for each in (data, grown)]
    memory, disk = (
        Detector.from_recipe("nodesafe-evidence", epochs=4, device="cpu", seed=1).fit(each)
        for each in (data, on_disk[0])
    )
    for graph, folder in zip((data, grown), on_disk, strict=True):
        torch.testing.assert_close(disk.score_samples(folder), memory.score_samples(graph), atol=1e-5, rtol=1e-5)
        nodes = memory.score_samples(graph).argsort()[:20]
        assert disk.reasons(folder, nodes) == memory.reasons(graph, nodes)
        found, expected = disk.explain(folder), memory.explain(graph)
        torch.testing.assert_close(found.evidence, expected.evidence, atol=1e-5, rtol=1e-5)
        assert torch.equal(found.nearest_class, expected.nearest_class)


def test_what_fit_has_computed_for_all_nodes_is_forgotten_and_computed_again(tmp_path: Path) -> None:
    folder = as_folder(undirected(150), tmp_path / "graph")
    detector = Detector.from_recipe("nodesafe-evidence", epochs=5, device="cpu").fit(folder)
    training = detector.state_.training
    assert training is not None
    for outputs in (training.outputs, *(part.outputs for part in training.parts)):
        assert not outputs._cache
        assert not {"all_logits", "hidden", "members"} & set(outputs.__dict__)
    for part in training.parts:
        graph = part.outputs.graph
        assert isinstance(graph, FolderGraph)
        assert graph.folder.kind == "part"
        assert "smoothed_x" not in vars(graph)
        assert not graph.folder._sidecars
    again = detector.with_scorer(detector.state_.base_scorer)
    torch.testing.assert_close(again.score_samples(folder), detector.score_samples(folder), atol=1e-12, rtol=0)


def test_a_saved_model_scores_a_folder_with_its_evidence(tmp_path: Path) -> None:
    folder = as_folder(undirected(150), tmp_path / "graph")
    detector = Detector.from_recipe("nodesafe-evidence", epochs=5, device="cpu").fit(folder)
    detector.save(tmp_path / "model")
    assert torch.equal(Detector.load(tmp_path / "model").score_samples(folder), detector.score_samples(folder))


@settings(max_examples=60, deadline=None)
@given(data=graphs(), draw=st.data())
def test_a_part_on_disk_is_that_in_memory(data: Data, draw: st.DataObject) -> None:
    removed = draw.draw(st.lists(st.integers(0, data.num_nodes - 1), unique=True, max_size=data.num_nodes - 1))
    nodes = torch.tensor(removed, dtype=torch.long)
    memory = Graph.from_data(data)
    expected, place = memory.without(nodes)
    with tempfile.TemporaryDirectory() as folder:
        whole = as_folder(data, Path(folder) / "graph").as_graph()
        part, moved = whole.without(nodes)
        assert torch.equal(moved, place)
        assert torch.equal(part.x, expected.x)
        every = torch.arange(expected.num_edges)
        assert torch.equal(part.edges_at(every), expected.edges_at(every))
        ends = torch.arange(0, expected.num_nodes, 2)
        assert torch.equal(part.edges_to(ends), expected.edges_to(ends))
        assert part.is_symmetric == expected.is_symmetric
        torch.testing.assert_close(part.smoothed_x, expected.smoothed_x, atol=1e-12, rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(data=graphs(), seed=st.integers(0, 5))
def test_edges_are_found_on_disk(data: Data, seed: int) -> None:
    pairs = torch.randint(data.num_nodes, (2, 20), generator=torch.Generator().manual_seed(seed))
    asked = torch.cat([pairs, data.edge_index], dim=1)
    there = {tuple(edge) for edge in data.edge_index.t().tolist()}
    with tempfile.TemporaryDirectory() as folder:
        on_disk = as_folder(data, Path(folder) / "graph").as_graph()
        expected = [tuple(edge) in there for edge in asked.t().tolist()]
        assert on_disk.contains(asked).tolist() == Graph.from_data(data).contains(asked).tolist() == expected
        joins = {edge for edge in there if edge[0] != edge[1]}
        one_way = sum(edge[::-1] not in there for edge in joins) / max(len(joins), 1)
        assert one_way_share(on_disk) == pytest.approx(one_way)
        assert one_way_share(Graph.from_data(data)) == pytest.approx(one_way)
