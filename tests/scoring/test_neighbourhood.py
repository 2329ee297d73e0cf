"""Scorers of a node's surroundings, each recomputed node by node."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oddnode import ClassAgreement, NeighbourhoodFeatures
from oddnode.graph import Graph
from oddnode.scoring import neighbourhood
from tests.scoring.random_graphs import Features, labelled, outputs_on, random_graph, shrunk

NO_EDGES = torch.zeros(2, 0, dtype=torch.long)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def averaged(graph: Graph, rows: np.ndarray, num_hops: int) -> np.ndarray:
    """Half of a node's own value and half of the mean over the sources of its edges, hop by hop."""
    for _ in range(num_hops):
        new = rows.copy()
        for node in range(graph.num_nodes):
            sources = graph.edge_index[0][graph.edge_index[1] == node].tolist()
            if sources:
                new[node] = rows[node] / 2 + rows[sources].mean(axis=0) / 2
        rows = new
    return rows


@pytest.mark.parametrize(("num_hops", "k"), [(0, 2), (2, 4), (3, 9)])
def test_the_score_is_the_mean_cosine_to_the_second_to_kth_most_similar(num_hops: int, k: int) -> None:
    train, seen = random_graph(seed=1), random_graph(seed=2)
    scorer = NeighbourhoodFeatures(num_hops, k=k).fit(outputs_on(train), *labelled(train))
    # Seven features in a space of 128 dimensions are the same but for a rotation, so that cosines are equal.
    centre = train.x.numpy().mean(axis=0)
    bank = unit(averaged(train, unit(train.x.numpy() - centre), num_hops))
    own = unit(averaged(seen, unit(seen.x.numpy() - centre), num_hops))
    similar = np.sort(own @ bank.T, axis=1)[:, ::-1]
    np.testing.assert_allclose(scorer.score(outputs_on(seen)).numpy(), similar[:, 1:k].mean(axis=1), atol=1e-9)


def test_a_large_graph_is_compared_with_as_many_of_its_nodes_as_asked() -> None:
    graph = random_graph(num_nodes=300)
    scorer = NeighbourhoodFeatures(bank_size=50).fit(outputs_on(graph), *labelled(graph))
    assert scorer.bank_.shape == (50, 7)
    everyone = NeighbourhoodFeatures(bank_size=300).fit(outputs_on(graph), *labelled(graph)).bank_
    nearest = (scorer.bank_ @ everyone.t()).amax(dim=1)
    torch.testing.assert_close(nearest, torch.ones(50, dtype=torch.float64))
    assert len(torch.unique(scorer.bank_, dim=0)) == 50


def test_chunks_of_nodes_give_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph()
    scorer = NeighbourhoodFeatures().fit(outputs_on(graph), *labelled(graph))
    expected = scorer.score(outputs_on(graph))
    monkeypatch.setattr(neighbourhood, "_CHUNK", 7)
    torch.testing.assert_close(scorer.score(outputs_on(graph)), expected)


def test_features_are_averaged_and_scores_are_not() -> None:
    assert NeighbourhoodFeatures(5).num_hops_used == 0
    assert NeighbourhoodFeatures(5).limited_to(0) == NeighbourhoodFeatures(5)


@pytest.mark.parametrize("settings", [{"k": 1}, {"bank_size": 1}, {"num_hops": -1}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected 2, 2 and 0 or more"):
        NeighbourhoodFeatures(**settings).fit(outputs_on(random_graph()), *labelled(random_graph()))


@pytest.mark.parametrize("num_nodes", [1, 2, 3])
def test_tiny_training_graphs_give_finite_scores(num_nodes: int) -> None:
    tiny = Graph(random_graph().x[:num_nodes], NO_EDGES)
    scorer = NeighbourhoodFeatures().fit(outputs_on(tiny), *labelled(tiny, count=num_nodes))
    assert bool(scorer.score(outputs_on(random_graph())).isfinite().all())


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def agreements(graph: Graph) -> list[float]:
    """For every edge, the probability of the same class at its target without edges and at its source with them."""
    own = softmax(Features(4)(graph.x, NO_EDGES).numpy())[:, :3]
    around = softmax(Features(4)(graph.x, graph.edge_index).numpy())[:, :3]
    return [float(own[target] @ around[source]) for source, target in graph.edge_index.t().tolist()]


@pytest.mark.parametrize("weighted", [False, True])
def test_class_agreement_is_the_mean_over_a_nodes_edges(weighted: bool) -> None:
    train, seen = (random_graph(seed=seed, weighted=weighted) for seed in (1, 2))
    scorer = ClassAgreement().fit(outputs_on(train), *labelled(train))
    expected = shrunk(seen, agreements(seen), train, agreements(train))
    np.testing.assert_allclose(scorer.score(outputs_on(seen)).numpy(), expected)


def test_class_agreement_without_edges_is_the_same_everywhere() -> None:
    graph = Graph(random_graph().x, NO_EDGES)
    scores = ClassAgreement().fit(outputs_on(graph), *labelled(graph)).score(outputs_on(graph))
    assert len(scores.unique()) == 1
    assert bool(scores.isfinite().all())


def test_class_agreement_does_not_change_the_graph_that_it_scores() -> None:
    graph = random_graph()
    outputs = outputs_on(graph)
    before = outputs.all_logits.clone()
    ClassAgreement().fit(outputs, *labelled(graph)).score(outputs)
    assert torch.equal(Features(4)(graph.x, graph.edge_index), before)
