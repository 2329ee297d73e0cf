"""Drift as data: what a detector says about nodes that it has not seen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from oddnode import Detector
from oddnode.detector import Calibration, Drift, ScoreShift
from oddnode.tasks import load_task

RNG = np.random.default_rng(0)


def test_the_distance_of_scores_is_that_of_scipy() -> None:
    for size, shift in ((30, 0.0), (200, 0.3), (500, -1.0)):
        own, other = RNG.normal(shift, 1, size=size).round(1), RNG.normal(size=150).round(1)
        found = ScoreShift.between(own, other)
        higher = stats.ks_2samp(own, other, alternative="less", method="exact")
        lower = stats.ks_2samp(own, other, alternative="greater", method="exact")
        assert (found.higher, found.lower) == pytest.approx((higher.statistic, lower.statistic))
        assert found.p_higher >= higher.pvalue - 0.01
        assert found.p_lower >= lower.pvalue - 0.01


def test_known_nodes_give_no_alarm_and_many_unknown_ones_do() -> None:
    calibration = Calibration.from_scores(RNG.normal(size=400))
    alarms = [Drift.of(RNG.normal(size=300), calibration).flags_too_many for _ in range(200)]
    assert sum(alarms) == 0
    drift = Drift.of(np.r_[RNG.normal(size=200), RNG.normal(-5, 1, size=100)], calibration)
    assert drift.flags_too_many
    assert drift.share_interval[0] < drift.share_flagged < drift.share_interval[1]
    with pytest.raises(ValueError, match="no scores"):
        Drift.of([], calibration)


def test_edges_are_lost_only_if_many_more_nodes_than_at_fit_have_none() -> None:
    calibration = Calibration.from_scores(RNG.normal(size=400))

    def lost(num_isolated: int, num_nodes: int, share: float) -> bool:
        return Drift.of(RNG.normal(size=num_nodes), calibration, num_isolated, share).has_lost_edges

    assert lost(300, 300, 0.02)
    assert not lost(6, 300, 0.02)
    assert not lost(2, 3, 0.02)
    assert not lost(200, 300, 0.5)
    assert not Drift.of(RNG.normal(size=30), calibration).has_lost_edges


def test_a_detector_compares_the_nodes_that_joined_its_graph() -> None:
    task = load_task("digits/arrivals/label-scattered")
    detector = Detector.from_recipe("nodesafe-evidence", epochs=5, device="cpu").fit(task.train)
    grown, seen = task.tests["arrivals"], task.train.num_nodes
    drift = detector.drift(grown)
    assert drift.num_nodes == grown.num_nodes - seen
    assert drift.num_flagged == int(detector.detect(grown)[seen:].sum())
    assert not drift.has_lost_edges
    old = (grown.edge_index < seen).all(dim=0)
    alone = detector.drift(type(grown)(x=grown.x, edge_index=grown.edge_index[:, old]))
    assert alone.num_isolated == alone.num_nodes
    assert alone.has_lost_edges
    first = detector.drift(grown, torch.arange(grown.num_nodes) < 100)
    assert first.num_nodes == 100
