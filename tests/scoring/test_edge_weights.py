"""What edge weights mean to every scorer, recomputed node by node in double precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

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
from oddnode.graph import Graph, profile_graph
from oddnode.scoring import Outputs
from tests.scoring.random_graphs import labelled, random_graph

_CLASSES = 3


class _Features(nn.Module):
    """A network whose logits are a node's first features; it takes weights and has no use for them."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return x[:, :_CLASSES]


def weighted_graph(seed: int, unit: float = 1.0) -> Graph:
    graph = random_graph(seed=seed)
    weight = torch.rand(graph.edge_index.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Graph(graph.x, graph.edge_index, unit * (0.05 + weight))


def outputs_on(graph: Graph) -> Outputs:
    return Outputs(_Features(), graph, _CLASSES, labelled=labelled(graph)[0])


def fitted(scorer: Scorer, graph: Graph) -> Scorer:
    return scorer.fit(outputs_on(graph), *labelled(graph))


def edges_of(graph: Graph, node: int) -> tuple[list[int], np.ndarray]:
    """The sources of a node's incoming edges, and their weights."""
    at_node = graph.edge_index[1] == node
    assert graph.edge_weight is not None
    return graph.edge_index[0, at_node].tolist(), graph.edge_weight[at_node].numpy()


def weighted_mean(graph: Graph, rows: np.ndarray, node: int) -> np.ndarray:
    sources, weight = edges_of(graph, node)
    return (weight[:, None] * rows[sources]).sum(axis=0) / weight.sum()


def shrunk(graph: Graph, edge_score: Callable[[int, int], float]) -> np.ndarray:
    """Weighted means over the edges of every node, with one more edge of the mean over all of them."""
    means, worths = np.zeros((2, graph.num_nodes))
    for node in range(graph.num_nodes):
        sources, weight = edges_of(graph, node)
        if sources:
            means[node] = (weight * [edge_score(source, node) for source in sources]).sum() / weight.sum()
            worths[node] = weight.sum() ** 2 / (weight**2).sum()
    mean = (means * worths).sum() / worths.sum()
    return (means * worths + mean) / (worths + 1)


def effective(graph: Graph) -> np.ndarray:
    """How many equal edges the edges of every node are worth."""
    weights = (edges_of(graph, node)[1] for node in range(graph.num_nodes))
    return np.array([weight.sum() ** 2 / (weight**2).sum() if len(weight) else 0.0 for weight in weights])


def test_centred_cosine_is_a_weighted_mean_shrunk_by_the_effective_number_of_edges() -> None:
    graph = weighted_graph(1)
    x = graph.x.numpy() - graph.x.numpy().mean(axis=0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    expected = shrunk(graph, lambda source, target: float(x[source] @ x[target]))
    np.testing.assert_allclose(fitted(CentredCosine(), graph).score(outputs_on(graph)).numpy(), expected)


def test_link_prediction_is_a_weighted_sum_by_the_root_of_the_effective_number_of_edges() -> None:
    graph = weighted_graph(1)
    scorer = fitted(LinkPrediction(dimensions=4, rank=3, steps=20), graph)
    assert isinstance(scorer, LinkPrediction)
    odds = dict(zip(map(tuple, graph.edge_index.t().tolist()), scorer.edge_scores(outputs_on(graph)), strict=True))
    expected = shrunk(graph, lambda source, target: float(odds[source, target])) * np.sqrt(effective(graph) + 1)
    np.testing.assert_allclose(scorer.score(outputs_on(graph)).numpy(), expected)
    plain = fitted(LinkPrediction(dimensions=4, rank=3, steps=20), Graph(graph.x, graph.edge_index))
    assert isinstance(plain, LinkPrediction)
    assert torch.equal(plain.left_, scorer.left_)  # the predictor learns from which edges there are


def test_class_agreement_is_a_weighted_mean_shrunk_by_the_effective_number_of_edges() -> None:
    graph = weighted_graph(1)
    p = graph.x[:, :_CLASSES].softmax(dim=1).numpy()
    expected = shrunk(graph, lambda source, target: float(p[source] @ p[target]))
    np.testing.assert_allclose(fitted(ClassAgreement(), graph).score(outputs_on(graph)).numpy(), expected)


def test_model_free_scores_take_sums_and_means_by_weight() -> None:
    graph, x = weighted_graph(2), weighted_graph(2).x.numpy()
    strength = [edges_of(graph, node)[1].sum() for node in range(graph.num_nodes)]
    np.testing.assert_allclose(Degree().score(outputs_on(graph)).numpy(), strength)
    cosines = {}
    for node in range(graph.num_nodes):
        if edges_of(graph, node)[0]:
            around = weighted_mean(graph, x, node)
            cosines[node] = float(x[node] @ around / (np.linalg.norm(x[node]) * np.linalg.norm(around)))
    alone = float(np.mean(list(cosines.values())))
    expected = [cosines.get(node, alone) for node in range(graph.num_nodes)]
    np.testing.assert_allclose(NeighbourCosine().score(outputs_on(graph)).numpy(), expected)


def test_propagated_scores_are_weighted_means_hop_by_hop_and_the_prior_follows_the_weights() -> None:
    graph = weighted_graph(3)
    scores = graph.x[:, :_CLASSES].logsumexp(dim=1).numpy()
    for _ in range(3):
        new = scores.copy()
        for node in range(graph.num_nodes):
            if edges_of(graph, node)[0]:
                new[node] = 0.4 * scores[node] + 0.6 * weighted_mean(graph, scores[:, None], node)[0]
        scores = new
    found = Propagated(Energy(), num_hops=3, eta=0.4).score(outputs_on(graph)).numpy()
    np.testing.assert_allclose(found, scores)
    # One neighbour with nearly all of the weight is an average over one node, whatever the number of neighbours.
    star = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    lopsided, even = (Graph(torch.eye(5), star, torch.tensor(w)) for w in ([1e4, 1.0, 1.0, 1.0], [2.0] * 4))
    assert float(lopsided.support(1, 0.0)[0]) == pytest.approx(1.0, abs=0.01)
    assert float(even.support(1, 0.0)[0]) == pytest.approx(4.0, rel=0.3)


def test_grasp_counts_weights_in_units_of_their_mean() -> None:
    graph = weighted_graph(4)
    assert graph.edge_weight is not None
    unit = float(graph.edge_weight.mean())
    anchors, base = set(range(12)), graph.x[:, :_CLASSES].softmax(dim=1).amax(dim=1).tolist()
    others = sorted(set(range(graph.num_nodes)) - anchors, key=lambda v: base[v])
    size = round(0.2 * len(others))
    near = [[(u, w / unit) for u, w in zip(*edges_of(graph, v), strict=True)] for v in range(graph.num_nodes)]

    def inside(v: int, chosen: list[int]) -> float:
        return sum(w for u, w in near[v] if u in chosen)

    trust = {i: inside(i, others[-size:]) / (inside(i, others[:size]) + 1) for i in anchors}
    group = sorted(anchors, key=lambda i: (-trust[i], i))[:6]
    scores = [max(s, 1.0) if v in anchors else s for v, s in enumerate(base)]
    for _ in range(3):
        extra = 1.001 * sum(scores[u] for u in group)
        new = []
        for v in range(graph.num_nodes):
            degree = sum(w for _, w in near[v]) + (6 if v in group else 0)
            total = sum(w * scores[u] for u, w in near[v]) + (extra if v in group else 0.0)
            new.append(total / degree if degree else scores[v])
        scores = [max(s, 1.0) if v in anchors else s for v, s in enumerate(new)]
    found = GRASP(num_hops=3, share=0.2).score(outputs_on(graph))
    np.testing.assert_allclose(found.numpy(), scores, rtol=1e-6)  # the extra weight is a number in single precision


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
    one, other = (
        fitted(scorer, graph).score(outputs_on(graph)) for graph in (weighted_graph(5), weighted_graph(5, unit))
    )
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("scorer", [*SCORERS, Degree()], ids=lambda scorer: type(scorer).__name__)
def test_weights_of_one_are_no_weights(scorer: Scorer) -> None:
    graph = random_graph(seed=6)
    ones = Graph(graph.x, graph.edge_index, torch.ones(graph.edge_index.shape[1], dtype=torch.float64))
    found, expected = (fitted(scorer, each).score(outputs_on(each)) for each in (ones, graph))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_homophily_is_the_share_of_the_weight_that_joins_one_class() -> None:
    edges, y = torch.tensor([[0, 1, 2, 0, 3], [1, 0, 1, 0, 1]]), torch.tensor([0, 0, 1])
    graph = Graph(torch.ones(4, 1), edges, torch.tensor([0.5, 0.25, 0.25, 9.0, 9.0]))
    measured = profile_graph(graph, torch.arange(3), y)  # the loop and the edge of the unlabelled node do not count
    assert (measured.labelled_edges, measured.num_edges, measured.homophily) == (3, 4, 0.75)
    assert measured.chance == pytest.approx((1.75 / 2) ** 2 + (0.25 / 2) ** 2)
