"""Single arrivals against the whole graph with the arrival in it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from oddnode import GCN, RECIPES, ArrivalScorer, CalibrationError, Detector, MaxSoftmax, Propagated, load_task
from oddnode.graph import GraphError
from oddnode.scoring import Scorer
from oddnode.tasks import Task


@pytest.fixture(scope="module")
def task() -> Task:
    """In double precision, in which rounding does not hide what differs."""
    task = copy.deepcopy(load_task("digits/arrivals/label-scattered"))
    assert task.exposure is not None
    for data in (task.train, task.id_test.data, task.exposure):
        data.x = data.x.double()
    return task


def known_neighbours(task: Task, node: int) -> Tensor:
    source, target = task.id_test.data.edge_index
    return source[(target == node) & (source < task.train.num_nodes)]


def grown(task: Task, node: int, near: Tensor) -> Data:
    """The training graph with one arrival at its end."""
    last = task.train.num_nodes
    own = torch.stack([torch.full_like(near, last), near])
    return Data(
        x=torch.cat([task.train.x, task.id_test.data.x[node : node + 1]]),
        edge_index=torch.cat([task.train.edge_index, own, own.flip(0)], dim=1),
    )


def some_arrivals(task: Task) -> list[int]:
    known, unknown = task.id_test.mask, task.id_test.data.ood_mask
    return [*known.nonzero().squeeze(1)[:2].tolist(), *unknown.nonzero().squeeze(1)[:2].tolist()]


def differences(detector: Detector, task: Task, linked: bool) -> list[float]:
    """How far arrivals are from their scores in the grown graph, in standard deviations of the scores."""
    arrivals, scores = ArrivalScorer(detector, task.train), detector.score_samples(task.train)
    found = []
    for node in some_arrivals(task):
        near = known_neighbours(task, node) if linked else torch.empty(0, dtype=torch.long)
        expected = float(detector.score_samples(grown(task, node, near))[-1])
        found.append(abs(arrivals.score(task.id_test.data.x[node], near) - expected) / float(scores.std()))
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_every_method_scores_arrivals_as_in_the_grown_graph_or_refuses(task: Task, name: str) -> None:
    recipe = RECIPES[name]
    detector = Detector.from_recipe(name, epochs=5, device="cpu")
    detector.fit(task.train, task.exposure if recipe.needs_exposure else None)
    if name in ("grasp", "neighbour-cosine"):
        with pytest.raises(ValueError, match="scores a node by the whole graph"):
            ArrivalScorer(detector, task.train)
        return
    if name == "adadetect":
        with pytest.raises(ValueError, match="judges batches of new nodes"):
            ArrivalScorer(detector, task.train)
        return
    assert max(differences(detector, task, linked=False)) < 1e-5
    is_exact = detector.scorer_.num_hops_used <= 2 and not detector.scorer_.kinds
    assert max(differences(detector, task, linked=True)) < (1e-5 if is_exact else 1.5)  # long averages are continued


class TwoCalls(nn.Module):
    """Three hops by two layers, one of which is called twice, as the attribute says."""

    num_hops = 3

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = GCNConv(64, 64), GCNConv(64, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.first(self.first(x, edge_index).relu(), edge_index).relu(), edge_index)


@pytest.mark.parametrize("num_layers", [4, "three hops"])
def test_the_receptive_field_is_that_of_the_module(task: Task, num_layers: int | str) -> None:
    torch.manual_seed(0)
    module = GCN(64, 16, 5, num_layers=num_layers) if isinstance(num_layers, int) else TwoCalls()
    detector = Detector.wrap(module.double(), Propagated(MaxSoftmax(), num_hops=2), task.train, device="cpu")
    assert max(differences(detector, task, linked=True)) < 1e-5


def test_isolated_arrivals_are_flagged_as_in_the_whole_graph(task: Task) -> None:
    detector = Detector.from_recipe("nodesafe", epochs=10, device="cpu").fit(task.train)
    detector.calibrate(task.train, 0.05, ~task.train.train_mask & ~task.train.val_mask & (task.train.y >= 0))
    arrivals, alone = ArrivalScorer(detector, task.train), torch.empty(0, dtype=torch.long)
    for node in some_arrivals(task):
        flag = bool(detector.detect(grown(task, node, alone))[-1])
        assert arrivals.is_ood(arrivals.score(task.id_test.data.x[node], [])) == flag


def weighted(data: Data, seed: int = 0) -> Data:
    """The same undirected graph with a random weight for every pair of nodes."""
    low, high = data.edge_index.amin(dim=0).double(), data.edge_index.amax(dim=0).double()
    data = data.clone()
    data.edge_weight = 0.1 + 3.0 * ((low * 12.9898 + high * 78.233 + seed).sin() * 43758.5453).frac().abs()
    return data


@pytest.mark.parametrize("scorer", [MaxSoftmax(), Propagated(MaxSoftmax(), num_hops=2)], ids=["own", "two hops"])
def test_arrivals_in_a_weighted_graph_score_as_in_the_whole_graph(task: Task, scorer: Scorer) -> None:
    train = weighted(task.train)
    detector = Detector(scorer=scorer, epochs=10, device="cpu").fit(train)
    arrivals = ArrivalScorer(detector, train)
    for node in some_arrivals(task):
        near = known_neighbours(task, node)
        whole = grown(task, node, near)
        weight = 0.2 + torch.arange(len(near)).double()
        whole.edge_weight = torch.cat([train.edge_weight, weight, weight])
        expected = float(detector.score_samples(whole)[-1])
        shuffled = torch.randperm(len(near), generator=torch.Generator().manual_seed(node))
        x = task.id_test.data.x[node]
        assert arrivals.score(x, near[shuffled], weight[shuffled]) == pytest.approx(expected, abs=1e-5)
        # An edge of weight 0 counts as none.
        more = arrivals.score(x, torch.cat([near, near[:0].new_tensor([0])]), [*weight.tolist(), 0.0])
        assert more == pytest.approx(expected, abs=1e-5) or 0 in near


def test_a_long_average_is_continued_by_the_weights(task: Task) -> None:
    detector = Detector(scorer=Propagated(MaxSoftmax(), num_hops=32, eta=0.1), epochs=5, device="cpu").fit(task.train)
    arrivals = ArrivalScorer(detector, task.train)
    x, ends = task.train.x[3], torch.tensor([3, 40])
    averages = detector.score_samples(task.train)[ends]
    first, even, second = (arrivals.score(x, ends, weight) for weight in ([1e6, 1e-6], [1.0, 1.0], [1e-6, 1e6]))
    # The own score moves with the network's neighbourhood too, but its share is a tenth.
    assert abs(float(averages[0] - averages[1])) > 1e-3
    assert even == arrivals.score(x, ends)
    for found, average in ((first, averages[0]), (second, averages[1]), (even, averages.mean())):
        assert abs(found - 0.9 * float(average)) <= 0.1


def test_weights_of_an_arrival_are_required_in_a_weighted_graph_and_checked(task: Task) -> None:
    train = weighted(task.train)
    arrivals = ArrivalScorer(Detector(scorer=MaxSoftmax(), epochs=2, device="cpu").fit(train), train)
    x = task.train.x[0]
    assert arrivals.score(x, []) == arrivals.score(x, [], [])
    with pytest.raises(GraphError, match="edges of the known graph have weights; give those of the arrival"):
        arrivals.score(x, [1, 2])
    with pytest.raises(GraphError, match=r"edge_weight has 1 values that are negative.* at edge 1"):
        arrivals.score(x, [1, 2], [1.0, -1.0])
    with pytest.raises(GraphError, match=r"shape \[1\], expected one real number for each of the 2 edges"):
        arrivals.score(x, [1, 2], [1.0])
    with pytest.raises(GraphError, match=r"\[2, 2\] have weights and contain duplicates"):
        arrivals.score(x, [2, 2], [1.0, 1.0])


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
    wrong: list[Any] = [[task.train.num_nodes], [-1], np.array([2**63], dtype=np.uint64), [2**70], [1, 1.5], [1.0], "1"]
    wrong += [torch.ones(task.train.num_nodes, dtype=torch.bool), [True], [1j], [[1, 2]], [None]]
    for neighbours in wrong:
        with pytest.raises(GraphError, match=r"the neighbours .*(expected indices|cannot be read)"):
            arrivals.score(torch.zeros(64), neighbours)
    right: Any = np.array([3, 1], dtype=np.uint8)
    assert arrivals.score(torch.zeros(64), right) == arrivals.score(torch.zeros(64), [1, 3])
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
