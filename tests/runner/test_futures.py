"""Groups that run through an executor: all are done, trainings of dead workers run again, errors reach the caller."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from oddnode.runner.engine import Futures, WorkerDied, remote_setup
from oddnode.runner.execute import Setup
from oddnode.runner.work import Group, Outcome, Training
from oddnode.tasks import MissingDataError


def training(seed: int) -> Training:
    return Training("digits/label", "clean", "gcn", seed, ("msp",))


GROUPS = [Group(tuple((training(4 * n + place),) for place in range(4))) for n in range(3)]


class Threads(ThreadPoolExecutor):
    """Calls in threads; a call whose group has one of some seeds dies, as many times as is said."""

    def __init__(self, deaths: dict[int, int] | None = None):
        super().__init__(2)
        self.deaths = Counter(deaths)
        self.num_submitted = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.num_submitted += 1
        [seed] = [one.seed for one in args[1].trainings if self.deaths[one.seed]][:1] or [None]
        if seed is None:
            return super().submit(fn, *args, **kwargs)
        self.deaths[seed] -= 1
        future: Future[Any] = Future()
        future.set_exception(WorkerDied("worker 17 on host-a died"))
        return future


def work(group: Group) -> Iterator[Outcome]:
    for one in group.trainings:
        yield Outcome(one, facts={"alone": len(group.trainings) == 1})


def fail(group: Group) -> Iterator[Outcome]:
    yield Outcome(group.trainings[0])
    raise MissingDataError("not here")


def seeds(outcomes: list[Outcome]) -> Counter[int]:
    return Counter(outcome.training.seed for outcome in outcomes)


def test_every_training_is_done_once() -> None:
    with Threads() as executor:
        outcomes = list(Futures(executor, 2).run(GROUPS, work))
    assert seeds(outcomes) == Counter(range(12))


def test_an_executor_of_processes_will_do() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as executor:
        outcomes = list(Futures(executor, 2).run(GROUPS, work))
    assert seeds(outcomes) == Counter(range(12))


def test_trainings_of_a_dead_worker_run_again_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    with Threads({5: 3}) as executor:
        outcomes = list(Futures(executor, 2).run(GROUPS, work))
    assert seeds(outcomes) == Counter(range(12))
    assert not [outcome for outcome in outcomes if outcome.error]
    assert {outcome.training.seed for outcome in outcomes if outcome.facts["alone"]} == {4, 5, 6, 7}
    again = "worker 17 on host-a died; running again: digits/label, msp, clean, seed"
    assert caplog.messages == [f"{again} 4 and 3 more", f"{again} 5", f"{again} 5"]


def test_a_training_that_always_dies_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    with Threads({5: 99}) as executor:
        outcomes = list(Futures(executor, 2, attempts=2).run(GROUPS, work))
        assert executor.deaths[5] == 99 - 3
    assert seeds(outcomes) == Counter(range(12))
    [lost] = [outcome for outcome in outcomes if outcome.error]
    assert lost.training.seed == 5
    assert isinstance(lost.error, WorkerDied)
    assert "given up after 2 attempts: digits/label, msp, clean, seed 5" in caplog.messages[-1]


def test_an_error_of_the_worker_is_raised_as_it_is_and_says_where(caplog: pytest.LogCaptureFixture) -> None:
    with Threads() as executor, pytest.raises(MissingDataError, match="not here"):
        list(Futures(executor, 2).run(GROUPS, fail))
    assert caplog.messages[0].endswith(": not here")
    assert caplog.records[0].levelno == logging.WARNING


def wait_for(event: Event, group: Group) -> Iterator[Outcome]:
    event.wait(60)
    yield from work(group)


def test_groups_are_taken_when_they_are_needed() -> None:
    taken, event = [], Event()

    def groups() -> Iterator[Group]:
        for n in range(20):
            taken.append(n)
            yield Group(((training(n),),))

    with Threads() as executor:
        running = Futures(executor, 2).run(groups(), partial(wait_for, event))
        event.set()
        next(running)
        assert len(taken) == 4  # two that run, and two so that nobody waits
        assert len(list(running)) == 19


def test_closing_the_iterator_cancels_what_waits() -> None:
    with Threads() as executor:
        running = Futures(executor, 3).run(GROUPS * 9, work)
        next(running)
        running.close()  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(work, work, GROUPS[0])
    assert executor.num_submitted == 7


def test_other_machines_get_whole_paths_and_the_kind_of_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    setup = remote_setup(Setup("auto", "data", node_scores=True, gpu_share=0.25))
    assert setup == Setup("cpu", str(tmp_path / "data"), node_scores=True, gpu_share=1.0)
    assert remote_setup(Setup("cuda:3")) == Setup("cuda", None)
