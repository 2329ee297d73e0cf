"""OOD tasks: an ID graph with splits, optional exposure, and graphs with OOD nodes to find.

May import: _utils.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import lazy_names
from oddnode.tasks.base import RULES, ScoredNodes, Task, TaskRules
from oddnode.tasks.catalogue import FOLDERS, KINDS, PLACEMENTS, UNSEEN_KINDS
from oddnode.tasks.datasets import (
    DATASETS,
    FEATURE,
    STRUCTURE,
    DatasetSpec,
    TaskFamily,
    TaskSpec,
    leave_out,
    register_dataset,
    register_family,
)
from oddnode.tasks.files import DataFiles, MissingDataError, cache_dir, data_dir_of
from oddnode.tasks.registry import (
    PAPER_TASKS,
    TASKS,
    DatasetState,
    check_data,
    dataset_states,
    expand_tasks,
    load_task,
    load_tasks,
)

if TYPE_CHECKING:
    from oddnode.tasks.alterations import ALTERATIONS
    from oddnode.tasks.arrivals import Arrivals, arrivals_task
    from oddnode.tasks.arxiv import arxiv_graph, arxiv_task
    from oddnode.tasks.csv_gz import DamagedFileError, read_numbers
    from oddnode.tasks.digits import digits_graph
    from oddnode.tasks.planetoid import planetoid_graph
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
    from oddnode.tasks.twitch import twitch_graph, twitch_task

__all__ = [
    "ALTERATIONS",
    "DATASETS",
    "FEATURE",
    "FOLDERS",
    "KINDS",
    "PAPER_TASKS",
    "PLACEMENTS",
    "RULES",
    "STRUCTURE",
    "TASKS",
    "UNSEEN_KINDS",
    "Arrivals",
    "DamagedFileError",
    "DataFiles",
    "DatasetSpec",
    "DatasetState",
    "MissingDataError",
    "ScoredNodes",
    "Task",
    "TaskFamily",
    "TaskRules",
    "TaskSpec",
    "arrivals_task",
    "arxiv_graph",
    "arxiv_task",
    "cache_dir",
    "check_data",
    "data_dir_of",
    "dataset_states",
    "digits_graph",
    "expand_tasks",
    "feature_shift",
    "feature_task",
    "induced",
    "label_task",
    "leave_out",
    "load_task",
    "load_tasks",
    "one_one_eight",
    "planetoid_graph",
    "read_numbers",
    "register_dataset",
    "register_family",
    "stochastic_block_edges",
    "structure_shift",
    "structure_task",
    "twitch_graph",
    "twitch_task",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "oddnode.tasks.alterations": ["ALTERATIONS"],
        "oddnode.tasks.arrivals": ["Arrivals", "arrivals_task"],
        "oddnode.tasks.arxiv": ["arxiv_graph", "arxiv_task"],
        "oddnode.tasks.csv_gz": ["DamagedFileError", "read_numbers"],
        "oddnode.tasks.digits": ["digits_graph"],
        "oddnode.tasks.planetoid": ["planetoid_graph"],
        "oddnode.tasks.shifts": [
            "feature_shift",
            "feature_task",
            "induced",
            "label_task",
            "stochastic_block_edges",
            "structure_shift",
            "structure_task",
        ],
        "oddnode.tasks.splits": ["one_one_eight"],
        "oddnode.tasks.twitch": ["twitch_graph", "twitch_task"],
    },
)
