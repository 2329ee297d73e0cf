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
    """Nodes of one graph that are scored.

    Parameters
    ----------
    ids : array
        Their indices in the graph.
    degree : array
        Number of incoming edges of each.
    y : array
        The class index of each, -1 if it has none.
    shown : array, optional
        The displayed class, if it differs (a left-out digit is still a digit).
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
        Why each is flagged, in words ``[nodes]``; empty strings for other nodes.
    """

    values: np.ndarray
    predicted: np.ndarray
    why: np.ndarray | None = None


T = TypeVar("T", Nodes, Scores)


def take(part: T, indices: np.ndarray) -> T:
    """Select some of the nodes."""
    arrays: dict[str, Any] = {name: None if array is None else array[indices] for name, array in vars(part).items()}
    return type(part)(**arrays)


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
        Sentences that introduce the data.
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
class Method:
    """The marks of a method on the page."""

    needs_exposure: bool = False  # It learns from exposed OOD nodes
    is_model_free: bool = False  # It is a score of the graph alone, so that it classifies nothing


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
        Facts by name: versions, machine, date. Empty ones are not shown.
    title : str
        The title of the window.
    notice : str
        A warning at the top of the page, if any.
    methods : mapping of str to Method
        Marks of methods, by name; other methods have none.
    featured : sequence of str
        The methods to open with, by preference: the first two that a cell has.
    links : mapping of str to str
        URLs by name, for the end of the page. Those that do not begin with ``https://`` are left out.
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
