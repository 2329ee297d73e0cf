"""Runs a plan in several processes on one store; may be stopped at any moment and continued."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import connection, get_all_start_methods, get_context
from pathlib import Path
from typing import Any

from oddnode._utils.plugins import file_plugins, load_plugins
from oddnode.paper.plan import Plan, _cost, unfinished
from oddnode.paper.record import Training
from oddnode.paper.store import Store

__all__ = ["Progress", "Summary", "run_plan", "work"]

# How long a process waits before it looks again for work that others had claimed.
_PATIENCE = 0.5


@dataclass(frozen=True)
class Progress:
    """How far a plan is: trainings, and the share of the expected time."""

    done: int
    total: int
    share: float
    last: str


@dataclass
class Summary:
    """What a run did: how many trainings it found, which it made again and which could not be done."""

    total: int
    found: int
    repaired: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    seconds: float = 0.0


def run_plan(
    plan: Plan,
    folder: Path,
    code: str,
    jobs: int = 1,
    threads: int = 1,
    any_version: bool = False,
    keep_scores: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Do what is missing of a plan.

    Every process computes with ``threads`` threads. On a CPU the order of floating-point sums depends on that and
    nothing else: the numbers are the same, bit for bit, for any number of jobs and however often a run was stopped.

    Parameters
    ----------
    code : str
        The version of the source, which new records carry.
    any_version : bool
        Take records of other versions as they are, too.
    keep_scores : int, optional
        Keep the scores of single nodes for this many seeds only; all if left out. Figures need those of the first.
    """
    began = time.monotonic()
    with Store(folder, None if any_version else code) as store:
        damaged = store.damaged(plan.trainings)
        for training in [*damaged, *_to_retry(plan, store)]:
            store.drop(training)
        missing = unfinished(plan, store)
        summary = Summary(len(plan.trainings), len(plan.trainings) - len(missing), [t.label for t in damaged])
        watch = _Watch(plan, store, on_progress)
        watch.look("")
        job = _Job(missing, folder, code, any_version, plan.data_dir, plan.device, threads, keep_scores)
        jobs = min(jobs, len(missing))
        if jobs == 1:
            work(job, tell=lambda what, label: watch.look(label) if what == "done" else None)
        elif jobs > 1:
            summary.lost = _run_processes(job, jobs, watch)
        summary.lost += [training.label for training in _to_retry(plan, store)]
    summary.seconds = time.monotonic() - began
    return summary


def _to_retry(plan: Plan, store: Store) -> list[Training]:
    """Trainings that failed for a reason that may be gone by now."""
    wanted = {training.identity for training in plan.trainings}
    retry = [record.training for record in store.records() if record.facts.get("retry")]
    return [training for training in retry if training.identity in wanted]


@dataclass(frozen=True)
class _Job:
    """All that a process needs to work on a plan."""

    trainings: list[Training]
    folder: Path
    code: str
    any_version: bool
    data_dir: str | None
    device: str
    threads: int
    keep_scores: int | None = None
    skip: frozenset[str] = frozenset()
    plugins: tuple[Path, ...] = field(default_factory=file_plugins)


class _Watch:
    """Tells how far the plan is, by what is in the store: other processes' work counts too."""

    def __init__(self, plan: Plan, store: Store, tell: Callable[[Progress], None] | None):
        self.costs = {training.identity: _cost(training) for training in plan.trainings}
        self.store = store
        self.tell = tell

    def look(self, last: str) -> None:
        if self.tell:
            done = self.store.finished() & self.costs.keys()
            share = sum(self.costs[i] for i in done) / (sum(self.costs.values()) or 1.0)
            self.tell(Progress(len(done), len(self.costs), share, last))


def work(job: _Job, tell: Callable[[str, str], None] | None = None) -> None:
    """Do trainings until none is left: claim, train, save. What others have claimed is waited for.

    ``tell`` is called with ``"start"`` and the identity of a training, and with ``"done"`` and its label.
    """
    with _threads(job.threads), Store(job.folder, None if job.any_version else job.code) as store:
        open_ones = [training for training in job.trainings if training.identity not in job.skip]
        while open_ones:
            progressed = False
            for training in open_ones:
                if not store.is_finished(training):
                    progressed |= _do(training, job, store, tell or (lambda what, text: None))
            done = store.finished()
            open_ones = [training for training in open_ones if training.identity not in done]
            if open_ones and not progressed:
                time.sleep(_PATIENCE)


def _do(training: Training, job: _Job, store: Store, tell: Callable[[str, str], None]) -> bool:
    """Do a training unless it is done or somebody else is at it; whether it was done here."""
    from oddnode.paper.execute import execute

    with store.claim(training) as mine:
        if not mine:
            return False
        tell("start", training.identity)
        outcome = execute(training, job.data_dir, job.device)
        store.save_graphs(training, outcome.graph_facts, outcome.graph_arrays)
        keep = job.keep_scores is None or training.seed < job.keep_scores
        store.save(training, job.code, outcome.facts, outcome.arrays if keep else {})
    tell("done", training.label)
    return True


# Processes


def _run_processes(job: _Job, jobs: int, watch: _Watch) -> list[str]:
    """Work in several processes. In place of one that dies comes another, which leaves its last training alone.

    Returns
    -------
    list of str
        What no process could do. Each of those that were there from the start may have tried it.
    """
    labels = {training.identity: training.label for training in job.trainings}
    lost: dict[str, None] = {}
    crew = [_Worker(job) for _ in range(jobs)]
    try:
        while crew:
            for ready in connection.wait([worker.pipe for worker in crew]):
                worker = next(w for w in crew if w.pipe is ready)
                message = worker.receive()
                if message is None:
                    crew.remove(worker)
                    if worker.error:
                        raise RuntimeError(worker.error)
                    if worker.process.exitcode and worker.at:
                        lost[worker.at] = None
                        job = replace(job, skip=frozenset(lost))
                        crew.append(_Worker(job))
                elif message[0] == "done":
                    watch.look(message[1])
    finally:
        for worker in crew:
            worker.stop()
    done = watch.store.finished()
    return [labels[identity] for identity in lost if identity not in done]


def _context(device: str) -> Any:
    """Where processes come from: a server that has imported the library and done nothing else, or fresh ones.

    A child forked from a process that may have touched a GPU could not use it.
    """
    from oddnode._utils.devices import is_gpu

    if is_gpu(device) or "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(["oddnode.paper.execute"])
    return context


class _Worker:
    """A process at work, and the pipe to it; the pipe's end tells either side that the other is gone."""

    def __init__(self, job: _Job):
        context = _context(job.device)
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_be_worker, args=(job, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.at: str | None = None
        self.error: str | None = None

    def receive(self) -> tuple[str, str] | None:
        """The next message, or ``None`` when the process has ended."""
        try:
            what, text = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            self.pipe.close()
            return None
        if what == "start":
            self.at = text
        elif what == "done":
            self.at = None
        elif what == "error":
            self.error = text
        return what, text

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def _be_worker(job: _Job, pipe: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C, and its end is ours
    threading.Thread(target=_die_with_parent, args=(pipe,), daemon=True).start()
    try:
        load_plugins(job.plugins)
        work(job, lambda what, text: pipe.send((what, text)))
    except Exception as error:
        pipe.send(("error", f"{type(error).__name__}: {error}"))


def _die_with_parent(pipe: Any) -> None:
    """Nobody writes to this pipe: that reading ends means that the parent is gone."""
    try:
        pipe.recv()
    except (EOFError, OSError):
        os._exit(1)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
