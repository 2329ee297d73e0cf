"""The threshold that `fit` leaves, by the scores of reference nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from oddnode import Detector
from oddnode.detector.reference_calibration import _as_if_new, calibration_by_references
from tests.detector.test_reference import detector, known_graph


def scores_of_networks(fit: Detector) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The scores of all nodes by every network, and the positions of its reference nodes."""
    outputs = fit.outputs(known_graph())
    pairs = zip(fit.scorer_.scorers, outputs.members, strict=True)  # type: ignore[attr-defined]
    scores = [scorer.score(member).double().numpy() for scorer, member in pairs]
    return scores, [nodes.numpy() for nodes in outputs.references]


def test_shared_reference_nodes_are_scored_as_new_nodes_are() -> None:
    data = known_graph()
    data.reference_mask = torch.arange(240) >= 200
    fit = detector(ensemble=2).fit(data)
    assert fit.calibration_ is not None
    expected = fit.score_samples(data)[200:].sort().values
    torch.testing.assert_close(fit.calibration_.scores, expected)


def test_the_networks_that_know_a_node_count_by_its_rank_among_their_own() -> None:
    """Recomputed node by node in numpy."""
    fit = detector(ensemble=3).fit(known_graph())
    scores, folds = scores_of_networks(fit)
    expected = []
    for own, fold in enumerate(folds):
        for node in fold:
            votes = []
            for other, values in enumerate(scores):
                rank = float((values[fold] < values[node]).sum())
                # Ties are dealt out in the order of the nodes.
                rank += float((values[fold[fold < node]] == values[node]).sum())
                new = np.quantile(values[folds[other]], (rank + 0.5) / len(fold))
                votes.append(values[node] if other == own else new)
            expected.append(np.mean(votes))
    assert len(expected) == 90
    assert fit.calibration_ is not None
    np.testing.assert_allclose(fit.calibration_.scores.numpy(), np.sort(expected), rtol=1e-4, atol=1e-5)


def test_a_rank_becomes_the_score_of_a_new_node_of_that_rank() -> None:
    new = torch.tensor([-1.0, 0.0, 3.0, 10.0])
    # Three ranks in the middles of three thirds: at 0.5, 1.5 and 2.5 of the three steps between the four.
    found = _as_if_new(torch.tensor([50.0, 30.0, 40.0]), new)
    torch.testing.assert_close(found, torch.tensor([6.5, -0.5, 1.5]))


def test_too_high_scores_of_known_nodes_do_not_move_it() -> None:
    new = torch.randn(30, generator=torch.Generator().manual_seed(0))
    known = torch.randn(20, generator=torch.Generator().manual_seed(1))
    assert torch.equal(_as_if_new(known, new), _as_if_new(known.exp() + 100.0, new))


def test_without_reference_nodes_or_training_graph_there_is_no_threshold() -> None:
    state = detector(epochs=2).fit(known_graph()).state_
    assert calibration_by_references(state) is not None
    assert calibration_by_references(replace(state, references=())) is None
    assert calibration_by_references(replace(state, training=None)) is None
