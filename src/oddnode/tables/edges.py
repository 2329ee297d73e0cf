"""A table of edges as pairs of positions in the table of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from oddnode.tables.edge_weights import WeightColumn
from oddnode.tables.nodes import read_ids, similar_id
from oddnode.tables.reader import TableSource
from oddnode.tables.values import TableError, arrow_errors, listed, pyarrow, quoted

__all__ = [
    "Edges",
    "check_header",
    "edge_columns",
    "note_on_columns",
    "note_on_repeated",
    "read_edges",
    "with_weight_column",
]

# Keys of edges that are gathered before repeated ones are removed.
_PENDING = 2**20


@dataclass(frozen=True)
class Edges:
    """A table of E edges that was read.

    Parameters
    ----------
    index : numpy.ndarray
        Edges ``[2, E]`` as positions of nodes, each once, without self-loops.
    weight : numpy.ndarray or None
        Their weights ``[E]``, above 0; ``None`` if they have none.
    notes : list of str
        Notes for the user.
    """

    index: np.ndarray
    weight: np.ndarray | None
    notes: list[str]

    @classmethod
    def none(cls) -> Edges:
        """No edges at all."""
        return cls(np.empty((2, 0), dtype=np.int64), None, [])

    def between(self, keep: np.ndarray) -> Edges:
        """Keep the edges between some nodes, in the same order.

        Parameters
        ----------
        keep : numpy.ndarray
            One boolean per node ``[N]``.

        Returns
        -------
        Edges
            The edges, as positions among these nodes.
        """
        inside = keep[self.index].all(axis=0)
        place = np.cumsum(keep) - 1
        weight = None if self.weight is None else self.weight[inside]
        return Edges(place[self.index[:, inside]], weight, self.notes)


def edge_columns(table: TableSource, source: str | None, target: str | None) -> tuple[str, str]:
    """Choose the columns with the ends of the edges: the named ones, ``source`` and ``target``, or the first two.

    Parameters
    ----------
    table : TableSource
        The table of edges.
    source, target : str or None
        The columns that the user named.
    """
    if (source is None) != (target is None):
        raise TableError("give both `source_column` and `target_column`, or neither")
    if source is not None and target is not None:
        table.require([source, target], "edge")
        if source == target:
            raise TableError(f"`source_column` and `target_column` are both {source!r}")
        return source, target
    if {"source", "target"} <= set(table.columns):
        return "source", "target"
    if len(table.columns) < 2:
        table.require(["source", "target"], "edge")
    return table.columns[0], table.columns[1]


def read_edges(
    table: TableSource,
    ids: Any,
    source: str | None = None,
    target: str | None = None,
    directed: bool = False,
    ignore_unknown: bool = False,
    weights: WeightColumn | None = None,
) -> Edges:
    """Read a table of edges.

    Without weights, rows that name the same two nodes are one edge; with weights, these add up. An edge of weight 0 is
    no edge.

    Parameters
    ----------
    table : TableSource
        The table of edges.
    ids : pyarrow.Array
        The ids of the nodes.
    source, target : str or None
        The columns with the ids where edges start and end, as for `edge_columns`.
    directed : bool
        Whether to keep edges in their direction only.
    ignore_unknown : bool
        Whether to leave out edges of nodes that are not in ``ids``; if not, they are an error.
    weights : WeightColumn or None
        The column with the weights; ``None`` if edges have no weights.
    """
    named = source is not None
    reader = _EdgeReader(ids, directed, weights)
    notes = []
    for part in table.parts:
        ends = edge_columns(part, source, target)
        if not named:
            check_header(part, ends, ids)
        columns = with_weight_column(part, ends, weights)
        reader.read(part, columns)
        notes += note_on_columns(part, columns)
    if reader.unknown and not ignore_unknown:
        raise _unknown_ids(reader, ids, named)
    if reader.unknown:
        notes.append(f"{reader.unknown} of {reader.rows} edges were left out: they name nodes that were not given")
    index, weight = reader.edges()
    if weights is not None and reader.repeated:
        notes.append(note_on_repeated(f"{reader.repeated} of {reader.rows}", directed))
    if not index.shape[1]:
        notes.append("there are no edges between different nodes, so every node is scored by its features alone")
    return Edges(index, weight, notes)


@dataclass
class _EdgeReader:
    """Edges as one number each: half the memory of a pair, and sorting it finds repeated edges."""

    ids: Any
    directed: bool
    weights: WeightColumn | None
    rows: int = 0
    unknown: int = 0
    counted: int = 0
    first_unknown: tuple[str, str, str, Any] | None = None
    _as_text: Any = None
    _unique: _Keys = field(default_factory=lambda: _Keys(np.empty(0, dtype=np.int64), np.empty(0)))
    _pending: list[_Keys] = field(default_factory=list)
    _num_pending: int = 0

    def read(self, table: TableSource, columns: tuple[str, ...]) -> None:
        for batch in table.batches(columns):
            with arrow_errors(f"{batch.table} cannot be read"):
                ends = [read_ids(array, batch, name) for name, array in zip(columns[:2], batch.arrays[:2], strict=True)]
                a, b = (self._positions(end) for end in ends)
                weight = None if self.weights is None else self.weights.read(batch.arrays[2], batch)
            known = (a >= 0) & (b >= 0)
            if self.first_unknown is None and not known.all():
                row = int(np.argmin(known))
                side = 0 if a[row] < 0 else 1
                self.first_unknown = (batch.table, batch.place(row), columns[side], ends[side][row].as_py())
            self.rows += batch.num_rows
            self.unknown += int((~known).sum())
            low, high = (a, b) if self.directed else (np.minimum(a, b), np.maximum(a, b))
            counts = known & (a != b) if weight is None else known & (a != b) & (weight > 0)
            self._add(_Keys((low * len(self.ids) + high)[counts], None if weight is None else weight[counts]))

    def _add(self, keys: _Keys) -> None:
        """Add edges; the memory stays within a few times that of the different ones."""
        self.counted += len(keys.keys)
        unique = keys.unique()
        self._pending.append(unique)
        self._num_pending += len(unique.keys)
        if self._num_pending > max(_PENDING, len(self._unique.keys)):
            self._merge()

    def _merge(self) -> None:
        every = [self._unique, *self._pending]
        weights = [each.weights for each in every if each.weights is not None]
        joined = None if self.weights is None else np.concatenate(weights)
        self._unique = _Keys(np.concatenate([each.keys for each in every]), joined).unique()
        self._pending, self._num_pending = [], 0

    def _positions(self, array: Any) -> np.ndarray:
        """Positions of ids in the table of nodes; -1 = unknown."""
        pa = pyarrow()
        import pyarrow.compute as pc

        known = self.ids
        if array.type != known.type:  # 7 in one file and "7" in the other are the same node
            self._as_text = known.cast(pa.string()) if self._as_text is None else self._as_text
            array, known = array.cast(pa.string()), self._as_text
        index = pc.index_in(array, value_set=known)
        return index.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)

    @property
    def repeated(self) -> int:
        """How many edges join nodes that an earlier one joins; known once all are read."""
        return self.counted - len(self._unique.keys)

    def edges(self) -> tuple[np.ndarray, np.ndarray | None]:
        self._merge()
        low, high = np.divmod(self._unique.keys, max(len(self.ids), 1))
        weight = self._unique.weights
        if self.directed:
            return np.stack([low, high]), weight
        both = np.stack([np.concatenate([low, high]), np.concatenate([high, low])])
        return both, None if weight is None else np.concatenate([weight, weight])


class _Keys(NamedTuple):
    """Edges as numbers ``[n]``, and their weights ``[n]``."""

    keys: np.ndarray
    weights: np.ndarray | None

    def unique(self) -> _Keys:
        """Every key once, with the sum of its weights.

        As `numpy.unique`, which hashes whole numbers; for millions of edges sorting is several times as fast.
        """
        if self.weights is None:
            keys = np.sort(self.keys)
            return _Keys(keys[_is_new(keys)], None)
        order = np.argsort(self.keys, kind="stable")
        keys = self.keys[order]
        first = np.flatnonzero(_is_new(keys))
        return _Keys(keys[first], np.add.reduceat(self.weights[order], first) if len(first) else self.weights)


def _is_new(keys: np.ndarray) -> np.ndarray:
    """Which of sorted keys differ from the one before."""
    is_new = np.ones(len(keys), dtype=bool)
    is_new[1:] = keys[1:] != keys[:-1]
    return is_new


def check_header(table: TableSource, ends: tuple[str, str], ids: Any) -> None:
    """Raise an error for a table without a header: the names of its columns are ids of nodes.

    Parameters
    ----------
    table : TableSource
        The table of edges.
    ends : tuple of str
        The columns with the ends of the edges.
    ids : pyarrow.Array
        The ids of the nodes.
    """
    pa = pyarrow()
    import pyarrow.compute as pc

    as_ids = pa.array([end.strip() for end in ends])
    if ends != ("source", "target") and pc.all(pc.is_in(as_ids, value_set=ids.cast(pa.string()))).as_py():
        raise TableError(
            f"{table.name} has no header: the first line holds the nodes {quoted(ends[0])} and {quoted(ends[1])}; "
            "add a first line with the names source and target; if these are the names of columns, say so when fitting "
            "with `source_column` and `target_column`"
        )


def with_weight_column(table: TableSource, ends: tuple[str, str], weights: WeightColumn | None) -> tuple[str, ...]:
    """List the columns of a table of edges that count; that of the weights must be there.

    Parameters
    ----------
    table : TableSource
        The table of edges.
    ends : tuple of str
        The columns with the ends of the edges.
    weights : WeightColumn or None
        The column with the weights; ``None`` if edges have no weights.

    Returns
    -------
    tuple of str
        The ends, followed by the weights if there are any.
    """
    if weights is None:
        return ends
    table.require([weights.name], "weight")
    return (*ends, weights.name)


def note_on_columns(table: TableSource, used: Sequence[str]) -> list[str]:
    """Say which columns of a table of edges do not count.

    Parameters
    ----------
    table : TableSource
        The table of edges.
    used : sequence of str
        The columns that count, from `with_weight_column`.
    """
    others = [name for name in table.columns if name.strip() and name not in used]
    advice = "; if one holds weights, name it when fitting with `weight_column`" if len(used) == 2 else ""
    return [f"{table.name}: columns that do not count: {listed(others)}{advice}"] if others else []


def note_on_repeated(count: str, directed: bool) -> str:
    """Say that weights were added up.

    Parameters
    ----------
    count : str
        How many edges join nodes that others join.
    directed : bool
        Whether edges are kept in their direction only.
    """
    ways = "" if directed else "; if every edge is listed in both directions, fit with `directed`"
    return f"{count} edges join nodes that others join; weights add up{ways}"


def _unknown_ids(reader: _EdgeReader, ids: Any, named: bool) -> TableError:
    assert reader.first_unknown is not None
    where, place, column, unknown = reader.first_unknown
    near = similar_id(unknown, ids)
    if near is not None:
        advice = f"the table of nodes has {quoted(near)}: write ids alike in both tables"
    else:
        advice = (
            "give all nodes, old and new (`nodes` can be several tables), or leave such edges out with "
            "`ignore_unknown_edges`"
        )
    if not named and column not in ("source", "target"):
        advice += f"; if {column!r} holds no ids, name the right ones when fitting (`source_column`, `target_column`)"
    return TableError(
        f"{where}: {reader.unknown} of {reader.rows} edges name a node that the table of nodes does not have, "
        f"first {quoted(unknown)} in column {column!r}, {place}; {advice}"
    )
