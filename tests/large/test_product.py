"""Products with the edges on disk, against dense formulas in double precision."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from oddnode.functional import Isolated, propagate
from oddnode.large import FolderGraph, GraphFolder, NeighbourSum, product
from tests.large.graphs import as_folder, dense_adjacency, graphs, random_graph


def dense_gcn(data: Data) -> Tensor:
    """``D^-1/2 (A + I) D^-1/2`` by its definition: every node has one edge to itself."""
    matrix = dense_adjacency(data)
    matrix.fill_diagonal_(1.0)
    scale = matrix.sum(dim=1).pow(-0.5)
    return scale.unsqueeze(1) * matrix * scale


def graph_of(folder: GraphFolder, edges_at_once: int) -> FolderGraph:
    graph = FolderGraph(folder)
    graph.__dict__["neighbours"] = NeighbourSum(folder.offsets, folder.sources, edges_at_once)
    return graph


@settings(max_examples=40, deadline=None)
@given(graphs(), st.integers(1, 50))
def test_graph_convolution_and_random_walk_are_those_of_dense_matrices(data: Data, edges_at_once: int) -> None:
    with tempfile.TemporaryDirectory() as path:
        graph = graph_of(as_folder(data, Path(path)), edges_at_once)
        torch.testing.assert_close(graph.smoothed_x, dense_gcn(data) @ data.x, atol=1e-12, rtol=1e-12)
        adjacency = dense_adjacency(data)
        walk = adjacency / adjacency.sum(dim=1, keepdim=True).clamp_min(1.0)
        torch.testing.assert_close(graph.random_walk @ data.x, walk @ data.x, atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(graph.random_walk.sums(data.x[:, 0]), adjacency @ data.x[:, 0])
        assert torch.equal(graph.in_degree, adjacency.sum(dim=1).long())


@pytest.mark.parametrize("isolated", ["keep", "shrink"])
@pytest.mark.parametrize("edges_at_once", [1, 7, 10_000])
@pytest.mark.parametrize("columns", [None, 3])
def test_propagation_is_that_of_the_graph_in_memory(
    tmp_path: Path, isolated: Isolated, edges_at_once: int, columns: int | None
) -> None:
    data = random_graph()
    graph = graph_of(as_folder(data, tmp_path), edges_at_once)
    shape = (data.num_nodes,) if columns is None else (data.num_nodes, columns)
    values = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    before = values.clone()
    expected = propagate(values, data.edge_index, 5, 0.1, isolated)
    found = propagate(values, graph.random_walk, 5, 0.1, isolated)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    assert torch.equal(values, before)


@pytest.mark.parametrize("columns", [1, 2, 20])
def test_single_precision_and_wide_positions_give_the_same_sums(tmp_path: Path, columns: int) -> None:
    data = random_graph(dtype=torch.float32)
    folder = as_folder(data, tmp_path)
    values = torch.randn(data.num_nodes, columns, generator=torch.Generator().manual_seed(1))
    values = values.squeeze(1) if columns == 1 else values
    expected = dense_adjacency(data) @ values.double()
    for sources in (folder.sources, folder.sources.long()):
        sums = NeighbourSum(folder.offsets, sources, 50)
        found = torch.cat([sums.of_block(block, values) for block in sums.blocks()])
        torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)


def test_columns_that_do_not_fit_are_convolved_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_graph()
    monkeypatch.setattr(product, "_COLUMNS_IN_MEMORY", 2 * 8 * data.num_nodes)
    graph = as_folder(data, tmp_path).as_graph()
    torch.testing.assert_close(graph.smoothed_x, dense_gcn(data) @ data.x, atol=1e-12, rtol=1e-12)
    expected = propagate(data.x, data.edge_index, num_hops=3)
    torch.testing.assert_close(propagate(graph.x, graph.random_walk, num_hops=3), expected, atol=1e-12, rtol=1e-12)


def test_rows_around_nodes_are_rows_of_the_convolution(tmp_path: Path) -> None:
    data = random_graph()
    graph = as_folder(data, tmp_path).as_graph()
    nodes = torch.tensor([3, 0, 17, 59])
    rows, index, values = graph.rows_around(nodes)
    found = torch.zeros(len(nodes), data.num_nodes, dtype=torch.float64)
    found.index_put_((index[0], rows[index[1]]), values, accumulate=True)
    torch.testing.assert_close(found, dense_gcn(data)[nodes], atol=1e-12, rtol=1e-12)


def test_support_is_that_of_the_graph_in_memory_and_is_kept(tmp_path: Path) -> None:
    from oddnode.graph import Graph

    data = random_graph()
    folder = as_folder(data, tmp_path)
    expected = Graph.from_data(data).support(6, 0.1)
    torch.testing.assert_close(folder.as_graph().support(6, 0.1), expected, atol=1e-9, rtol=1e-9)
    [kept] = tmp_path.glob("support*")
    time = kept.stat().st_mtime_ns
    torch.testing.assert_close(GraphFolder(tmp_path).as_graph().support(6, 0.1), expected, atol=1e-9, rtol=1e-9)
    assert kept.stat().st_mtime_ns == time
