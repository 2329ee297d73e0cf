"""The engine that runs groups of trainings in several processes of this machine.

If a process dies, the trainings of its group run again, each in a group of its own; a training is lost if its process
dies then too. Processes end when their parent ends, whatever the reason.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from multiprocessing import connection, get_all_start_methods, get_context
from pathlib import Path
from typing import Any

from oddnode._utils.plugins import file_plugins, load_plugins
from oddnode.runner.engine import Worker, WorkerDied
from oddnode.runner.groups import Group, one_by_one
from oddnode.runner.portable import is_lost_device, portable, portable_error
from oddnode.runner.work import Outcome

__all__ = ["Processes", "can_fork"]


class Processes:
    """Runs groups in processes that live until all groups are done.

    Parameters
    ----------
    jobs : int
        Number of processes.
    threads : int
        Torch's threads in each process. On a CPU the order of floating-point sums depends on this number only, so
        results are equal bit for bit for any number of processes.
    may_fork : bool
        Whether processes may be forked from this one if it is safe: they start at once, but inherit open files.
        Otherwise they are forked from a server process that has only imported the library.
    on_gpu : bool
        Whether the processes compute on a GPU: they are then spawned. Importing the library asks torch which devices
        there are, and CUDA refuses to work in a process that was forked after that.
    """

    is_remote = False

    def __init__(self, jobs: int, threads: int = 1, may_fork: bool = False, on_gpu: bool = False):
        self.jobs = jobs
        self.threads = threads
        self.may_fork = may_fork
        self.on_gpu = on_gpu

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
            The outcomes of the worker, in order of arrival.
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
    """Whether it is safe to fork a single-threaded process from this one."""
    # A forked child cannot use CUDA once its parent has initialised it, and system libraries elsewhere break on fork.
    if sys.platform != "linux":
        return False
    import torch

    return not torch.cuda.is_initialized()


def _next_group(waiting: list[Group], process: _Process, workers: list[_Process]) -> Group:
    """Take the next group: one whose data the process has, else one whose data no other process has, else the first."""
    own = process.data
    others = {other.data for other in workers}
    place = next((n for n, group in enumerate(waiting) if group.data == own), None)
    if place is None:
        place = next((n for n, group in enumerate(waiting) if group.data not in others), 0)
    return waiting.pop(place)


def _given_up(process: _Process, waiting: list[Group]) -> Iterator[Outcome]:
    """Queue the trainings of a dead process one by one, or give up on a training that was alone in its group."""
    if process.group is None:
        raise WorkerDied("a worker process died before its first training")
    left = [training for training in process.group.trainings if training.identity not in process.reported]
    if len(left) > 1:
        waiting[:0] = one_by_one(left)
    else:
        for training in left:
            yield Outcome(training, error=WorkerDied(f"the process that ran {training.label} died"))


_READY, _DIED = "ready", "died"


class _Process:
    """A worker process and the pipe to it. Either side learns from a closed pipe that the other has ended."""

    def __init__(self, context: Any, worker: Worker, threads: int):
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(worker, theirs, threads, file_plugins()), daemon=True)
        with warnings.catch_warnings():
            # Python warns of forking with threads; a single-threaded child does not touch its parent's.
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
        """Wait for an outcome, ``_READY`` or ``_DIED``."""
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
        """End an idle process."""
        self.pipe.send(None)
        self.process.join()
        self.pipe.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(worker: Worker, pipe: Any, threads: int, plugins: tuple[Path, ...]) -> None:
    """Run groups until there are no more; the main function of a worker process."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
    groups: queue.Queue[Group | None] = queue.Queue()
    threading.Thread(target=_receive_all, args=(pipe, groups), daemon=True).start()
    try:
        load_plugins(plugins)
        torch.set_num_threads(threads)
        gc.freeze()  # imported modules are never garbage; scanning them would take a few percent of the time
        pipe.send(_READY)
        while (group := groups.get()) is not None:
            for outcome in worker(group):
                lost = is_lost_device(outcome.error)
                pipe.send(portable(outcome))
                if lost:
                    os._exit(1)
            pipe.send(_READY)
    except Exception as error:
        if is_lost_device(error):
            os._exit(1)
        pipe.send(portable_error(error))


def _receive_all(pipe: Any, groups: queue.Queue[Group | None]) -> None:
    """Receive groups on a thread of its own; if the pipe closes, the parent is gone and this process exits."""
    try:
        while True:
            group = pipe.recv()
            groups.put(group)
            if group is None:
                return
    except (EOFError, OSError):
        os._exit(1)
