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
from tests.scoring.random_graphs import labelled, means_over_edges, outputs_on, random_graph, shrunk


def fitted(scorer: Scorer, graph: Graph) -> Scorer:
    return scorer.fit(outputs_on(graph), *labelled(graph))


def cosines(graph: Graph, centre: np.ndarray) -> list[float]:
    scores = []
    for source, target in graph.edge_index.t().tolist():
        a, b = (graph.x[node].numpy() - centre for node in (source, target))
        scores.append(float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))))
    return scores


@pytest.mark.parametrize("weighted", [False, True])
def test_centred_cosine_is_the_mean_over_a_nodes_edges(weighted: bool) -> None:
    train, seen = (random_graph(seed=seed, weighted=weighted) for seed in (1, 2))
    scorer = fitted(CentredCosine(), train)
    centre = train.x.numpy().mean(axis=0)
    for graph in (train, seen):
        own = cosines(graph, centre)
        expected = shrunk(graph, own, train, cosines(train, centre))
        np.testing.assert_allclose(scorer.score(outputs_on(graph)).numpy(), expected)
        found = scorer._edge_scores(outputs_on(graph), graph.edge_index)  # type: ignore[attr-defined]
        np.testing.assert_allclose(found.numpy(), np.array(own))


def both_ways(graph: Graph) -> Graph:
    one_way = graph.edge_index[:, graph.edge_index[0] != graph.edge_index[1]].unique(dim=1)
    return Graph(graph.x, torch.cat([one_way, one_way.flip(0)], dim=1).unique(dim=1))


def with_weights(graph: Graph, symmetric: bool) -> Graph:
    """Weights that depend on the unordered pair of an edge's ends, or also on the direction; some far above others."""
    source, target = graph.edge_index.double()
    first, second = (torch.minimum(source, target), torch.maximum(source, target)) if symmetric else (source, target)
    return Graph(graph.x, graph.edge_index, torch.exp(2 * torch.sin(7.0 * first + 3.0 * second)))


def surrounding_scores(graph: Graph, centre: np.ndarray, symmetric: bool) -> np.ndarray:
    """Edge by edge, from dense matrices: the node against what is around its neighbour, without the node."""
    size, (sources, targets) = graph.num_nodes, graph.edge_index.numpy()
    weight = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight.numpy()
    share = np.zeros((size, size))
    np.add.at(share, (targets, sources), weight)
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-300)
    worth = means_over_edges(graph, weight)[1]
    rows = graph.x.numpy() - centre
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    around = worth[:, None] * share + np.eye(size)  # with the node itself as one more
    length = np.maximum(np.linalg.norm(around @ unit, axis=1), np.sqrt(worth + 1)) / (worth + 1)
    scores = []
    for source, target in zip(sources, targets, strict=True):
        rest = around[source].copy()
        if symmetric:
            rest[target] = 0.0
        scores.append(unit[target] @ (rest @ unit) / rest.sum() / length[source])
    return np.array(scores)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("symmetric", [True, False])
def test_neighbourhood_cosine_compares_with_what_is_around_a_neighbour(symmetric: bool, weighted: bool) -> None:
    train, seen = random_graph(seed=1), random_graph(seed=2)
    if symmetric or weighted:
        train, seen = both_ways(train), both_ways(seen)
    if weighted:
        train, seen = with_weights(train, symmetric), with_weights(seen, symmetric)
    scorer = fitted(NeighbourhoodCosine(), train)
    centre = train.x.numpy().mean(axis=0)
    for graph in (train, seen):
        assert graph.is_symmetric == symmetric
        own = surrounding_scores(graph, centre, symmetric)
        expected = shrunk(graph, own, train, surrounding_scores(train, centre, symmetric))
        np.testing.assert_allclose(scorer.score(outputs_on(graph)).numpy(), expected)
        found = scorer._edge_scores(outputs_on(graph), graph.edge_index)  # type: ignore[attr-defined]
        np.testing.assert_allclose(found.numpy(), own)


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
    edges = (own._edge_scores(outputs_on(each), each.edge_index) for own, each in ((found, equal), (expected, plain)))  # type: ignore[attr-defined]
    torch.testing.assert_close(*edges)


def log_odds(scorer: Scorer, graph: Graph, pairs: Tensor) -> list[float]:
    """From the learnt tensors, with the formula of the docstring."""
    assert isinstance(scorer, LinkPrediction)
    centred = graph.x.numpy() - scorer.centre_.numpy()
    z = centred / np.linalg.norm(centred, axis=1, keepdims=True) @ scorer.basis_.numpy()
    left, right = z @ scorer.left_.numpy(), z @ scorer.right_.numpy()
    return [float((left[u] @ right[v] + right[u] @ left[v]) / 2 + scorer.bias_.numpy()) for u, v in pairs.t().tolist()]


@pytest.mark.parametrize("weighted", [False, True])
def test_link_prediction_is_the_sum_over_a_nodes_edges_by_the_root_of_their_number(weighted: bool) -> None:
    train, seen = (random_graph(seed=seed, weighted=weighted) for seed in (1, 2))
    scorer = fitted(LinkPrediction(dimensions=4, rank=3, steps=20), train)
    known = log_odds(scorer, train, train.edge_index)
    for graph in (train, seen):
        own = log_odds(scorer, graph, graph.edge_index)
        roots = np.sqrt(means_over_edges(graph, own)[1] + 1)
        expected = shrunk(graph, own, train, known) * roots
        np.testing.assert_allclose(scorer.score(outputs_on(graph)).numpy(), expected)
    plain = fitted(LinkPrediction(dimensions=4, rank=3, steps=20), Graph(train.x, train.edge_index))
    assert torch.equal(plain.left_, scorer.left_)  # type: ignore[attr-defined]  # which edges there are counts


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
    real, random = (scorer._edge_scores(outputs_on(train), each) for each in (edges, pairs))  # type: ignore[attr-defined]
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
@pytest.mark.parametrize("weighted", [False, True])
def test_a_graph_without_edges_gives_every_node_the_same_and_carries_nothing(scorer: Scorer, weighted: bool) -> None:
    graph = random_graph(num_edges=0, weighted=weighted)  # as when all edges lead to nodes that are taken out
    own = fitted(scorer, graph)
    scores = own.score(outputs_on(graph))
    assert torch.equal(scores, torch.zeros_like(scores))
    assert own.informativeness(outputs_on(graph, reference=torch.arange(5))) == 0.0
    assert own._edge_scores(outputs_on(graph), graph.edge_index).shape == (0,)  # type: ignore[attr-defined]


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


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("is_symmetric", [False, True])
def test_neighbourhood_cosine_of_many_sparse_features_is_that_of_a_dense_formula(
    is_weighted: bool, is_symmetric: bool
) -> None:
    rng = np.random.default_rng(0)
    x = (rng.random((60, 2000)) < 0.004) * rng.random((60, 2000)).astype(np.float32)
    x[7] = 0.0
    near = np.triu(rng.random((60, 60)) < 0.04, 1) * (rng.random((60, 60)) + 0.5)
    near = near + near.T if is_symmetric else near
    near = near if is_weighted else (near > 0).astype(float)
    target, source = near.nonzero()
    weights = torch.from_numpy(near[target, source]).float() if is_weighted else None
    graph = Graph(torch.from_numpy(x).float(), torch.from_numpy(np.stack([source, target])), weights)
    scorer = NeighbourhoodCosine().fit(outputs_on(graph), torch.arange(0), torch.arange(0))

    unit = x - x.mean(axis=0, dtype=np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    total = np.maximum(near.sum(axis=1), 1e-300)
    degree = near.sum(axis=1) ** 2 / np.maximum((near**2).sum(axis=1), 1e-300)
    terms = near * (degree / total)[:, None]
    around = unit + terms @ unit
    length = np.maximum(np.linalg.norm(around, axis=1), np.sqrt(degree + 1)) / (degree + 1)
    expected = []
    for v, u in zip(target, source, strict=True):
        back = terms[u, v] if is_symmetric else 0.0
        expected.append(unit[v] @ (around[u] - back * unit[v]) / ((degree[u] + 1 - back) * length[u]))
    edges = torch.from_numpy(np.stack([source, target]))
    found = scorer._edge_scores(outputs_on(graph), edges)
    assert graph.is_sparse
    assert found.numpy() == pytest.approx(np.array(expected), abs=1e-5)
    means = np.zeros(60)
    np.add.at(means, target, near[target, source] / total[target] * np.array(expected))
    score = (degree * means + float(scorer.mean_)) / (degree + 1)
    assert scorer.score(outputs_on(graph)).numpy() == pytest.approx(score, abs=1e-5)
