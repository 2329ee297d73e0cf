"""The tasks by name, and the state of the data behind them."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from torch_geometric.data import Data

from oddnode._utils.suggestions import unknown
from oddnode.tasks.arxiv import ARXIV_SOURCE, arxiv_folders, arxiv_paths, arxiv_task
from oddnode.tasks.base import Protocol, Task
from oddnode.tasks.digits import digits_graph
from oddnode.tasks.planetoid import FOLDERS, planetoid_folders, planetoid_graph, planetoid_paths
from oddnode.tasks.shifts import feature_task, label_task, structure_task
from oddnode.tasks.twitch import SOURCE, twitch_folders, twitch_paths, twitch_task

__all__ = ["PAPER_TASKS", "TASKS", "DatasetState", "dataset_states", "expand_tasks", "load_task", "load_tasks"]

_SHIFTS = ("structure", "feature", "label")

#: The ten cells of the paper that the benchmark is about: nine citation cells and Twitch.
PAPER_TASKS = [f"{data}/{shift}" for data in FOLDERS for shift in _SHIFTS] + ["twitch"]

#: Every task.
TASKS = ["digits/label", "digits/structure", "digits/feature", *PAPER_TASKS, "arxiv"]

# Their graphs have a public split, and leaving classes out leaves nothing to chance.
_SAME_FOR_ALL_SEEDS = {f"{data}/label" for data in FOLDERS}

# Which classes are ID, exposed and OOD in label leave-out. For the citation graphs this is the published split,
# whose one rule is: ID above t, exposed = t, OOD below t. It leaves PubMed a single ID class; see docs/tasks.md.
_LABEL_SPLITS: dict[str, tuple[list[int], list[int], list[int]]] = {
    "digits": ([0, 1, 2, 3, 4], [5], [6, 7, 8, 9]),
    "cora": ([4, 5, 6], [3], [0, 1, 2]),
    "citeseer": ([4, 5], [3], [0, 1, 2]),
    "pubmed": ([2], [1], [0]),
}


def load_task(
    name: str, data_dir: str | os.PathLike | None = None, seed: int = 0, protocol: Protocol = "clean"
) -> Task:
    """A task by name. The same seed gives the same task, bit for bit.

    Parameters
    ----------
    name : str
        One of `TASKS`, for example ``"digits/label"`` or ``"cora/structure"``.
    data_dir : path, optional
        Where the data lies (only read); by default ``ODDNODE_DATA``, then the user's cache.
    seed : int
        Seed of random splits and shifts.
    protocol : {"clean", "published"}
        The rules the task is made under.

    Examples
    --------
    >>> task = load_task("digits/label")
    >>> task.num_classes, list(task.tests)
    (5, ['label'])
    """
    [task] = load_tasks(name, data_dir, [seed], protocol)
    return copy.deepcopy(task)


def load_tasks(
    name: str, data_dir: str | os.PathLike | None, seeds: Sequence[int], protocol: Protocol = "clean"
) -> list[Task]:
    """`load_task` under several seeds, for those who change nothing: what does not depend on the seed is there once.

    A task that is the same for all seeds is the same object.
    """
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    if protocol not in get_args(Protocol):
        raise unknown("protocol", protocol, get_args(Protocol))
    if name in _SAME_FOR_ALL_SEEDS:
        return [_load(name, data_dir, 0, protocol)] * len(seeds)
    return [_load(name, data_dir, seed, protocol) for seed in seeds]


def _load(name: str, data_dir: str | os.PathLike | None, seed: int, protocol: Protocol) -> Task:
    if name == "twitch":
        return twitch_task(data_dir, seed, protocol)
    if name == "arxiv":
        return arxiv_task(data_dir, seed, protocol)
    dataset, shift = name.split("/")
    data = _graph(dataset, data_dir, seed)
    if shift == "label":
        return label_task(name, data, *_LABEL_SPLITS[dataset], protocol=protocol)
    make = structure_task if shift == "structure" else feature_task
    return make(name, data, seed, protocol)


def _graph(dataset: str, data_dir: str | os.PathLike | None, seed: int) -> Data:
    return digits_graph(seed) if dataset == "digits" else planetoid_graph(dataset, data_dir)


def expand_tasks(names: Iterable[str], data_dir: str | os.PathLike | None = None) -> list[str]:
    """Task names with ``paper`` (the ten cells) and ``all`` written out, each once, in order.

    ``all`` holds ``arxiv`` only where its files are: they are large, and nothing downloads them.
    """
    names = list(names)
    groups = {"paper": PAPER_TASKS, "all": TASKS}
    if "all" in names and arxiv_paths(data_dir) is None:
        groups["all"] = [task for task in TASKS if task != "arxiv"]
    expanded: dict[str, None] = {}
    for name in names:
        if name not in groups and name not in TASKS:
            raise unknown("task", name, [*TASKS, *groups])
        expanded.update(dict.fromkeys(groups.get(name, [name])))
    return list(expanded)


@dataclass(frozen=True)
class DatasetState:
    """A data set, whether its files are here, and under which terms."""

    name: str
    tasks: tuple[str, ...]
    state: str
    where: str
    licence: str

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


_PLANETOID_LICENCE = "research data, no licence stated; cite Sen et al. 2008 and Yang et al. 2016"
_TWITCH_LICENCE = "no licence stated; cite Rozemberczki et al. 2019"
_ARXIV_LICENCE = "ODC-BY 1.0; cite Hu et al. 2020"


def dataset_states(data_dir: str | os.PathLike | None = None) -> list[DatasetState]:
    """Every data set with its state: embedded, found or missing; then where it was looked for and how to get it."""
    states = [DatasetState("digits", _tasks_of("digits"), "embedded", "scikit-learn", "BSD-3-Clause, UCI (CC BY 4.0)")]
    for name in FOLDERS:
        paths, folders = planetoid_paths(name, data_dir), planetoid_folders(name, data_dir)
        states.append(
            _state(name, paths, folders, "downloaded into the last of these on first use", _PLANETOID_LICENCE)
        )
    how = f"get the raw files from {SOURCE} into <data dir>/twitch"
    states.append(_state("twitch", twitch_paths(data_dir), twitch_folders(data_dir), how, _TWITCH_LICENCE))
    how = f"unpack {ARXIV_SOURCE} into <data dir>"
    states.append(_state("arxiv", arxiv_paths(data_dir), arxiv_folders(data_dir), how, _ARXIV_LICENCE))
    return states


def _state(name: str, paths: dict[str, Path] | None, folders: list[Path], how: str, licence: str) -> DatasetState:
    if paths:
        return DatasetState(name, _tasks_of(name), "found", str(next(iter(paths.values())).parent), licence)
    where = f"looked in {', '.join(map(str, folders))}; {how}"
    return DatasetState(name, _tasks_of(name), "missing", where, licence)


def _tasks_of(dataset: str) -> tuple[str, ...]:
    return tuple(task for task in TASKS if task.startswith(dataset))
