"""Tasks and methods that a benchmark is given as objects instead of names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from oddnode._utils.registry import undone_registrations
from oddnode._utils.suggestions import UnknownNameError
from oddnode.detector import Recipe, register_method
from oddnode.runner.detectors import outlined_detector, training_key
from oddnode.runner.execute import forget_tasks
from oddnode.tasks import DATASETS, DatasetSpec, Task, TaskRules, TaskSpec, expand_tasks
from oddnode.tasks.datasets import DataDir

#: The name of a task, a task, or a function of the seed that makes one.
TaskLike = str | Task | Callable[[int], Task]
#: The name of a method, or a method.
MethodLike = str | Recipe


@contextmanager
def named(tasks: Sequence[TaskLike], methods: Sequence[MethodLike]) -> Iterator[tuple[list[str], list[str]]]:
    """Register tasks and methods that are objects while the ``with`` block runs."""
    with undone_registrations():
        task_names = [task if isinstance(task, str) else _register_task(task) for task in tasks]
        method_names = [method if isinstance(method, str) else _register_recipe(method) for method in methods]
        try:
            yield task_names, method_names
        finally:
            if not has_only_names(tasks, methods):  # the next task or method of the same name may be another one
                forget_tasks()
                for cached in (training_key, outlined_detector):
                    cached.cache_clear()


def has_only_names(tasks: Sequence[TaskLike], methods: Sequence[MethodLike]) -> bool:
    """Whether tasks and methods are all given by name, so that other processes can look them up."""
    return all(isinstance(part, str) for part in (*tasks, *methods))


def _register_task(task: Any) -> str:
    fixed = isinstance(task, Task)
    first = task if fixed else _first_task(task)
    name, own = first.name, "" if fixed else getattr(task, "__name__", type(task).__name__)
    if _is_taken(name) and own.isidentifier():  # a function that alters a task of the library may leave its name
        name = own
    if _is_taken(name):
        raise ValueError(f"there is a task named {name!r} already; give yours another name")

    def make(data_dir: DataDir, seed: int, rules: TaskRules) -> Task:
        made = first if fixed or seed == 0 else task(seed)
        return replace(made, name=name, protocol=rules.protocol)

    DATASETS.register(name, DatasetSpec(name, (TaskSpec(name, make, fixed),)))
    return name


def _is_taken(name: str) -> bool:
    try:
        expand_tasks([name])
    except UnknownNameError:
        return False
    return True


def _register_recipe(recipe: Any) -> str:
    if not isinstance(recipe, Recipe):
        raise ValueError(f"a method is a {type(recipe).__name__}, expected a name or an oddnode.Recipe")
    register_method(recipe)
    return recipe.name


def _first_task(maker: Any) -> Task:
    """The task that a function makes of seed 0."""
    what = f"a task is {maker!r}, expected a name, an oddnode.Task, or a function of the seed that returns one"
    if not callable(maker):
        raise ValueError(what)
    try:
        inspect.signature(maker).bind(0)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}; called with a seed it would fail: {error}") from None
    made = maker(0)
    if not isinstance(made, Task):
        raise ValueError(f"{what}; called with seed 0 it returned a {type(made).__name__}")
    return made
