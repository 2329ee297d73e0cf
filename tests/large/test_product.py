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
from oddnode.graph import Graph
from oddnode.large import FolderGraph, GraphFolder, NeighbourSum, ranks
from tests.large.graphs import as_folder, dense_adjacency, graphs, random_graph


def dense_gcn(data: Data) -> Tensor:
    """``D^-1/2 (A + I) D^-1/2`` by its definition: every node has one edge to itself, of the mean weight or 1."""
    matrix = dense_adjacency(data)
    for node in range(data.num_nodes):
        loops = (data.edge_index == node).all(dim=0)
        weight = torch.ones(0) if data.edge_weight is None else data.edge_weight[loops]
        weight = weight[weight.float() > 0]
        matrix[node, node] = weight.double().mean() if len(weight) else 1.0
    scale = matrix.sum(dim=1).pow(-0.5)
    return scale.unsqueeze(1) * matrix * scale


def graph_of(folder: GraphFolder, edges_at_once: int) -> FolderGraph:
    graph = folder.as_graph()
    sums = NeighbourSum(folder.offsets, folder.sources, folder.edge_weight, edges_at_once)
    graph.neighbours = sums
    return graph


@settings(max_examples=60, deadline=None)
@given(graphs() | graphs(weighted=True), st.integers(1, 50))
def test_graph_convolution_and_random_walk_are_those_of_dense_matrices(data: Data, edges_at_once: int) -> None:
    with tempfile.TemporaryDirectory() as path:
        graph = graph_of(as_folder(data, Path(path)), edges_at_once)
        adjacency = dense_adjacency(data)
        adjacency[adjacency.float() == 0] = 0.0
        degree = adjacency.sum(dim=1)
        torch.testing.assert_close(graph.in_degree.double(), degree, atol=1e-12, rtol=1e-12)
        scale = 1.0 + float(degree.max()) ** 0.5  # of the entries of the convolution before they are divided
        torch.testing.assert_close(graph.smoothed_x, dense_gcn(data) @ data.x, atol=1e-12 * scale, rtol=1e-12)
        walk = adjacency / degree.where(degree > 0, 1.0).unsqueeze(1)
        torch.testing.assert_close(graph.random_walk @ data.x, walk @ data.x, atol=1e-12, rtol=1e-12)
        sums = graph.neighbour_sums(data.x[:, 0])
        torch.testing.assert_close(sums, adjacency @ data.x[:, 0], atol=1e-12 * scale**2, rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(graphs(weighted=True), st.integers(1, 50))
def test_effective_degrees_and_the_mean_weight_are_those_of_the_graph_in_memory(data: Data, edges_at_once: int) -> None:
    expected = Graph.from_data(data)
    with tempfile.TemporaryDirectory() as path:
        graph = graph_of(as_folder(data, Path(path)), edges_at_once)
        torch.testing.assert_close(graph.effective_degree.double(), expected.effective_degree)
        assert graph.mean_edge_weight == pytest.approx(expected.mean_edge_weight)
        parts = [part for _, _, part in graph.edge_blocks() if part is not None]
        assert sorted(torch.cat([torch.empty(0), *parts]).tolist()) == sorted(expected.edge_weight.tolist())  # type: ignore[union-attr]


@pytest.mark.parametrize("unit", [1e-44, 1e-38, 1e35])
def test_very_small_and_very_large_weights_lose_no_neighbour(tmp_path: Path, unit: float) -> None:
    data = random_graph(dtype=torch.float32)
    data.edge_weight = torch.where(torch.arange(data.num_edges) % 3 == 0, 3.0 * unit, unit)
    graph, expected = as_folder(data, tmp_path).as_graph(), Graph.from_data(data)
    torch.testing.assert_close(graph.random_walk @ data.x, expected.random_walk @ data.x, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(graph.smoothed_x, expected.smoothed_x, atol=1e-6, rtol=1e-5)
    nodes = torch.arange(20)
    rows, index, values = graph.rows_around(nodes)
    found = torch.zeros(20, data.num_nodes).index_put_((index[0], rows[index[1]]), values, accumulate=True)
    torch.testing.assert_close(found @ data.x, expected.smoothed_x[:20], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("isolated", ["keep", "shrink"])
@pytest.mark.parametrize("edges_at_once", [1, 7, 10_000])
@pytest.mark.parametrize("columns", [None, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_propagation_is_that_of_the_graph_in_memory(
    tmp_path: Path, isolated: Isolated, edges_at_once: int, columns: int | None, weighted: bool
) -> None:
    data = random_graph(weighted=weighted)
    graph = graph_of(as_folder(data, tmp_path), edges_at_once)
    shape = (data.num_nodes,) if columns is None else (data.num_nodes, columns)
    values = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    before = values.clone()
    expected = propagate(values, data.edge_index, 5, 0.1, isolated, data.edge_weight)
    found = propagate(values, graph.random_walk, 5, 0.1, isolated)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    assert torch.equal(values, before)


@pytest.mark.parametrize("weighted", [False, True])
def test_columns_that_do_not_fit_are_convolved_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weighted: bool
) -> None:
    data = random_graph(weighted=weighted)
    monkeypatch.setattr(ranks, "memory_share", lambda: 2 * 8 * data.num_nodes)
    graph = as_folder(data, tmp_path).as_graph()
    torch.testing.assert_close(graph.smoothed_x, dense_gcn(data) @ data.x, atol=1e-12, rtol=1e-12)
    expected = propagate(data.x, data.edge_index, num_hops=3, edge_weight=data.edge_weight)
    torch.testing.assert_close(propagate(graph.x, graph.random_walk, num_hops=3), expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", [1, 2, 4, 20])
@pytest.mark.parametrize(
    ("num_hops", "eta", "in_place"), [(0, 0.5, True), (1, 0.0, False), (1, 0.5, True), (3, 0.3, True)]
)
@pytest.mark.parametrize("memory", [2**30, 700])  # all columns at a time, or one
def test_numbers_from_averages_are_those_of_dense_matrices(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    weighted: bool,
    width: int,
    num_hops: int,
    eta: float,
    in_place: bool,
    memory: int,
) -> None:
    data = random_graph(weighted=weighted)
    values = torch.randn(data.num_nodes, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    adjacency = dense_adjacency(data)
    degree = adjacency.sum(dim=1)
    own = torch.eye(data.num_nodes, dtype=torch.float64)
    adjacency[degree == 0] = own[degree == 0]
    step = eta * own + (1 - eta) * adjacency / adjacency.sum(dim=1, keepdim=True)
    averages = torch.linalg.matrix_power(step, num_hops) @ values
    graph, before = graph_of(as_folder(data, tmp_path / "graph"), edges_at_once=17), values.clone()
    monkeypatch.setattr(ranks, "memory_share", lambda: memory)
    for source in (graph, Graph.from_data(data)):
        walk = source.random_walk.with_self_loops_where_empty
        sums, given = source.empty(None), values.clone() if in_place else values
        for rows, near in source.neighbour_means(given, sums, walk, num_hops, eta, in_place):
            sums[rows] = (near * before[rows]).sum(dim=1)
        torch.testing.assert_close(sums, (averages * before).sum(dim=1), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(values, before, atol=0, rtol=0)


@pytest.mark.parametrize("weighted", [False, True])
def test_numbers_from_averages_do_not_depend_on_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weighted: bool
) -> None:
    data = random_graph(num_nodes=500, num_edges=4000, dtype=torch.float32, weighted=weighted)
    values = torch.randn(500, 33, generator=torch.Generator().manual_seed(1))
    folder, found = as_folder(data, tmp_path / "graph"), []
    for memory in (2**30, 500 * 4 * 20, 500 * 4 * 7):
        monkeypatch.setattr(ranks, "memory_share", lambda memory=memory: memory)
        graph = graph_of(folder, edges_at_once=170)
        walk = graph.random_walk.with_self_loops_where_empty
        found.append(graph.empty(33))
        for rows, near in graph.neighbour_means(values, found[-1], walk, num_hops=2, eta=0.3):
            found[-1][rows] = near
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], atol=0, rtol=0)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_around_nodes_are_rows_of_the_convolution(tmp_path: Path, weighted: bool) -> None:
    data = random_graph(weighted=weighted)
    graph = as_folder(data, tmp_path).as_graph()
    nodes = torch.tensor([3, 0, 17, 59])
    rows, index, values = graph.rows_around(nodes)
    found = torch.zeros(len(nodes), data.num_nodes, dtype=torch.float64)
    found.index_put_((index[0], rows[index[1]]), values, accumulate=True)
    torch.testing.assert_close(found, dense_gcn(data)[nodes], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_support_is_that_of_the_graph_in_memory_and_is_kept(tmp_path: Path, weighted: bool) -> None:
    data = random_graph(weighted=weighted)
    folder = as_folder(data, tmp_path)
    expected = Graph.from_data(data).support(6, 0.1)
    torch.testing.assert_close(folder.as_graph().support(6, 0.1), expected, atol=1e-9, rtol=1e-9)
    [kept] = tmp_path.glob("support*")
    time = kept.stat().st_mtime_ns
    torch.testing.assert_close(GraphFolder(tmp_path).as_graph().support(6, 0.1), expected, atol=1e-9, rtol=1e-9)
    assert kept.stat().st_mtime_ns == time
