"""The feature space against numpy's singular value decomposition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oddnode.graph import Graph
from oddnode.scoring.feature_space import FeatureSpace

NO_EDGES = torch.zeros(2, 0, dtype=torch.long)


def unit_rows(x: np.ndarray, mean: np.ndarray) -> np.ndarray:
    centred = x - mean
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    return centred / np.where(lengths > 1e-6, lengths, 1.0)


def bags_of_words(num_nodes: int = 200, num_words: int = 60, seed: int = 0) -> np.ndarray:
    """Rows from three topics with a plain spectrum, few of them non-zero."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(3, size=num_nodes)
    shares = np.full((3, num_words), 0.02)
    for topic in range(3):
        shares[topic, 20 * topic : 20 * topic + 20] = 0.25
    return (rng.random((num_nodes, num_words)) < shares[topics]).astype(float)


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_the_first_directions_are_those_of_the_decomposition(sparse: bool) -> None:
    x = bags_of_words() if sparse else bags_of_words() + 0.01
    graph = Graph(torch.from_numpy(x), NO_EDGES)
    assert (graph.sparse_x is not None) == sparse
    space = FeatureSpace.of(graph, 2)
    rows = unit_rows(x, x.mean(axis=0))
    _, singular, vectors = np.linalg.svd(rows, full_matrices=False)
    np.testing.assert_allclose(space.mean.numpy(), x.mean(axis=0))
    np.testing.assert_allclose(space.basis.numpy().T @ space.basis.numpy(), np.eye(2), atol=1e-10)
    # The two directions are determined up to their signs, because the third singular value is much smaller.
    assert singular[2] < 0.7 * singular[1]
    overlap = np.abs(np.diag(vectors[:2] @ space.basis.numpy()))
    np.testing.assert_allclose(overlap, 1.0, atol=1e-4)
    np.testing.assert_allclose(space.coordinates(graph).numpy(), rows @ space.basis.numpy(), atol=1e-10)


@pytest.mark.parametrize(("num_nodes", "num_features", "dimensions"), [(30, 5, 5), (30, 5, 128), (4, 40, 128)])
def test_with_as_many_dimensions_as_features_nothing_is_lost(
    num_nodes: int, num_features: int, dimensions: int
) -> None:
    x = np.random.default_rng(1).normal(size=(num_nodes, num_features))
    space = FeatureSpace.of(Graph(torch.from_numpy(x), NO_EDGES), dimensions)
    new = np.random.default_rng(2).normal(size=(9, num_features))
    found = space.coordinates(Graph(torch.from_numpy(new), NO_EDGES)).numpy()
    assert found.shape == (9, num_features)
    rows = unit_rows(new, x.mean(axis=0))
    np.testing.assert_allclose(found @ found.T, rows @ rows.T, atol=1e-8)
    np.testing.assert_allclose(found @ space.basis.numpy().T, rows, atol=1e-8)


@pytest.mark.parametrize("value", [0.0, 0.7])
def test_rows_that_are_all_equal_are_at_the_origin(value: float) -> None:
    graph = Graph(torch.full((6, 3), value), NO_EDGES)
    found = FeatureSpace.of(graph, 3).coordinates(graph)
    assert bool(found.isfinite().all())
    assert float(found.abs().max()) < 1e-5


def test_it_is_computed_once_for_a_graph_and_leaves_the_callers_random_numbers_alone() -> None:
    graph = Graph(torch.from_numpy(bags_of_words()), NO_EDGES)
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    space = FeatureSpace.of(graph, 4)
    assert torch.equal(torch.rand(4), expected)
    assert FeatureSpace.of(graph, 4).basis is space.basis
    again = FeatureSpace.of(Graph(graph.x.clone(), NO_EDGES), 4)
    assert torch.equal(again.basis, space.basis)


def test_single_precision_is_near_double_precision() -> None:
    x = bags_of_words()
    double = FeatureSpace.of(Graph(torch.from_numpy(x), NO_EDGES), 60)
    single = FeatureSpace.of(Graph(torch.from_numpy(x).float(), NO_EDGES), 60)
    assert single.basis.dtype == torch.float32
    rows = unit_rows(x, x.mean(axis=0))
    for space, tolerance in ((double, 1e-10), (single, 1e-4)):
        graph = Graph(torch.from_numpy(x).to(space.basis.dtype), NO_EDGES)
        found = space.coordinates(graph).numpy()
        np.testing.assert_allclose(found @ found.T, rows @ rows.T, atol=tolerance)
