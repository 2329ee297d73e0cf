"""A benchmark in memory. Methods that train the same network share a training."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from oddnode._utils.devices import is_gpu
from oddnode._utils.suggestions import unknown
from oddnode.detector import MODEL_FREE, get_recipe
from oddnode.evaluation import Result
from oddnode.nn import BACKBONES
from oddnode.protocols import get_protocol
from oddnode.runner.detectors import distinct_trainings
from oddnode.runner.engine import Engine, InProcess, Worker, num_cores
from oddnode.runner.execute import Setup, execute_group
from oddnode.runner.futures import remote_setup
from oddnode.runner.groups import Group, cell_groups, stacked_groups
from oddnode.runner.processes import Processes, can_fork
from oddnode.runner.work import Outcome, Training
from oddnode.tasks import expand_tasks

__all__ = ["DEFAULT_METHODS", "benchmark", "expand_methods"]

#: The methods of a plain ``oddnode bench``.
DEFAULT_METHODS = ("msp", "energy", "gnnsafe", "nodesafe", "energy-ft", "gnnsafe++", "nodesafe++")


def expand_methods(names: Iterable[str], protocol: str = "clean") -> list[str]:
    """Replace ``all`` by the names it stands for, and drop repetitions.

    Parameters
    ----------
    names : iterable of str
        Names of methods; ``all`` stands for every method that has settings for the protocol.
    protocol : {"clean", "published"}
        The protocol.

    Returns
    -------
    list of str
        Names of methods.
    """
    everything = get_protocol(protocol).methods()
    expanded: dict[str, None] = {}
    for name in names:
        if name != "all":
            get_recipe(name)
        expanded.update(dict.fromkeys(everything if name == "all" else [name]))
    return list(expanded)


def benchmark(
    tasks: str | Sequence[str] = ("digits/label",),
    methods: str | Sequence[str] = DEFAULT_METHODS,
    seeds: int = 3,
    protocol: str = "clean",
    backbone: str = "gcn",
    device: str = "auto",
    data_dir: str | os.PathLike | None = None,
    jobs: int | None = None,
    on_progress: Callable[[int, int, str], None] | None = None,
    model_free: bool = False,
    engine: Engine | None = None,
) -> list[Result]:
    """Run methods on tasks over seeds 0, 1, ..., ``seeds - 1``.

    Parameters
    ----------
    tasks, methods : str or list of str
        Names; ``"paper"`` and ``"all"`` stand for groups of tasks, ``"all"`` for every method.
    seeds : int
        Number of seeds.
    protocol : {"clean", "published"}
        ``"clean"`` leaks nothing; ``"published"`` follows the code of the paper.
    backbone, device, data_dir
        As for `Detector` and `load_task`.
    jobs : int, optional
        Number of processes. Each uses its share of the cores as threads, which determines the order of floating-point
        sums: results are equal bit for bit for the same number of jobs. Default: one process per core on a CPU, and
        one on a GPU or where processes cannot be forked.
    on_progress : callable, optional
        Called with (finished cells, all cells, label of the last one); a cell is a task under one seed.
    model_free : bool
        Also return the model-free scores on every task, after the requested methods; they need no training.
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
    task_names = expand_tasks([tasks] if isinstance(tasks, str) else tasks, data_dir)
    _check(seeds, protocol, backbone, 1 if jobs is None else jobs)
    method_names = expand_methods([methods] if isinstance(methods, str) else methods, protocol)
    cells = [_trainings(task, protocol, backbone, method_names, model_free) for task in task_names]
    trainings = [replace(training, seed=seed) for cell in cells for seed in range(seeds) for training in cell]
    jobs = max(1, min(jobs or _default_jobs(device), len(task_names) * seeds))
    setup = Setup(device, None if data_dir is None else os.fspath(data_dir), gpu_share=1 / jobs)
    groups = stacked_groups(trainings, jobs) if is_gpu(device) else cell_groups(trainings)
    engine = engine or _engine(jobs, device)
    setup = remote_setup(setup) if engine.is_remote else setup
    outcomes = _run(groups, engine, partial(execute_group, setup=setup), on_progress)
    shown = dict.fromkeys([*method_names, *(MODEL_FREE if model_free else ())])
    results = {(t, m): Result(t, m, protocol, backbone) for t in task_names for m in shown}
    for training in trainings:
        for method, numbers in outcomes[training].metrics.items():
            results[training.task, method].runs.append(numbers)
    return list(results.values())


def _check(seeds: int, protocol: str, backbone: str, jobs: int) -> None:
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}, expected 1 or more")
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}, expected 1 or more")
    get_protocol(protocol)
    if backbone not in BACKBONES:
        raise unknown("backbone", backbone, BACKBONES)


def _trainings(task: str, protocol: str, backbone: str, methods: Sequence[str], model_free: bool) -> list[Training]:
    """The trainings of a cell. Model-free scores use no network, so they are computed along with the first one."""
    trainings = distinct_trainings(task, protocol, backbone, methods)
    if model_free and trainings:
        first, *others = trainings
        asked = {method for training in others for method in training.methods}
        own = [method for method in MODEL_FREE if method not in asked]
        trainings[0] = replace(first, methods=tuple(dict.fromkeys([*first.methods, *own])))
    return trainings


def _default_jobs(device: str) -> int:
    """The number of processes if the caller gives none."""
    return 1 if is_gpu(device) or not can_fork() else num_cores()


def _engine(jobs: int, device: str) -> Engine:
    if jobs == 1:
        return InProcess()
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
