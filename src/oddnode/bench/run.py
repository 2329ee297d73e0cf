"""A benchmark in memory. Methods that train the same network share a training."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from oddnode._utils.devices import is_gpu
from oddnode.bench.choices import check_names, check_settings, default_methods, expand_methods
from oddnode.bench.user_components import MethodLike, TaskLike, has_only_names, named
from oddnode.detector import DETECTOR_SETTINGS, MODEL_FREE, get_recipe
from oddnode.evaluation import Result
from oddnode.protocols import get_protocol
from oddnode.runner.detectors import distinct_trainings
from oddnode.runner.engine import Engine, InProcess, Processes, Worker, can_fork, num_cores, remote_setup
from oddnode.runner.execute import Setup, execute_group
from oddnode.runner.work import Group, Outcome, Training, cell_groups, stacked_groups
from oddnode.tasks import check_data, expand_tasks


def benchmark(
    tasks: TaskLike | Sequence[TaskLike] = ("digits/label",),
    methods: MethodLike | Sequence[MethodLike] | None = None,
    seeds: int = 3,
    protocol: str = "clean",
    backbone: str = "gcn",
    device: str = "auto",
    data_dir: str | os.PathLike | None = None,
    jobs: int | None = None,
    on_progress: Callable[[int, int, str], None] | None = None,
    model_free: bool = False,
    settings: Mapping[str, Any] | None = None,
    engine: Engine | None = None,
) -> list[Result]:
    """Run methods on tasks over seeds 0, 1, ..., ``seeds - 1``.

    Parameters
    ----------
    tasks : str, Task, callable, or a list of these
        Names (``"paper"`` and ``"all"`` stand for groups of tasks), `Task` objects, or functions ``make(seed) ->
        Task``. In results a function has the name of its `Task`, or its own if another task is called that already.
    methods : str, Recipe, or a list of these, optional
        Names (``"all"`` stands for every method), or `Recipe` objects; by default those of
        `oddnode.bench.DEFAULT_METHODS` that the protocol has.
    seeds : int
        Number of seeds.
    protocol : {"clean", "published"}
        ``"clean"`` leaks nothing; ``"published"`` follows the code of the paper.
    backbone, device, data_dir
        As for `Detector` and `load_task`.
    jobs : int, optional
        Number of processes. Each uses its share of the cores as threads, which determines the order of floating-point
        sums: results are equal bit for bit for the same number of jobs. Default: one process per core on a CPU, and
        one on a GPU or where processes cannot be forked. Tasks and methods given as objects need processes that can
        be forked, or ``jobs=1``.
    on_progress : callable, optional
        Called with (finished cells, number of cells, label of the last one); a cell is a task under one seed.
    model_free : bool
        Also return the model-free scores on every task, after the requested methods; they need no training.
    settings : dict, optional
        Settings that replace those of the protocol, as for `oddnode.Detector.from_recipe`: ``{"num_hops": 2}``. Each
        applies to the methods that have it, and at least one must.
    engine : Engine, optional
        Runs the trainings, for example on other machines; by default ``jobs`` processes of this machine.

    Returns
    -------
    list of Result
        One per task and method, in the requested order.

    Examples
    --------
    >>> from oddnode import benchmark
    >>> [result] = benchmark("digits/label", "msp", seeds=1)
    >>> result.mean("auroc") > 90
    True
    """
    for name, number in (("seeds", seeds), ("jobs", 1 if jobs is None else jobs)):
        if number < 1:
            raise ValueError(f"{name} is {number}, expected 1 or more")
    check_names((), protocol, backbone)
    own_settings = dict(settings or {})
    all_tasks, all_methods = _listed(tasks), default_methods(protocol) if methods is None else _listed(methods)
    user_components = not has_only_names(all_tasks, all_methods)
    if user_components and engine is not None and engine.is_remote:
        raise ValueError(
            "tasks and methods given as objects can only run on this machine; leave the engine out, or "
            "register them in a plugin and give their names"
        )
    with named(all_tasks, all_methods) as (task_names, method_names):
        task_names = expand_tasks(task_names, data_dir)
        method_names = expand_methods(method_names, protocol)
        check_settings(own_settings, method_names)
        check_data(task_names, data_dir)
        cells = [_trainings(task, protocol, backbone, method_names, model_free, own_settings) for task in task_names]
        trainings = [replace(training, seed=seed) for cell in cells for seed in range(seeds) for training in cell]
        jobs = max(1, min(jobs or _default_jobs(device), len(task_names) * seeds))
        setup = Setup(device, None if data_dir is None else os.fspath(data_dir), gpu_share=1 / jobs)
        groups = stacked_groups(trainings, jobs) if is_gpu(device) else cell_groups(trainings)
        engine = engine or _engine(jobs, device, user_components)
        setup = remote_setup(setup) if engine.is_remote else setup
        outcomes = _run(groups, engine, partial(execute_group, setup=setup), on_progress)
    shown = dict.fromkeys([*method_names, *(method for cell in cells for t in cell for method in t.methods)])
    results = {(t, m): Result(t, m, protocol, backbone, settings=own_settings) for t in task_names for m in shown}
    for training in trainings:
        for method, numbers in outcomes[training].metrics.items():
            results[training.task, method].runs.append(numbers)
    return list(results.values())


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def _trainings(
    task: str, protocol: str, backbone: str, methods: Sequence[str], model_free: bool, settings: Mapping[str, Any]
) -> list[Training]:
    """The trainings of a cell. Model-free scores use no network, so they are computed along with one of them."""
    own = {method: _own_settings(method, task, protocol, settings) for method in methods}
    unused = sorted(set(settings).difference(*own.values()))
    if unused:
        raise ValueError(
            f"the protocol {protocol!r} fixes {unused[0]} on {task}; leave it out, or choose another protocol"
        )
    trainings = distinct_trainings(task, protocol, backbone, methods, own)
    known = get_protocol(protocol).methods()
    free = [method for method in MODEL_FREE if model_free and method in known and method not in methods]
    if not free or not trainings:
        return trainings
    general = _own_settings(free[0], task, protocol, settings)
    host = next((t for t in trainings if dict(t.settings) == general), None)
    if host is None:
        return trainings + distinct_trainings(task, protocol, backbone, free, dict.fromkeys(free, general))
    return [replace(t, methods=(*t.methods, *free)) if t is host else t for t in trainings]


def _own_settings(method: str, task: str, protocol: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a method has under a protocol."""
    names = get_recipe(method).hyper_parameters.keys() & get_protocol(protocol).hyper_parameters(method, task).keys()
    return {name: value for name, value in settings.items() if name in names or name in DETECTOR_SETTINGS}


def _default_jobs(device: str) -> int:
    """The number of processes if the caller gives none."""
    return 1 if is_gpu(device) or not can_fork() else num_cores()


def _engine(jobs: int, device: str, user_components: bool) -> Engine:
    if jobs == 1:
        return InProcess()
    if user_components:  # a forked process has the objects of this one; any other would have to import them
        if is_gpu(device) or not can_fork():
            raise ValueError(
                f"jobs is {jobs}, but tasks and methods given as objects can only run in this process on this "
                "machine; use jobs=1, or register them in a plugin and give their names"
            )
        return Processes(jobs, threads=1, may_fork=True)
    return Processes(jobs, max(1, num_cores() // jobs), may_fork=True, on_gpu=is_gpu(device))


def _run(
    groups: list[Group], engine: Engine, worker: Worker, on_progress: Callable[[int, int, str], None] | None
) -> dict[Training, Outcome]:
    outcomes: dict[Training, Outcome] = {}
    left = Counter((training.task, training.seed) for group in groups for training in group.trainings)
    cells = len(left)
    for outcome in engine.run(groups, worker):
        if outcome.error is not None:
            raise outcome.error
        training = outcome.training
        outcomes[training] = outcome
        cell = (training.task, training.seed)
        left[cell] -= 1
        if not left[cell]:
            del left[cell]
            if on_progress:
                on_progress(cells - len(left), cells, f"{training.task}, seed {training.seed}")
    return outcomes
