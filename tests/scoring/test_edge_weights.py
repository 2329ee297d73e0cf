"""What edge weights mean to every scorer, recomputed node by node in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oddnode import (
    GRASP,
    CentredCosine,
    ClassAgreement,
    Degree,
    Energy,
    LinkPrediction,
    NeighbourCosine,
    NeighbourhoodCosine,
    NeighbourhoodFeatures,
    Propagated,
    Scorer,
)
from oddnode.graph import Graph
from tests.scoring.random_graphs import labelled, outputs_on, random_graph


def score(scorer: Scorer, graph: Graph) -> torch.Tensor:
    outputs = outputs_on(graph)
    outputs.labelled = labelled(graph)[0]
    return scorer.fit(outputs, *labelled(graph)).score(outputs)


def dense_walk(graph: Graph) -> np.ndarray:
    """The share of every edge in the weight of all edges to its target ``[target, source]``."""
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    assert graph.edge_weight is not None
    np.add.at(matrix, (graph.edge_index[1].numpy(), graph.edge_index[0].numpy()), graph.edge_weight.numpy())
    return matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1e-300)


def test_model_free_scores_take_sums_and_means_by_weight() -> None:
    graph = random_graph(seed=2, weighted=True)
    x, around = graph.x.numpy(), dense_walk(graph) @ graph.x.numpy()
    strength = np.bincount(graph.edge_index[1], graph.edge_weight, graph.num_nodes)
    np.testing.assert_allclose(score(Degree(), graph).numpy(), strength)
    lengths = np.linalg.norm(x, axis=1) * np.maximum(np.linalg.norm(around, axis=1), 1e-300)
    cosines = (x * around).sum(axis=1) / lengths
    expected = np.where(strength > 0, cosines, cosines[strength > 0].mean())
    np.testing.assert_allclose(score(NeighbourCosine(), graph).numpy(), expected)


def test_propagated_scores_are_weighted_means_hop_by_hop_and_the_prior_follows_the_weights() -> None:
    graph = random_graph(seed=3, weighted=True)
    walk, scores = dense_walk(graph), outputs_on(graph).logits.logsumexp(dim=1).numpy()
    for _ in range(3):
        scores = np.where(walk.sum(axis=1) > 0, 0.4 * scores + 0.6 * walk @ scores, scores)
    np.testing.assert_allclose(score(Propagated(Energy(), num_hops=3, eta=0.4), graph).numpy(), scores)
    # One neighbour with nearly all of the weight is an average over one node, whatever the number of neighbours.
    star = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    lopsided, even = (Graph(torch.eye(5), star, torch.tensor(w)) for w in ([1e4, 1.0, 1.0, 1.0], [2.0] * 4))
    assert float(lopsided.support(1, 0.0)[0]) == pytest.approx(1.0, abs=0.01)
    assert float(even.support(1, 0.0)[0]) == pytest.approx(4.0, rel=0.3)


SCORERS = [
    GRASP(num_hops=3),
    CentredCosine(),
    NeighbourhoodCosine(),
    LinkPrediction(dimensions=4, rank=3, steps=5),
    NeighbourhoodFeatures(),
    ClassAgreement(),
    NeighbourCosine(),
    Propagated(Energy(), prior_nodes=3.0),
]


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda scorer: type(scorer).__name__)
@pytest.mark.parametrize("unit", [1e-6, 1e9])
def test_the_unit_of_the_weights_does_not_matter(scorer: Scorer, unit: float) -> None:
    graph = random_graph(seed=5, weighted=True)
    assert graph.edge_weight is not None
    torch.testing.assert_close(
        score(scorer, Graph(graph.x, graph.edge_index, unit * graph.edge_weight)), score(scorer, graph)
    )


@pytest.mark.parametrize("scorer", [*SCORERS, Degree()], ids=lambda scorer: type(scorer).__name__)
def test_weights_of_one_are_no_weights(scorer: Scorer) -> None:
    graph = random_graph(seed=6)
    ones = Graph(graph.x, graph.edge_index, torch.ones(graph.num_edges, dtype=torch.float64))
    torch.testing.assert_close(score(scorer, ones), score(scorer, graph), rtol=1e-12, atol=1e-12)
