"""Scorers of edges, each recomputed edge by edge."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode import CentredCosine, LinkPrediction, NeighbourhoodCosine, Scorer, load_task
from oddnode.functional import auroc
from oddnode.graph import Graph
from tests.scoring.random_graphs import labelled, outputs_on, random_graph


def fitted(scorer: Scorer, graph: Graph) -> Scorer:
    return scorer.fit(outputs_on(graph), *labelled(graph))


def mean_over_edges(graph: Graph, edge_scores: list[float], mean: float) -> np.ndarray:
    """The mean over every node's incoming edges and one more edge of the mean score."""
    expected = []
    for node in range(graph.num_nodes):
        own = [score for score, target in zip(edge_scores, graph.edge_index[1].tolist(), strict=True) if target == node]
        expected.append((sum(own) + mean) / (len(own) + 1))
    return np.array(expected)


def cosines(graph: Graph, centre: np.ndarray) -> list[float]:
    scores = []
    for source, target in graph.edge_index.t().tolist():
        a, b = (graph.x[node].numpy() - centre for node in (source, target))
        scores.append(float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))))
    return scores


def test_centred_cosine_is_the_mean_over_a_nodes_edges() -> None:
    train, seen = random_graph(seed=1), random_graph(seed=2)
    scorer = fitted(CentredCosine(), train)
    centre = train.x.numpy().mean(axis=0)
    mean = float(np.mean(cosines(train, centre)))
    for graph in (train, seen):
        own = cosines(graph, centre)
        np.testing.assert_allclose(scorer.score(outputs_on(graph)).numpy(), mean_over_edges(graph, own, mean))
        found = scorer.edge_scores(outputs_on(graph))  # type: ignore[attr-defined]
        np.testing.assert_allclose(found.numpy(), np.array(own))


def both_ways(graph: Graph) -> Graph:
    one_way = graph.edge_index[:, graph.edge_index[0] != graph.edge_index[1]].unique(dim=1)
    return Graph(graph.x, torch.cat([one_way, one_way.flip(0)], dim=1).unique(dim=1))


def surrounding_cosines(graph: Graph, centre: np.ndarray, symmetric: bool) -> list[float]:
    """Edge by edge: the node against the mean over its neighbour and the neighbour's neighbours, without the node."""
    rows = graph.x.numpy() - centre
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    edges = graph.edge_index.t().tolist()
    scores = []
    for source, target in edges:
        around = [source] + [far for far, near in edges if near == source]
        others = [node for node in around if node != target] if symmetric else around
        length = max(np.linalg.norm(unit[around].mean(axis=0)), len(around) ** -0.5)
        scores.append(float(unit[target] @ unit[others].mean(axis=0) / length))
    return scores


@pytest.mark.parametrize("symmetric", [True, False])
def test_neighbourhood_cosine_compares_with_what_is_around_a_neighbour(symmetric: bool) -> None:
    train, seen = random_graph(seed=1), random_graph(seed=2)
    if symmetric:
        train, seen = both_ways(train), both_ways(seen)
    scorer = fitted(NeighbourhoodCosine(), train)
    centre = train.x.numpy().mean(axis=0)
    mean = float(np.mean(surrounding_cosines(train, centre, symmetric)))
    for graph in (train, seen):
        assert graph.is_symmetric == symmetric
        own = surrounding_cosines(graph, centre, symmetric)
        np.testing.assert_allclose(scorer.score(outputs_on(graph)).numpy(), mean_over_edges(graph, own, mean))
        found = scorer.edge_scores(outputs_on(graph))  # type: ignore[attr-defined]
        np.testing.assert_allclose(found.numpy(), np.array(own))


def with_weights(graph: Graph, symmetric: bool, unit: float = 1.0) -> Graph:
    """Weights that depend on the unordered pair of an edge's ends, or also on the direction; some far above others."""
    source, target = graph.edge_index.double()
    first, second = (torch.minimum(source, target), torch.maximum(source, target)) if symmetric else (source, target)
    weight = torch.exp(2 * torch.sin(7.0 * first + 3.0 * second))
    return Graph(graph.x, graph.edge_index, unit * weight)


def dense_surrounding_scores(graph: Graph, centre: np.ndarray, symmetric: bool) -> tuple[np.ndarray, ...]:
    """From dense matrices: scores ``[target, source]``, weights of the means over edges, and their worth."""
    size = graph.num_nodes
    a = np.zeros((size, size))
    assert graph.edge_weight is not None
    np.add.at(a, (graph.edge_index[1].numpy(), graph.edge_index[0].numpy()), graph.edge_weight.numpy())
    total = np.maximum(a.sum(axis=1), 1e-300)
    squares = np.zeros(size)
    np.add.at(squares, graph.edge_index[1].numpy(), graph.edge_weight.numpy() ** 2)
    worth = total**2 / np.maximum(squares, 1e-300) * (a.sum(axis=1) > 0)
    share = a / total[:, None]
    rows = graph.x.numpy() - centre
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    b = worth[:, None] * share + np.eye(size)  # with the node itself as one more
    length = np.maximum(np.linalg.norm(b @ unit, axis=1), np.sqrt(worth + 1)) / (worth + 1)
    scores = np.zeros((size, size))
    for target, source in zip(*a.nonzero(), strict=True):
        rest = b[source].copy()
        if symmetric:
            rest[target] = 0.0
        scores[target, source] = unit[target] @ (rest @ unit) / rest.sum() / length[source]
    return scores, share, worth


@pytest.mark.parametrize("symmetric", [True, False])
def test_neighbourhood_cosine_with_weights_agrees_with_dense_matrices(symmetric: bool) -> None:
    graphs = [random_graph(seed=1), random_graph(seed=2)]
    train, seen = (with_weights(both_ways(graph), symmetric) for graph in graphs)
    assert train.is_symmetric == seen.is_symmetric == symmetric
    scorer = fitted(NeighbourhoodCosine(), train)
    centre = train.x.numpy().mean(axis=0)
    scores, share, worth = dense_surrounding_scores(train, centre, symmetric)
    mean = (worth * (share * scores).sum(axis=1)).sum() / worth.sum()
    for graph in (train, seen):
        scores, share, worth = dense_surrounding_scores(graph, centre, symmetric)
        expected = (worth * (share * scores).sum(axis=1) + mean) / (worth + 1)
        np.testing.assert_allclose(scorer.score(outputs_on(graph)).numpy(), expected)
        found = scorer.edge_scores(outputs_on(graph))  # type: ignore[attr-defined]
        np.testing.assert_allclose(found.numpy(), scores[graph.edge_index[1], graph.edge_index[0]])


@pytest.mark.parametrize("repeated", [False, True])
def test_neighbourhood_cosine_with_equal_weights_both_ways_is_that_without(repeated: bool) -> None:
    plain = both_ways(random_graph(seed=1))
    if repeated:
        again = plain.edge_index[:, (plain.edge_index.sum(dim=0) % 3) == 0]
        plain = Graph(plain.x, torch.cat([plain.edge_index, again], dim=1))
    equal = Graph(plain.x, plain.edge_index, torch.full((plain.edge_index.shape[1],), 7.0, dtype=torch.float64))
    found, expected = (fitted(NeighbourhoodCosine(), each) for each in (equal, plain))
    torch.testing.assert_close(found.score(outputs_on(plain)), expected.score(outputs_on(plain)))
    torch.testing.assert_close(found.score(outputs_on(equal)), expected.score(outputs_on(plain)))
    edges = (own.edge_scores(outputs_on(each)) for own, each in ((found, equal), (expected, plain)))  # type: ignore[attr-defined]
    torch.testing.assert_close(*edges)


def log_odds(scorer: Scorer, graph: Graph, pairs: Tensor) -> list[float]:
    """From the learnt tensors, with the formula of the docstring."""
    assert isinstance(scorer, LinkPrediction)
    centred = graph.x.numpy() - scorer.centre_.numpy()
    z = centred / np.linalg.norm(centred, axis=1, keepdims=True) @ scorer.basis_.numpy()
    left, right = z @ scorer.left_.numpy(), z @ scorer.right_.numpy()
    return [float((left[u] @ right[v] + right[u] @ left[v]) / 2 + scorer.bias_.numpy()) for u, v in pairs.t().tolist()]


def test_link_prediction_is_the_sum_over_a_nodes_edges_by_the_root_of_their_number() -> None:
    train, seen = random_graph(seed=1), random_graph(seed=2)
    scorer = fitted(LinkPrediction(dimensions=4, rank=3, steps=20), train)
    mean = float(np.mean(log_odds(scorer, train, train.edge_index)))
    for graph in (train, seen):
        own = log_odds(scorer, graph, graph.edge_index)
        roots = np.sqrt(graph.in_degree.numpy() + 1.0)
        np.testing.assert_allclose(scorer.score(outputs_on(graph)).numpy(), mean_over_edges(graph, own, mean) * roots)


@pytest.fixture(scope="module")
def digits() -> tuple[Data, Tensor, Tensor]:
    """The digits without one edge in ten, those edges, and as many random pairs."""
    data = load_task("digits/structure").train
    one_way = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    generator = torch.Generator().manual_seed(0)
    held_out = torch.rand(one_way.shape[1], generator=generator) < 0.1
    kept = one_way[:, ~held_out]
    left = Data(x=data.x, edge_index=torch.cat([kept, kept.flip(0)], dim=1))
    pairs = torch.randint(data.num_nodes, (2, int(held_out.sum())), generator=generator)
    return left, one_way[:, held_out], pairs


def test_a_trained_predictor_tells_held_out_edges_from_random_pairs(digits: tuple[Data, Tensor, Tensor]) -> None:
    data, edges, pairs = digits
    train = Graph(data.x, data.edge_index)
    scorer = fitted(LinkPrediction(), train)
    real, random = (scorer.edge_scores(outputs_on(Graph(data.x, each))) for each in (edges, pairs))  # type: ignore[attr-defined]
    assert auroc(real, random) > 0.95
    # Log-odds: held-out edges are likely ones, random pairs are not.
    assert float(real.sigmoid().mean()) > 0.8
    assert float(random.sigmoid().mean()) < 0.3


@pytest.mark.parametrize("scorer", [CentredCosine(), NeighbourhoodCosine(), LinkPrediction(steps=30)], ids=repr)
def test_fits_are_equal_and_leave_the_callers_random_numbers_alone(scorer: Scorer) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = torch.rand(4)
        torch.manual_seed(5)
        first = fitted(scorer, random_graph()).score(outputs_on(random_graph(seed=3)))
        assert torch.equal(torch.rand(4), expected)
        second = fitted(scorer, random_graph()).score(outputs_on(random_graph(seed=3)))
    assert torch.equal(first, second)
    assert not first.requires_grad


@pytest.mark.parametrize("scorer", [CentredCosine(), NeighbourhoodCosine(), LinkPrediction(steps=3)], ids=repr)
def test_scorers_that_come_and_go_share_a_graph_without_taking_each_others_values(scorer: Scorer) -> None:
    shared = random_graph(seed=1)
    for seed in range(20):
        own = fitted(scorer, random_graph(seed=10 + seed))
        alone = own.score(outputs_on(Graph(shared.x, shared.edge_index)))
        assert torch.equal(own.score(outputs_on(shared)), alone)


@pytest.mark.parametrize("scorer", [CentredCosine(), NeighbourhoodCosine(), LinkPrediction(steps=3)], ids=repr)
def test_a_graph_without_edges_gives_every_node_the_same_and_carries_nothing(scorer: Scorer) -> None:
    graph = Graph(random_graph().x, torch.zeros(2, 0, dtype=torch.long))
    own = fitted(scorer, graph)
    scores = own.score(outputs_on(graph))
    assert torch.equal(scores, torch.zeros_like(scores))
    assert own.informativeness(outputs_on(graph, reference=torch.arange(5))) == 0.0
    assert own.edge_scores(outputs_on(graph)).shape == (0,)  # type: ignore[attr-defined]


@pytest.mark.parametrize("scorer", [CentredCosine(), NeighbourhoodCosine(), LinkPrediction()], ids=repr)
def test_edges_carry_much_among_alike_nodes_and_nothing_at_random(scorer: Scorer) -> None:
    generator = torch.Generator().manual_seed(0)
    topic = torch.arange(600) % 3
    x = torch.nn.functional.one_hot(topic, 9).double() + 0.1 * torch.randn(600, 9, generator=generator)
    source, target = torch.randint(600, (2, 6000), generator=generator)
    alike = Graph(x, torch.stack([source, 3 * torch.randint(200, (6000,), generator=generator) + source % 3]))
    random = Graph(x, torch.stack([source, target]))
    reference = torch.arange(400, 600)
    carried = []
    for graph in (alike, random):
        own = fitted(scorer, graph.without(reference)[0])
        carried.append(own.informativeness(outputs_on(graph, reference=reference)))
    assert carried[0] > 0.6  # two in three random pairs are of two topics, and all of these rank below the edges
    assert carried[1] < 0.05


def test_weights_without_any_edge_are_no_error() -> None:
    """As when all edges of a table lead to reference nodes, which are taken out."""
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    graph = Graph(x, torch.empty(2, 0, dtype=torch.long), torch.empty(0))
    for scorer in (CentredCosine(), NeighbourhoodCosine(), LinkPrediction()):
        assert bool(fitted(scorer, graph).score(outputs_on(graph)).isfinite().all())
