"""The unit of work, a distinct training, its outcome, and groups of trainings. Imports no slow module."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from oddnode.tasks import TASKS

if TYPE_CHECKING:
    import numpy as np


# Stacks per group if several processes share a GPU: enough that one process fills it, few enough to balance the load.
_STACKS_AT_ONCE = 4

#: A GAT whose last layer goes through a plane, for the figure of two-dimensional logits.
PLANAR = "gat-2d"


@dataclass(frozen=True)
class Training:
    """One training, and the methods that score the trained network."""

    task: str  #: `task`, `protocol`, `backbone`: names.
    protocol: str
    backbone: str
    seed: int  #: Seed of the task and of the training.
    methods: tuple[str, ...]  #: The methods that score the trained network; the first one defines the training.
    #: Hyper-parameters that differ from the protocol's: ``(("lambda2", 10.0),)``.
    settings: tuple[tuple[str, Any], ...] = ()
    epochs: int | None = None  #: Number of epochs; by default the protocol decides.
    #: A full description of the training: objective, optimiser, shape of the network; see
    #: `oddnode.runner.detectors.training_key`.
    parameters: str = ""

    @cached_property
    def identity(self) -> str:
        """A hash of everything but ``methods``: scorers share a training, they do not determine it."""
        return self._hash(leave_out=("methods",))

    @cached_property
    def cell(self) -> str:
        """A hash that is equal for trainings that differ only in their seed."""
        return self._hash(leave_out=("methods", "seed"))

    def _hash(self, leave_out: tuple[str, ...]) -> str:
        what = {key: value for key, value in asdict(self).items() if key not in leave_out}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def label(self) -> str:
        """A name to print."""
        extra = "".join(f", {name}={value}" for name, value in self.settings)
        network = "" if self.backbone == "gcn" else f", {self.backbone}"
        return f"{self.task}, {self.methods[0]}{extra}{network}, {self.protocol}, seed {self.seed}"

    def as_json(self) -> str:
        """Serialise to JSON for `from_json`."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Training:
        """Read a training that `as_json` wrote.

        Parameters
        ----------
        text : str
            A JSON object with the fields of a training.
        """
        values = json.loads(text)
        values["methods"] = tuple(values["methods"])
        values["settings"] = tuple((name, value) for name, value in values["settings"])
        return cls(**values)


@dataclass
class Outcome:
    """The outcome of a training that was executed."""

    training: Training  #: The training.
    #: For each method, the return value of `oddnode.evaluate`.
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Everything that fits into JSON: the metrics (``methods``, with ``score_seconds``), ``best_epoch``, ``epochs``,
    #: ``history``, ``seconds`` (``load``, ``fit``, ``forward``, ``score``), ``made_on``; with node scores also
    #: ``graphs``, ``data`` and, where the report shows nodes as images, ``reasons`` (method -> graph -> node ->
    #: sentence, for flagged nodes and methods with evidence). A training that failed has an ``error``, and ``retry``
    #: says whether another attempt may succeed.
    facts: dict[str, Any] = field(default_factory=dict)
    #: Scores and predictions of every node, ``"scores/<method>/<graph>"`` and ``"predicted/<graph>"``; empty unless
    #: `Setup.node_scores` is set.
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    #: `graph_facts`, `graph_arrays`: names, sizes, masks, classes and degrees of the graphs, equal for all trainings on
    #: the task under its protocol and seed.
    graph_facts: dict[str, Any] = field(default_factory=dict)
    graph_arrays: dict[str, np.ndarray] = field(default_factory=dict)
    error: Exception | None = None  #: Why the training failed, if it did.


@dataclass(frozen=True)
class Group:
    """Trainings under one protocol, on one task or on tasks with the same training graph."""

    #: The trainings of a stack differ only in their seed and are fitted in one call. On a GPU the stacks of a task
    #: train concurrently, as far as memory allows. Trainings that differ only in their task share one fit if the tasks
    #: have the same training graph.
    stacks: tuple[tuple[Training, ...], ...]

    @property
    def trainings(self) -> tuple[Training, ...]:
        """All trainings, stack by stack."""
        return tuple(training for stack in self.stacks for training in stack)

    @property
    def data(self) -> tuple[str, str]:
        """The first task, and the protocol. A process prefers groups whose data it has loaded already."""
        first = self.stacks[0][0]
        return first.task, first.protocol

    def only(self, identities: Iterable[str]) -> Group:
        """Restrict the group to some of its trainings.

        Parameters
        ----------
        identities : iterable of str
            Identities of the trainings to keep.
        """
        kept = set(identities)
        stacks = (tuple(training for training in stack if training.identity in kept) for stack in self.stacks)
        return Group(tuple(stack for stack in stacks if stack))


def one_by_one(trainings: Iterable[Training]) -> list[Group]:
    """Make groups of one training each.

    Parameters
    ----------
    trainings : iterable of Training
        The trainings to run.
    """
    return [Group(((training,),)) for training in trainings]


def cell_groups(trainings: Iterable[Training]) -> list[Group]:
    """Group trainings by training graph, protocol and seed; the trainings of a group share the prepared graphs.

    Parameters
    ----------
    trainings : iterable of Training
        The trainings to run.
    """
    cells: dict[tuple[str, str, int], list[tuple[Training, ...]]] = {}
    for training in trainings:
        graph = TASKS[training.task].training_graph or training.task
        cells.setdefault((graph, training.protocol, training.seed), []).append((training,))
    return [Group(tuple(stacks)) for stacks in cells.values()]


def stacked_groups(trainings: Sequence[Training], jobs: int = 1) -> list[Group]:
    """Group trainings for a GPU, task by task: seeds are stacked if possible, stacks on the same data run together.

    Parameters
    ----------
    trainings : sequence of Training
        The trainings to run.
    jobs : int
        Number of processes that share the GPU. A single process runs all trainings of a task in one group; several
        get smaller groups.
    """
    from oddnode.runner.detectors import may_stack

    stacks: dict[tuple[str, int | None], list[Training]] = {}
    for training in trainings:
        together = jobs == 1 or may_stack(training)
        stacks.setdefault((training.cell, None if together else training.seed), []).append(training)
    # Stacks of the same seeds need the same data.
    by_data: dict[tuple[str, str, tuple[int, ...]], list[tuple[Training, ...]]] = {}
    for stack in map(tuple, stacks.values()):
        seeds = () if jobs == 1 else tuple(sorted(training.seed for training in stack))
        by_data.setdefault((stack[0].task, stack[0].protocol, seeds), []).append(stack)
    size = len(stacks) if jobs == 1 else _STACKS_AT_ONCE
    return [
        Group(tuple(same[begin : begin + size])) for same in by_data.values() for begin in range(0, len(same), size)
    ]
