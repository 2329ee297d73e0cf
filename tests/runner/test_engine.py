"""Engines, with processes of their own and with executors: all groups are done, errors reach the caller.

A process that dies costs one training; trainings of an executor's dead worker run again.
"""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from oddnode.runner.engine import Futures, InProcess, Processes, WorkerDied, _next_group, can_fork, remote_setup
from oddnode.runner.execute import Setup
from oddnode.runner.work import Group, Outcome, Training
from oddnode.tasks import MissingDataError


def training(number: int, task: str = "digits/label") -> Training:
    return Training(task, "clean", "gcn", number, ("msp",))


GROUPS = [Group(tuple((training(4 * n + place),) for place in range(4))) for n in range(3)]


def tell_process(group: Group) -> Iterator[Outcome]:
    for one in group.trainings:
        yield Outcome(one, facts={"process": os.getpid(), "alone": len(group.trainings) == 1})


def die_at(seed: int, group: Group) -> Iterator[Outcome]:
    for one in group.trainings:
        if one.seed == seed:
            os.kill(os.getpid(), signal.SIGKILL)
        yield Outcome(one)


class OddError(Exception):
    """An error that cannot be made again from its arguments."""

    def __init__(self, first: str, second: str):
        super().__init__(first + second)


def fail(group: Group, error: Exception) -> Iterator[Outcome]:
    yield Outcome(group.trainings[0])
    raise error


def fail_oddly(group: Group) -> Iterator[Outcome]:
    yield from fail(group, OddError("a", "b"))


def seeds(outcomes: list[Outcome]) -> Counter[int]:
    return Counter(outcome.training.seed for outcome in outcomes)


@pytest.mark.parametrize("engine", [InProcess(), Processes(2), Processes(2, may_fork=True), Processes(9), "executor"])
def test_every_training_is_done_once(engine: Any) -> None:
    with ExitStack() as stack:
        if engine == "executor":
            executor = ProcessPoolExecutor(2, mp_context=get_context("forkserver"))
            engine = Futures(stack.enter_context(executor), 2)
        outcomes = list(engine.run(GROUPS, tell_process))
    assert seeds(outcomes) == Counter(range(12))
    if not isinstance(engine, InProcess):
        assert os.getpid() not in {outcome.facts["process"] for outcome in outcomes}


def test_a_process_that_dies_costs_one_training() -> None:
    outcomes = list(Processes(2).run(GROUPS, partial(die_at, 5)))
    lost = [outcome.training.seed for outcome in outcomes if isinstance(outcome.error, WorkerDied)]
    assert lost == [5]
    assert seeds(outcomes) == Counter(range(12))


def lose_device_at(seed: int, told: bool, group: Group) -> Iterator[Outcome]:
    """Fail as a process does whose CUDA context is lost: by an outcome with that error, or by raising it."""
    for one in group.trainings:
        if one.seed == seed:
            error = RuntimeError("CUDA error: an illegal instruction was encountered")
            if not told:
                raise error
            yield Outcome(one, error=error)
            raise AssertionError("this process must not go on")
        yield Outcome(one, facts={"process": os.getpid()})


@pytest.mark.parametrize("told", [True, False])
def test_a_process_that_loses_its_gpu_is_replaced(told: bool) -> None:
    outcomes = list(Processes(1).run(GROUPS, partial(lose_device_at, 5, told)))
    assert seeds(outcomes) == Counter(range(12))
    [lost] = [outcome for outcome in outcomes if outcome.error is not None]
    assert lost.training.seed == 5
    before, after = ({o.facts["process"] for o in outcomes if o.training.seed in seeds} for seeds in ((4,), (6, 7)))
    assert before.isdisjoint(after)


def fail_in_a_helper(group: Group) -> Iterator[Outcome]:
    yield Outcome(group.trainings[0])
    dict[str, int]()["missing"]


def test_an_error_is_raised_as_it_is_and_says_where_it_was_raised() -> None:
    for engine in (InProcess(), Processes(2)):
        with pytest.raises(MissingDataError, match="not here"):
            list(engine.run(GROUPS, partial(fail, error=MissingDataError("not here"))))
    with pytest.raises(KeyError) as caught:
        list(Processes(2).run(GROUPS, fail_in_a_helper))
    assert "fail_in_a_helper" in "".join(caught.value.__notes__)
    with pytest.raises(RuntimeError, match="OddError: ab"):  # it cannot travel
        list(Processes(2).run(GROUPS, fail_oddly))


def test_closing_the_iterator_ends_the_processes() -> None:
    running = Processes(2).run(GROUPS, tell_process)
    process = next(running).facts["process"]
    running.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_process_goes_on_with_the_data_that_it_has() -> None:
    one, two, three = (Group(((training(0, task),),)) for task in ("cora/label", "pubmed/label", "twitch"))
    here, there, fresh = (SimpleNamespace(group=group) for group in (one, two, None))
    workers: Any = [here, there, fresh]
    assert _next_group([two, three, one], workers[0], workers) is one
    assert _next_group([one, two, three], workers[2], workers) is three  # nobody has loaded it yet
    waiting = [two, one]
    assert _next_group(waiting, workers[2], workers) is two
    assert waiting == [one]


def test_threads_are_as_asked_for_while_it_lasts() -> None:
    import torch

    before = torch.get_num_threads()
    seen = [outcome.facts["threads"] for outcome in InProcess(3).run(GROUPS[:1], _tell_threads)]
    assert seen == [3] * 4
    assert torch.get_num_threads() == before


def _tell_threads(group: Group) -> Iterator[Outcome]:
    import torch

    for one in group.trainings:
        yield Outcome(one, facts={"threads": torch.get_num_threads()})


ASKED = ["torch.cuda.is_initialized", "torch.cuda.is_available", "torch.accelerator.is_available"]


@pytest.mark.parametrize("asked", ASKED)
def test_nothing_is_forked_where_there_is_an_accelerator(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    """Not even for the CPU: its driver is initialised when devices are counted, and fails in a forked child."""
    monkeypatch.setattr("oddnode.runner.engine._GPU_FILE", Path("none"))
    for each in ASKED:  # as on a machine without one
        monkeypatch.setattr(each, lambda: False)
    assert Processes(2, may_fork=True)._start_method() == "fork"
    assert Processes(2)._start_method() == "forkserver"
    assert Processes(2, on_gpu=True)._start_method() == "spawn"
    monkeypatch.setattr(asked, lambda: True)
    assert not can_fork()
    assert Processes(2, may_fork=True)._start_method() == Processes(2)._start_method() == "spawn"


def test_a_gpu_is_noticed_without_asking_its_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: pytest.fail("the driver was asked"))
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr("oddnode.runner.engine._GPU_FILE", tmp_path)  # it exists
    assert not can_fork()


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


def test_trainings_of_a_dead_worker_run_again_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    with Threads({5: 3}) as executor:
        outcomes = list(Futures(executor, 2).run(GROUPS, tell_process))
    assert seeds(outcomes) == Counter(range(12))
    assert not [outcome for outcome in outcomes if outcome.error]
    assert {outcome.training.seed for outcome in outcomes if outcome.facts["alone"]} == {4, 5, 6, 7}
    again = "worker 17 on host-a died; running again: digits/label, msp, clean, seed"
    assert caplog.messages == [f"{again} 4 and 3 more", f"{again} 5", f"{again} 5"]


def test_a_training_that_always_dies_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    with Threads({5: 99}) as executor:
        outcomes = list(Futures(executor, 2, attempts=2).run(GROUPS, tell_process))
        assert executor.deaths[5] == 99 - 3
    assert seeds(outcomes) == Counter(range(12))
    [lost] = [outcome for outcome in outcomes if outcome.error]
    assert lost.training.seed == 5
    assert isinstance(lost.error, WorkerDied)
    assert "given up after 2 attempts: digits/label, msp, clean, seed 5" in caplog.messages[-1]


def test_an_error_of_an_executors_worker_says_where(caplog: pytest.LogCaptureFixture) -> None:
    with Threads() as executor, pytest.raises(MissingDataError, match="not here"):
        list(Futures(executor, 2).run(GROUPS, partial(fail, error=MissingDataError("not here"))))
    assert caplog.messages[0].endswith(": not here")
    assert caplog.records[0].levelno == logging.WARNING


def wait_for(event: Event, group: Group) -> Iterator[Outcome]:
    event.wait(60)
    yield from tell_process(group)


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
        running = Futures(executor, 3).run(GROUPS * 9, tell_process)
        next(running)
        running.close()  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(tell_process, tell_process, GROUPS[0])
    assert executor.num_submitted == 7


def test_other_machines_get_whole_paths_and_the_kind_of_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    setup = remote_setup(Setup("auto", "data", node_scores=True, gpu_share=0.25))
    assert setup == Setup("cpu", str(tmp_path / "data"), node_scores=True, gpu_share=1.0)
    assert remote_setup(Setup("cuda:3")) == Setup("cuda", None)
