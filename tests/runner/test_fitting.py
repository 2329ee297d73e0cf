"""Which trainings a process does together; stacks of them are started together where they fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from oddnode import Detector, load_task
from oddnode.detector import start_fitting
from oddnode.runner import fitting
from oddnode.runner.fitting import Fitted, fit_stacks
from oddnode.runner.work import Group, Training, cell_groups, one_by_one, stacked_groups
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


def cell_training(method: str, seed: int, task: str = "digits/label", protocol: str = "clean") -> Training:
    return Training(task, protocol, "gcn", seed, (method,), parameters=method)


def shape(groups: list[Group]) -> list[list[list[tuple[str, int]]]]:
    return [[[(t.methods[0], t.seed) for t in stack] for stack in group.stacks] for group in groups]


TRAININGS = [cell_training(method, seed) for seed in range(2) for method in ("msp", "nodesafe", "gpn")]


def test_on_a_cpu_trainings_are_on_their_own_or_with_those_on_the_same_graph() -> None:
    assert shape(one_by_one(TRAININGS[:2])) == [[[("msp", 0)]], [[("nodesafe", 0)]]]
    assert shape(cell_groups(TRAININGS)) == [
        [[("msp", seed)], [("nodesafe", seed)], [("gpn", seed)]] for seed in range(2)
    ]
    tasks = [f"digits/arrivals/{kind}" for kind in ("feature-scattered", "structure-grouped", "label-scattered")]
    groups = cell_groups([cell_training("msp", seed, task) for task in tasks for seed in range(2)])
    # Classes are left out of the training graph of the last one.
    assert [[t.task for t in group.trainings] for group in groups] == [tasks[:2]] * 2 + [tasks[2:]] * 2


def test_on_a_gpu_seeds_are_stacked_and_several_processes_share_what_cannot_be() -> None:
    [group] = stacked_groups(TRAININGS, jobs=1)
    assert shape([group]) == [[[(m, 0), (m, 1)] for m in ("msp", "nodesafe", "gpn")]]
    assert group.data == ("digits/label", "clean")
    assert shape(stacked_groups(TRAININGS, jobs=4)) == [
        [[("msp", 0), ("msp", 1)], [("nodesafe", 0), ("nodesafe", 1)]],
        [[("gpn", 0)]],
        [[("gpn", 1)]],
    ]
    many = [Training("digits/label", "clean", "gcn", 0, ("msp",), parameters=f"msp{n}") for n in range(9)]
    assert [len(group.stacks) for group in stacked_groups(many, jobs=2)] == [4, 4, 1]
    assert [len(group.stacks) for group in stacked_groups(many, jobs=1)] == [9]


def test_a_group_can_be_cut_down() -> None:
    [group] = stacked_groups(TRAININGS, jobs=1)
    kept = [TRAININGS[0].identity, TRAININGS[3].identity, TRAININGS[4].identity]
    assert shape([group.only(kept)]) == [[[("msp", 0), ("msp", 1)], [("nodesafe", 1)]]]
    assert group.only([]).stacks == ()
