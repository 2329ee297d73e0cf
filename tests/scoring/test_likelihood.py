"""The likelihood of features, recomputed word by word."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from oddnode import FeatureLikelihood, FeatureSum
from oddnode.graph import Graph
from tests.scoring.random_graphs import Features, labelled, outputs_on, random_graph

NO_EDGES = torch.zeros(2, 0, dtype=torch.long)


def log_shares(graph: Graph, classes: list[int], num_classes: int) -> np.ndarray:
    """The words of every class, with ten rows of average words, and a thousandth of a word more; ``[C, 2F]``."""
    num_nodes, num_features = graph.x.shape
    counts = np.zeros((num_classes, 2 * num_features))
    for node, label in enumerate(classes):
        for word, value in enumerate(graph.x[node].tolist()):
            counts[label, word + (num_features if value < 0 else 0)] += abs(value)
    average = counts.sum(axis=0) / num_nodes
    smallest = average.sum() / (1000 * 2 * num_features)
    mixed = counts + 10 * (average + smallest)
    return np.log(mixed / mixed.sum(axis=1, keepdims=True))


def best_mean(x: list[float], shares: np.ndarray) -> float:
    words = sum(map(abs, x))
    if not words:
        return 0.0
    places = [j + (len(x) if value < 0 else 0) for j, value in enumerate(x)]
    return max(sum(abs(v) * row[j] for v, j in zip(x, places, strict=True)) for row in shares) / words


@pytest.mark.parametrize("signs", ["both", "positive", "sparse"])
def test_it_is_the_mean_over_words_in_the_class_that_fits_best(signs: str) -> None:
    train, seen = (random_graph(seed=seed, density=0.1 if signs == "sparse" else 1.0) for seed in (1, 2))
    if signs != "both":
        train, seen = (Graph(graph.x.abs(), graph.edge_index) for graph in (train, seen))
    assert (train.sparse_x is not None) == (signs == "sparse")
    nodes, y = labelled(train)
    scorer = FeatureLikelihood().fit(outputs_on(train), nodes, y)
    classes = Features(4)(train.x, train.edge_index)[:, :3].argmax(dim=1)  # the network's word where there is no label
    classes[nodes] = y
    shares = log_shares(train, classes.tolist(), 3)
    np.testing.assert_allclose(scorer.log_shares_.numpy(), shares)
    seen.x[3] = 0.0  # a node without features scores zero, and no node more
    expected = [best_mean(row, shares) for row in seen.x.tolist()]
    assert max(expected) == expected[3] == 0.0
    np.testing.assert_allclose(scorer.score(outputs_on(seen)).numpy(), expected, atol=1e-12)


def test_words_of_a_new_sign_are_unlikely_and_not_impossible() -> None:
    train = Graph(random_graph().x.abs(), NO_EDGES)
    scorer = FeatureLikelihood().fit(outputs_on(train), *labelled(train))
    row = train.x[:1]
    known = scorer.score(outputs_on(Graph(row, NO_EDGES)))
    new = scorer.score(outputs_on(Graph(-row, NO_EDGES)))
    assert math.isfinite(float(new))
    assert float(new) < float(known) - 5


def test_a_graph_without_any_features_gives_zeros() -> None:
    graph = Graph(torch.zeros(12, 4), NO_EDGES)
    scorer = FeatureLikelihood().fit(outputs_on(graph), *labelled(graph))
    assert torch.equal(scorer.score(outputs_on(graph)), torch.zeros(12))
    new = scorer.score(outputs_on(Graph(torch.eye(4), NO_EDGES)))
    torch.testing.assert_close(new, torch.full((4,), math.log(1 / 8)))  # all words, of both signs, are alike


def test_feature_sum_is_the_number_of_words() -> None:
    x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [-1.0, 0.5, 0.0]])
    assert FeatureSum().score(outputs_on(Graph(x, NO_EDGES))).tolist() == [3.0, 0.0, -0.5]
