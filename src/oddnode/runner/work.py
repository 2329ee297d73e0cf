"""The unit of work, a distinct training, and its outcome. Imports no slow module."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["PLANAR", "Outcome", "Training"]

#: A GAT whose last layer goes through a plane, for the figure of two-dimensional logits.
PLANAR = "gat-2d"


@dataclass(frozen=True)
class Training:
    """One training, and the methods that score the trained network.

    Parameters
    ----------
    task, protocol, backbone : str
        Names.
    seed : int
        Seed of the task and of the training.
    methods : tuple of str
        The methods that score the trained network; the first one defines the training.
    settings : tuple of (str, object)
        Hyper-parameters that differ from the method's own: ``(("lambda2", 10.0),)``.
    epochs : int, optional
        The number of epochs, if it differs from the method's own.
    parameters : str
        A full description of the training: objective, optimiser, shape of the network; see
        `oddnode.runner.detectors.training_key`.
    """

    task: str
    protocol: str
    backbone: str
    seed: int
    methods: tuple[str, ...]
    settings: tuple[tuple[str, Any], ...] = ()
    epochs: int | None = None
    parameters: str = ""

    @cached_property
    def identity(self) -> str:
        """A hash of everything but ``methods``: scorers share a training, they do not determine it."""
        return self._hash(leave_out=("methods",))

    @cached_property
    def cell(self) -> str:
        """A hash that is equal for trainings which differ in their seed only."""
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
        """Serialise to the text that `from_json` reads."""
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
    """The outcome of a training that was executed.

    Parameters
    ----------
    training : Training
        The training.
    metrics : dict
        For each method, the return value of `oddnode.evaluate`.
    facts : dict
        Everything that fits into JSON: the metrics (``methods``, with ``score_seconds``), ``best_epoch``, ``epochs``,
        ``history``, ``seconds`` (``load``, ``fit``, ``forward``, ``score``), ``made_on``; with node scores also
        ``graphs``, ``data`` and, where the report shows nodes as images, ``reasons`` (method -> graph -> node ->
        sentence, for flagged nodes and methods with evidence). A training that failed has an ``error``, and ``retry``
        says whether another attempt may succeed.
    arrays : dict of str to array
        Scores and predictions of every node, ``"scores/<method>/<graph>"`` and ``"predicted/<graph>"``; empty unless
        `Setup.node_scores` is set.
    graph_facts, graph_arrays : dict
        Names, sizes, masks, classes and degrees of the graphs, equal for all trainings on the task under its protocol
        and seed.
    error : Exception, optional
        The reason if the training failed.
    """

    training: Training
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    graph_facts: dict[str, Any] = field(default_factory=dict)
    graph_arrays: dict[str, np.ndarray] = field(default_factory=dict)
    error: Exception | None = None
