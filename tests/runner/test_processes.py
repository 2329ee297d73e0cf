"""The engine: all groups are done, a process that dies costs one training, errors reach the caller."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from oddnode.runner.engine import InProcess, Processes, WorkerDied, _next_group, can_fork
from oddnode.runner.work import Group, Outcome, Training
from oddnode.tasks import MissingDataError


def training(number: int, task: str = "digits/label") -> Training:
    return Training(task, "clean", "gcn", number, ("msp",))


GROUPS = [Group(tuple((training(4 * n + place),) for place in range(4))) for n in range(3)]


def tell_process(group: Group) -> Iterator[Outcome]:
    for one in group.trainings:
        yield Outcome(one, facts={"process": os.getpid()})


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


@pytest.mark.parametrize("engine", [InProcess(), Processes(2), Processes(2, may_fork=True), Processes(9)])
def test_every_training_is_done_once(engine: Any) -> None:
    outcomes = list(engine.run(GROUPS, tell_process))
    assert Counter(outcome.training.seed for outcome in outcomes) == Counter(range(12))
    if isinstance(engine, Processes):
        assert os.getpid() not in {outcome.facts["process"] for outcome in outcomes}


def test_a_process_that_dies_costs_one_training() -> None:
    outcomes = list(Processes(2).run(GROUPS, partial(die_at, 5)))
    lost = [outcome.training.seed for outcome in outcomes if isinstance(outcome.error, WorkerDied)]
    assert lost == [5]
    assert Counter(outcome.training.seed for outcome in outcomes) == Counter(range(12))


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
    assert Counter(outcome.training.seed for outcome in outcomes) == Counter(range(12))
    [lost] = [outcome for outcome in outcomes if outcome.error is not None]
    assert lost.training.seed == 5
    before, after = ({o.facts["process"] for o in outcomes if o.training.seed in seeds} for seeds in ((4,), (6, 7)))
    assert before.isdisjoint(after)


@pytest.mark.parametrize("engine", [InProcess(), Processes(2)])
def test_an_error_of_the_worker_is_raised_as_it_is(engine: Any) -> None:
    with pytest.raises(MissingDataError, match="not here"):
        list(engine.run(GROUPS, partial(fail, error=MissingDataError("not here"))))


def fail_in_a_helper(group: Group) -> Iterator[Outcome]:
    yield Outcome(group.trainings[0])
    dict[str, int]()["missing"]


def test_an_error_from_another_process_says_where_it_was_raised() -> None:
    with pytest.raises(KeyError) as caught:
        list(Processes(2).run(GROUPS, fail_in_a_helper))
    assert "fail_in_a_helper" in "".join(caught.value.__notes__)


def test_an_error_that_cannot_travel_is_told() -> None:
    with pytest.raises(RuntimeError, match="OddError: ab"):
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


@pytest.mark.parametrize(
    "asked", ["torch.cuda.is_initialized", "torch.cuda.is_available", "torch.accelerator.is_available"]
)
def test_nothing_is_forked_where_there_is_an_accelerator(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    """Not even for the CPU: its driver is initialised when devices are counted, and fails in a forked child."""
    assert Processes(2, may_fork=True)._start_method() == "fork"
    assert Processes(2)._start_method() == "forkserver"
    assert Processes(2, on_gpu=True)._start_method() == "spawn"
    monkeypatch.setattr(asked, lambda: True)
    assert not can_fork()
    assert Processes(2, may_fork=True)._start_method() == Processes(2)._start_method() == "spawn"
