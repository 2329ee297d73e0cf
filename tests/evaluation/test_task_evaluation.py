"""`evaluate` on a network whose logits are known, against numbers that were counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode import Detector, MaxLogit, Task, evaluate
from oddnode.evaluation import TaskOutputs
from oddnode.tasks import ScoredNodes

# The score of a node is its higher logit, and the last node of each graph is not to count.
ID_SCORES = [10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
NEAR = [9.5, 5.5, 5.5, 3.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
FAR = [0.25] * 5


class Features(nn.Module):
    """A network that gives a node's features as its logits."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x


def graph(scores: list[float], stray: float, classes: list[int]) -> Data:
    """Nodes whose logit of their predicted class is given and whose other logit is 0, and one node beside them."""
    x = torch.zeros(len(scores) + 1, 2)
    x[torch.arange(len(scores)), torch.tensor(classes)] = torch.tensor(scores)
    x[-1] = stray
    counted = torch.arange(len(x)) < len(scores)
    return Data(x=x, edge_index=torch.zeros(2, 0, dtype=torch.long), ood_mask=counted)


def detector_and_task(
    id_scores: list[float], wrong: int, name: str = "t", protocol: str = "clean"
) -> tuple[Detector, Task]:
    """ID nodes are predicted 0, 1, 0, 1, ...; the first ``wrong`` of them have the other class."""
    predicted = [i % 2 for i in range(len(id_scores))]
    data = graph(id_scores, -99.0, predicted)
    data.y = torch.tensor([1 - p if i < wrong else p for i, p in enumerate(predicted)] + [0])
    tests = {"near": graph(NEAR, 99.0, [0] * len(NEAR)), "far": graph(FAR, 99.0, [1] * len(FAR))}
    task = Task(name, data, ScoredNodes(data, data.ood_mask), tests, num_classes=2, protocol=protocol)
    return Detector.wrap(Features(), MaxLogit(), data, num_classes=2, propagation="as-given", device="cpu"), task


def test_numbers_are_those_counted_by_hand_and_those_of_scikit_learn() -> None:
    result = evaluate(*detector_and_task(ID_SCORES, wrong=3))
    # Of the ID nodes lie above an OOD node: 1 above 9.5, 5 above each 5.5, 7 above 3.0 and one equal, 10 above 0.5.
    assert result["tests"]["near"]["auroc"] == pytest.approx((1 + 5 + 5 + 7.5 + 6 * 10) / 10 * 10)
    precisions = [1 / 1, 2 / 3, 3 / 4, 4 / 5, 5 / 6, 6 / 9, 7 / 10, 8 / 12, 9 / 13, 10 / 14]
    assert result["tests"]["near"]["aupr"] == pytest.approx(100 * sum(precisions) / 10)
    is_id, scores = np.array([1] * len(ID_SCORES) + [0] * len(NEAR)), np.array(ID_SCORES + NEAR)
    assert result["tests"]["near"]["auroc"] == pytest.approx(100 * roc_auc_score(is_id, scores))
    assert result["tests"]["near"]["aupr"] == pytest.approx(100 * average_precision_score(is_id, scores))
    # Nine of ten ID nodes are not 95 %, so the threshold is 1, and four OOD nodes are at or above it.
    assert result["tests"]["near"]["fpr95"] == pytest.approx(40.0)
    assert result["tests"]["far"] == {"auroc": 100.0, "aupr": 100.0, "fpr95": 0.0}
    assert result["id_acc"] == pytest.approx(70.0)
    for metric in ("auroc", "aupr", "fpr95"):
        near, far = result["tests"]["near"][metric], result["tests"]["far"][metric]
        assert result[metric] == pytest.approx((near + far) / 2)


def with_validation(num_val: int) -> tuple[Detector, Task]:
    """The same task, whose training graph has validation nodes with the scores 1, 2, 3, ..."""
    _, task = detector_and_task(ID_SCORES, wrong=3)
    train = graph([50.0, 50.0, *(float(i) for i in range(1, num_val + 1))], -99.0, [0, 1, *[0] * num_val])
    place = torch.arange(train.num_nodes)
    train.y = (place == 1).long()
    train.train_mask = place < 2
    train.val_mask = (place >= 2) & (place < 2 + num_val)
    detector = Detector.wrap(Features(), MaxLogit(), train, propagation="as-given", device="cpu")
    return detector, task


def test_decisions_are_those_counted_by_hand() -> None:
    # Of 40 validation nodes, (2 + 1) / 41 are more than 5 %: nodes below the second lowest score are flagged, 2.0.
    result = evaluate(*with_validation(40))
    near, far = 100 * 6 / 10, 100.0  # the six of 0.5, and all of 0.25
    assert result["caught"] == pytest.approx((near + far) / 2)
    assert result["false_alarms"] == pytest.approx(10.0)  # the node of 1.0
    # The lowest of 19: one in 20 is 5 %.
    result = evaluate(*with_validation(19))
    assert (result["caught"], result["false_alarms"]) == (pytest.approx((near + far) / 2), 0.0)
    # Too few validation nodes for any decision, or none that are known.
    for given in (with_validation(18), detector_and_task(ID_SCORES, wrong=3)):
        assert not {"caught", "false_alarms"} & set(evaluate(*given))


def test_a_threshold_that_fit_left_is_used() -> None:
    detector, task = with_validation(40)
    detector.calibrate(task.id_test.data, 0.4, mask=task.id_test.mask)
    result = evaluate(detector, task)
    # A p-value of (3 + 1) / 11 is below 40 %, and (4 + 1) / 11 is not: nodes with at most three known ones below.
    assert detector.threshold_ == 4.0
    assert result["false_alarms"] == pytest.approx(30.0)
    assert result["caught"] == pytest.approx((70.0 + 100.0) / 2)


def test_the_published_protocol_reads_fpr_at_the_nearest_recall_and_twitch_by_its_roc_auc() -> None:
    scores = [*ID_SCORES, 11.0, 12.0, 0.5]
    detector, clean = detector_and_task(scores, wrong=4)
    assert evaluate(detector, clean)["tests"]["near"]["fpr95"] == pytest.approx(100.0)  # all 13, from 0.5 on
    detector, task = detector_and_task(scores, wrong=4, name="twitch", protocol="published")
    result = evaluate(detector, task)
    assert result["tests"]["near"]["fpr95"] == pytest.approx(40.0)  # 12 of 13 are nearer to 95 % than 13 of 13
    logits = task.train.x[:-1].double()
    second = logits.softmax(dim=1)[:, 1]
    assert result["id_acc"] == pytest.approx(100 * roc_auc_score(task.train.y[:-1], second))
    assert result["id_acc"] != pytest.approx(100 * 9 / 13)


def test_outputs_that_are_known_are_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    detector, task = detector_and_task(ID_SCORES, wrong=3)
    expected = evaluate(detector, task)
    outputs = TaskOutputs(detector, task)
    for graph in (outputs.id_test, *outputs.tests.values()):
        assert graph.all_logits is not None
    monkeypatch.setattr(Features, "forward", None)
    assert evaluate(detector, task, outputs) == expected
