"""Where rows come from: `Rows` of a window, and the tables that they are read from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from oddnode.tables import TableModel, TrainUntil
from oddnode.tables.known_values import Cells
from oddnode.tables.reader import Batch
from oddnode.tables.used_rows import uses_of
from oddnode.tables.values import TableError, pa
from oddnode.tables.webpage.model import column_changes
from oddnode.watch.answers import Change
from oddnode.watch.windows import Windows


@dataclass
class Rows:
    """Some rows as a model judges them; n is their number."""

    ids: list[Any]  #: Their ids.
    scores: np.ndarray  #: `scores`, `p_values`: their scores and p-values ``[n]``.
    p_values: np.ndarray
    predicted: list[str]  #: Their most likely labels.
    #: The p-value of each row by kind of evidence ``[n]``.
    evidence: dict[str, np.ndarray] = field(default_factory=dict)
    why: list[str | None] = field(default_factory=list)  #: The reasons for flagging them.
    #: How many links each has ``[n]``; ``None`` if nobody knows, like the next one.
    num_links: np.ndarray | None = None
    #: The share of these that lead to rows with the same predicted label ``[n]``; NaN without links.
    same_label: np.ndarray | None = None
    links_among: int = 0  #: Number of links between these rows, and between them and new rows before them.
    changes: list[Change] = field(default_factory=list)  #: The columns in which they differ from known rows.
    notes: list[str] = field(default_factory=list)  #: Notes for the user.


class Source(Protocol):
    """New rows with times, as `Watch` reads them."""

    def times(self) -> np.ndarray:
        """The time of every new row, in any order."""
        ...

    def read(self, start: float, end: float) -> tuple[Rows, Rows | None]:
        """The new rows of a window, and known rows that they can be compared with, if there are any.

        Parameters
        ----------
        start, end : float
            When the window begins and ends.
        """
        ...


class TableRows:
    """Rows of two tables, judged in the graph as it was at the end of each window.

    Parameters
    ----------
    model : TableModel
        The model.
    nodes, edges : path, table in memory, or a list of these
        As for `oddnode.tables.open_table`: all rows so far, also those that the model was fitted on.
    windows : Windows
        Which say whether times are dates or numbers.
    time_column : str, optional
        The column with the times of the nodes; by default the one that the model was fitted with.
    ignore_unknown_edges : bool
        Whether to leave out edges of nodes that are not in the table of nodes; if not, they are an error.
    """

    def __init__(
        self,
        model: TableModel,
        nodes: Any,
        edges: Any,
        windows: Windows,
        time_column: str | None = None,
        ignore_unknown_edges: bool = False,
    ):
        until = model.schema.until
        column = time_column or model.schema.time_column
        if column is None:
            raise TableError("the model was fitted without a time column; name the column with times (`time_column`)")
        if until is not None and column == until.column and until.is_number == windows.is_date:
            what = (
                "numbers: give a window without a unit" if until.is_number else "dates: give the window a unit, like 1d"
            )
            raise TableError(f"the times in column {column!r} are {what}")
        self.model = model
        self._graph = model.read(nodes, edges, [column], ignore_unknown_edges)
        ids, array = self._graph.ids, self._graph.columns[column]
        # The unit says how times are read; the value is not used.
        reader = TrainUntil(column, "1970-01-01" if windows.is_date else "0")
        times = reader.times_or_nan(array, Batch([array], self._graph.name, 1, "row"))
        used = model.used_rows
        seen = None if used is None else used.seen_rows(ids)
        is_new = uses_of(used, ids) < 0 if seen is None else ~seen
        if until is not None and self._graph.is_arrival is not None:
            is_new &= self._graph.is_arrival
        x = self._graph.source.x.numpy()
        self._is_judged = is_new & model.schema.features.of_labelled_type(x, len(x))
        if np.isnan(times[is_new]).any():
            row = int(np.flatnonzero(is_new & np.isnan(times))[0])
            raise TableError(f"{self._graph.name}: column {column!r} has no time in row {row + 1}; new rows need one")
        self._time = np.where(is_new, times, -np.inf)

    def times(self) -> np.ndarray:
        """The time of every new row."""
        return self._time[self._is_judged]

    def read(self, start: float, end: float) -> tuple[Rows, Rows | None]:
        """Score the graph as it was at the end of a window.

        Parameters
        ----------
        start, end : float
            When the window begins and ends.
        """
        keep = self._time < end
        graph, time, is_judged = self._graph.only(keep), self._time[keep], self._is_judged[keep]
        is_own, is_new = is_judged & (time >= start), time > -np.inf
        own = np.flatnonzero(is_own)
        scores, notes = self.model.scores_and_notes(graph, explain=True, told=is_own, batch=False)
        edges = graph.source.edge_index.numpy()
        edges = edges[:, edges[0] != edges[1]]
        made = self._rows(scores, edges, own)
        among = edges[:, is_new[edges].all(axis=0) & is_own[edges].any(axis=0)]
        made.links_among = np.unique(np.sort(among, axis=0), axis=1).shape[1]
        made.notes = graph.notes + notes
        if self.model.known is not None:
            cells = Cells(self.model.schema.features, graph.source.x.numpy(), graph.counts)
            found = column_changes(self.model.known, cells, own)
            made.changes = [Change("column", f"{c.column} {c.what}", c.known, c.new, True) for c in found]
        known = np.flatnonzero(np.array([each == "calibration" for each in scores["split"].to_pylist()], dtype=bool))
        return made, self._rows(scores, edges, known) if len(known) else None

    def _rows(self, scores: Any, edges: np.ndarray, rows: np.ndarray) -> Rows:
        labels = scores["predicted"].combine_chunks().dictionary_encode()
        label = labels.indices.to_numpy()
        num_links = np.bincount(edges[1], minlength=len(label))
        with np.errstate(invalid="ignore"):
            same = np.bincount(edges[1], label[edges[0]] == label[edges[1]], len(label)) / num_links
        table = scores.take(pa.array(rows))
        kinds = [name for name in table.column_names if name.startswith("p_") and name != "p_value"]
        return Rows(
            ids=table[self.model.schema.id_column].to_pylist(),
            scores=table["score"].to_numpy().astype(np.float64),
            p_values=table["p_value"].to_numpy(),
            predicted=[str(each) for each in table["predicted"].to_pylist()],
            evidence={name[2:].replace("_", " "): table[name].to_numpy() for name in kinds},
            why=table["why"].to_pylist(),
            num_links=num_links[rows],
            same_label=same[rows],
        )
