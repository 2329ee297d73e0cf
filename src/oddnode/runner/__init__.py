"""Runs trainings for `bench` and `paper`, in this process or in several, each distinct training once.

A `Training` is the unit of work; `detectors` decides which methods share one. A `Group` has the trainings that one
process runs at a time, an `Engine` distributes groups over processes or machines, and `execute` fits and scores them.

May import: evaluation, protocols, detector and below, tasks. A name loads its module on first use: `Training` and
`Outcome` need no torch.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import exports

if TYPE_CHECKING:
    from oddnode.runner.detectors import build_detector as build_detector
    from oddnode.runner.detectors import distinct_trainings as distinct_trainings
    from oddnode.runner.engine import Engine as Engine
    from oddnode.runner.engine import Futures as Futures
    from oddnode.runner.engine import InProcess as InProcess
    from oddnode.runner.engine import Processes as Processes
    from oddnode.runner.engine import Worker as Worker
    from oddnode.runner.engine import WorkerDied as WorkerDied
    from oddnode.runner.execute import Setup as Setup
    from oddnode.runner.execute import execute_group as execute_group
    from oddnode.runner.ray_cluster import RayExecutor as RayExecutor
    from oddnode.runner.work import Group as Group
    from oddnode.runner.work import Outcome as Outcome
    from oddnode.runner.work import Training as Training
    from oddnode.runner.work import cell_groups as cell_groups
    from oddnode.runner.work import one_by_one as one_by_one
    from oddnode.runner.work import stacked_groups as stacked_groups
else:
    __getattr__, __dir__, __all__ = exports(__name__)
