"""Matrices of weighted edges against dense formulas in double precision, PyG's gcn_norm, and repeated edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from oddnode.functional import propagate, support
from oddnode.ops import (
    SparseMatrix,
    check_edge_weight,
    effective_degree,
    gcn_matrix,
    neighbour_mean_matrix,
    weighted_in_degree,
)

_NODES = 9
_WEIGHTS, _POSITIVE = st.floats(0, 1e3, width=32), st.floats(2**-10, 1e3, width=32)
_EMPTY = torch.zeros(2, 0, dtype=torch.long)


@st.composite
def weighted_edges(draw: st.DrawFn, weights: st.SearchStrategy = _WEIGHTS) -> tuple[Tensor, Tensor]:
    """Edges with repeats and self-loops, and their weights; the last node has no edge."""
    node = st.integers(0, _NODES - 2)
    drawn = draw(st.lists(st.tuples(node, node, weights), max_size=30))
    pairs = torch.tensor([(source, target) for source, target, _ in drawn], dtype=torch.long).reshape(-1, 2)
    return pairs.t().contiguous(), torch.tensor([float(weight) for *_, weight in drawn], dtype=torch.float64)


def dense_adjacency(edge_index: Tensor, edge_weight: Tensor) -> np.ndarray:
    adjacency = np.zeros((_NODES, _NODES))
    for (source, target), weight in zip(edge_index.t().tolist(), edge_weight.tolist(), strict=True):
        adjacency[target, source] += weight
    return adjacency


def repeated(edge_index: Tensor, times: Tensor) -> Tensor:
    return edge_index.repeat_interleave(times.long(), dim=1)


def gcn(edge_index: Tensor, edge_weight: Tensor | None, dtype: torch.dtype = torch.float64) -> SparseMatrix:
    return gcn_matrix(neighbour_mean_matrix(edge_index, _NODES, dtype, edge_weight), edge_index, edge_weight)


@given(weighted_edges())
def test_the_random_walk_is_each_row_of_weights_divided_by_its_sum(edges: tuple[Tensor, Tensor]) -> None:
    adjacency = dense_adjacency(*edges)
    total = adjacency.sum(axis=1, keepdims=True)
    expected = np.divide(adjacency, total, out=np.zeros_like(adjacency), where=total > 0)
    walk = neighbour_mean_matrix(edges[0], _NODES, torch.float64, edges[1])
    np.testing.assert_allclose(walk.to_dense().numpy(), expected, atol=1e-12)
    assert ((walk.row_counts() == 0).numpy() == (total[:, 0] == 0)).all()


@given(weighted_edges())
def test_propagation_by_edges_and_weights_is_the_dense_power(edges: tuple[Tensor, Tensor]) -> None:
    scores = torch.linspace(-1.0, 2.0, _NODES, dtype=torch.float64)
    adjacency = dense_adjacency(*edges)
    total = adjacency.sum(axis=1, keepdims=True)
    step = np.where(total > 0, 0.3 * np.eye(_NODES) + 0.7 * adjacency / np.where(total > 0, total, 1.0), np.eye(_NODES))
    found = propagate(scores, edges[0], num_hops=3, eta=0.3, edge_weight=edges[1])
    np.testing.assert_allclose(found.numpy(), np.linalg.matrix_power(step, 3) @ scores.numpy(), atol=1e-12)


@given(weighted_edges(_POSITIVE))
def test_gcn_is_the_normalisation_of_pyg(edges: tuple[Tensor, Tensor]) -> None:
    """Of repeated self-loops with different weights PyG takes any one, so that here they are given once."""
    loops = edges[0][0] == edges[0][1]
    first = torch.tensor([n not in edges[0][0, loops][:i].tolist() for i, n in enumerate(edges[0][0, loops].tolist())])
    keep = ~loops
    keep[loops] = first.bool()
    edge_index, weight = edges[0][:, keep], edges[1][keep]
    normed_index, normed = gcn_norm(edge_index, weight, _NODES)
    np.testing.assert_allclose(
        gcn(edge_index, weight).to_dense().numpy(), dense_adjacency(normed_index, normed), rtol=1e-9
    )


def test_repeated_self_loops_count_as_one_of_their_mean_weight() -> None:
    edges = torch.tensor([[0, 0, 1], [0, 0, 0]])
    found = gcn(edges, torch.tensor([1.0, 5.0, 1.0], dtype=torch.float64)).to_dense()[:2, :2]
    # Node 0 has the degree 3 + 1, node 1 its added self-loop alone.
    torch.testing.assert_close(found, torch.tensor([[3 / 4, 1 / 2], [0.0, 1.0]], dtype=torch.float64))


@given(weighted_edges(st.integers(0, 3)))
def test_a_whole_weight_counts_as_so_many_edges(edges: tuple[Tensor, Tensor]) -> None:
    edge_index, weight = edges
    many = repeated(edge_index, weight)
    walk, expected = (
        neighbour_mean_matrix(edge_index, _NODES, torch.float64, weight),
        neighbour_mean_matrix(many, _NODES, torch.float64),
    )
    torch.testing.assert_close(walk.to_dense(), expected.to_dense())
    torch.testing.assert_close(support(walk, 2, 0.5), support(expected, 2, 0.5))
    assert weighted_in_degree(edge_index, _NODES, weight).tolist() == torch.bincount(many[1], minlength=_NODES).tolist()
    between = (edge_index[0] != edge_index[1]) & (weight > 0)
    edge_index, weight = edge_index[:, between], weight[between]
    torch.testing.assert_close(gcn(edge_index, weight).to_dense(), gcn(repeated(edge_index, weight), None).to_dense())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(weighted_edges())
def test_weights_of_one_change_no_bit(dtype: torch.dtype, edges: tuple[Tensor, Tensor]) -> None:
    ones = torch.ones(edges[0].shape[1], dtype=dtype)
    for weighted, plain in (
        (neighbour_mean_matrix(edges[0], _NODES, dtype, ones), neighbour_mean_matrix(edges[0], _NODES, dtype)),
        (gcn(edges[0], ones, dtype), gcn(edges[0], None, dtype)),
    ):
        for found, expected in zip(weighted.coordinates(), plain.coordinates(), strict=True):
            assert torch.equal(found, expected)


@given(weighted_edges(_POSITIVE), st.sampled_from([1e-20, 1e-3, 7.0, 1e30]))
def test_the_effective_number_of_edges_is_kishs_whatever_the_unit(edges: tuple[Tensor, Tensor], unit: float) -> None:
    edge_index, weight = edges
    found = effective_degree(edge_index, _NODES, weight * unit)
    for node in range(_NODES):
        own = weight[edge_index[1] == node].numpy()
        expected = own.sum() ** 2 / (own**2).sum() if len(own) else 0.0
        assert float(found[node]) == pytest.approx(expected, rel=1e-9)
        assert float(found[node]) <= len(own) + 1e-9


def test_equal_weights_are_worth_the_number_of_edges_exactly() -> None:
    edges = torch.tensor([[0, 1, 2, 3, 4], [1, 0, 0, 0, 0]])
    assert effective_degree(edges, 3, torch.full((5,), 0.1)).tolist() == [4.0, 1.0, 0.0]
    assert effective_degree(_EMPTY, 2, torch.zeros(0)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.tensor([1.0, -0.5]), "1 values that are negative.*-0.5 at edge 1"),
        (torch.tensor([float("nan"), 1.0]), "nan at edge 0"),
        (torch.tensor([1.0, float("inf")]), "inf at edge 1"),
        (torch.ones(3), r"torch.float32 of shape \[3\], expected one real number for each of the 2 edges"),
        (torch.ones(2, 1), r"shape \[2, 1\]"),
        (torch.ones(2, dtype=torch.complex64), "torch.complex64"),
    ],
)
def test_weights_that_are_none_are_refused(weight: Tensor, message: str) -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    for use in (
        lambda: check_edge_weight(weight, 2),
        lambda: neighbour_mean_matrix(edges, 2, edge_weight=weight),
        lambda: propagate(torch.ones(2), edges, edge_weight=weight),
    ):
        with pytest.raises(ValueError, match=f"edge_weight (is|has) .*{message}"):
            use()


def test_a_matrix_has_its_own_weights() -> None:
    walk = neighbour_mean_matrix(torch.tensor([[0, 1], [1, 0]]), 2)
    with pytest.raises(ValueError, match="given with a matrix"):
        propagate(torch.ones(2), walk, edge_weight=torch.ones(2))
