"""GEBM against its definition, written out densely in double precision with scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from oddnode import Detector, load_task
from oddnode.detector import get_recipe
from oddnode.graph import Graph
from oddnode.nn import GCN
from oddnode.scoring import GEBM, Outputs
from tests.scoring.random_graphs import random_graph


def dense_gebm(
    data: Graph, y: np.ndarray, module: GCN, nodes: np.ndarray, weight: float, hops: int, alpha: float
) -> np.ndarray:
    """The scores of every node; ``nodes`` are the training nodes."""
    with torch.no_grad():
        alone = Graph(data.x, data.edge_index[:, :0])
        hidden, logits = module.embed(alone).numpy(), module.run(alone).numpy()[:, :3]
    n = data.num_nodes
    variances = np.stack([hidden[nodes][y[nodes] == c].var(axis=0) for c in range(3)])
    distances = np.zeros((n, 3))
    for c in range(3):
        mean = hidden[nodes][y[nodes] == c].mean(axis=0)
        variance = 0.99 * variances[c] + 0.01 * variances.mean()
        distances[:, c] = ((hidden - mean) ** 2 / variance).sum(axis=1)
    span = [np.subtract(*np.quantile(each, [0.975, 0.025])) for each in (logits, distances)]
    evidence = logits - weight * span[0] / span[1] * distances
    own = logsumexp(evidence, axis=1)
    walk = np.zeros((n, n))
    for source, target in data.edge_index.t().tolist():
        walk[target, source] += 1
    degree = walk.sum(axis=1)
    walk = np.where(degree[:, None] > 0, walk / np.maximum(degree, 1)[:, None], np.eye(n))
    spread_evidence, spread_own = evidence, own
    for _ in range(hops):
        spread_evidence = alpha * walk @ spread_evidence + (1 - alpha) * evidence
        spread_own = alpha * walk @ spread_own + (1 - alpha) * own
    return own + logsumexp(spread_evidence, axis=1) + spread_own


@pytest.mark.parametrize(("weight", "hops", "alpha"), [(1.0, 10, 0.5), (0.3, 2, 0.9), (0.0, 0, 0.5)])
def test_scores_are_the_sum_of_three_energies(weight: float, hops: int, alpha: float) -> None:
    data, y = random_graph(80), torch.arange(80) % 3  # two nodes have no edges
    torch.manual_seed(0)
    module = GCN(data.x.shape[1], 8, 4).double().eval()
    outputs, train = Outputs(module, data, 3), torch.arange(0, 80, 2)
    fitted = GEBM(weight, hops, alpha).fit(outputs, train, y[train])
    expected = dense_gebm(data, y.numpy(), module, train.numpy(), weight, hops, alpha)
    np.testing.assert_allclose(fitted.score(outputs).numpy(), expected, rtol=1e-8)
    own = fitted.limited_to(0)
    np.testing.assert_allclose(own.score(outputs).numpy(), fitted.own_score(outputs).numpy(), rtol=1e-5)
    assert (fitted.num_hops_used, own.num_hops_used) == (hops, 0)


def test_unknown_digits_score_low_and_wrong_settings_are_refused() -> None:
    task = load_task("digits/label")
    detector = Detector.from_recipe("gebm", epochs=60).fit(task.train)
    scores = detector.score_samples(task.id_test.data)
    assert float(scores[task.id_test.mask].median()) > float(scores[task.tests["label"].ood_mask].median())
    assert get_recipe("gebm").hyper_parameters == {"weight": 1.0, "num_hops": 10, "alpha": 0.5}
    with pytest.raises(ValueError, match=r"alpha 1.5: expected a weight and hops of 0 or more"):
        Detector(scorer=GEBM(alpha=1.5), epochs=1).fit(task.train)
