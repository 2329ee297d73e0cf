"""The engine that runs groups of trainings in several processes of this machine.

A process that dies costs one training: the group it was at is done again training by training, and the one that is
alone with its process when that dies is lost. Processes end with their parent, however that ends.
"""

from __future__ import annotations

import copy
import gc
import os
import queue
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing import connection, get_all_start_methods, get_context
from pathlib import Path
from typing import Any

from oddnode._utils.plugins import file_plugins, load_plugins
from oddnode.runner.engine import Worker, WorkerDied
from oddnode.runner.groups import Group, one_by_one
from oddnode.runner.work import Outcome

__all__ = ["Processes", "can_fork"]


class Processes:
    """Runs groups in processes that are kept until nothing is left to do.

    Parameters
    ----------
    jobs : int
        How many processes.
    threads : int
        Threads that torch computes with in each. On a CPU the order of floating-point sums depends on that and on
        nothing else, so that the numbers are the same, bit for bit, for any number of processes.
    may_fork : bool
        Whether processes may be forked from this one, if it is safe: they then start at once, but inherit whatever is
        open. Otherwise they come from a server that has imported the library and done nothing else.
    on_gpu : bool
        Whether they compute on a GPU: they are then started afresh. Importing the library asks torch which devices
        there are, and CUDA refuses to work in a process that was forked after that.
    """

    def __init__(self, jobs: int, threads: int = 1, may_fork: bool = False, on_gpu: bool = False):
        self.jobs = jobs
        self.threads = threads
        self.may_fork = may_fork
        self.on_gpu = on_gpu

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
            What the worker yielded, in the order in which it comes.
        """
        waiting = list(groups)
        workers = [self._new_process(worker) for _ in range(min(self.jobs, len(waiting)))]
        try:
            while workers:
                for ready in connection.wait([process.pipe for process in workers]):
                    process = next(p for p in workers if p.pipe is ready)
                    message = process.receive()
                    if isinstance(message, Outcome):
                        yield message
                        continue
                    if message is _DIED:
                        workers.remove(process)
                        yield from _given_up(process, waiting)
                        if waiting:
                            workers.append(self._new_process(worker))
                    elif waiting:
                        process.give(_next_group(waiting, process, workers))
                    else:
                        workers.remove(process)
                        process.end()
        finally:
            for process in workers:
                process.kill()

    def _new_process(self, worker: Worker) -> _Process:
        method = self._start_method()
        context: Any = get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload(["oddnode.runner.execute"])
        return _Process(context, worker, self.threads)

    def _start_method(self) -> str:
        if self.on_gpu or "forkserver" not in get_all_start_methods():
            return "spawn"
        return "fork" if self.may_fork and self.threads == 1 and can_fork() else "forkserver"


def can_fork() -> bool:
    """Whether a process that computes with one thread may be forked from this one."""
    # A forked child cannot use its parent's GPU; and forking is unsafe with the system libraries of other platforms.
    if sys.platform != "linux":
        return False
    import torch

    return not torch.cuda.is_initialized()


def _next_group(waiting: list[Group], process: _Process, workers: list[_Process]) -> Group:
    """Take the next group: one on data that the process has, else on data that no other has, else the first."""
    own = process.data
    others = {other.data for other in workers}
    place = next((n for n, group in enumerate(waiting) if group.data == own), None)
    if place is None:
        place = next((n for n, group in enumerate(waiting) if group.data not in others), 0)
    return waiting.pop(place)


def _given_up(process: _Process, waiting: list[Group]) -> Iterator[Outcome]:
    """What to do about the group of a process that died: try its trainings alone, or give the last one up."""
    if process.group is None:
        raise WorkerDied("a process for trainings died before it could begin")
    left = [training for training in process.group.trainings if training.identity not in process.reported]
    if len(left) > 1:
        waiting[:0] = one_by_one(left)
    else:
        for training in left:
            yield Outcome(training, error=WorkerDied(f"the process that did {training.label} died"))


_READY, _DIED = "ready", "died"


class _Process:
    """A process at work, and the pipe to it; the pipe's end tells either side that the other is gone."""

    def __init__(self, context: Any, worker: Worker, threads: int):
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(worker, theirs, threads, file_plugins()), daemon=True)
        with warnings.catch_warnings():
            # Of forking beside threads: a child that computes with one thread does not touch its parent's.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        theirs.close()
        self.group: Group | None = None
        self.reported: set[str] = set()

    @property
    def data(self) -> tuple[str, str] | None:
        """The task and protocol that the process has loaded."""
        return None if self.group is None else self.group.data

    def give(self, group: Group) -> None:
        self.group, self.reported = group, set()
        self.pipe.send(group)

    def receive(self) -> Outcome | str:
        """An outcome; or that the process is ready for a group, or died."""
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            self.pipe.close()
            return _DIED
        if isinstance(message, Exception):
            raise message
        if isinstance(message, Outcome):
            self.reported.add(message.training.identity)
        return message

    def end(self) -> None:
        """Let a process that has nothing to do go."""
        self.pipe.send(None)
        self.process.join()
        self.pipe.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(worker: Worker, pipe: Any, threads: int, plugins: tuple[Path, ...]) -> None:
    """Do groups until there are no more: the life of a process."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C, and its end is ours
    groups: queue.Queue[Group | None] = queue.Queue()
    threading.Thread(target=_receive_all, args=(pipe, groups), daemon=True).start()
    try:
        load_plugins(plugins)
        torch.set_num_threads(threads)
        gc.freeze()  # what was imported stays; looking for garbage in it would take a few percent of the time
        pipe.send(_READY)
        while (group := groups.get()) is not None:
            for outcome in worker(group):
                pipe.send(_portable(outcome))
            pipe.send(_READY)
    except Exception as error:
        pipe.send(_portable_error(error))


def _receive_all(pipe: Any, groups: queue.Queue[Group | None]) -> None:
    """Receive while the process works: that the pipe ends means that the parent is gone, and so is this process."""
    try:
        while True:
            group = pipe.recv()
            groups.put(group)
            if group is None:
                return
    except (EOFError, OSError):
        os._exit(1)


def _portable(outcome: Outcome) -> Outcome:
    if outcome.error is not None:
        outcome.error = _portable_error(outcome.error)
    return outcome


def _portable_error(error: Exception) -> Exception:
    """The error, or its text where the error itself cannot be sent."""
    try:
        # A copy is rebuilt in the same way as what arrives in another process.
        return error if isinstance(copy.copy(error), type(error)) else RuntimeError(str(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
