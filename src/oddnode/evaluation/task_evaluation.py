"""Evaluation of a fitted detector on a task."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from oddnode.detector import Detector
from oddnode.evaluation.results import METRICS
from oddnode.functional import aupr, auroc
from oddnode.protocols import EvaluationProtocol, get_protocol
from oddnode.scoring import Outputs
from oddnode.tasks import Task

__all__ = ["TaskOutputs", "evaluate"]


class TaskOutputs:
    """A network's outputs on all graphs of a task, computed once and shared by every scorer on that network.

    Parameters
    ----------
    detector : Detector
        A fitted detector.
    task : Task
        The task.
    """

    def __init__(self, detector: Detector, task: Task):
        self.task = task
        self.id_test = detector.outputs(task.id_test.data)
        # In label leave-out, ID and OOD nodes are in the same graph: one forward pass serves both.
        self.tests = {
            name: self.id_test if data is task.id_test.data else detector.outputs(data)
            for name, data in task.tests.items()
        }


def evaluate(detector: Detector, task: Task, outputs: TaskOutputs | None = None) -> dict[str, Any]:
    """Measure OOD detection and ID accuracy of a fitted detector on a task, in percent.

    Parameters
    ----------
    detector : Detector
        A detector that was fitted on the task.
    task : Task
        The task; its protocol defines FPR95 and the accuracy.
    outputs : TaskOutputs, optional
        The network's outputs on the task, if they are known already.

    Returns
    -------
    dict
        ``auroc``, ``aupr``, ``fpr95`` as means over the OOD test graphs, ``id_acc``, and under ``["tests"][name]``
        the first three for each graph.

    Examples
    --------
    >>> from oddnode import Detector, evaluate, load_task
    >>> task = load_task("digits/label")
    >>> result = evaluate(Detector.from_recipe("gnnsafe", epochs=50).fit(task.train), task)
    >>> sorted(result)
    ['aupr', 'auroc', 'fpr95', 'id_acc', 'tests']
    """
    outputs = outputs or TaskOutputs(detector, task)
    protocol = get_protocol(task.protocol)
    id_scores = detector.score_samples(outputs.id_test).cpu()[task.id_test.mask.cpu()]
    tests = {}
    for name, data in task.tests.items():
        ood_scores = detector.score_samples(outputs.tests[name]).cpu()[data.ood_mask.cpu()]
        tests[name] = _detection(id_scores, ood_scores, protocol)
    result: dict[str, Any] = {m: sum(t[m] for t in tests.values()) / len(tests) for m in METRICS[:3]}
    result["id_acc"] = _accuracy(detector, task, outputs.id_test, protocol)
    result["tests"] = tests
    return result


def _detection(id_scores: Tensor, ood_scores: Tensor, protocol: EvaluationProtocol) -> dict[str, float]:
    return {
        "auroc": 100 * auroc(id_scores, ood_scores),
        "aupr": 100 * aupr(id_scores, ood_scores),
        "fpr95": 100 * protocol.fpr_at_tpr(id_scores, ood_scores),
    }


def _accuracy(detector: Detector, task: Task, outputs: Outputs, protocol: EvaluationProtocol) -> float:
    nodes = task.id_test.mask.cpu()
    y = task.id_test.data.y.cpu()[nodes]
    predicted, probabilities = detector.predict(outputs).cpu()[nodes], detector.predict_proba(outputs).cpu()[nodes]
    return 100 * protocol.id_accuracy(predicted, probabilities, y, task.name)
