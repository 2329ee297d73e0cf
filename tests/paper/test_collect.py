"""Trainings on machines without the store: this process claims and saves, and the tables are the same."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oddnode.paper.run import run_plan
from oddnode.paper.store import Store
from oddnode.runner.engine import Futures, Processes, Worker, WorkerDied
from oddnode.runner.work import Group, Outcome
from tests.paper_helpers import CODE, detection_tables, run, tiny_plan

PLAN = tiny_plan("claims", "table3")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("alone")
    run(PLAN, folder)
    return detection_tables(PLAN, folder)


def test_what_comes_back_is_stored(expected: dict[str, str], tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        summary = run_plan(PLAN, tmp_path, CODE, engine=Futures(thread, 1))
    assert (summary.made, summary.lost) == (len(PLAN.trainings), [])
    assert detection_tables(PLAN, tmp_path) == expected
    assert list((tmp_path / "locks").iterdir()) == []
    with Store(tmp_path, CODE) as store:
        assert all(record.arrays for record in store.records())


def test_trainings_that_another_process_has_claimed_are_left_to_it(tmp_path: Path) -> None:
    theirs, *others = PLAN.trainings
    seen = []

    with Store(tmp_path, CODE) as store, ThreadPoolExecutor(1) as thread:
        claim = store.claim(theirs)
        assert claim.__enter__()

        def finish(progress: Any) -> None:
            seen.append(progress.done)
            if progress.done == len(others):  # the other process dies
                claim.__exit__(None, None, None)

        summary = run_plan(PLAN, tmp_path, CODE, engine=Futures(thread, 1), on_progress=finish)
    assert summary.made == len(PLAN.trainings)
    assert seen == list(range(len(PLAN.trainings) + 1))


class Deadly(ThreadPoolExecutor):
    """An executor whose workers die at one training."""

    def __init__(self, victim: str):
        super().__init__(1)
        self.victim = victim

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.victim not in {training.identity for training in args[1].trainings}:
            return super().submit(fn, *args, **kwargs)
        future: Future[Any] = Future()
        future.set_exception(WorkerDied("worker 17 on host-a died"))
        return future


class Dying(Processes):
    """Processes that die at one training, as those do that run out of memory."""

    def __init__(self, victim: str):
        super().__init__(2)
        self.victim = victim

    def run(self, groups: Iterable[Group], worker: Worker) -> Iterator[Outcome]:
        return super().run(groups, partial(die_or_work, self.victim, worker))


def die_or_work(victim: str, worker: Worker, group: Group) -> Iterator[Outcome]:
    if victim in {training.identity for training in group.trainings}:
        os._exit(9)
    yield from worker(group)


@pytest.mark.parametrize("is_remote", [True, False])
def test_a_training_whose_workers_die_is_lost_and_nothing_else(tmp_path: Path, is_remote: bool) -> None:
    victim = PLAN.trainings[1]
    with Deadly(victim.identity) as executor:
        engine = Futures(executor, 1) if is_remote else Dying(victim.identity)
        summary = run_plan(PLAN, tmp_path, CODE, jobs=2, engine=engine)
    assert summary.lost == [victim.label]
    assert summary.made == len(PLAN.trainings) - 1
    assert list((tmp_path / "locks").iterdir()) == []
    with Store(tmp_path, CODE) as store:
        assert len(store.finished()) == len(PLAN.trainings) - 1
