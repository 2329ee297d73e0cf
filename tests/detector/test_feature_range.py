"""Nodes far beyond anything in training: never the best known, and no burden to their neighbours."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from oddnode import RECIPES, Detector, load_task
from oddnode.detector import feature_range
from oddnode.graph import Graph, GraphError


@pytest.fixture(scope="module")
def digits() -> Data:
    return load_task("digits/label").train


@pytest.fixture(scope="module")
def fitted(digits: Data) -> Detector:
    return Detector.from_recipe("nodesafe", epochs=20, device="cpu").fit(digits)


def broken(data: Data, value: float, node: int = 3) -> Data:
    data = data.clone()
    data.x = data.x.clone()
    data.x[node, 5] = value
    return data


@pytest.mark.parametrize("value", [1e10, -1e10, 1e38])
def test_a_node_far_beyond_training_scores_below_all_others(
    digits: Data, fitted: Detector, value: float, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    plain, data = fitted.score_samples(digits), broken(digits, value)
    with caplog.at_level(logging.WARNING, logger="oddnode"):
        scores = fitted.score_samples(data)
    assert "1 of 901 nodes have features far beyond" in caplog.text
    assert "feature 5 of node 3" in caplog.text
    assert int(scores.argmin()) == 3
    assert bool((scores[3] < plain.min()).item())
    # The others score as if the feature were the largest one of training.
    highest = float(digits.x.max())
    expected = fitted.score_samples(broken(digits, highest if value > 0 else -highest))
    others = torch.arange(len(scores)) != 3
    assert torch.equal(scores[others], expected[others])
    fitted.save(tmp_path / "model")
    assert torch.equal(Detector.load(tmp_path / "model", device="cpu").score_samples(data), scores)


def test_double_precision_that_single_cannot_hold_is_clipped_too(digits: Data, fitted: Detector) -> None:
    data = digits.clone()
    data.x = digits.x.double()
    data.x[3, 5] = 1e300
    assert int(fitted.score_samples(data).argmin()) == 3


@pytest.mark.parametrize("method", list(RECIPES))
def test_no_method_takes_it_for_known(method: str, two_groups: Data) -> None:
    detector = Detector.from_recipe(method, epochs=3, device="cpu")
    exposure = Data(x=two_groups.x.flip(0), edge_index=two_groups.edge_index) if detector.needs_exposure else None
    detector.fit(two_groups, exposure)
    assert int(detector.score_samples(broken(two_groups, 1e10, node=50)).argmin()) == 50


def test_up_to_a_hundred_times_the_largest_magnitude_nothing_changes(digits: Data, fitted: Detector) -> None:
    assert fitted.state_.max_abs_feature == float(digits.x.abs().max())
    data = broken(digits, 100.0 * fitted.state_.max_abs_feature)
    assert fitted.outputs(data).far is None
    assert torch.equal(fitted.outputs(data).graph.x, data.x)


def test_it_is_flagged_by_a_calibrated_detector_even_alone(digits: Data) -> None:
    detector = Detector.from_recipe("nodesafe", epochs=20, device="cpu").fit(digits)
    alone = Data(x=torch.full((2, 64), 1e12), edge_index=torch.empty(2, 0, dtype=torch.long))
    with pytest.raises(GraphError, match="each of the 2 nodes has features far beyond those of training"):
        detector.score_samples(alone)
    known = torch.zeros_like(digits.test_mask)
    known[digits.test_mask.nonzero()[:19]] = True
    detector.calibrate(digits, 0.05, known)
    assert detector.detect(alone).tolist() == [True, True]
    assert detector.p_values(alone).tolist() == [0.05, 0.05]


def test_the_explanation_adds_up(digits: Data, fitted: Detector) -> None:
    data = broken(digits, 1e10)
    found = fitted.explain(data)
    assert torch.equal(found.score, fitted.score_samples(data))
    assert torch.allclose(found.own_score + found.neighbour_contribution, found.score, atol=1e-4)


def test_features_that_were_all_zero_say_nothing_of_a_range() -> None:
    graph = Graph(torch.ones(2, 3), torch.empty(2, 0, dtype=torch.long))
    assert feature_range.clip_far_features(graph, 0.0) == (graph, None)


def test_a_score_that_is_not_finite_never_leaves(digits: Data) -> None:
    detector = Detector.from_recipe("nodesafe", epochs=2, device="cpu").fit(digits)
    with torch.no_grad():
        next(detector.module_.parameters()).fill_(3e38)
    for method in (detector.score_samples, detector.explain):
        with pytest.raises(ValueError, match="scores are not finite, the first is"):
            method(digits)
