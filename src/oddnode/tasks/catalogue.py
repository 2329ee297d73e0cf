"""The data sets of the library, tasks by name, and the state of their data.

Imports no slow module: the module that reads a data set is imported when its graph is needed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from oddnode._utils.lazy import LazyModule
from oddnode._utils.suggestions import unknown
from oddnode.tasks.datasets import (
    DATASETS,
    FEATURE,
    RULES,
    STRUCTURE,
    DataDir,
    DataFiles,
    DatasetSpec,
    Task,
    TaskSpec,
    leave_out,
    register_dataset,
    years_families,
)

_digits, _planetoid, _twitch, _arxiv, _npz_graphs = (
    LazyModule(f"oddnode.tasks.{name}") for name in ("digits", "planetoid", "twitch", "arxiv", "npz_graphs")
)

# Digits

register_dataset(
    DatasetSpec.from_graph(
        "digits",
        lambda data_dir, seed: _digits.digits_graph(seed),
        label_split=([0, 1, 2, 3, 4], [5], [6, 7, 8, 9]),
        licence="BSD-3-Clause, UCI (CC BY 4.0)",
        seconds=1.0,
    )
)

# Cora, CiteSeer and PubMed

#: Name of a data set -> name of its folder.
FOLDERS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}

PLANETOID_URL = "https://github.com/kimiyoung/planetoid/raw/master/data"
#: Suffixes of a data set's file names.
PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")

# ID, exposed and OOD classes in label leave-out. The published split has one rule: classes above t are ID, t is exposed
# and classes below t are OOD. This leaves PubMed a single ID class; see docs/tasks.md.
_LABEL_SPLITS = {
    "cora": ([4, 5, 6], [3], [0, 1, 2]),
    "citeseer": ([4, 5], [3], [0, 1, 2]),
    "pubmed": ([2], [1], [0]),
}
_SECONDS = {"cora": 0.9, "citeseer": 1.3, "pubmed": 5.5}


def planetoid_files(name: str) -> DataFiles:
    """Describe the files of a citation graph."""
    inside = f"{FOLDERS[name]}/raw"
    return DataFiles(
        FOLDERS[name],
        tuple(f"ind.{name}.{part}" for part in PLANETOID_PARTS),
        how_to_get=f"get them from {PLANETOID_URL} and put them into <data dir>/planetoid/{inside}",
        folders_in_data_dir=(f"planetoid/{inside}", inside),
        folders_in_cache=(f"planetoid/{inside}",),
    )


def _planetoid_set(name: str) -> DatasetSpec:
    spec = DatasetSpec.from_graph(
        name,
        lambda data_dir, seed: _planetoid.planetoid_graph(name, data_dir),
        families={"structure": STRUCTURE, "feature": FEATURE, "label": leave_out(*_LABEL_SPLITS[name])},
        fixed_split=True,
        licence="no licence stated; cite Sen et al. 2008 and Yang et al. 2016",
        files=planetoid_files(name),
        download=lambda data_dir: _planetoid.download_planetoid(name, data_dir),
        seconds=_SECONDS[name],
    )
    return _with_years(spec) if name == "pubmed" else spec


YEARS_FILES = DataFiles(
    "PubMed with years",
    ("year.npy",),
    how_to_get="take the years from https://github.com/nelsonaloysio/pubmed-temporal and save them, in the order of "
    "Planetoid's nodes, with numpy.save into <data dir>/planetoid/PubMed/years",
    folders_in_data_dir=("planetoid/PubMed/years", "PubMed/years"),
    folders_in_cache=("planetoid/PubMed/years",),
)
# The last years of training graphs. Papers are scored up to so many years later, from the first of them on: the value.
_UNTIL, _AFTER = (1994, 1999, 2004), {1: 1, 5: 1, 10: 6, 15: 11}
_LAST_YEAR = 2009


def _with_years(spec: DatasetSpec) -> DatasetSpec:
    """Add tasks without an unknown class and with each of PubMed's three, such as until-1994-after-5-unknown-0."""
    timed = replace(spec, load=lambda data_dir, seed: _planetoid.pubmed_with_years(data_dir))
    for until in _UNTIL:
        arrive = {f"-after-{b}": (until + a, until + b) for b, a in _AFTER.items() if until + b <= _LAST_YEAR}
        for name, family in years_families(until, range(3), arrive).items():
            timed = timed.with_family(name, family)
    return replace(timed, load=spec.load)


for _name in FOLDERS:
    register_dataset(_planetoid_set(_name))

# Twitch

_TWITCH_URL = "https://snap.stanford.edu/data/twitch-social-networks.html"
#: The ID region, the exposed one, and those with the OOD nodes to find.
TWITCH_REGIONS = ("DE", "ENGB", "ES", "FR", "RU")


def twitch_file_names(region: str) -> list[str]:
    """List the names of the files of a region: edges, features and labels."""
    return [f"musae_{region}_{part}" for part in ("edges.csv", "features.json", "target.csv")]


def twitch_files(*regions: str) -> DataFiles:
    """Describe the files of some regions."""
    return DataFiles(
        "Twitch",
        tuple(name for region in regions for name in twitch_file_names(region)),
        how_to_get=f"get the raw files from {_TWITCH_URL} and put all of them into <data dir>/twitch",
        folders_in_data_dir=("twitch", "."),
        folders_in_cache=("twitch",),
    )


register_dataset(
    DatasetSpec(
        "twitch",
        (TaskSpec("twitch", lambda *given: _twitch.twitch_task(*given)),),
        licence="no licence stated; cite Rozemberczki et al. 2019",
        files=twitch_files(*TWITCH_REGIONS),
        seconds=5.5,
    )
)

# Arxiv

# An archive of the folder arxiv/raw.
_ARXIV_URL = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
# OGB's name for the folder, and the name in the archive.
_ARXIV_FOLDERS = ("ogbn_arxiv/raw", "arxiv/raw")
_ARXIV_NAMES = ("num-node-list", "num-edge-list", "edge", "node-feat", "node-label", "node_year")
ARXIV_FILES = DataFiles(
    "Arxiv",
    tuple(f"{name}.csv.gz" for name in _ARXIV_NAMES),
    how_to_get=f"get {_ARXIV_URL} and unpack it into <data dir> (it makes arxiv/raw)",
    folders_in_data_dir=_ARXIV_FOLDERS,
    folders_in_cache=_ARXIV_FOLDERS,
)

register_dataset(
    DatasetSpec(
        "arxiv",
        (TaskSpec("arxiv", lambda *given: _arxiv.arxiv_task(*given)),),
        licence="ODC-BY 1.0; cite Hu et al. 2020",
        files=ARXIV_FILES,
        optional=True,  # large, and never downloaded automatically
        seconds=80.0,
    )
)

# Amazon Photo and Coauthor CS

_NPZ_URL = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
# The folder and the file, as PyG's Amazon and Coauthor have them.
_NPZ_FILES = {"photo": ("amazon", "amazon_electronics_photo"), "cs": ("coauthor", "ms_academic_cs")}


def npz_files(name: str) -> DataFiles:
    """Describe the file of a graph that is one NumPy archive."""
    if name in _NPZ_FILES:
        folder, file = _NPZ_FILES[name]
        how = f"get it from {_NPZ_URL} and put it into <data dir>/{folder}/raw"
        inside = (f"{folder}/raw", f"{name}/raw")
        return DataFiles(name, (f"{file}.npz",), how, folders_in_data_dir=inside, folders_in_cache=inside)
    how = "it is no public file: put your own graph of this name into <data dir>/graphs"
    return DataFiles(name, (f"{name}.npz",), how, folders_in_data_dir=("graphs",))


def _npz_set(name: str, **others: Any) -> DatasetSpec:
    def load(data_dir: DataDir, seed: int) -> Any:
        return _npz_graphs.npz_graph(name, data_dir)

    return DatasetSpec.from_graph(name, load, files=npz_files(name), optional=True, **others)


for _name, _num_classes, _seconds in (("photo", 8, 4.0), ("cs", 15, 5.0)):
    register_dataset(
        _npz_set(
            _name,
            label_split=(range(5, _num_classes), [4], range(4)),
            licence="no licence stated; cite Shchur et al. 2018",
            seconds=_seconds,
        )
    )

# Graphs for choosing settings, unlike Cora: a wide citation graph, a dense social one, a heterophilous one. No table of
# results has them.

for _name in ("citations-wide", "campus", "films"):
    register_dataset(_npz_set(_name, licence="for choosing settings only, never reported", for_choosing=True))

#: The ten tasks of the paper's main benchmark: nine on citation graphs, and Twitch.
PAPER_TASKS = [
    *(f"{data}/{shift}" for data in ("cora", "citeseer", "pubmed") for shift in ("structure", "feature", "label")),
    "twitch",
]


class _TasksByName(Mapping[str, TaskSpec]):
    """The tasks of all data sets, including those of plugins."""

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
        The protocol whose rules define the task: ``"clean"``, ``"published"`` or a plugin's.

    Examples
    --------
    >>> task = load_task("digits/label")
    >>> task.num_classes, list(task.tests)
    (5, ['label'])
    """
    [task] = load_tasks(name, data_dir, [seed], protocol)
    return copy.deepcopy(task)


def load_tasks(name: str, data_dir: DataDir, seeds: Sequence[int], protocol: str = "clean") -> list[Task]:
    """`load_task` for several seeds without copying: tasks share tensors, or are one object, and are read-only.

    Parameters
    ----------
    name, data_dir, protocol
        As for `load_task`.
    seeds : sequence of int
        The seeds.
    """
    task, rules = TASKS[name], RULES[protocol]
    if task.same_for_all_seeds:
        return [task.make(data_dir, 0, rules)] * len(seeds)
    return [task.make(data_dir, seed, rules) for seed in seeds]


def expand_tasks(names: Iterable[str], data_dir: DataDir = None) -> list[str]:
    """Replace names of groups by the names of their tasks, and drop duplicates.

    ``paper`` stands for the ten tasks of the paper, ``arrivals`` for the arrivals of all data sets, ``cora/arrivals``
    for those of one, and ``all`` for every task that is in none but these groups. ``arrivals`` and ``all`` include an
    optional data set, such as Arxiv, only if its files are found, and none that serves for choosing settings.

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
    """Raise an error for tasks whose files are missing and not downloaded automatically.

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
        present = not spec.for_choosing and (not spec.optional or spec.missing(data_dir) is None)
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
    """A data set, the state of its files, and its licence."""

    name: str  #: The data set's name.
    tasks: tuple[str, ...]  #: Names of its tasks, and of its groups of tasks.
    state: str  #: Whether it needs no files, its files were found, or files are missing.
    where: str  #: The folder of its files; if they are missing, the searched folders and how to get them.
    licence: str  #: Its terms, and whom to cite.

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
