"""Stacks of trainings: started together where they fit, one by one where they do not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from oddnode import Detector, load_task
from oddnode.detector import start_fitting
from oddnode.runner import fitting
from oddnode.runner.fitting import Fitted, fit_stacks
from oddnode.runner.work import Training
from oddnode.training import TrainingError, TrainingHandle

TASKS = {seed: load_task("digits/label", seed=seed) for seed in range(2)}


def training(method: str, seed: int = 0) -> Training:
    return Training("digits/label", "clean", "gcn", seed, (method,), epochs=3)


TWO = [[training("gnnsafe")], [training("nodesafe")]]


def noted(monkeypatch: pytest.MonkeyPatch, fail_at: int | None = None) -> list[str]:
    """Starts and ends of fits as they come; one of them can run out of memory."""
    done = list[str]()

    def start(detectors: list[Detector], *args: Any) -> TrainingHandle[None]:
        if len(done) == fail_at:
            done.append("out of memory")
            raise torch.OutOfMemoryError("no room")
        handle = start_fitting(detectors, *args)
        done.append("start")

        def finish() -> None:
            handle.result()
            done.append("finish")

        return TrainingHandle(finish)

    monkeypatch.setattr(fitting, "start_fitting", start)
    return done


def names(fits: list[Fitted]) -> list[tuple[str, int, bool]]:
    return [(f.training.methods[0], f.training.seed, f.error is None) for f in fits]


@pytest.mark.parametrize(
    ("room", "expected"), [(True, "start start finish finish"), (False, "start finish start finish")]
)
def test_stacks_are_started_at_once_where_they_fit(monkeypatch: pytest.MonkeyPatch, room: bool, expected: str) -> None:
    done = noted(monkeypatch)
    monkeypatch.setattr(fitting._Memory, "has_room", lambda self: room)
    assert names(list(fit_stacks(TWO, TASKS, "cpu"))) == [("gnnsafe", 0, True), ("nodesafe", 0, True)]
    assert " ".join(done) == expected


def test_a_stack_that_finds_no_memory_is_started_again_when_others_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done = noted(monkeypatch, fail_at=1)
    assert names(list(fit_stacks(TWO, TASKS, "cpu"))) == [("gnnsafe", 0, True), ("nodesafe", 0, True)]
    assert done == ["start", "out of memory", "finish", "start", "finish"]
    noted(monkeypatch, fail_at=0)
    first, second = fit_stacks(TWO, TASKS, "cpu")
    assert isinstance(first.error, torch.OutOfMemoryError)  # there were no others
    assert first.detector is None
    assert second.error is None


def test_a_stack_that_fails_is_done_again_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(detectors: list[Detector], *args: Any) -> TrainingHandle[None]:
        if any(detector.seed == 1 for detector in detectors):
            raise TrainingError("the loss became inf")
        return start_fitting(detectors, *args)

    monkeypatch.setattr(fitting, "start_fitting", start)
    stack = [training("gnnsafe", seed) for seed in range(2)]
    assert names(list(fit_stacks([stack], TASKS, "cpu"))) == [("gnnsafe", 0, True), ("gnnsafe", 1, False)]


def test_a_stack_gives_what_each_training_gives_alone() -> None:
    stack = [training("nodesafe", seed) for seed in range(2)]
    for fitted in fit_stacks([stack], TASKS, "cpu"):
        seed = fitted.training.seed
        alone = Detector.from_recipe("nodesafe", seed=seed, device="cpu", epochs=3, propagation="as-given")
        graph = TASKS[seed].id_test.data
        assert fitted.detector is not None
        assert torch.equal(fitted.detector.score_samples(graph), alone.fit(TASKS[seed].train).score_samples(graph))


@pytest.mark.parametrize(("share", "rooms"), [(1.0, [True, False]), (0.5, [False, False])])
def test_room_is_twice_the_largest_training(monkeypatch: pytest.MonkeyPatch, share: float, rooms: list[bool]) -> None:
    taken = iter([10, 30, 35, 59, 61])  # at the start, after two trainings, and when asked
    monkeypatch.setattr(fitting._Memory, "_now", lambda self: next(taken))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=100))
    memory = fitting._Memory("cuda", share)
    memory.note_training()
    memory.note_training()
    assert [memory.has_room(), memory.has_room()] == rooms
