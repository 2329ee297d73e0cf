"""Engines, which run groups of trainings: in this process, in several on this machine, or on other machines.

If a process dies, the trainings of its group run again, each in a separate group.
"""

from __future__ import annotations

import copy
import gc
import logging
import os
import queue
import signal
import socket
import sys
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import replace
from multiprocessing import connection, get_all_start_methods, get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from oddnode._utils.plugins import file_plugins, load_plugins
from oddnode.runner.work import Group, Outcome, one_by_one

if TYPE_CHECKING:
    from oddnode.runner.execute import Setup

_log = logging.getLogger("oddnode.runner")

#: Runs the trainings of a group and yields an outcome for each. It may skip trainings that another process runs.
#: Engines send it to other processes, so it must be picklable, and so must its outcomes.
Worker = Callable[[Group], Iterable[Outcome]]


class WorkerDied(RuntimeError):
    """The process that ran a training died, perhaps because memory ran out."""


class Engine(Protocol):
    """Runs groups of trainings in this process, in others or on other machines."""

    #: Whether workers may be on other machines, which lack the files of this one.
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
            The outcomes of the worker, in order of arrival. If a process dies, the outcome of its training has only a
            `WorkerDied` error. Exceptions of the worker itself are raised.
        """
        ...


class InProcess:
    """Runs one group after another in this process.

    Parameters
    ----------
    threads : int, optional
        Number of torch threads during the run; unchanged by default.
    """

    is_remote = False

    def __init__(self, threads: int | None = None):
        self.threads = threads

    def run(self, groups: Iterable[Group], worker: Worker) -> Iterator[Outcome]:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(self.threads or before)
        try:
            for group in groups:
                yield from worker(group)
        finally:
            torch.set_num_threads(before)


class Processes:
    """Runs groups in processes that live until all groups are done.

    Parameters
    ----------
    jobs : int
        Number of processes.
    threads : int
        Number of torch threads in each process. On a CPU only this determines the order of floating-point sums, so
        results are equal bit for bit for any number of processes.
    may_fork : bool
        Whether processes may be forked from this one if `can_fork`: they start at once, but inherit open files.
        Otherwise they are forked from a server process that has only imported the library.
    on_gpu : bool
        Whether the processes compute on a GPU: they are then spawned, as on every machine that has one.
    """

    is_remote = False

    def __init__(self, jobs: int, threads: int = 1, may_fork: bool = False, on_gpu: bool = False):
        self.jobs = jobs
        self.threads = threads
        self.may_fork = may_fork
        self.on_gpu = on_gpu

    def run(self, groups: Iterable[Group], worker: Worker) -> Iterator[Outcome]:
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
                process.end(kill=True)

    def _new_process(self, worker: Worker) -> _Process:
        method = self._start_method()
        context: Any = get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload(["oddnode.runner.execute"])
        return _Process(context, worker, self.threads)

    def _start_method(self) -> str:
        if self.on_gpu or "forkserver" not in get_all_start_methods() or _has_accelerator():
            return "spawn"
        return "fork" if self.may_fork and self.threads == 1 and can_fork() else "forkserver"


# The control device of NVIDIA's driver on Linux.
_GPU_FILE = Path("/dev/nvidiactl")


def can_fork() -> bool:
    """Whether it is safe to fork a single-threaded process from this one."""
    return sys.platform == "linux" and not _has_accelerator()  # system libraries of other platforms break on fork


def _has_accelerator() -> bool:
    """Whether torch has a device besides the CPU, which rules out forking, even for work on the CPU.

    Importing the library queries devices, which initialises the driver. In a child forked after that, every further
    call to it fails, and torch's optimisers make one.
    """
    import torch

    # The device file first: to ask torch would itself initialise the driver.
    if torch.version.cuda is not None and _GPU_FILE.exists():
        return True
    return torch.cuda.is_initialized() or torch.cuda.is_available() or torch.accelerator.is_available()


def _next_group(waiting: list[Group], process: _Process, workers: list[_Process]) -> Group:
    """Take the next group: one whose data the process has, else one whose data no other process has, else the first."""
    loaded = [worker.group.data if worker.group else None for worker in (process, *workers)]
    mine = (n for n, group in enumerate(waiting) if group.data == loaded[0])
    new = (n for n, group in enumerate(waiting) if group.data not in loaded)
    return waiting.pop(next(mine, next(new, 0)))


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
            # Python warns about forking with threads; a single-threaded child does not touch its parent's.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        theirs.close()
        self.group: Group | None = None
        self.reported: set[str] = set()

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

    def end(self, kill: bool = False) -> None:
        """End an idle process, or kill one at work."""
        if kill:
            self.process.kill()
        else:
            self.pipe.send(None)
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
            for outcome in _outcomes(worker, group):
                pipe.send(outcome)
            pipe.send(_READY)
    except Exception as error:
        pipe.send(_portable(error))


def _receive_all(pipe: Any, groups: queue.Queue[Group | None]) -> None:
    """Receive groups on a separate thread; if the pipe closes, the parent is gone and this process exits."""
    try:
        while True:
            group = pipe.recv()
            groups.put(group)
            if group is None:
                return
    except (EOFError, OSError):
        os._exit(1)


class Futures:
    """Runs groups through an executor, whose workers may be on other machines.

    Machines of a cluster come and go, so a worker that dies says little about its training: trainings run again, each
    in a separate group, and are given up only after several deaths.
    """

    is_remote = True

    def __init__(self, executor: Executor, jobs: int, attempts: int = 3):
        self.executor = executor
        self.jobs = jobs
        self.attempts = attempts

    def run(self, groups: Iterable[Group], worker: Worker) -> Iterator[Outcome]:
        waiting, again = iter(groups), list[Group]()
        running: dict[Future[Any], Group] = {}
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
                        host, outcomes, error = future.result()
                    except WorkerDied as death:
                        yield from self._after(death, group, deaths, again)
                        continue
                    if error is not None:
                        _log.warning("failed on %s: %s", host, error)
                        raise error
                    yield from outcomes
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


def _run_group(worker: Worker, group: Group) -> tuple[str, list[Outcome], Exception | None]:
    """Run a group in this process, which the executor has chosen; also return the name of the machine."""
    outcomes: list[Outcome] = []
    error = None
    try:
        outcomes.extend(_outcomes(worker, group))
    except Exception as raised:
        error = _portable(raised)
    return socket.gethostname(), outcomes, error


def remote_setup(setup: Setup) -> Setup:
    """Adapt a setup to workers on other machines."""
    from oddnode._utils.devices import device_type

    data_dir = None if setup.data_dir is None else str(Path(setup.data_dir).expanduser().resolve())
    return replace(setup, device=device_type(setup.device), data_dir=data_dir, gpu_share=1.0)


def _outcomes(worker: Worker, group: Group) -> Iterator[Outcome]:
    """Run a group and make its outcomes picklable; a process that loses its GPU exits."""
    for outcome in worker(group):
        error = outcome.error
        if error is not None:
            outcome.error = _portable(error, may_exit=False)
        yield outcome
        if _is_lost_device(error):
            os._exit(1)


def _is_lost_device(error: Exception | None) -> bool:
    """Whether CUDA refuses all further work of this process, so that only a new process can continue."""
    import torch

    return "CUDA error" in str(error) and not isinstance(error, torch.OutOfMemoryError)


def _portable(error: Exception, may_exit: bool = True) -> Exception:
    """Add the traceback to an error as a note, or make a new one from its text if it cannot be pickled."""
    if may_exit and _is_lost_device(error):
        os._exit(1)  # the trainings run again in a new process
    if not isinstance(error, ValueError):  # those are messages for the user
        error.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)).rstrip())
    try:
        # Copying uses the same protocol as pickling.
        return error if isinstance(copy.copy(error), type(error)) else RuntimeError(str(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


def num_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
