"""What the page shows, as plain data: it knows nothing of stores, tasks or networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oddnode.evaluation import Result
from oddnode.paper.webpage.picture import Picture

__all__ = ["Cell", "Grid", "Nodes", "Number", "Page", "Scores", "Table"]


@dataclass(frozen=True)
class Nodes:
    """Nodes of one graph that are scored.

    Parameters
    ----------
    ids : array
        Their numbers in the graph.
    degree : array
        How many edges lead to each.
    y : array
        The class of each as the network numbers them, -1 where it has none.
    shown : array, optional
        The class as people call it, where that differs (a digit that was left out still is a digit).
    pixels : array, optional
        Images ``[nodes, 64]`` of 8 x 8 grey values from 0 to 16.
    """

    ids: np.ndarray
    degree: np.ndarray
    y: np.ndarray
    shown: np.ndarray | None = None
    pixels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, chosen: np.ndarray) -> Nodes:
        """Some of the nodes, by position."""
        shown, pixels = (None if part is None else part[chosen] for part in (self.shown, self.pixels))
        return Nodes(self.ids[chosen], self.degree[chosen], self.y[chosen], shown, pixels)


@dataclass(frozen=True)
class Scores:
    """What a method says of some nodes: a score each, higher = more in-distribution, and the most likely class."""

    values: np.ndarray
    predicted: np.ndarray

    def take(self, chosen: np.ndarray) -> Scores:
        """Those of some of the nodes, by position."""
        return Scores(self.values[chosen], self.predicted[chosen])


@dataclass(frozen=True)
class Cell:
    """Scores of one seed on a task under a protocol.

    ``known`` are the ID test nodes, ``unknown`` the OOD nodes of every test graph. ``methods`` has, for every method,
    the scores under ``"id"`` and under the name of every test graph, in the order of those nodes.
    """

    task: str
    protocol: str
    seed: int
    known: Nodes
    unknown: dict[str, Nodes]
    methods: dict[str, dict[str, Scores]]
    picture: Picture | None = None


@dataclass(frozen=True)
class Number:
    """A number in a table, its standard deviation, and what the paper prints for it."""

    value: float
    spread: float | None = None
    printed: float | None = None
    digits: int = 1


@dataclass(frozen=True)
class Grid:
    """One grid of a table; ``None`` is a gap."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Number | None]]
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """A further table, folded up until it is wanted."""

    title: str
    grids: Sequence[Grid]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Page:
    """Everything on the page. ``terms`` are facts with their names (versions, machine, date), ``notice`` a warning."""

    results: Sequence[Result]
    cells: Sequence[Cell] = ()
    tables: Sequence[Table] = ()
    terms: dict[str, Any] = field(default_factory=dict)
    title: str = "oddnode report"
    notice: str = ""
