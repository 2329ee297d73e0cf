from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from oddnode import CrossEntropy, Detector, Energy, MaxLogit, MaxSoftmax, Recipe, Task, benchmark, evaluate, load_task
from oddnode._utils import plugins
from oddnode.bench import run
from oddnode.bench.choices import expand_methods
from oddnode.detector import RECIPES
from oddnode.runner import Futures
from oddnode.runner.engine import can_fork
from oddnode.tasks import TASKS
from tests.cli.test_app import CLI

LARGEST_LOGIT = Recipe("largest", lambda: (CrossEntropy(), MaxLogit()), "unpublished", settings={"epochs": 20})


def my_task(seed: int) -> Task:
    return load_task("digits/label", seed=seed)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_function_and_a_recipe_give_what_fitting_by_hand_gives(jobs: int) -> None:
    if jobs > 1 and not can_fork():  # beside a GPU they would have to be imported
        with pytest.raises(ValueError, match=r"jobs is 2, but .* use jobs=1"):
            benchmark(my_task, LARGEST_LOGIT, seeds=2, jobs=jobs, device="cpu")
        return
    results = benchmark(my_task, [LARGEST_LOGIT, "msp"], seeds=2, jobs=jobs, device="cpu")
    assert [(r.task, r.method, r.seeds) for r in results] == [("my_task", "largest", 2), ("my_task", "msp", 2)]
    task = my_task(1)
    detector = Detector(scorer=MaxLogit(), objective=CrossEntropy(), epochs=20, seed=1).fit(task.train)
    assert results[0].runs[1]["auroc"] == pytest.approx(evaluate(detector, task)["auroc"], abs=0.2)
    assert "my_task" not in TASKS
    assert "largest" not in RECIPES


def test_a_task_is_the_same_for_all_seeds_and_stands_beside_names() -> None:
    mine = replace(my_task(0), name="mine/fixed")
    results = benchmark([mine, "digits/label"], LARGEST_LOGIT, seeds=1, jobs=1)
    assert [r.task for r in results] == ["mine/fixed", "digits/label"]
    assert results[0].runs == results[1].runs


def test_a_name_may_mean_another_task_or_method_the_next_time() -> None:
    def task(seed: int) -> Task:
        return load_task("digits/label", seed=seed)

    def other(seed: int) -> Task:
        return load_task("digits/structure", seed=seed)

    other.__name__ = "task"
    softmax, energy = (
        Recipe("mine", lambda scorer=scorer: (CrossEntropy(), scorer), "x", settings={"epochs": epochs})
        for scorer, epochs in ((MaxSoftmax(), 3), (Energy(), 4))
    )
    found = [
        benchmark(one, recipe, seeds=1, jobs=1)[0].runs[0]
        for one, recipe in ((task, softmax), (other, softmax), (task, energy))
    ]
    for run_, (data, scorer, epochs) in zip(
        found,
        [(task, MaxSoftmax(), 3), (other, MaxSoftmax(), 3), (task, Energy(), 4)],
        strict=True,
    ):
        fitted = Detector(objective=CrossEntropy(), scorer=scorer, epochs=epochs).fit(data(0).train)
        assert run_ == evaluate(fitted, data(0))


def wrong_kind(seed: int) -> int:
    return seed


def no_seed() -> Task:
    return my_task(0)


def paper(seed: int) -> Task:
    return my_task(seed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": 3}, "a task is 3, expected a name, an oddnode.Task, or a function"),
        ({"tasks": lambda seed: my_task(seed)}, "there is a task named 'digits/label' already"),
        ({"tasks": no_seed}, "called with a seed it would fail: too many positional arguments"),
        ({"tasks": wrong_kind}, "expected a name, an oddnode.Task, or .*; called with seed 0 it returned a int"),
        ({"tasks": paper}, "there is a task named 'paper' already"),
        ({"tasks": [my_task, my_task]}, "there is a task named 'my_task' already"),
        ({"methods": [MaxLogit()]}, "a method is a MaxLogit, expected a name or an oddnode.Recipe"),
        ({"methods": [Recipe("msp", lambda: (CrossEntropy(), MaxLogit()), "x")]}, "a method named 'msp' already"),
    ],
)
def test_mistakes_name_what_was_expected_and_leave_nothing(arguments: dict, message: str) -> None:
    before = list(TASKS), expand_methods(["all"])
    with pytest.raises(ValueError, match=message):
        benchmark(**arguments, seeds=1, jobs=1)
    assert (list(TASKS), expand_methods(["all"])) == before


def test_processes_and_machines_that_would_not_know_the_objects_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "can_fork", lambda: False)
    with pytest.raises(ValueError, match="jobs is 2, but tasks and methods given as objects"):
        benchmark(my_task, "msp", seeds=2, jobs=2, device="cpu")
    with ThreadPoolExecutor(1) as executor:
        for arguments in ({"tasks": my_task, "methods": "msp"}, {"methods": LARGEST_LOGIT}):
            with pytest.raises(ValueError, match="given as objects can only run on this machine"):
                benchmark(**arguments, seeds=1, engine=Futures(executor, 1))


FILE = """
from dataclasses import replace
from oddnode import load_task

def shifted(seed):
    return load_task("digits/structure", seed=seed)

def another(seed):
    return replace(shifted(seed), name="digits-moved")
"""


def test_the_command_line_takes_a_function_of_a_file(tmp_path: Path, cli: CLI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_loaded", {})
    file = tmp_path / "own_tasks_for_a_test.py"
    file.write_text(FILE)
    done = cli(
        "bench", "--task", f"{file}:shifted,{file}:another,digits/label", "--methods", "msp", "--seeds=1", "--jobs=1"
    )
    assert done.returncode == 0, done.stderr
    assert "shifted" in done.stdout
    assert "digits-moved" in done.stdout
    assert "digits/label" in done.stdout
    wrong = cli("bench", "--task", f"{file}:shfted", "--methods", "msp", fails=True)
    assert wrong.returncode == 1
    assert "defines no 'shfted'; it defines another, shifted" in wrong.stderr
    missing = cli("bench", "--task", "nowhere.py:f", "--methods", "msp", fails=True)
    assert "nowhere.py does not exist" in missing.stderr
