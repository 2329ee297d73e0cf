"""The data of the page, as plain dataclasses that do not depend on stores, tasks or networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oddnode.evaluation import Result
from oddnode.paper.webpage.picture import Picture

__all__ = ["Cell", "Grid", "Method", "Nodes", "Number", "Page", "Scores", "Table"]


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
        """Some of the nodes.

        Parameters
        ----------
        chosen : array of int
            Positions in this list of nodes.
        """
        shown, pixels = (None if part is None else part[chosen] for part in (self.shown, self.pixels))
        return Nodes(self.ids[chosen], self.degree[chosen], self.y[chosen], shown, pixels)


@dataclass(frozen=True)
class Scores:
    """The scores and predictions of a method for some nodes.

    Parameters
    ----------
    values : array
        One score per node ``[nodes]``, higher = more in-distribution.
    predicted : array
        The most likely class of each ``[nodes]``.
    why : array, optional
        Why each is flagged, in words ``[nodes]``; empty texts for other nodes.
    """

    values: np.ndarray
    predicted: np.ndarray
    why: np.ndarray | None = None

    def take(self, chosen: np.ndarray) -> Scores:
        """Scores of some of the nodes.

        Parameters
        ----------
        chosen : array of int
            Positions in this list of nodes.
        """
        return Scores(self.values[chosen], self.predicted[chosen], None if self.why is None else self.why[chosen])


@dataclass(frozen=True)
class Cell:
    """Scores of one seed on a task under a protocol.

    Parameters
    ----------
    task, protocol : str
        What was run.
    seed : int
        The seed whose scores these are.
    known : Nodes
        The ID test nodes.
    unknown : dict of Nodes
        The OOD nodes of every test graph, by its name.
    methods : dict of dict of Scores
        For every method the scores under ``"id"`` and under the name of every test graph, in the order of those nodes.
    picture : Picture, optional
        A drawing of the graph.
    unknown_name : str
        What the unknown nodes are, in words, in the plural.
    about : str
        Sentences on the data, for readers who see it for the first time.
    """

    task: str
    protocol: str
    seed: int
    known: Nodes
    unknown: dict[str, Nodes]
    methods: dict[str, dict[str, Scores]]
    picture: Picture | None = None
    unknown_name: str = "unknown nodes"
    about: str = ""


@dataclass(frozen=True)
class Number:
    """A number in a table.

    Parameters
    ----------
    value : float
        The number, or its mean over the seeds.
    low, high : float, optional
        The lowest and the highest of the seeds, where there are several.
    printed : float, optional
        What the paper prints for it.
    digits : int
        How many digits after the point to show.
    """

    value: float
    low: float | None = None
    high: float | None = None
    printed: float | None = None
    digits: int = 1


@dataclass(frozen=True)
class Grid:
    """One grid of a table.

    Parameters
    ----------
    title, caption : str
        Shown above and under the grid.
    columns : sequence of str
        Titles of the columns.
    rows : sequence of sequences
        The cells, row by row; ``None`` is a gap.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Number | None]]
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """A further table, which is collapsed at first.

    Parameters
    ----------
    title : str
        Shown while the table is folded up.
    grids : sequence of Grid
        Its parts.
    notes : sequence of str
        Sentences above the grids.
    """

    title: str
    grids: Sequence[Grid]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Method:
    """The marks of a method on the page.

    Parameters
    ----------
    needs_exposure : bool
        It learns from exposed OOD nodes.
    is_model_free : bool
        It is a score of the graph alone, so that it classifies nothing.
    """

    needs_exposure: bool = False
    is_model_free: bool = False


@dataclass(frozen=True)
class Page:
    """Everything on the page.

    Parameters
    ----------
    results : sequence of Result
        The numbers over seeds.
    cells : sequence of Cell
        The scores of single nodes.
    tables : sequence of Table
        Further tables.
    terms : dict
        Facts with their names: versions, machine, date. Empty ones are not shown.
    title : str
        The title of the window.
    notice : str
        A warning at the top, where there is one.
    methods : mapping of str to Method
        Marks of methods, by name; a method that is not in it has none.
    featured : sequence of str
        The methods to open with, by preference: the first two that a cell has.
    links : mapping of str to str
        Addresses by name, for the end of the page. Those that do not begin with ``https://`` are left out.
    """

    results: Sequence[Result]
    cells: Sequence[Cell] = ()
    tables: Sequence[Table] = ()
    terms: dict[str, Any] = field(default_factory=dict)
    title: str = "oddnode report"
    notice: str = ""
    methods: Mapping[str, Method] = field(default_factory=dict)
    featured: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)
