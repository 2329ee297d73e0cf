"""OOD tasks: an ID graph with splits, optional exposure, and graphs with OOD nodes to find."""

from oddnode.tasks.base import Protocol, ScoredNodes, Task
from oddnode.tasks.catalogue import PAPER_TASKS, TASKS, DatasetState, dataset_states, expand_tasks, load_task
from oddnode.tasks.files import MissingDataError
from oddnode.tasks.shifts import (
    feature_shift,
    feature_task,
    label_task,
    stochastic_block_edges,
    structure_shift,
    structure_task,
)

__all__ = [
    "PAPER_TASKS",
    "TASKS",
    "DatasetState",
    "MissingDataError",
    "Protocol",
    "ScoredNodes",
    "Task",
    "dataset_states",
    "expand_tasks",
    "feature_shift",
    "feature_task",
    "label_task",
    "load_task",
    "stochastic_block_edges",
    "structure_shift",
    "structure_task",
]
