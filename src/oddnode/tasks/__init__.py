"""OOD tasks: an ID graph with splits, optional exposure, and graphs with OOD nodes to find.

May import: _utils.
"""

from oddnode.tasks.arxiv import ARXIV_SOURCE, arxiv_folders, arxiv_graph, arxiv_paths, arxiv_task
from oddnode.tasks.base import Protocol, ScoredNodes, Task
from oddnode.tasks.csv_gz import DamagedFileError, read_numbers
from oddnode.tasks.digits import digits_graph
from oddnode.tasks.files import MissingDataError, cache_dir, data_dir_of, find_files
from oddnode.tasks.planetoid import FOLDERS, planetoid_folders, planetoid_graph, planetoid_paths
from oddnode.tasks.registry import PAPER_TASKS, TASKS, DatasetState, dataset_states, expand_tasks, load_task, load_tasks
from oddnode.tasks.shifts import (
    feature_shift,
    feature_task,
    induced,
    label_task,
    stochastic_block_edges,
    structure_shift,
    structure_task,
)
from oddnode.tasks.splits import one_one_eight
from oddnode.tasks.twitch import SOURCE, twitch_folders, twitch_graph, twitch_paths, twitch_task

__all__ = [
    "ARXIV_SOURCE",
    "FOLDERS",
    "PAPER_TASKS",
    "SOURCE",
    "TASKS",
    "DamagedFileError",
    "DatasetState",
    "MissingDataError",
    "Protocol",
    "ScoredNodes",
    "Task",
    "arxiv_folders",
    "arxiv_graph",
    "arxiv_paths",
    "arxiv_task",
    "cache_dir",
    "data_dir_of",
    "dataset_states",
    "digits_graph",
    "expand_tasks",
    "feature_shift",
    "feature_task",
    "find_files",
    "induced",
    "label_task",
    "load_task",
    "load_tasks",
    "one_one_eight",
    "planetoid_folders",
    "planetoid_graph",
    "planetoid_paths",
    "read_numbers",
    "stochastic_block_edges",
    "structure_shift",
    "structure_task",
    "twitch_folders",
    "twitch_graph",
    "twitch_paths",
    "twitch_task",
]
