"""A table of edges, read in chunks of node indices; in memory, all chunks joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from oddnode.tables.columns import WeightColumn
from oddnode.tables.ids import IdIndex, read_ids, similar_id
from oddnode.tables.reader import Batch, TableSource
from oddnode.tables.schema import TableOptions
from oddnode.tables.values import TableError, arrow_errors, concatenated, listed, pa, pc, quoted

# Keys of edges that are gathered before repeated ones are removed.
_PENDING = 2**20
# Edges of a chunk for a graph on disk. A look-up of strings hashes all ids anew, so that it pays to look up many.
_EDGES_AT_ONCE = {"numbers": 2**20, "strings": 2**23}


@dataclass(frozen=True)
class Edges:
    """A table of E edges that was read."""

    index: np.ndarray  # Edges `[2, E]` as node indices, each once, without self-loops
    weight: np.ndarray | None  # Their weights `[E]`, above 0; `None` if they have none
    notes: list[str]  # Notes for the user

    def between(self, keep: np.ndarray) -> Edges:
        """Keep the edges between some nodes, in the same order."""
        inside = keep[self.index].all(axis=0)
        new_index = np.cumsum(keep) - 1
        weight = None if self.weight is None else self.weight[inside]
        return Edges(new_index[self.index[:, inside]], weight, self.notes)


def edge_columns(table: TableSource, source: str | None, target: str | None) -> tuple[str, str]:
    """Choose the columns with the ends of the edges: the named ones, ``source`` and ``target``, or the first two."""
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


class EdgeReader:
    """Reads a table of edges in chunks, and counts what it leaves out."""

    def __init__(self, table: TableSource, ids: Any, options: TableOptions, weights: WeightColumn | None = None):
        self.table, self.ids, self.options, self.weights = table, ids, options, weights
        self.rows = self.unknown = 0
        self.notes: list[str] = []

    def chunks(self, by_batch: bool) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Yield node indices ``[2, n]`` and weights ``[n]``, one batch at a time or as many as a look-up pays for."""
        index, options = IdIndex(self.ids), self.options
        kind = "numbers" if pa.types.is_integer(self.ids.type) else "strings"
        at_once = 1 if by_batch else _EDGES_AT_ONCE[kind]
        for part in self.table.parts:
            ends = edge_columns(part, options.source_column, options.target_column)
            if options.source_column is None:
                _check_header(part, ends, self.ids)
            columns = ends if self.weights is None else (*ends, self.weights.name)
            part.require(columns[2:], "weight")
            others = [name for name in part.columns if name.strip() and name not in columns]
            if others:
                advice = "; if one holds weights, name it when fitting with `weight_column`"
                advice = "" if self.weights else advice
                self.notes.append(f"{part.name}: columns that do not count: {listed(others)}{advice}")
            for batches in _gathered(part.batches(columns), at_once):
                yield self._chunk(batches, ends, index)
        if self.unknown:
            counts = f"{self.unknown} of {self.rows}"
            self.notes.append(f"{counts} edges were left out: they name nodes that were not given")

    def _chunk(
        self, batches: Sequence[Batch], ends: tuple[str, str], index: IdIndex
    ) -> tuple[np.ndarray, np.ndarray | None]:
        with arrow_errors(f"{batches[0].table} cannot be read"):
            pairs = np.stack([index.indices(_end(batches, side, ends[side])) for side in (0, 1)])
            weight = None
            if self.weights is not None:
                weight = np.concatenate([self.weights.read(batch.arrays[2], batch) for batch in batches])
        known: np.ndarray = np.all(pairs >= 0, axis=0)
        self.rows += len(known)
        self.unknown += int((~known).sum())
        if known.all():
            return pairs, weight
        if not self.options.ignore_unknown_edges:
            raise self._unknown_id(batches, ends, pairs)
        return pairs[:, known], None if weight is None else weight[known]

    def _unknown_id(self, batches: Sequence[Batch], ends: tuple[str, str], pairs: np.ndarray) -> TableError:
        row = int(np.argmin((pairs >= 0).all(axis=0)))
        side = 0 if pairs[0, row] < 0 else 1
        unknown, column = _end(batches, side, ends[side])[row].as_py(), ends[side]
        for batch in batches:
            if row < batch.num_rows:
                break
            row -= batch.num_rows
        near = similar_id(unknown, self.ids)
        advice = (
            "give all nodes, old and new (`nodes` can be several tables), or leave such edges out with "
            "`ignore_unknown_edges`"
            if near is None
            else f"the table of nodes has {quoted(near)}: write ids alike in both tables"
        )
        if self.options.source_column is None and column not in ("source", "target"):
            advice += (
                f"; if {column!r} holds no ids, name the right ones when fitting (`source_column`, `target_column`)"
            )
        return TableError(
            f"{batch.table}: {self.unknown} of {self.rows} edges name a node that the table of nodes does not have, "
            f"first {quoted(unknown)} in column {column!r}, {batch.row_name(row)}; {advice}"
        )


def _end(batches: Sequence[Batch], side: int, column: str) -> Any:
    return concatenated([read_ids(batch.arrays[side], batch, column) for batch in batches])


def _gathered(batches: Iterator[Batch], at_once: int) -> Iterator[list[Batch]]:
    pending: list[Batch] = []
    for batch in batches:
        pending.append(batch)
        if sum(part.num_rows for part in pending) >= at_once:
            yield pending
            pending = []
    if pending:
        yield pending


def read_edges(table: TableSource, ids: Any, options: TableOptions, weights: WeightColumn | None = None) -> Edges:
    """Read a table of edges into memory.

    Without weights, rows that name the same two nodes are one edge; with weights, these add up. An edge of weight 0
    does not count.
    """
    reader, counted = EdgeReader(table, ids, options, weights), 0
    none = np.empty(0, dtype=np.int64)
    pending = [_Keys(none, None if weights is None else np.empty(0))]
    # An edge as one number takes half the memory of a pair, and sorting it finds repeated edges.
    for (a, b), weight in reader.chunks(by_batch=True):
        low, high = (a, b) if options.directed else (np.minimum(a, b), np.maximum(a, b))
        counts = a != b if weight is None else (a != b) & (weight > 0)
        keys = _Keys((low * len(ids) + high)[counts], None if weight is None else weight[counts])
        counted += len(keys.keys)
        pending.append(keys.unique())
        # The memory stays within a few times that of the different edges.
        if sum(len(part.keys) for part in pending[1:]) > max(_PENDING, len(pending[0].keys)):
            pending = [_Keys.joined(pending)]
    keys = _Keys.joined(pending)
    notes, repeated = reader.notes, counted - len(keys.keys)
    if weights is not None and repeated:
        notes.append(note_on_repeated(f"{repeated} of {reader.rows}", options.directed))
    index, weight = np.stack(np.divmod(keys.keys, max(len(ids), 1))), keys.weights
    if not options.directed:
        index = np.hstack([index, index[::-1]])
        weight = None if weight is None else np.concatenate([weight, weight])
    if not index.shape[1]:
        notes.append("there are no edges between different nodes, so every node is scored by its features alone")
    return Edges(index, weight, notes)


class _Keys(NamedTuple):
    """Edges as numbers ``[n]``, and their weights ``[n]``."""

    keys: np.ndarray
    weights: np.ndarray | None

    @classmethod
    def joined(cls, parts: Sequence[_Keys]) -> _Keys:
        """Every key of some parts once."""
        weights = [part.weights for part in parts if part.weights is not None]
        return cls(np.concatenate([part.keys for part in parts]), np.concatenate(weights) if weights else None).unique()

    def unique(self) -> _Keys:
        """Every key once, with the sum of its weights.

        As `numpy.unique`, which hashes integers; for millions of edges sorting is several times as fast.
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


def _check_header(table: TableSource, ends: tuple[str, str], ids: Any) -> None:
    """Raise an error for a table without a header: the names of its columns are ids of nodes."""
    as_ids = pa.array([end.strip() for end in ends], pa.large_string())
    if ends != ("source", "target") and pc.all(pc.is_in(as_ids, value_set=ids.cast(pa.large_string()))).as_py():
        raise TableError(
            f"{table.name} has no header: the first line holds the nodes {quoted(ends[0])} and {quoted(ends[1])}; "
            "add a first line with the names source and target; if these are the names of columns, say so when fitting "
            "with `source_column` and `target_column`"
        )


def note_on_repeated(count: str, directed: bool) -> str:
    """Say that weights were added up."""
    ways = "" if directed else "; if every edge is listed in both directions, fit with `directed`"
    return f"{count} edges join nodes that others join; weights add up{ways}"
