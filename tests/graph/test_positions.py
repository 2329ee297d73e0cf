"""Positions, against dense matrices in double precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode.graph import Graph
from oddnode.graph.positions import positions
from oddnode.large import folder_from_data


def block_graph(num_nodes: int = 150, seed: int = 0, weighted: bool = False) -> tuple[Graph, Tensor]:
    """Five groups, joined mostly to themselves, without and with weights; and everybody's group."""
    rng = np.random.default_rng(seed)
    y = rng.integers(5, size=num_nodes)
    chance = np.where(np.equal.outer(y, y), 0.3, 0.01)
    pairs = np.stack(np.triu(rng.random(chance.shape) < chance, 1).nonzero())
    edges = torch.from_numpy(np.concatenate([pairs, pairs[::-1]], axis=1))
    weight = torch.from_numpy(np.tile(0.2 + rng.random(pairs.shape[1]), 2)) if weighted else None
    return Graph(torch.zeros(num_nodes, 1, dtype=torch.float64), edges, weight), torch.from_numpy(y)


def dense_positions(graph: Graph, anchors: Tensor) -> np.ndarray:
    """Twelve steps of the lazy walk between the anchors, without a step between them that changes the span."""
    count = graph.num_nodes
    weight = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight.numpy()
    matrix = np.zeros((count, count))
    np.add.at(matrix, (graph.edge_index[1].numpy(), graph.edge_index[0].numpy()), weight)
    own = anchors.numpy()
    matrix = matrix * np.outer(own, own)
    degree = matrix.sum(axis=1)
    linked = degree > 0
    root = np.where(linked, np.sqrt(np.where(linked, degree, 1.0)), np.inf)
    lazy = (np.eye(count) + matrix / np.outer(root, root)) / 2
    start = torch.randn(count, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64).numpy()
    basis = np.linalg.qr(np.linalg.matrix_power(lazy, 12) @ (start * linked[:, None]))[0]
    basis = basis * linked[:, None]
    return basis / np.maximum(np.linalg.norm(basis, axis=1, keepdims=True), 1e-300)


@pytest.mark.parametrize("weighted", [False, True])
def test_they_are_rows_of_a_basis_of_the_slowest_directions_of_a_lazy_walk(weighted: bool) -> None:
    graph, y = block_graph(weighted=weighted)
    anchors = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(1)) < 0.8
    found, expected = positions(graph, anchors), dense_positions(graph, anchors)
    assert found is not None
    # A basis can be turned; what counts are the products of rows.
    np.testing.assert_allclose(found.numpy() @ found.numpy().T, expected @ expected.T, atol=1e-6)
    close = (found @ found.t())[anchors][:, anchors]
    same = y[anchors][:, None] == y[anchors]
    assert close[same].mean() > close[~same].mean() + 0.1


def test_other_nodes_take_no_part() -> None:
    graph, _ = block_graph()
    anchors = torch.arange(graph.num_nodes) < 100
    found = positions(graph, anchors)
    source, target = graph.edge_index
    inside = anchors[source] & anchors[target]
    alone = positions(Graph(graph.x, graph.edge_index[:, inside]), anchors)
    assert found is not None
    assert alone is not None
    torch.testing.assert_close(found, alone)
    assert not found[~anchors].any()


def test_a_graph_without_edges_or_with_few_nodes_has_positions_too() -> None:
    none = torch.zeros(2, 0, dtype=torch.long)
    lonely = positions(Graph(torch.zeros(4, 1), none), torch.ones(4, dtype=torch.bool))
    assert lonely is not None
    assert lonely.eq(0).all()
    path = Graph(torch.zeros(5, 1), torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    found = positions(path, torch.ones(5, dtype=torch.bool))
    assert found is not None
    assert found.isfinite().all()
    torch.testing.assert_close(found.norm(dim=1), torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0]))


def test_a_graph_on_disk_has_the_same(tmp_path: Path) -> None:
    graph, _ = block_graph()
    anchors = torch.arange(graph.num_nodes) % 3 > 0
    data = Data(x=torch.rand(graph.num_nodes, 3), edge_index=graph.edge_index)
    folder = folder_from_data(data, tmp_path / "graph").as_graph()
    assert folder.is_on_disk
    here, there = positions(Graph(data.x, data.edge_index), anchors), positions(folder, anchors)
    assert here is not None
    assert there is not None
    torch.testing.assert_close(here @ here.t(), there @ there.t(), atol=1e-4, rtol=0)
