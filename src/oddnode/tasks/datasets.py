"""Data sets. A `DatasetSpec` describes one completely: its tasks, files, licence and cost.

`DATASETS` has them by name. A plugin adds a data set with `register_dataset`, and a family of tasks with
`register_family`. Descriptions need no torch; what makes a graph or a task imports it when it is called.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from oddnode._utils.registry import Registry
from oddnode.tasks.base import Task, TaskRules
from oddnode.tasks.files import DataDir, DataFiles, MissingDataError

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

    from oddnode.tasks.shifts import LabelSplit

__all__ = [
    "DATASETS",
    "FEATURE",
    "STRUCTURE",
    "DatasetSpec",
    "TaskFamily",
    "TaskSpec",
    "leave_out",
    "register_dataset",
    "register_family",
]


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
        """The group of a task named ``"dataset/group/..."``; ``None`` for a task that belongs to none."""
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


def _structure(name: str, data: Data, seed: int, rules: TaskRules) -> Task:
    from oddnode.tasks.shifts import structure_task

    return structure_task(name, data, seed, rules)


def _feature(name: str, data: Data, seed: int, rules: TaskRules) -> Task:
    from oddnode.tasks.shifts import feature_task

    return feature_task(name, data, seed, rules)


#: Families in which the OOD nodes are the same nodes with other edges, or with other features.
STRUCTURE, FEATURE = TaskFamily(_structure), TaskFamily(_feature)


def leave_out(id_classes: Iterable[int], exposure_classes: Iterable[int], ood_classes: Iterable[int]) -> TaskFamily:
    """Make the family of tasks in which some classes are OOD.

    Parameters
    ----------
    id_classes, exposure_classes, ood_classes : iterable of int
        As for `label_task`.
    """
    split = tuple(id_classes), tuple(exposure_classes), tuple(ood_classes)

    def make(name: str, data: Data, seed: int, rules: TaskRules) -> Task:
        from oddnode.tasks.shifts import label_task

        _check_classes(name, data.y, split)
        return label_task(name, data, *split, rules=rules)

    return TaskFamily(make, uses_seed=False)


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

    @classmethod
    def from_graph(
        cls,
        name: str,
        load: Callable[[DataDir, int], Data],
        *,
        label_split: LabelSplit | None = None,
        families: Mapping[str, TaskFamily] | None = None,
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
        fixed_split : bool
            Whether ``load`` returns the same graph and the same masks for every seed.
        **others
            Other arguments of `DatasetSpec`.
        """
        if families is None:
            families = {"structure": STRUCTURE, "feature": FEATURE}
        if label_split is not None:
            families = {"label": leave_out(*label_split), **families}
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
        """Check, without reading or downloading, whether files are missing, and which; ``None`` if they are not.

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
            f"the data set {spec.name!r} has the tasks {names}; expected one or more different names, each "
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

    from oddnode.tasks.splits import one_one_eight

    if not isinstance(data, Data):
        raise TypeError(f"load of the data set {dataset!r} returned a {type(data).__name__}, expected a PyG Data")
    absent = [name for name in ("x", "edge_index", "y") if not isinstance(data.get(name), Tensor)]
    if absent:
        raise ValueError(f"the graph of the data set {dataset!r} has no {', '.join(absent)}")
    data = copy.copy(data)  # `load` may keep the object it returned
    masks = ("train_mask", "val_mask", "test_mask")
    absent = [name for name in masks if not isinstance(data.get(name), Tensor)]
    if len(absent) == len(masks):
        for name, mask in zip(masks, one_one_eight(data.num_nodes, seed), strict=True):
            data[name] = mask
    elif absent:
        raise ValueError(f"the graph of the data set {dataset!r} has no {', '.join(absent)}; give all masks or none")
    return data


def _check_classes(task: str, y: Tensor, split: LabelSplit) -> None:
    """Refuse a split with classes that do not occur in ``y``, or with one that is in two of its parts."""
    named, known = [c for part in split for c in part], y.unique().tolist()
    if not set(named) <= set(known) or len(set(named)) < len(named) or not split[0] or not split[2]:
        raise ValueError(
            f"the classes of {task} are ID {split[0]}, exposed {split[1]} and OOD {split[2]}; expected different "
            f"classes of {known}, with at least one ID and one OOD class"
        )
