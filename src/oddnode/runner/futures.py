"""The engine that gives groups of trainings to an executor in the shape of `concurrent.futures`, on other machines.

`oddnode.runner.ray_cluster` has the executor for a Ray cluster. If a worker dies, the trainings of its group run again.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from oddnode.runner.engine import Worker, WorkerDied
from oddnode.runner.groups import Group, one_by_one
from oddnode.runner.portable import is_lost_device, portable, portable_error
from oddnode.runner.work import Outcome

if TYPE_CHECKING:
    from oddnode.runner.execute import Setup

__all__ = ["Futures", "remote_setup"]

_log = logging.getLogger("oddnode.runner")


class Futures:
    """Runs groups through an executor, whose workers may be on other machines.

    Machines of a cluster come and go, so a worker that dies says little about its training: trainings run again, each
    in a group of its own, and are lost only after several deaths.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Where groups run. A future whose worker died raises `WorkerDied`. The caller shuts the executor down; if a run
        is stopped or fails, this engine does.
    jobs : int
        Number of groups that the executor runs at a time.
    attempts : int
        How often a training is tried in a group of its own.
    """

    is_remote = True

    def __init__(self, executor: Executor, jobs: int, attempts: int = 3):
        self.executor = executor
        self.jobs = jobs
        self.attempts = attempts

    def run(self, groups: Iterable[Group], worker: Worker) -> Iterator[Outcome]:
        """Run all groups; see `Engine.run`.

        Parameters
        ----------
        groups : iterable of Group
            The groups to run. Twice as many as run at a time are taken in advance, so that no worker waits.
        worker : callable
            Runs one group.

        Yields
        ------
        Outcome
            The outcomes of the worker; those of a group come together when it has ended.
        """
        waiting, again = iter(groups), list[Group]()
        running: dict[Future[_Report], Group] = {}
        deaths: Counter[str] = Counter()
        try:
            while True:
                while again or len(running) < 2 * self.jobs:
                    group = again.pop() if again else next(waiting, None)
                    if group is None:
                        break
                    running[self.executor.submit(_run_group, worker, group)] = group
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    group = running.pop(future)
                    try:
                        yield from future.result().outcomes_or_error()
                    except WorkerDied as death:
                        yield from self._after(death, group, deaths, again)
        finally:
            if running:
                self.executor.shutdown(cancel_futures=True)

    def _after(self, death: WorkerDied, group: Group, deaths: Counter[str], again: list[Group]) -> Iterator[Outcome]:
        """Queue the trainings of a dead worker again, or give up on one that was alone in its group too often."""
        first, *others = group.trainings
        if not others:
            deaths[first.identity] += 1
            if deaths[first.identity] == self.attempts:
                _log.warning("%s; given up after %d attempts: %s", death, self.attempts, first.label)
                yield Outcome(first, error=death)
                return
        more = f" and {len(others)} more" if others else ""
        _log.warning("%s; running again: %s%s", death, first.label, more)
        again.extend(one_by_one(group.trainings))


@dataclass(frozen=True)
class _Report:
    """What came of a group, and where it ran."""

    host: str
    outcomes: list[Outcome]
    error: Exception | None = None

    def outcomes_or_error(self) -> list[Outcome]:
        if self.error is not None:
            _log.warning("failed on %s: %s", self.host, self.error)
            raise self.error
        return self.outcomes


def _run_group(worker: Worker, group: Group) -> _Report:
    """Run a group in this process, which the executor has chosen."""
    host, outcomes = socket.gethostname(), list[Outcome]()
    try:
        for outcome in worker(group):
            if is_lost_device(outcome.error):
                os._exit(1)  # the trainings run again in a new process
            outcomes.append(portable(outcome))
    except Exception as error:
        if is_lost_device(error):
            os._exit(1)
        return _Report(host, outcomes, portable_error(error))
    return _Report(host, outcomes)


def remote_setup(setup: Setup) -> Setup:
    """Adapt a setup to workers on other machines.

    Parameters
    ----------
    setup : Setup
        A setup for this machine.

    Returns
    -------
    Setup
        With the kind of device that this machine has, so that all compute on the same kind; with whole GPUs; and with
        the full path of the data, which must be the same on every machine.
    """
    from oddnode._utils.devices import device_type

    data_dir = None if setup.data_dir is None else str(Path(setup.data_dir).expanduser().resolve())
    return replace(setup, device=device_type(setup.device), data_dir=data_dir, gpu_share=1.0)
