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


def block_graph(
    num_nodes: int = 150, num_groups: int = 5, inside: float = 0.3, across: float = 0.01, weighted: bool = False
) -> tuple[Graph, Tensor]:
    """Groups that are joined mostly to themselves, without and with weights; and everybody's group."""
    rng = np.random.default_rng(0)
    y = np.arange(num_nodes) % num_groups
    pairs = np.stack(
        np.triu(rng.random((num_nodes,) * 2) < np.where(np.equal.outer(y, y), inside, across), 1).nonzero()
    )
    edges = torch.from_numpy(np.concatenate([pairs, pairs[::-1]], axis=1))
    weight = torch.from_numpy(np.tile(0.5 + rng.random(pairs.shape[1]), 2)) if weighted else None
    x = torch.from_numpy(rng.random((num_nodes, 3)))
    return Graph(x, edges, weight), torch.from_numpy(y)


def slowest_directions(graph: Graph, anchors: Tensor) -> np.ndarray:
    """The first 32 eigenvectors of the lazy walk between the anchors, rows of unit length."""
    weight = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight.numpy()
    matrix = np.zeros((graph.num_nodes,) * 2)
    np.add.at(matrix, (graph.edge_index[1].numpy(), graph.edge_index[0].numpy()), weight)
    matrix *= np.outer(anchors, anchors)
    root = np.sqrt(np.maximum(matrix.sum(axis=1), 1e-300))
    vectors = np.linalg.eigh(matrix / np.outer(root, root))[1][:, -32:] * anchors.numpy()[:, None]
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)


@pytest.mark.parametrize("weighted", [False, True])
def test_they_are_rows_of_a_basis_of_the_slowest_directions_of_a_lazy_walk(weighted: bool) -> None:
    """In a graph of 32 groups, whose other directions are forgotten soon."""
    graph, y = block_graph(320, 32, inside=1.0, across=0.002, weighted=weighted)
    anchors = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(1)) < 0.8
    found, expected = positions(graph, anchors), slowest_directions(graph, anchors)
    assert found is not None
    # A basis can be turned; what counts are the products of rows.
    close = found @ found.t()
    difference = np.abs(close.numpy() - expected @ expected.T)
    assert difference.mean() < 0.01
    assert difference.max() < 0.2
    same = y[anchors][:, None] == y[anchors]
    assert close[anchors][:, anchors][same].mean() > 0.9
    assert close[anchors][:, anchors][~same].mean().abs() < 0.1


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_order_of_nodes_does_not_matter(scale: float) -> None:
    graph, _ = block_graph()
    graph = Graph((scale * graph.x + scale).float(), graph.edge_index)
    anchors = torch.arange(graph.num_nodes) < 120
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    found = positions(graph, anchors)
    moved = positions(Graph(graph.x[order], place[graph.edge_index]), anchors[order])
    assert found is not None
    assert moved is not None
    torch.testing.assert_close((moved @ moved.t()), (found @ found.t())[order][:, order], atol=1e-4, rtol=0)


def test_other_nodes_take_no_part() -> None:
    graph, _ = block_graph()
    anchors = torch.arange(graph.num_nodes) < 100
    found = positions(graph, anchors)
    source, target = graph.edge_index
    inside = anchors[source] & anchors[target]
    others = graph.x.where(anchors.unsqueeze(1), torch.tensor(7.0, dtype=torch.float64))
    alone = positions(Graph(others, graph.edge_index[:, inside]), anchors)
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
    data = Data(x=graph.x, edge_index=graph.edge_index)
    folder = folder_from_data(data, tmp_path / "graph").as_graph()
    assert folder.is_on_disk
    here, there = positions(Graph(data.x, data.edge_index), anchors), positions(folder, anchors)
    assert here is not None
    assert there is not None
    torch.testing.assert_close(here @ here.t(), there @ there.t(), atol=1e-4, rtol=0)
