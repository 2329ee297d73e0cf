"""Tasks and data sets. A `DatasetSpec` describes a data set completely: its tasks, files, licence and cost.

`DATASETS` has them by name. A plugin adds a data set with `register_dataset`, and a family of tasks with
`register_family`. Descriptions need no torch; functions that make graphs or tasks import it when called.
"""

from __future__ import annotations

import copy
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import platformdirs

from oddnode._utils.lazy import LazyModule
from oddnode._utils.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

    from oddnode.tasks.shifts import LabelSplit

_shifts, _arrivals, _years = (LazyModule(f"oddnode.tasks.{name}") for name in ("shifts", "arrivals", "years"))

#: The user's data directory; ``None`` stands for ``ODDNODE_DATA``, then the user's cache.
DataDir = str | os.PathLike | None


@dataclass(frozen=True)
class TaskRules:
    """The rules by which a protocol makes tasks. By default nothing leaks into training.

    Parameters
    ----------
    protocol : str
        The protocol of these rules; tasks made under them carry its name.
    keep_left_out_nodes : bool
        In label leave-out, nodes of left-out classes stay in every graph, and their classes are numbered after the
        ID classes. Otherwise they are absent from training and have the label -1.
    add_self_loops : bool
        On Twitch, every node gets a self-loop.
    keep_future_nodes : bool
        On Arxiv, papers that are newer than a graph stay in it, without citations.
    keep_edge_direction : bool
        On Arxiv, citations keep their direction. Otherwise edges are undirected.
    keep_untrained_classes : bool
        On Arxiv, papers of a class without a training paper keep their label and are test nodes. Otherwise they are
        unlabelled.
    """

    protocol: str = "clean"
    keep_left_out_nodes: bool = False
    add_self_loops: bool = False
    keep_future_nodes: bool = False
    keep_edge_direction: bool = False
    keep_untrained_classes: bool = False


#: The rules of the clean protocol.
CLEAN = TaskRules()

#: The rules of every protocol by its name.
RULES: Registry[TaskRules] = Registry("protocol")
RULES.register("clean", CLEAN)
RULES.register(
    "published",
    TaskRules(
        protocol="published",
        keep_left_out_nodes=True,
        add_self_loops=True,  # the paper's copy of Twitch has them
        keep_future_nodes=True,
        keep_edge_direction=True,
        keep_untrained_classes=True,
    ),
)


class ScoredNodes(NamedTuple):
    """A graph and its scored nodes."""

    data: Data  #: The graph.
    mask: Tensor  #: Mask of its nodes ``[n]``.


@dataclass
class Task:
    """A graph to fit on, ID nodes to recognise and OOD nodes to find.

    Parameters
    ----------
    name : str
        Its name in tables.
    train : Data
        The graph to fit on: ``x``, ``edge_index``, ``y`` in ``0..num_classes-1`` (any value for unlabelled nodes),
        ``train_mask``, ``val_mask``, ``test_mask``.
    id_test : ScoredNodes
        The graph and mask of the ID nodes that are scored; its ``y`` gives their classes.
    tests : dict of str to Data
        Graphs with the OOD nodes to find, marked by ``ood_mask``.
    num_classes : int
        Number of ID classes.
    exposure : Data, optional
        A graph with OOD nodes that methods with exposure may learn from, marked by ``ood_mask``.
    protocol : str
        The protocol under whose rules the task was made, such as ``"clean"`` or ``"published"``.
    num_left_out : int
        Number of left-out classes. Only under the published protocol do networks have logits for them.
    not_rehearsed : tuple of str
        Alterations that are like the unknown nodes, so that a benchmark leaves them out of the rehearsal of detectors.
    """

    name: str
    train: Data
    id_test: ScoredNodes
    tests: dict[str, Data]
    num_classes: int
    exposure: Data | None = None
    protocol: str = "clean"
    num_left_out: int = field(default=0, kw_only=True)
    not_rehearsed: tuple[str, ...] = field(default=(), kw_only=True)


class MissingDataError(FileNotFoundError):
    """Files of a data set are missing; the message names them, the searched folders and how to get them."""


def data_dir_of(data_dir: DataDir) -> Path | None:
    """Resolve the user's data directory, given as an argument or by ``ODDNODE_DATA``. It is only ever read."""
    named = data_dir or os.environ.get("ODDNODE_DATA")
    if not named:
        return None
    path = Path(named).expanduser()
    if not path.is_dir():
        raise MissingDataError(f"the data directory {path} does not exist or is not a directory")
    return path


def cache_dir() -> Path:
    """Resolve the folder for downloads: ``ODDNODE_CACHE``, or the user's cache directory."""
    return Path(os.environ.get("ODDNODE_CACHE") or platformdirs.user_cache_dir("oddnode"))


@dataclass(frozen=True)
class DataFiles:
    """The files of a data set: their names, the folders they are looked for in, and how to get them.

    Parameters
    ----------
    title : str
        The data set's name in messages.
    names : tuple of str
        Names of the files, which are all in one folder.
    how_to_get : str
        What to do if they are missing: "get ... and put it into <data dir>/...".
    folders_in_data_dir : tuple of str
        Folders of the user's data directory that are searched, in order; ``"."`` is the directory itself.
    folders_in_cache : tuple of str
        Folders of the cache that are searched next.
    """

    title: str
    names: tuple[str, ...]
    how_to_get: str
    folders_in_data_dir: tuple[str, ...] = (".",)
    folders_in_cache: tuple[str, ...] = ()

    def folders(self, data_dir: DataDir = None) -> list[Path]:
        """List the folders to search, in order.

        Parameters
        ----------
        data_dir : path, optional
            As for `load_task`.
        """
        named = data_dir_of(data_dir)
        own = [named / folder for folder in self.folders_in_data_dir] if named else []
        return own + [cache_dir() / folder for folder in self.folders_in_cache]

    def find(self, data_dir: DataDir = None) -> Path | None:
        """Find the first folder that has all the files; ``None`` if there is none.

        Parameters
        ----------
        data_dir : path, optional
            As for `load_task`.
        """
        for folder in self.folders(data_dir):
            if all((folder / name).is_file() for name in self.names):
                return folder
        return None

    def require(self, data_dir: DataDir = None) -> Path:
        """Find the first folder that has all the files; the error otherwise says how to get them.

        Parameters
        ----------
        data_dir : path, optional
            As for `load_task`.
        """
        folder = self.find(data_dir)
        if folder is None:
            raise MissingDataError(self.missing_message(data_dir))
        return folder

    def missing_message(self, data_dir: DataDir = None) -> str:
        """Name the missing files, the searched folders, and how to get the files.

        Parameters
        ----------
        data_dir : path, optional
            As for `load_task`.
        """
        folders = self.folders(data_dir)
        missing = [name for name in self.names if not any((folder / name).is_file() for folder in folders)]
        named = ", ".join(missing) if len(missing) < 4 else f"{missing[0]} and {len(missing) - 1} more files"
        return (
            f"{self.title} is missing {named or 'files in one folder'}; looked in "
            f"{', '.join(map(str, folders)) or 'no folder'}. {self.how_to_get[:1].upper()}{self.how_to_get[1:]}, then "
            "pass <data dir> as `data_dir` or set ODDNODE_DATA"
        )


@dataclass(frozen=True)
class TaskSpec:
    """The name of a task and the function that makes it.

    Parameters
    ----------
    name : str
        ``"dataset/family"``, or the name of the data set if it has a single task. The tasks of a family
        ``"group/member"`` form a group.
    make : callable
        ``make(data_dir, seed, rules) -> Task``.
    same_for_all_seeds : bool
        Whether the task does not depend on the seed; several seeds then share one task.
    training_graph : str
        The name of its training graph; tasks with the same name and seed have equal training graphs. By default it
        shares none.
    """

    name: str
    make: Callable[[DataDir, int, TaskRules], Task] = field(repr=False)
    same_for_all_seeds: bool = False
    training_graph: str = ""

    @property
    def group(self) -> str | None:
        """The group of a task named ``"dataset/group/..."``; ``None`` if it has none."""
        parts = self.name.split("/")
        return parts[1] if len(parts) > 2 else None


@dataclass(frozen=True)
class TaskFamily:
    """A way to make a task from any graph that has ``x``, ``edge_index``, ``y`` and the three masks of a split.

    Parameters
    ----------
    make : callable
        ``make(name, data, seed, rules) -> Task``.
    uses_seed : bool
        Whether the task is drawn at random; otherwise it depends on the graph alone.
    training_graph : str
        Families with the same name make tasks with equal training graphs from the same graph and seed.
    """

    make: Callable[[str, Data, int, TaskRules], Task]
    uses_seed: bool = True
    training_graph: str = ""


#: Families in which the OOD nodes are the same nodes with other edges, or with other features.
STRUCTURE = TaskFamily(lambda *given: _shifts.structure_task(*given))
FEATURE = TaskFamily(lambda *given: _shifts.feature_task(*given))


def leave_out(id_classes: Iterable[int], exposure_classes: Iterable[int], ood_classes: Iterable[int]) -> TaskFamily:
    """Make the family of tasks in which some classes are OOD."""
    split = tuple(id_classes), tuple(exposure_classes), tuple(ood_classes)

    def make(name: str, data: Data, seed: int, rules: TaskRules) -> Task:
        named, known = [c for part in split for c in part], data.y.unique().tolist()
        if not set(named) <= set(known) or len(set(named)) < len(named) or not split[0] or not split[2]:
            raise ValueError(
                f"the classes of {name} are ID {split[0]}, exposed {split[1]} and OOD {split[2]}; expected distinct "
                f"classes of {known}, with at least one ID and one OOD class"
            )
        return _shifts.label_task(name, data, *split, rules=rules)

    return TaskFamily(make, uses_seed=False)


#: Where unknown arrivals are: one by one, each with a known neighbour, or in connected groups of about eight.
Placement = Literal["scattered", "grouped"]
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)

#: Kinds of unknown arrivals in the benchmark: unseen classes, mixed features, other edges.
KINDS = ("label", "feature", "structure")

#: Kinds of unknown arrivals that serve for testing alone: nothing was chosen on them, and nothing learns from them.
UNSEEN_KINDS = ("patched", "stamped", "ringed", "merged")


def _arrivals_family(kind: str, placement: Placement, share: float) -> TaskFamily:
    def make(name: str, data: Data, seed: int, rules: TaskRules) -> Task:
        return _arrivals.arrivals_task(name, data, _arrivals.Arrivals(kind, placement, share), seed, rules)

    nodes = "known classes" if kind == "label" else "all classes"
    return TaskFamily(make, training_graph=f"{nodes}, {100 * share:g} % unknown arrivals")


def _arrivals_families(shares: Sequence[float]) -> dict[str, TaskFamily]:
    """Scattered and grouped arrivals with every share, and, with the first, of kinds that no setting was chosen on."""
    named = [("arrivals" if i == 0 else f"arrivals-{100 * s:g}%", KINDS, s) for i, s in enumerate(shares)]
    groups = [*named, *(("unseen", UNSEEN_KINDS, share) for share in shares[:1])]
    return {
        f"{group}/{kind}-{placement}": _arrivals_family(kind, placement, share)
        for group, kinds, share in groups
        for kind, placement in product(kinds, PLACEMENTS)
    }


def years_families(
    until: float | str, classes: Iterable[int], arrive: Mapping[str, tuple[float, float]] = {"": (-math.inf, math.inf)}
) -> dict[str, TaskFamily]:
    """Make the families of tasks in which nodes arrive after a time, with no unknown class and with each of some."""
    if not (re.fullmatch("[1-9][0-9]?%", until) if isinstance(until, str) else math.isfinite(until)):
        raise ValueError(f"`years` has {until!r}, expected times such as 1999, or shares of the nodes, '1%' to '99%'")

    def family(what: str, **cut: Any) -> TaskFamily:
        return TaskFamily(lambda *given: _years.years_task(*given, **cut), training_graph=f"years/{until}-{what}")

    unknown = {"none": None, **{f"unknown-{c}": c for c in classes}}
    return {
        f"years/until-{until}{after}-{what}": family(what, until=until, arrive=span, unknown=unknown[what])
        for what, (after, span) in product(unknown, arrive.items())
    }


@dataclass(frozen=True)
class DatasetSpec:
    """A data set: its tasks, files, licence and cost.

    Parameters
    ----------
    name : str
        Its name on the command line and in tables; the names of its tasks begin with it.
    tasks : tuple of TaskSpec
        Its tasks, in the order of tables.
    licence : str
        Its terms, and whom to cite.
    files : DataFiles, optional
        The files it is read from; by default it needs none.
    download : callable, optional
        ``download(data_dir)`` downloads the files into the cache, or raises `MissingDataError`.
    optional : bool
        Whether the group of tasks ``"all"`` leaves it out if its files are missing.
    seconds : float
        Rough time of a training of 200 epochs on one core, for planning.
    load : callable, optional
        ``load(data_dir, seed)`` returns the single graph that its tasks are made from; see `from_graph`.
    fixed_split : bool
        Whether ``load`` returns the same for every seed.
    for_choosing : bool
        Whether it serves for choosing settings only: groups of tasks over all data sets leave it out.

    Examples
    --------
    >>> DATASETS["digits"].missing() is None
    True
    >>> [task.name for task in DATASETS["digits"].tasks if task.group is None]
    ['digits/label', 'digits/structure', 'digits/feature']
    """

    name: str
    tasks: tuple[TaskSpec, ...]
    licence: str = "no licence stated"
    files: DataFiles | None = None
    download: Callable[[DataDir], object] | None = field(default=None, repr=False)
    optional: bool = False
    seconds: float = 10.0
    load: Callable[[DataDir, int], Data] | None = field(default=None, repr=False)
    fixed_split: bool = False
    for_choosing: bool = False

    @classmethod
    def from_graph(
        cls,
        name: str,
        load: Callable[[DataDir, int], Data],
        *,
        label_split: LabelSplit | None = None,
        families: Mapping[str, TaskFamily] | None = None,
        arrival_shares: Sequence[float] = (0.05, 0.01, 0.2),
        years: Sequence[float | str] = (),
        fixed_split: bool = False,
        **others: Any,
    ) -> DatasetSpec:
        """Describe a data set that is a single graph, with a task for each family of shifts.

        Parameters
        ----------
        name : str
            Its name.
        load : callable
            ``load(data_dir, seed)`` returns a `Data` with ``x`` ``[n, F]``, ``edge_index`` ``[2, E]`` and ``y``
            ``[n]``. Without ``train_mask``, ``val_mask`` and ``test_mask`` its nodes are split 1:1:8 at random.
        label_split : three sequences of int, optional
            The ID classes, the exposed ones and the OOD ones of the task ``name/label``.
        families : dict of str to TaskFamily, optional
            Families of tasks by name; by default ``label`` (with a ``label_split``), ``structure`` and ``feature``.
        arrival_shares : sequence of float
            Numbers of unknown arrivals over the number of known nodes: the first makes the groups of tasks
            ``name/arrivals`` and ``name/unseen``, each of the others a group such as ``name/arrivals-20%``. Empty for
            no arrivals.
        years : sequence of float or str
            Times, or shares of the nodes such as ``"50%"``, until which training graphs go if the graph has ``time``
            ``[n]``. Later nodes arrive, with none unknown (``name/years/until-1999-none``) and with each class of
            ``label_split``, or else class 0, unknown (``name/years/until-1999-unknown-0``); see `years_task`.
        fixed_split : bool
            Whether ``load`` returns the same graph and the same masks for every seed.
        **others
            Other arguments of `DatasetSpec`.
        """
        if families is None:
            families = {"structure": STRUCTURE, "feature": FEATURE}
        if label_split is not None:
            families = {"label": leave_out(*label_split), **families}
        families = {**families, **_arrivals_families(arrival_shares)}
        for until in years:
            families |= years_families(until, sorted(c for part in label_split or [[0]] for c in part))
        spec = cls(name, (), load=load, fixed_split=fixed_split, **others)
        for family_name, family in families.items():
            spec = spec.with_family(family_name, family)
        return spec

    def with_family(self, name: str, family: TaskFamily) -> DatasetSpec:
        """Add a task.

        Parameters
        ----------
        name : str
            The family's name; the task is called ``dataset/name``.
        family : TaskFamily
            How to make the task from the graph.
        """
        if self.load is None:
            raise ValueError(f"the data set {self.name!r} has no single graph to make {name!r} from")
        load, task = self.load, f"{self.name}/{name}"

        def make(data_dir: DataDir, seed: int, rules: TaskRules) -> Task:
            return family.make(task, _checked_graph(self.name, load(data_dir, seed), seed), seed, rules)

        shared = f"{self.name}/{family.training_graph}" if family.training_graph else task
        added = TaskSpec(task, make, self.fixed_split and not family.uses_seed, shared)
        return replace(self, tasks=(*self.tasks, added))

    def missing(self, data_dir: DataDir = None) -> str | None:
        """Describe missing files, without reading or downloading any; ``None`` if nothing is missing.

        Parameters
        ----------
        data_dir : path, optional
            As for `load_task`.
        """
        if self.files is None or self.files.find(data_dir) is not None:
            return None
        return self.files.missing_message(data_dir)

    def require(self, data_dir: DataDir = None) -> None:
        """Download the files if they are missing, or raise `MissingDataError`; nothing is read.

        Parameters
        ----------
        data_dir : path, optional
            As for `load_task`.
        """
        reason = self.missing(data_dir)
        if reason is not None and self.download is None:
            raise MissingDataError(reason)
        if reason is not None and self.download is not None:
            self.download(data_dir)


#: The data sets by name.
DATASETS: Registry[DatasetSpec] = Registry("data set")


def register_dataset(spec: DatasetSpec) -> None:
    """Add a data set, so that its tasks can be named in `load_task`, `benchmark` and on the command line.

    Parameters
    ----------
    spec : DatasetSpec
        The data set.
    """
    names = [task.name for task in spec.tasks]
    wrong = [name for name in names if name != spec.name and not name.startswith(f"{spec.name}/")]
    if wrong or not names or len(set(names)) < len(names) or "/" in spec.name or spec.name in ("all", "paper"):
        raise ValueError(
            f"the data set {spec.name!r} has the tasks {names}; expected one or more distinct names, each "
            f"{spec.name!r} or '{spec.name}/...', and a data set that is not called 'all' or 'paper'"
        )
    DATASETS.register(spec.name, spec)


def register_family(name: str, family: TaskFamily, datasets: Iterable[str]) -> None:
    """Add a family of tasks to data sets that are a single graph.

    Parameters
    ----------
    name : str
        The family's name; the tasks are called ``dataset/name``.
    family : TaskFamily
        How to make a task from a graph.
    datasets : iterable of str
        Names of the data sets to add it to.
    """
    for dataset in datasets:
        spec = DATASETS[dataset]
        if any(task.name == f"{dataset}/{name}" for task in spec.tasks):
            raise ValueError(f"there is a task named '{dataset}/{name}' already; choose another name")
        DATASETS.register(dataset, spec.with_family(name, family), replace=True)


def _checked_graph(dataset: str, data: Any, seed: int) -> Data:
    from torch import Tensor
    from torch_geometric.data import Data

    if not isinstance(data, Data):
        raise TypeError(f"`load` of the data set {dataset!r} returned a {type(data).__name__}, expected a PyG Data")
    absent = [name for name in ("x", "edge_index", "y") if not isinstance(data.get(name), Tensor)]
    if absent:
        raise ValueError(f"the graph of the data set {dataset!r} has no {', '.join(absent)}")
    data = copy.copy(data)  # `load` may keep the object it returned
    masks = ("train_mask", "val_mask", "test_mask")
    absent = [name for name in masks if not isinstance(data.get(name), Tensor)]
    if len(absent) == len(masks):
        for name, mask in zip(masks, _shifts.one_one_eight(data.num_nodes, seed), strict=True):
            data[name] = mask
    elif absent:
        raise ValueError(f"the graph of the data set {dataset!r} has no {', '.join(absent)}; give all masks or none")
    return data
