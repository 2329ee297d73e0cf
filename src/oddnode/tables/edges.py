"""A table of edges as pairs of positions in the table of nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oddnode.tables.nodes import read_ids, similar_id
from oddnode.tables.reader import TableSource
from oddnode.tables.values import TableError, arrow_errors, listed, pyarrow, quoted

__all__ = ["Edges", "check_header", "edge_columns", "note_on_columns", "read_edges"]

# Keys of edges that are gathered before repeated ones are removed.
_PENDING = 2**20


@dataclass(frozen=True)
class Edges:
    """A table of E edges that was read.

    Parameters
    ----------
    index : numpy.ndarray
        Edges ``[2, E]`` as positions of nodes, each once, without self-loops.
    notes : list of str
        Notes for the user.
    """

    index: np.ndarray
    notes: list[str]


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
) -> Edges:
    """Read a table of edges.

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
    """
    named = source is not None
    reader = _EdgeReader(ids, directed)
    notes = []
    for part in table.parts:
        ends = edge_columns(part, source, target)
        if not named:
            check_header(part, ends, ids)
        reader.read(part, ends)
        notes += note_on_columns(part, ends)
    if reader.unknown and not ignore_unknown:
        raise _unknown_ids(reader, ids, named)
    if reader.unknown:
        notes.append(f"{reader.unknown} of {reader.rows} edges were left out: they name nodes that were not given")
    index = reader.edge_index()
    if not index.shape[1]:
        notes.append("there are no edges between different nodes, so every node is scored by its features alone")
    return Edges(index, notes)


@dataclass
class _EdgeReader:
    """Edges as one number each: half the memory of a pair, and sorting it finds repeated edges."""

    ids: Any
    directed: bool
    rows: int = 0
    unknown: int = 0
    first_unknown: tuple[str, str, str, Any] | None = None
    _as_text: Any = None
    _keys: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _pending: list[np.ndarray] = field(default_factory=list)
    _num_pending: int = 0

    def read(self, table: TableSource, columns: tuple[str, str]) -> None:
        for batch in table.batches(columns):
            with arrow_errors(f"{batch.table} cannot be read"):
                pairs = zip(columns, batch.arrays, strict=True)
                ends = [read_ids(array, batch, column) for column, array in pairs]
                a, b = (self._positions(end) for end in ends)
            known = (a >= 0) & (b >= 0)
            if self.first_unknown is None and not known.all():
                row = int(np.argmin(known))
                side = 0 if a[row] < 0 else 1
                self.first_unknown = (batch.table, batch.place(row), columns[side], ends[side][row].as_py())
            self.rows += batch.num_rows
            self.unknown += int((~known).sum())
            low, high = (a, b) if self.directed else (np.minimum(a, b), np.maximum(a, b))
            self._add((low * len(self.ids) + high)[known & (a != b)])

    def _add(self, keys: np.ndarray) -> None:
        """Add edges; the memory stays within a few times that of the different ones."""
        unique = _unique(keys)
        self._pending.append(unique)
        self._num_pending += len(unique)
        if self._num_pending > max(_PENDING, len(self._keys)):
            self._merge()

    def _merge(self) -> None:
        self._keys = _unique(np.concatenate([self._keys, *self._pending]))
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

    def edge_index(self) -> np.ndarray:
        self._merge()
        low, high = np.divmod(self._keys, max(len(self.ids), 1))
        if self.directed:
            return np.stack([low, high])
        return np.stack([np.concatenate([low, high]), np.concatenate([high, low])])


def _unique(keys: np.ndarray) -> np.ndarray:
    """As `numpy.unique`, which hashes whole numbers; for millions of edges sorting is several times as fast."""
    keys = np.sort(keys)
    is_new = np.ones(len(keys), dtype=bool)
    is_new[1:] = keys[1:] != keys[:-1]
    return keys[is_new]


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


def note_on_columns(table: TableSource, ends: tuple[str, str]) -> list[str]:
    """Say which columns of a table of edges do not count.

    Parameters
    ----------
    table : TableSource
        The table of edges.
    ends : tuple of str
        The columns with the ends of the edges.
    """
    others = [name for name in table.columns if name.strip() and name not in ends]
    return [f"{table.name}: columns that do not count (edges have no weights): {listed(others)}"] if others else []


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
