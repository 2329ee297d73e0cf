"""Evaluation of fitted detectors on tasks, and results over several seeds.

May import: protocols, detector and below, tasks. `Result` and the names of the metrics need no torch.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import exports
from oddnode.evaluation.results import DECISION_TITLES as DECISION_TITLES
from oddnode.evaluation.results import METRIC_TITLES as METRIC_TITLES
from oddnode.evaluation.results import METRICS as METRICS
from oddnode.evaluation.results import Result as Result

if TYPE_CHECKING:
    from oddnode.evaluation.task_evaluation import TaskOutputs as TaskOutputs
    from oddnode.evaluation.task_evaluation import evaluate as evaluate
else:
    __getattr__, __dir__, __all__ = exports(__name__)
