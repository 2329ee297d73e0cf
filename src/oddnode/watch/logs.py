"""The log of `oddnode serve` as a source: arrivals as the service judged them, in the order in which they came."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from oddnode.tables.values import TableError
from oddnode.watch.rows import Rows

_FILE = "changes.sqlite"


class _Kind(Struct, frozen=True):
    kind: str
    surprise: float


class _Answer(Struct, frozen=True):
    """What is read of a judgement."""

    id: int | str
    score: float
    p_value: float | None
    predicted: bool | int | str
    evidence: tuple[_Kind, ...] = ()
    reason: str | None = None
    num_neighbours: int = 0
    why: str | None = None


class _Answers(Struct, frozen=True):
    answers: list[_Answer] = []


class _Body(Struct, frozen=True):
    """What is read of a change."""

    add_nodes: list[dict[str, Any]] = []
    add_edges: list[tuple[Any, ...]] = []


class LogRows:
    """Nodes that a service has added, as it judged them when they came. The log is read only, and may grow meanwhile.

    Parameters
    ----------
    folder : path
        The ``--state`` folder of the service.
    model : str
        How the hash of the model begins, as in every answer of the service; a log of another model is refused.
    """

    def __init__(self, folder: str | os.PathLike, model: str):
        path = Path(folder) / _FILE
        if not path.is_file():
            raise TableError(f"{folder} has no {_FILE}; give the --state folder of `oddnode serve`")
        self._answers: list[_Answer] = []
        self._time, self._links = list[float](), list[int]()
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                found = dict(connection.execute("SELECT name, value FROM meta")).get("model", "")
                if not found.startswith(model):
                    raise TableError(f"the log in {folder} is of the model {found[:12]}, but this is {model}")
                for time, answers, links in _added(connection):
                    self._answers += answers
                    self._time += [time] * len(answers)
                    self._links += links
        except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
            raise TableError(f"{path} is damaged or not the log of a service: {error}") from None

    def times(self) -> np.ndarray:
        """The time of every node that was added and judged."""
        return np.array(self._time)

    def read(self, start: float, end: float) -> tuple[Rows, None]:
        """The nodes that were added in a window.

        Parameters
        ----------
        start, end : float
            When the window begins and ends, in seconds since 1970.
        """
        chosen = [row for row, time in enumerate(self._time) if start <= time < end]
        own = [self._answers[row] for row in chosen]
        kinds = dict.fromkeys(each.kind for answer in own for each in answer.evidence if each.surprise)
        surprises = [{each.kind: each.surprise for each in answer.evidence} for answer in own]
        rows = Rows(
            ids=[answer.id for answer in own],
            scores=np.array([answer.score for answer in own]),
            p_values=np.array([answer.p_value for answer in own], dtype=np.float64),
            predicted=[str(answer.predicted) for answer in own],
            evidence={kind: np.exp([-each.get(kind, 0.0) for each in surprises]) for kind in kinds},
            why=[answer.why or (answer.reason and f"Strongest evidence: {answer.reason}.") for answer in own],
            num_links=np.array([answer.num_neighbours for answer in own]),
            links_among=sum(self._links[row] for row in chosen),
        )
        return rows, None


def _added(connection: sqlite3.Connection) -> Iterator[tuple[float, list[_Answer], list[int]]]:
    """For each change, its time, the judged nodes that it added, and their links to nodes added before or with them."""
    body_of, answers_of = msgspec.json.Decoder(_Body), msgspec.json.Decoder(_Answers)
    added = set[Any]()
    query = "SELECT time, body, answer FROM changes WHERE num_nodes > 0 ORDER BY version"
    for time, raw, answer in connection.execute(query):
        body = body_of.decode(raw)
        # Nodes that were added come first; those that were changed have been judged before.
        own = answers_of.decode(answer).answers[: len(body.add_nodes)]
        added.update(each.id for each in own)
        links = dict.fromkeys((each.id for each in own), 0)
        for source, target in {tuple(sorted(edge[:2], key=str)) for edge in body.add_edges}:
            if source in added and target in added and source != target:
                newest = target if target in links else source
                if newest in links:
                    links[newest] += 1
        judged = [each for each in own if each.p_value is not None]
        yield time, judged, [links[each.id] for each in judged]
