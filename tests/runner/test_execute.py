"""What executing a training adds to fitting and evaluating: scores and fits that are shared."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from oddnode import Detector, Energy, evaluate, load_task
from oddnode.paper.record import Record
from oddnode.protocols import get_protocol
from oddnode.runner.detectors import distinct_trainings
from oddnode.runner.execute import Setup, execute_group
from oddnode.runner.fitting import Fitted, fit_stacks
from oddnode.runner.work import Group, Training, cell_groups
from oddnode.tasks import Task, load_tasks
from tests.paper_helpers import execute


def test_the_numbers_are_those_of_evaluate() -> None:
    training = Training("digits/label", "clean", "gcn", 1, ("msp", "energy"), (), 5)
    task = load_task("digits/label", seed=1)
    outcome = execute(training)
    fitted = Detector.from_recipe("msp", seed=1, device="cpu", epochs=5, propagation="as-given").fit(task.train)
    assert outcome.metrics == {
        "msp": evaluate(fitted, task),
        "energy": evaluate(fitted.with_scorer(Energy()), task),
    }
    assert "reasons" not in outcome.facts  # for want of evidence
    assert Record(training, "test", outcome.facts, bytes).reasons("msp") == {"id": {}, "label": {}}


def grouped(*methods: str) -> Group:
    """Trainings of one seed on two tasks with the same training graph."""
    tasks = ("digits/arrivals/feature-scattered", "digits/arrivals/structure-scattered")
    trainings = [
        replace(training, epochs=3)
        for task in tasks
        for method in methods
        for training in distinct_trainings(task, "clean", "gcn", [method])
    ]
    [group] = cell_groups(trainings)
    return group


def test_tasks_with_the_same_training_graph_share_a_fit_and_no_number_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[str] = []

    def counted(stacks: list[tuple[Training, ...]], *others: Any) -> Iterator[Fitted]:
        fitted.extend(f"{training.task} {training.methods[0]}" for stack in stacks for training in stack)
        return fit_stacks(stacks, *others)

    monkeypatch.setattr("oddnode.runner.execute.fit_stacks", counted)
    group = grouped("msp", "nodesafe++")
    shared = {outcome.training.identity: outcome for outcome in execute_group(group, Setup("cpu"))}
    # The exposure of each task is its own, so that methods with exposure are fitted on each.
    first, second = "digits/arrivals/feature-scattered", "digits/arrivals/structure-scattered"
    assert fitted == [f"{first} msp", f"{first} nodesafe++", f"{second} nodesafe++"]
    for training in group.trainings:
        [alone] = execute_group(Group(((training,),)), Setup("cpu"))
        assert shared[training.identity].error is None
        assert shared[training.identity].metrics == alone.metrics
    assert len({str(outcome.metrics) for outcome in shared.values()}) == 4


def test_a_task_is_let_go_before_the_next_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two large graphs may not fit into memory."""
    loaded: list[weakref.ref[Task]] = []

    def watched(*given: Any) -> list[Task]:
        gc.collect()
        assert [task() for task in loaded] == [None] * len(loaded)
        tasks = load_tasks(*given)
        loaded.extend(map(weakref.ref, tasks))
        return tasks

    monkeypatch.setattr("oddnode.runner.execute.load_tasks", watched)
    outcomes = list(execute_group(grouped("nodesafe-msp"), Setup("cpu")))
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert len(loaded) == 2


def test_flagged_images_are_kept_with_their_reasons() -> None:
    training = Training("digits/feature", "clean", "gcn", 0, ("evidence",), (), 5)
    task = load_task("digits/feature", seed=0)
    outcome = execute(training)
    detector = get_protocol("clean").detector("evidence", task, seed=0, device="cpu", epochs=5).fit(task.train)
    kept = Record(training, "test", json.loads(json.dumps(outcome.facts)), bytes).reasons("evidence")
    assert list(kept) == ["id", "feature"]
    for name, graph in {"id": task.id_test.data, **task.tests}.items():
        nodes = detector.detect(graph).nonzero().squeeze(1).tolist()
        assert kept[name] == dict(zip(nodes, detector.reasons(graph), strict=True))
    assert len(kept["feature"]) > 100
