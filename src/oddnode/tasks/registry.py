"""Tasks by name, and the state of their data; everything comes from `DATASETS`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from oddnode._utils.suggestions import unknown
from oddnode.tasks.base import RULES, Task
from oddnode.tasks.catalogue import ARXIV, DIGITS, PLANETOID, TWITCH, arrivals_families
from oddnode.tasks.datasets import DATASETS, DatasetSpec, TaskSpec, register_dataset, register_family
from oddnode.tasks.files import DataDir

__all__ = [
    "PAPER_TASKS",
    "TASKS",
    "DatasetState",
    "check_data",
    "dataset_states",
    "expand_tasks",
    "load_task",
    "load_tasks",
]

for _spec in (DIGITS, *PLANETOID, TWITCH, ARXIV):
    register_dataset(_spec)
for _name, _family in arrivals_families().items():
    register_family(_name, _family, ["digits", *(spec.name for spec in PLANETOID)])

#: The ten tasks of the paper's main benchmark: nine on citation graphs, and Twitch.
PAPER_TASKS = [
    *(f"{data}/{shift}" for data in ("cora", "citeseer", "pubmed") for shift in ("structure", "feature", "label")),
    "twitch",
]


class _TasksByName(Mapping[str, TaskSpec]):
    """The tasks of all data sets, those of plugins included."""

    def __getitem__(self, name: str) -> TaskSpec:
        for task in self._every():
            if task.name == name:
                return task
        raise unknown("task", name, self)

    def __iter__(self) -> Iterator[str]:
        return (task.name for task in self._every())

    def __len__(self) -> int:
        return sum(len(spec.tasks) for spec in DATASETS.values())

    def _every(self) -> Iterator[TaskSpec]:
        return (task for spec in DATASETS.values() for task in spec.tasks)


#: Every task by name.
TASKS = _TasksByName()


def load_task(name: str, data_dir: DataDir = None, seed: int = 0, protocol: str = "clean") -> Task:
    """Load a task. The same seed gives the same task, bit for bit.

    Parameters
    ----------
    name : str
        One of `TASKS`, for example ``"digits/label"`` or ``"cora/structure"``.
    data_dir : path, optional
        The folder of the data sets, which is only read; by default ``ODDNODE_DATA``, then the user's cache.
    seed : int
        Seed of random splits and shifts.
    protocol : str
        The protocol by whose rules the task is made: ``"clean"``, ``"published"`` or one of a plugin.

    Examples
    --------
    >>> task = load_task("digits/label")
    >>> task.num_classes, list(task.tests)
    (5, ['label'])
    """
    [task] = load_tasks(name, data_dir, [seed], protocol)
    return copy.deepcopy(task)


def load_tasks(name: str, data_dir: DataDir, seeds: Sequence[int], protocol: str = "clean") -> list[Task]:
    """`load_task` for several seeds without copying: the tasks share tensors and are read-only.

    Parameters
    ----------
    name, data_dir, protocol
        As for `load_task`.
    seeds : sequence of int
        The seeds.

    Returns
    -------
    list of Task
        One per seed; the same object for all seeds if the task does not depend on them.
    """
    task, rules = TASKS[name], RULES[protocol]
    if task.same_for_all_seeds:
        return [task.make(data_dir, 0, rules)] * len(seeds)
    return [task.make(data_dir, seed, rules) for seed in seeds]


def expand_tasks(names: Iterable[str], data_dir: DataDir = None) -> list[str]:
    """Replace names of groups by the names of their tasks, and drop repetitions.

    ``paper`` stands for the ten tasks of the paper, ``arrivals`` for the arrivals of all data sets, ``cora/arrivals``
    for those of one, and ``all`` for every task that is in no group but these. ``arrivals`` and ``all`` include an
    optional data set, such as Arxiv, only if its files are found.

    Parameters
    ----------
    names : iterable of str
        Names of tasks and groups.
    data_dir : path, optional
        As for `load_task`.
    """
    expanded: dict[str, None] = {}
    groups = _groups(data_dir)
    for name in names:
        if name not in TASKS and name not in groups:
            raise unknown("task", name, [*TASKS, *groups])
        expanded.update(dict.fromkeys(groups.get(name, [name])))
    return list(expanded)


def check_data(names: Iterable[str], data_dir: DataDir = None) -> None:
    """Raise an error for tasks whose files are missing and are not downloaded on first use.

    Parameters
    ----------
    names : iterable of str
        Names of tasks.
    data_dir : path, optional
        As for `load_task`.
    """
    wanted = set(names)
    for spec in DATASETS.values():
        if spec.download is None and any(task.name in wanted for task in spec.tasks):
            spec.require(data_dir)


def _groups(data_dir: DataDir) -> dict[str, list[str]]:
    """The groups of tasks: by data set, as in ``cora/arrivals``, and over all data sets."""
    groups: dict[str, list[str]] = {"paper": list(PAPER_TASKS), "all": []}
    for spec in DATASETS.values():
        present = not spec.optional or spec.missing(data_dir) is None
        for task in spec.tasks:
            if task.group is not None:
                groups.setdefault(f"{spec.name}/{task.group}", []).append(task.name)
            if task.group is not None and present:
                groups.setdefault(task.group, []).append(task.name)
            if task.group in (None, "arrivals") and present:
                groups["all"].append(task.name)
    return groups


@dataclass(frozen=True)
class DatasetState:
    """A data set, the state of its files, and its licence.

    Parameters
    ----------
    name : str
        The data set's name.
    tasks : tuple of str
        Names of its tasks, and of its groups of tasks.
    state : {"embedded", "found", "missing"}
        Whether it needs no files, its files were found, or files are missing.
    where : str
        The folder of its files; if they are missing, the searched folders and how to get them.
    licence : str
        Its terms, and whom to cite.
    """

    name: str
    tasks: tuple[str, ...]
    state: str
    where: str
    licence: str

    def as_dict(self) -> dict[str, object]:
        """All fields, for JSON."""
        return asdict(self)


def dataset_states(data_dir: DataDir = None) -> list[DatasetState]:
    """List all data sets with the state of their files.

    Parameters
    ----------
    data_dir : path, optional
        As for `load_task`.
    """
    return [_state(spec, data_dir) for spec in DATASETS.values()]


def _state(spec: DatasetSpec, data_dir: DataDir) -> DatasetState:
    folder = None if spec.files is None else spec.files.find(data_dir)
    if spec.files is None:
        state, where = "embedded", "needs no files"
    elif folder is not None:
        state, where = "found", str(folder)
    else:
        looked = ", ".join(map(str, spec.files.folders(data_dir)))
        how = "downloaded into the last of these on first use" if spec.download else spec.files.how_to_get
        state, where = "missing", f"looked in {looked}; {how}"
    names = dict.fromkeys(task.name if task.group is None else f"{spec.name}/{task.group}" for task in spec.tasks)
    return DatasetState(spec.name, tuple(names), state, where, spec.licence)
