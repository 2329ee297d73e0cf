"""Runs trainings for `bench` and `paper`, in this process or in several, each distinct training once.

A `Training` is the unit of work; `detectors` decides which methods share one. `groups` combines trainings that one
process runs at a time, an `Engine` distributes groups over processes or machines, and `execute` fits and scores them.

May import: evaluation, protocols, detector and below, tasks. A name loads its module on first use: `Training` and
`Outcome` need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oddnode.runner.detectors import build_detector, distinct_trainings
    from oddnode.runner.engine import Engine, InProcess, Worker, WorkerDied, num_cores
    from oddnode.runner.execute import Setup, execute_group
    from oddnode.runner.futures import Futures, remote_setup
    from oddnode.runner.groups import Group, cell_groups, one_by_one, stacked_groups
    from oddnode.runner.processes import Processes
    from oddnode.runner.ray_cluster import RayExecutor
    from oddnode.runner.work import Outcome, Training

__all__ = [
    "Engine",
    "Futures",
    "Group",
    "InProcess",
    "Outcome",
    "Processes",
    "RayExecutor",
    "Setup",
    "Training",
    "Worker",
    "WorkerDied",
    "build_detector",
    "cell_groups",
    "distinct_trainings",
    "execute_group",
    "num_cores",
    "one_by_one",
    "remote_setup",
    "stacked_groups",
]

# `source_key` takes a full module name in a string for an import, and what is listed here runs no training by itself.
_HOME = {
    "Engine": "engine",
    "Futures": "futures",
    "Group": "groups",
    "InProcess": "engine",
    "Outcome": "work",
    "Processes": "processes",
    "RayExecutor": "ray_cluster",
    "Setup": "execute",
    "Training": "work",
    "Worker": "engine",
    "WorkerDied": "engine",
    "build_detector": "detectors",
    "cell_groups": "groups",
    "distinct_trainings": "detectors",
    "execute_group": "execute",
    "num_cores": "engine",
    "one_by_one": "groups",
    "remote_setup": "futures",
    "stacked_groups": "groups",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
