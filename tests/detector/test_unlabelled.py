"""Fits without labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from oddnode import RECIPES, Detector, load_task
from oddnode.functional import auroc
from oddnode.graph import GraphError


def digits(seed: int = 0) -> tuple[Data, Data, torch.Tensor]:
    """A graph without labels, a later one that contains it, and which of the later nodes have other features."""
    task = load_task("digits/arrivals/feature-scattered", seed=seed)
    [test] = task.tests.values()
    return Data(x=task.train.x, edge_index=task.train.edge_index), test, test.ood_mask


def test_odd_arrivals_are_flagged_and_the_rate_is_kept_without_any_label() -> None:
    train, test, is_odd = digits()
    detector = Detector.from_recipe("evidence-unlabelled").fit(train)
    graph = Data(x=test.x, edge_index=test.edge_index)
    new = torch.arange(test.num_nodes) >= train.num_nodes
    scores, flagged = detector.score_samples(graph), detector.detect(graph)
    assert auroc(scores[new & ~is_odd], scores[is_odd]) > 0.9
    assert flagged[new & ~is_odd].float().mean() < 0.1
    assert len(detector.reasons(graph, is_odd.nonzero().squeeze(1)[:3])) == 3
    assert {"mixed", "rewired"} <= detector.forecast_.keys()


def test_labels_in_the_data_change_nothing_if_they_are_not_given(tmp_path: Path) -> None:
    train, test, _ = digits()
    one, other = (Detector.from_recipe("evidence-unlabelled", seed=3).fit(train) for _ in range(2))
    assert torch.equal(one.score_samples(test), other.score_samples(test))
    one.save(tmp_path / "model")
    assert torch.equal(Detector.load(tmp_path / "model").score_samples(test), one.score_samples(test))


def test_marked_nodes_are_the_reference_nodes() -> None:
    train, *_ = digits()
    train.reference_mask = torch.zeros(train.num_nodes, dtype=torch.bool)
    train.reference_mask[::3] = True
    detector = Detector.from_recipe("evidence-unlabelled").fit(train)
    [references] = detector.state_.references
    assert torch.equal(references.nodes, train.reference_mask.nonzero().squeeze(1))


def test_reference_nodes_are_a_random_fifth_that_flags_its_own_share() -> None:
    train, *_ = digits()
    detector = Detector.from_recipe("evidence-unlabelled").fit(train)
    [references] = detector.state_.references
    assert len(references.nodes) == round(0.2 * train.num_nodes)
    others = Detector.from_recipe("evidence-unlabelled", seed=1).fit(train).state_.references[0]
    assert len(np.intersect1d(references.nodes, others.nodes)) < 0.4 * len(references.nodes)
    assert detector.detect(train)[references.nodes].float().mean() <= 0.05


@pytest.mark.parametrize("method", ["nodesafe-evidence", "nodesafe", "knn"])
def test_methods_that_learn_from_labels_name_the_one_that_does_not(method: str) -> None:
    train, *_ = digits()
    with pytest.raises(GraphError, match=rf'{method} learns from; without labels.*"evidence-unlabelled"'):
        Detector.from_recipe(method, epochs=1).fit(train)
    assert RECIPES[method].needs_labels
