"""How well a fitted detector does on a task, and the results of many such evaluations.

May import: protocols, detector and below, tasks.
"""

from oddnode.evaluation.results import Result
from oddnode.evaluation.task_evaluation import METRICS, TaskOutputs, evaluate

__all__ = ["METRICS", "Result", "TaskOutputs", "evaluate"]
