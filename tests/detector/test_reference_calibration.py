"""The threshold that `fit` leaves, by the scores of reference nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from oddnode import Detector
from oddnode.detector.reference_calibration import calibration_by_references
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


def test_a_node_is_scored_by_the_networks_that_set_it_aside() -> None:
    """Recomputed node by node in numpy."""
    data = known_graph()
    fit = detector(ensemble=6).fit(data)
    scores, halves = scores_of_networks(fit)
    expected = []
    for node in data.val_mask.nonzero().squeeze(1).tolist():
        votes = [values[node] for values, half in zip(scores, halves, strict=True) if node in half]
        assert len(votes) == 3
        expected.append(np.mean(votes))
    assert fit.calibration_ is not None
    np.testing.assert_allclose(fit.calibration_.scores.numpy(), np.sort(expected), rtol=1e-5, atol=1e-6)


def test_without_reference_nodes_or_training_graph_there_is_no_threshold() -> None:
    state = detector(epochs=2).fit(known_graph()).state_
    assert calibration_by_references(state) is not None
    assert calibration_by_references(replace(state, references=())) is None
    assert calibration_by_references(replace(state, training=None)) is None
