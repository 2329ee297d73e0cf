"""Evaluation of a fitted detector on a task."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from oddnode.detector import Calibration, Detector
from oddnode.evaluation.results import METRICS
from oddnode.functional import CalibrationError, aupr, auroc
from oddnode.protocols import get_protocol
from oddnode.tasks import Task


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
        the first three for each graph. ``caught`` and ``false_alarms`` are the shares of OOD and of ID nodes that are
        flagged at a false-alarm rate of 5 %: at the threshold that `fit` left, or else one that is calibrated on the
        validation nodes in the training graph. They are absent if there are too few of these, or no training graph;
        what needs OOD nodes is absent if the task has none.

    Examples
    --------
    >>> from oddnode import Detector, evaluate, load_task
    >>> task = load_task("digits/label")
    >>> result = evaluate(Detector.from_recipe("gnnsafe", epochs=50).fit(task.train), task)
    >>> sorted(result)
    ['aupr', 'auroc', 'caught', 'false_alarms', 'fpr95', 'id_acc', 'tests']
    """
    outputs = outputs or TaskOutputs(detector, task)
    protocol = get_protocol(task.protocol)
    id_scores = detector.score_samples(outputs.id_test).cpu()[task.id_test.mask.cpu()]
    ood_scores = {
        name: detector.score_samples(outputs.tests[name]).cpu()[data.ood_mask.cpu()]
        for name, data in task.tests.items()
        if bool(data.ood_mask.any())
    }
    tests = {
        name: {
            "auroc": 100 * auroc(id_scores, scores),
            "aupr": 100 * aupr(id_scores, scores),
            "fpr95": 100 * protocol.fpr_at_tpr(id_scores, scores),
        }
        for name, scores in ood_scores.items()
    }
    result: dict[str, Any] = {m: sum(t[m] for t in tests.values()) / len(tests) for m in METRICS[:3] if tests}
    calibration = detector.calibration_ or _calibration_on_validation_nodes(detector)
    if calibration is not None:
        caught = [_flagged(calibration, scores) for scores in ood_scores.values()]
        result |= {"caught": sum(caught) / len(caught)} if caught else {}
        result["false_alarms"] = _flagged(calibration, id_scores)
    nodes = task.id_test.mask.cpu()
    y, classes = task.id_test.data.y.cpu()[nodes], detector.predict(outputs.id_test).cpu()[nodes]
    probabilities = detector.predict_proba(outputs.id_test).cpu()[nodes]
    result["id_acc"] = 100 * protocol.id_accuracy(classes, probabilities, y, task.name)
    result["tests"] = tests
    return result


def _calibration_on_validation_nodes(detector: Detector) -> Calibration | None:
    training = detector.state_.training
    if training is None or training.outputs.labelled is None:
        return None
    labelled = training.outputs.labelled
    nodes = labelled[~torch.isin(labelled, training.train)]
    try:
        return Calibration.from_scores(detector.score_samples(training.outputs)[nodes])
    except CalibrationError:  # too few nodes for the rate
        return None


def _flagged(calibration: Calibration, scores: Tensor) -> float:
    """The share of flagged nodes, in percent."""
    return 100 * calibration.detect(scores).double().mean().item()
