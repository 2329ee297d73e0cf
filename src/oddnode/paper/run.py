"""Runs a plan on a store. A run can be interrupted at any moment and continued later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from oddnode._utils.devices import is_gpu
from oddnode.paper.plan import Plan, estimate_cost, unfinished
from oddnode.paper.record import packed
from oddnode.paper.store import Store
from oddnode.runner.engine import Engine, InProcess, Processes, WorkerDied, num_cores, remote_setup
from oddnode.runner.execute import Setup, execute_group
from oddnode.runner.work import Group, Outcome, Training, one_by_one, stacked_groups

# Seconds to wait before checking again on trainings that other runs have claimed.
_PATIENCE = 0.5

# With more processes, a GPU only switches between them.
_JOBS_PER_GPU = 12


@dataclass(frozen=True)
class Progress:
    """The progress of a plan."""

    done: int  # Number of finished trainings
    total: int  # Number of all trainings
    share: float  # The finished share of the expected time, from 0 to 1
    last: str  # The label of the training that finished last


@dataclass
class Summary:
    """The outcome of a run."""

    total: int  # Number of trainings in the plan
    found: int  # Number of trainings that were in the store already
    made: int = 0  # Number of trainings that this run did
    repaired: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # Labels of trainings that failed
    seconds: float = 0.0  # Duration of the run


def default_jobs(device: str) -> int:
    """Return the default number of processes: one per core, with a limit on a GPU."""
    return min(num_cores(), _JOBS_PER_GPU) if is_gpu(device) else num_cores()


def run_plan(
    plan: Plan,
    folder: Path,
    code: str,
    jobs: int = 1,
    threads: int = 1,
    any_version: bool = False,
    keep_scores: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    engine: Engine | None = None,
) -> Summary:
    """Run the trainings of a plan that have no record yet.

    Every process uses ``threads`` threads. On a CPU, only this number determines the order of floating-point sums, so
    results are equal bit for bit for any number of jobs and interruptions. Several runs on one store share the work.
    """
    began = time.monotonic()
    with Store(folder, None if any_version else code) as store:
        summary = _clear_up(plan, store)
        report = _reporter(plan, store, on_progress)
        report("")
        setup = Setup(plan.device, plan.data_dir, node_scores=True, gpu_share=1 / jobs)
        worker = PlanWorker(folder, code, any_version, setup, keep_scores)
        lost: dict[str, Training] = {}
        # A forked child must not inherit the store's file, which this process has open.
        processes = Processes(jobs, threads, on_gpu=is_gpu(plan.device))
        engine = engine or (InProcess(threads) if jobs == 1 else processes)
        for outcome in _outcomes(plan, store, worker, jobs, engine, lost):
            summary.made += 1
            report(outcome.training.label)
        gone = [training for training in lost.values() if not store.is_finished(training)]
        summary.lost = [training.label for training in [*gone, *_to_retry(plan, store)]]
    summary.seconds = time.monotonic() - began
    return summary


def _clear_up(plan: Plan, store: Store) -> Summary:
    """Drop records of trainings that must run again, and count the others."""
    damaged = store.damaged(plan.trainings)
    for training in [*damaged, *_to_retry(plan, store)]:
        store.drop(training)
    found = len(plan.trainings) - len(unfinished(plan, store))
    return Summary(len(plan.trainings), found, repaired=[training.label for training in damaged])


def _to_retry(plan: Plan, store: Store) -> list[Training]:
    """The trainings that failed for a reason that may no longer exist."""
    wanted = {training.identity for training in plan.trainings}
    retry = [record.training for record in store.records() if record.facts.get("retry")]
    return [training for training in retry if training.identity in wanted]


def _outcomes(
    plan: Plan, store: Store, worker: PlanWorker, jobs: int, engine: Engine, lost: dict[str, Training]
) -> Iterator[Outcome]:
    """Run all trainings without a record, and wait for those that another run has claimed.

    Trainings whose process died are added to ``lost``.
    """
    while missing := [training for training in unfinished(plan, store) if training.identity not in lost]:
        free = [training for training in missing if not store.is_claimed(training)]
        if not free:
            time.sleep(_PATIENCE)
            continue
        groups = stacked_groups(free, jobs) if is_gpu(plan.device) else one_by_one(free)
        run = collect(groups, worker, store, engine) if engine.is_remote else engine.run(groups, worker)
        for outcome in run:
            if isinstance(outcome.error, WorkerDied):
                lost[outcome.training.identity] = outcome.training
            else:
                yield outcome


@dataclass(frozen=True)
class PlanWorker:
    """Runs groups of trainings for a store: claim, execute, save. Trainings claimed by other processes are skipped."""

    folder: Path
    code: str  # The version of the source, which new records carry
    any_version: bool  # Whether records of other versions count
    setup: Setup  # Device, data and memory for the trainings
    keep_scores: int | None = None  # Number of seeds whose node scores are kept; by default all

    def __call__(self, group: Group) -> Iterator[Outcome]:
        """Run a group."""
        with Store(self.folder, None if self.any_version else self.code) as store, ExitStack() as claims:
            mine = [t.identity for t in group.trainings if claims.enter_context(store.claim(t))]
            if mine:
                for outcome in execute_group(group.only(mine), self.setup):
                    self.save(outcome, store)
                    yield Outcome(outcome.training)

    def save(self, outcome: Outcome, store: Store) -> None:
        """Write a record of an outcome."""
        training = outcome.training
        keep = self.keep_scores is None or training.seed < self.keep_scores
        began = time.perf_counter()
        blob = packed(outcome.arrays if keep else {})
        outcome.facts["seconds"]["pack"] = time.perf_counter() - began
        store.save_graphs(training, outcome.graph_facts, outcome.graph_arrays)
        store.save(training, self.code, outcome.facts, blob)


def _reporter(plan: Plan, store: Store, on_progress: Callable[[Progress], None] | None) -> Callable[[str], None]:
    """Report the progress of the plan from the records in the store, which other runs write too."""
    costs = {training.identity: estimate_cost(training) for training in plan.trainings}

    def report(last: str) -> None:
        if on_progress:
            done = store.finished() & costs.keys()
            share = sum(costs[i] for i in done) / (sum(costs.values()) or 1.0)
            on_progress(Progress(len(done), len(costs), share, last))

    return report


def collect(groups: Iterable[Group], worker: PlanWorker, store: Store, engine: Engine) -> Iterator[Outcome]:
    """Run groups on a remote engine and save their outcomes in the store of this process.

    A training is claimed from when the engine takes its group until its outcome is saved; trainings that another
    process has claimed are skipped.
    """
    claims: dict[str, ExitStack] = {}
    try:
        setup = remote_setup(worker.setup)
        for outcome in engine.run(_claimed(groups, store, claims), partial(execute_group, setup=setup)):
            has_died = isinstance(outcome.error, WorkerDied)
            if not has_died:
                worker.save(outcome, store)
            claims.pop(outcome.training.identity).close()
            yield outcome if has_died else Outcome(outcome.training)
    finally:
        for claim in claims.values():
            claim.close()


def _claimed(groups: Iterable[Group], store: Store, claims: dict[str, ExitStack]) -> Iterator[Group]:
    """Claim the trainings of each group as it is taken; their locks are added to ``claims``."""
    for group in groups:
        mine = []
        for training in group.trainings:
            with ExitStack() as claim:
                if claim.enter_context(store.claim(training)):
                    claims[training.identity] = claim.pop_all()
                    mine.append(training.identity)
        if mine:
            yield group.only(mine)
