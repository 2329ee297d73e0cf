"""Single arrivals against the whole graph with the arrival in it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode import ArrivalScorer, CalibrationError, Detector, MaxSoftmax, Propagated, load_task
from oddnode.graph import GraphError
from oddnode.scoring import Evidence, Outputs, Scorer
from oddnode.tasks import Task


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("digits/arrivals/label-scattered")


def known_neighbours(task: Task, node: int) -> Tensor:
    source, target = task.id_test.data.edge_index
    return source[(target == node) & (source < task.train.num_nodes)]


def grown(task: Task, node: int) -> Data:
    """The training graph with one arrival at its end."""
    near, last = known_neighbours(task, node), task.train.num_nodes
    own = torch.stack([torch.full_like(near, last), near])
    return Data(
        x=torch.cat([task.train.x, task.id_test.data.x[node : node + 1]]),
        edge_index=torch.cat([task.train.edge_index, own, own.flip(0)], dim=1),
    )


def some_arrivals(task: Task) -> list[int]:
    known, unknown = task.id_test.mask, task.id_test.data.ood_mask
    return [*known.nonzero().squeeze(1)[:4].tolist(), *unknown.nonzero().squeeze(1)[:4].tolist()]


@pytest.mark.parametrize("scorer", [MaxSoftmax(), Propagated(MaxSoftmax(), num_hops=2)], ids=["own", "two hops"])
def test_short_range_scores_are_those_of_the_whole_graph(task: Task, scorer: Scorer) -> None:
    detector = Detector(scorer=scorer, epochs=10, device="cpu").fit(task.train)
    arrivals = ArrivalScorer(detector, task.train)
    for node in some_arrivals(task):
        expected = float(detector.score_samples(grown(task, node))[-1])
        assert arrivals.score(task.id_test.data.x[node], known_neighbours(task, node)) == pytest.approx(
            expected, abs=1e-5
        )


def test_every_short_kind_of_evidence_is_exact_and_the_whole_is_close(task: Task) -> None:
    detector = Detector.from_recipe("nodesafe-evidence", epochs=20, device="cpu").fit(task.train)
    arrivals = ArrivalScorer(detector, task.train)
    for node in some_arrivals(task):
        graph, near = arrivals._around(task.id_test.data.x[node], known_neighbours(task, node))
        whole = detector.outputs(grown(task, node)).members
        for network, own in zip(arrivals._networks, whole, strict=True):
            assert isinstance(network.scorer, Evidence)
            part = Outputs(network.outputs.module, graph, own.num_classes)
            for scorer, long in zip(network.scorer.scorers, network.known, strict=True):
                if long is None:
                    expected = float(scorer.score(own)[-1])
                    assert float(scorer.score(part)[0]) == pytest.approx(expected, rel=1e-4, abs=1e-5)
        score = arrivals.score(task.id_test.data.x[node], near)
        assert (
            abs(score - float(detector.score_samples(grown(task, node))[-1])) < 2.0
        )  # the long averages are continued


def test_a_lone_arrival_has_its_own_score(task: Task) -> None:
    detector = Detector(scorer=Propagated(MaxSoftmax(), num_hops=32), epochs=5, device="cpu").fit(task.train)
    lone = Data(x=task.train.x[:1], edge_index=torch.empty(2, 0, dtype=torch.long))
    expected = float(detector.with_scorer(MaxSoftmax()).score_samples(lone)[0])
    assert ArrivalScorer(detector, task.train).score(task.train.x[0], []) == pytest.approx(expected, abs=1e-6)


def test_decisions_are_those_of_the_calibration(task: Task) -> None:
    detector = Detector.from_recipe("nodesafe-evidence", epochs=20, device="cpu").fit(task.train)
    arrivals, threshold = ArrivalScorer(detector, task.train), detector.threshold_
    assert arrivals.is_ood(threshold - 0.01)
    assert not arrivals.is_ood(threshold + 0.01)
    assert arrivals.p_value(threshold - 0.01) <= 0.05 < arrivals.p_value(threshold + 0.01)


def test_bad_arrivals_are_refused(task: Task) -> None:
    detector = Detector(scorer=MaxSoftmax(), epochs=2, device="cpu").fit(task.train)
    arrivals = ArrivalScorer(detector, task.train)
    with pytest.raises(GraphError, match="63 features, expected 64"):
        arrivals.score(torch.zeros(63), [0])
    with pytest.raises(GraphError, match="expected positions in 0"):
        arrivals.score(torch.zeros(64), [task.train.num_nodes])
    with pytest.raises(CalibrationError, match="no threshold"):
        arrivals.is_ood(0.5)


def test_features_far_beyond_training_score_below_all_known_nodes(task: Task) -> None:
    detector = Detector.from_recipe("evidence", epochs=5, device="cpu").fit(task.train)
    x = task.train.x[0].clone()
    x[3] = 1e10
    arrivals = ArrivalScorer(detector, task.train)
    score = arrivals.score(x, [1, 2])
    assert detector.calibration_ is not None
    assert score < float(detector.calibration_.scores.min())
    assert arrivals.is_ood(score)
    plain = ArrivalScorer(Detector(scorer=MaxSoftmax(), epochs=2, device="cpu").fit(task.train), task.train)
    with pytest.raises(GraphError, match="far beyond those of training"):
        plain.score(x, [1, 2])
