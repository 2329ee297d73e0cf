"""Runs a benchmark: every distinct training once, however many methods score it."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from oddnode._utils.devices import is_gpu
from oddnode._utils.plugins import file_plugins, load_plugins
from oddnode._utils.suggestions import unknown
from oddnode.detector import FLOOR, Detector, get_recipe, start_fitting
from oddnode.evaluation import Result, TaskOutputs, evaluate
from oddnode.graph import graph_cache
from oddnode.nn import BACKBONES
from oddnode.protocols import get_protocol
from oddnode.tasks import Task, expand_tasks, load_tasks
from oddnode.training import TrainingHandle

__all__ = ["DEFAULT_METHODS", "benchmark", "expand_methods"]

#: The methods of a plain ``oddnode bench``.
DEFAULT_METHODS = ("msp", "energy", "gnnsafe", "nodesafe", "energy-ft", "gnnsafe++", "nodesafe++")


def expand_methods(names: Iterable[str], protocol: str = "clean") -> list[str]:
    """Method names with ``all`` (every method that has settings for the protocol) written out, each once, in order."""
    everything = get_protocol(protocol).methods()
    expanded: dict[str, None] = {}
    for name in names:
        if name != "all":
            get_recipe(name)
        expanded.update(dict.fromkeys(everything if name == "all" else [name]))
    return list(expanded)


@dataclass(frozen=True)
class Cell:
    """One task under one seed: the unit of work. Its methods share data and, where they can, trainings."""

    task: str
    seed: int
    methods: tuple[str, ...]
    protocol: str
    backbone: str
    device: str
    data_dir: str | None
    floor: bool = False


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
    floor: bool = False,
) -> list[Result]:
    """Run methods on tasks over seeds 0, 1, ..., ``seeds - 1``.

    Parameters
    ----------
    tasks, methods : str or list of str
        Names; ``"paper"`` and ``"all"`` stand for groups of tasks, ``"all"`` for every method.
    seeds : int
        How many seeds.
    protocol : str
        ``"clean"``: without leaks. ``"published"``: as the paper's code has it.
    backbone, device, data_dir
        As for `Detector` and `load_task`.
    jobs : int, optional
        Processes to spread the work over. Each computes with its share of the cores, and the order of floating-point
        sums depends on that: numbers are the same, bit for bit, for the same number of jobs. If left out, one process
        per core on a CPU, and one on a GPU or where processes cannot be forked.
    on_progress : callable, optional
        Called with (cells done, cells in all, what was done last).
    floor : bool
        Also give the trivial scores on every task, after the methods asked for; they cost no training.

    Returns
    -------
    list of Result
        One per task and method, in the order asked for.

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
    shown = list(dict.fromkeys([*method_names, *(FLOOR if floor else ())]))
    results = {(t, m): Result(t, m, protocol, backbone) for t in task_names for m in shown}
    folder = os.fspath(data_dir) if data_dir is not None else None
    cells = [
        Cell(task, seed, tuple(method_names), protocol, backbone, device, folder, floor)
        for task in task_names
        for seed in range(seeds)
    ]
    outcomes: dict[Cell, dict[str, dict[str, Any]]] = {}
    for done, (cell, outcome) in enumerate(_run_all(cells, jobs or _cores_for(device)), 1):
        outcomes[cell] = outcome
        if on_progress:
            on_progress(done, len(cells), f"{cell.task}, seed {cell.seed}")
    for cell in cells:
        for method, numbers in outcomes[cell].items():
            results[cell.task, method].runs.append(numbers)
    return list(results.values())


def _check(seeds: int, protocol: str, backbone: str, jobs: int) -> None:
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}, expected 1 or more")
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}, expected 1 or more")
    get_protocol(protocol)
    if backbone not in BACKBONES:
        raise unknown("backbone", backbone, BACKBONES)


def _cores_for(device: str) -> int:
    """How many processes a benchmark takes by itself."""
    return 1 if is_gpu(device) or not _can_fork() else num_cores()


def _seeds_of_tasks(cells: list[Cell]) -> list[list[Cell]]:
    """The seeds of a task in one go on a GPU, one by one on a CPU, where the first result is seen sooner."""
    if not is_gpu(cells[0].device):
        return [[cell] for cell in cells]
    return [list(group) for _, group in groupby(cells, key=lambda cell: cell.task)]


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _can_fork() -> bool:
    # A forked child cannot use its parent's GPU; and forking is unsafe with the system libraries of other platforms.
    return sys.platform == "linux" and not torch.cuda.is_initialized()


def _run_all(cells: list[Cell], jobs: int) -> Iterator[tuple[Cell, dict[str, dict[str, Any]]]]:
    jobs = min(jobs, len(cells))
    if jobs == 1:
        for together in _seeds_of_tasks(cells):
            yield from zip(together, run_seeds(together), strict=True)
        return
    threads = max(1, num_cores() // jobs)
    # Children with one thread each never touch the parent's thread pool, so they can be forked and start at once;
    # others start fresh, which takes seconds.
    method = "fork" if threads == 1 and _can_fork() else "spawn"
    with ProcessPoolExecutor(
        jobs, mp_context=get_context(method), initializer=_begin_worker, initargs=(threads, file_plugins())
    ) as pool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, see above
            pending = {pool.submit(run_cell, cell): cell for cell in cells}
        with _cancelled_on_error(pool):
            for future in as_completed(pending):
                yield pending[future], future.result()


def _begin_worker(threads: int, plugins: tuple[Path, ...]) -> None:
    load_plugins(plugins)
    torch.set_num_threads(threads)
    gc.freeze()  # what was imported stays; looking for garbage in it would take a few percent of the time


@contextmanager
def _cancelled_on_error(pool: ProcessPoolExecutor) -> Iterator[None]:
    try:
        yield
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def run_cell(cell: Cell) -> dict[str, dict[str, Any]]:
    """All methods on one task under one seed: method -> what `evaluate` says."""
    [numbers] = run_seeds([cell])
    return numbers


def run_seeds(cells: Sequence[Cell]) -> list[dict[str, dict[str, Any]]]:
    """`run_cell` for one task under several seeds, whose networks train side by side where that is possible."""
    first = cells[0]
    numbers: list[dict[str, dict[str, Any]]] = [{} for _ in cells]
    with graph_cache():
        tasks = load_tasks(first.task, first.data_dir, [cell.seed for cell in cells], first.protocol)
        trainings: dict[str, dict[str, list[Detector]]] = {}
        for method in first.methods:
            detectors = [_detector(method, task, cell) for task, cell in zip(tasks, cells, strict=True)]
            trainings.setdefault(_training_key(detectors[0]), {})[method] = detectors
        ready = _started([next(iter(methods.values())) for methods in trainings.values()], tasks, first.device)
        for place, (handle, methods) in enumerate(zip(ready, trainings.values(), strict=True)):
            handle.result()
            floor = first.floor and place == 0  # trivial scores look past the network, so any will do
            for seed, (task, own) in enumerate(zip(tasks, numbers, strict=True)):
                own.update(_scored({method: detectors[seed] for method, detectors in methods.items()}, task, floor))
    return numbers


def _started(trainings: Iterable[list[Detector]], tasks: list[Task], device: str) -> list[TrainingHandle[None]]:
    """Start every training; what comes back waits for them. A GPU does them at the same time, as far as they fit."""
    started: list[TrainingHandle[None]] = []
    memory = _Memory(device)
    for detectors in trainings:
        exposures = [task.exposure if _needs_exposure(detectors[0]) else None for task in tasks]
        start = partial(start_fitting, detectors, [task.train for task in tasks], exposures)
        try:
            pending = start() if not started or memory.has_room() else None
        except torch.OutOfMemoryError:
            if not started:
                raise
            pending = None
        if pending is None:
            _finish_all(started)
            pending = start()
        started.append(pending)
        memory.note()
    return started


def _finish_all(started: list[TrainingHandle[None]]) -> None:
    for handle in started:
        handle.result()
    torch.cuda.empty_cache()


class _Memory:
    """Whether a CUDA GPU has room for a training, were it twice as large as the largest so far; other devices have."""

    def __init__(self, device: str):
        self._device = torch.device("cuda" if device == "auto" else device)
        torch.cuda.empty_cache()  # what earlier tasks have left
        self._taken = self._now()
        self._largest = 0

    def _now(self) -> int:
        counts = self._device.type == "cuda" and torch.cuda.is_initialized()
        return torch.cuda.memory_reserved(self._device) if counts else 0

    def note(self) -> None:
        """A training has begun."""
        now = self._now()
        self._largest, self._taken = max(self._largest, now - self._taken), now

    def has_room(self) -> bool:
        if not self._largest:
            return True
        # To ask the driver what is free would wait for steps that are under way.
        return self._now() + 2 * self._largest < torch.cuda.get_device_properties(self._device).total_memory


def _scored(methods: dict[str, Detector], task: Task, floor: bool) -> dict[str, dict[str, Any]]:
    """What `evaluate` says of methods that share the training of the first, and of the trivial scores if asked for."""
    fitted = next(iter(methods.values()))
    outputs = TaskOutputs(fitted, task)
    scorers: dict[str, Any] = {method: detector.scorer for method, detector in methods.items()}
    if floor:
        scorers = {name: get_recipe(name).build()[1] for name in FLOOR} | scorers
    return {method: evaluate(fitted.with_scorer(scorer), task, outputs) for method, scorer in scorers.items()}


def _detector(method: str, task: Task, cell: Cell) -> Detector:
    return get_protocol(cell.protocol).detector(method, task, cell.backbone, cell.seed, cell.device)


def _needs_exposure(detector: Detector) -> bool:
    return detector.objective is not None and detector.objective.needs_exposure


def _training_key(detector: Detector) -> str:
    """Equal for detectors that train the same network: everything but the scorer."""
    return repr(sorted((k, repr(v)) for k, v in detector.get_params(deep=False).items() if k != "scorer"))
