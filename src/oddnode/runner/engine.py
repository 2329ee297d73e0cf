"""What runs groups of trainings: the contract of an engine, and the engine that runs them in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from oddnode.runner.groups import Group
from oddnode.runner.work import Outcome

__all__ = ["Engine", "InProcess", "Worker", "WorkerDied", "num_cores"]

#: Does the trainings of a group and yields an outcome for each. It may leave out trainings that are done elsewhere.
#: Engines send it to other processes, so it can be pickled; so can its outcomes.
Worker = Callable[[Group], Iterable[Outcome]]


class WorkerDied(RuntimeError):
    """The process that did a training died, for want of memory perhaps."""


class Engine(Protocol):
    """Runs groups of trainings, here, in other processes or on other machines."""

    def run(self, groups: Sequence[Group], worker: Worker) -> Iterator[Outcome]:
        """Have all groups done.

        Groups are begun in about the given order; an engine prefers to give a process groups on data that it has
        loaded. Closing the iterator, or an exception, ends all work that is under way.

        Parameters
        ----------
        groups : sequence of Group
            What is to be done.
        worker : callable
            Does a group; it is called in whatever process the engine chooses.

        Yields
        ------
        Outcome
            What the worker yielded, in the order in which it comes. A training whose process died has an outcome with
            a `WorkerDied` error and nothing else. An exception of the worker itself is raised.
        """
        ...


class InProcess:
    """Runs one group after another in this process.

    Parameters
    ----------
    threads : int, optional
        Threads that torch computes with meanwhile; as many as it does anyway if left out.
    """

    def __init__(self, threads: int | None = None):
        self.threads = threads

    def run(self, groups: Sequence[Group], worker: Worker) -> Iterator[Outcome]:
        """Have all groups done, as `Engine.run` says.

        Parameters
        ----------
        groups : sequence of Group
            What is to be done.
        worker : callable
            Does a group.

        Yields
        ------
        Outcome
            What the worker yielded.
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
