"""The data of the page, as plain dataclasses that do not depend on stores, tasks or networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from oddnode._utils.result_tables import Table
from oddnode.evaluation import Result
from oddnode.webpage import Picture


@dataclass(frozen=True)
class Nodes:
    """Nodes of one graph that are scored."""

    ids: np.ndarray  #: Their indices in the graph.
    degree: np.ndarray  #: Number of incoming edges of each.
    y: np.ndarray  #: The class index of each, -1 if it has none.
    shown: np.ndarray | None = None  #: The displayed class, if it differs (a left-out digit is still a digit).
    pixels: np.ndarray | None = None  #: Images ``[nodes, 64]`` of 8 x 8 grey values from 0 to 16.

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Scores:
    """The scores and predictions of a method for some nodes."""

    values: np.ndarray  #: One score per node ``[nodes]``, higher = more in-distribution.
    predicted: np.ndarray  #: The most likely class of each ``[nodes]``.
    why: np.ndarray | None = None  #: Why each is flagged, in words ``[nodes]``; empty strings for other nodes.


T = TypeVar("T", Nodes, Scores)


def take(part: T, indices: np.ndarray) -> T:
    """Select some of the nodes."""
    arrays: dict[str, Any] = {name: None if array is None else array[indices] for name, array in vars(part).items()}
    return type(part)(**arrays)


@dataclass(frozen=True)
class Cell:
    """Scores of one seed on a task under a protocol."""

    task: str  #: `task`, `protocol`: what was run.
    protocol: str
    seed: int  #: The seed whose scores these are.
    known: Nodes  #: The ID test nodes.
    unknown: dict[str, Nodes]  #: The OOD nodes of every test graph, by its name.
    #: For every method the scores under ``"id"`` and under the name of every test graph, in the order of those nodes.
    methods: dict[str, dict[str, Scores]]
    picture: Picture | None = None  #: A drawing of the graph.
    unknown_name: str = "unknown nodes"  #: What the unknown nodes are, in words, in the plural.
    about: str = ""  #: Sentences that introduce the data.


@dataclass(frozen=True)
class Method:
    """The marks of a method on the page."""

    needs_exposure: bool = False  # It learns from exposed OOD nodes
    is_model_free: bool = False  # It is a score of the graph alone, so that it classifies nothing


@dataclass(frozen=True)
class Page:
    """Everything on the page."""

    results: Sequence[Result]  #: The numbers over seeds.
    cells: Sequence[Cell] = ()  #: The scores of single nodes.
    tables: Sequence[Table] = ()  #: Further tables.
    #: Facts by name: versions, machine, date. Empty ones are not shown.
    terms: dict[str, Any] = field(default_factory=dict)
    title: str = "oddnode report"  #: The title of the window.
    notice: str = ""  #: A warning at the top of the page, if any.
    methods: Mapping[str, Method] = field(default_factory=dict)  #: Marks of methods, by name; other methods have none.
    featured: Sequence[str] = ()  #: The methods to open with, by preference: the first two that a cell has.
    #: URLs by name, for the end of the page. Those that do not begin with ``https://`` are left out.
    links: Mapping[str, str] = field(default_factory=dict)
