"""The contract of an engine, which runs groups of trainings, and the engine that uses this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from oddnode.runner.groups import Group
from oddnode.runner.work import Outcome

__all__ = ["Engine", "InProcess", "Worker", "WorkerDied", "num_cores"]

#: Runs the trainings of a group and yields an outcome for each. It may skip trainings that another process runs.
#: Engines send it to other processes, so it must be picklable, and so must its outcomes.
Worker = Callable[[Group], Iterable[Outcome]]


class WorkerDied(RuntimeError):
    """The process that ran a training died, perhaps because memory ran out."""


class Engine(Protocol):
    """Runs groups of trainings in this process, in others or on other machines."""

    #: Whether workers may be on other machines, where the files of this one are not.
    is_remote: bool

    def run(self, groups: Iterable[Group], worker: Worker) -> Iterator[Outcome]:
        """Run all groups.

        Groups start in roughly the given order; an engine prefers to give a process groups whose data it has loaded.
        Closing the iterator, or an exception, stops all running work.

        Parameters
        ----------
        groups : iterable of Group
            The groups to run. A remote engine takes the next one only when a worker is about to need it.
        worker : callable
            Runs one group, in whatever process the engine chooses.

        Yields
        ------
        Outcome
            The outcomes of the worker, in order of arrival. If a process dies, its training gets an outcome that has a
            `WorkerDied` error only. Exceptions of the worker itself are raised.
        """
        ...


class InProcess:
    """Runs one group after another in this process.

    Parameters
    ----------
    threads : int, optional
        Number of torch's threads during the run; by default it is not changed.
    """

    is_remote = False

    def __init__(self, threads: int | None = None):
        self.threads = threads

    def run(self, groups: Iterable[Group], worker: Worker) -> Iterator[Outcome]:
        """Run all groups; see `Engine.run`.

        Parameters
        ----------
        groups : iterable of Group
            The groups to run.
        worker : callable
            Runs one group.

        Yields
        ------
        Outcome
            The outcomes of the worker.
        """
        with _threads(self.threads):
            for group in groups:
                yield from worker(group)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def num_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
