"""OOD tasks: an ID graph with splits, optional exposure, and graphs with OOD nodes to find.

May import: graph and below.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import exports
from oddnode.tasks.catalogue import FOLDERS as FOLDERS
from oddnode.tasks.catalogue import PAPER_TASKS as PAPER_TASKS
from oddnode.tasks.catalogue import TASKS as TASKS
from oddnode.tasks.catalogue import DatasetState as DatasetState
from oddnode.tasks.catalogue import check_data as check_data
from oddnode.tasks.catalogue import dataset_states as dataset_states
from oddnode.tasks.catalogue import expand_tasks as expand_tasks
from oddnode.tasks.catalogue import load_task as load_task
from oddnode.tasks.catalogue import load_tasks as load_tasks
from oddnode.tasks.datasets import DATASETS as DATASETS
from oddnode.tasks.datasets import FEATURE as FEATURE
from oddnode.tasks.datasets import KINDS as KINDS
from oddnode.tasks.datasets import PLACEMENTS as PLACEMENTS
from oddnode.tasks.datasets import RULES as RULES
from oddnode.tasks.datasets import STRUCTURE as STRUCTURE
from oddnode.tasks.datasets import UNSEEN_KINDS as UNSEEN_KINDS
from oddnode.tasks.datasets import DataFiles as DataFiles
from oddnode.tasks.datasets import DatasetSpec as DatasetSpec
from oddnode.tasks.datasets import MissingDataError as MissingDataError
from oddnode.tasks.datasets import ScoredNodes as ScoredNodes
from oddnode.tasks.datasets import Task as Task
from oddnode.tasks.datasets import TaskFamily as TaskFamily
from oddnode.tasks.datasets import TaskRules as TaskRules
from oddnode.tasks.datasets import TaskSpec as TaskSpec
from oddnode.tasks.datasets import cache_dir as cache_dir
from oddnode.tasks.datasets import data_dir_of as data_dir_of
from oddnode.tasks.datasets import leave_out as leave_out
from oddnode.tasks.datasets import register_dataset as register_dataset
from oddnode.tasks.datasets import register_family as register_family

if TYPE_CHECKING:
    from oddnode.tasks.arrivals import Arrivals as Arrivals
    from oddnode.tasks.arrivals import arrivals_task as arrivals_task
    from oddnode.tasks.arxiv import DamagedFileError as DamagedFileError
    from oddnode.tasks.arxiv import arxiv_graph as arxiv_graph
    from oddnode.tasks.arxiv import arxiv_task as arxiv_task
    from oddnode.tasks.arxiv import read_numbers as read_numbers
    from oddnode.tasks.digits import digits_graph as digits_graph
    from oddnode.tasks.npz_graphs import npz_graph as npz_graph
    from oddnode.tasks.planetoid import planetoid_graph as planetoid_graph
    from oddnode.tasks.shifts import feature_shift as feature_shift
    from oddnode.tasks.shifts import feature_task as feature_task
    from oddnode.tasks.shifts import induced as induced
    from oddnode.tasks.shifts import label_task as label_task
    from oddnode.tasks.shifts import one_one_eight as one_one_eight
    from oddnode.tasks.shifts import stochastic_block_edges as stochastic_block_edges
    from oddnode.tasks.shifts import structure_shift as structure_shift
    from oddnode.tasks.shifts import structure_task as structure_task
    from oddnode.tasks.twitch import twitch_graph as twitch_graph
    from oddnode.tasks.twitch import twitch_task as twitch_task
    from oddnode.tasks.years import years_task as years_task
else:
    __getattr__, __dir__, __all__ = exports(__name__)
