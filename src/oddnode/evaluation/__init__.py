"""Evaluation of fitted detectors on tasks, and results over several seeds.

May import: protocols, detector and below, tasks. `Result` and the names of the metrics need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oddnode.evaluation.results import DECISION_TITLES, METRIC_TITLES, METRICS, Result

if TYPE_CHECKING:
    from oddnode.evaluation.task_evaluation import TaskOutputs, evaluate

__all__ = ["DECISION_TITLES", "METRICS", "METRIC_TITLES", "Result", "TaskOutputs", "evaluate"]


def __getattr__(name: str) -> Any:
    # Tables and pages of stored results need no network, so torch is loaded by the first evaluation only.
    if name not in ("TaskOutputs", "evaluate"):
        raise AttributeError(f"module 'oddnode.evaluation' has no attribute {name!r}")
    return getattr(import_module("oddnode.evaluation.task_evaluation"), name)
