"""Node ids, looked up by the million, and tables of edges, read in chunks of node indices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from oddnode.tables.columns import WeightColumn
from oddnode.tables.reader import Batch, TableSource
from oddnode.tables.schema import TableOptions
from oddnode.tables.values import TableError, arrow_errors, concatenated, listed, pa, pc, quoted

#: A note on a graph without edges.
NO_EDGES = "there are no edges between different nodes, so every node is scored by its features alone"

# Number of edge keys collected before duplicates are removed.
_PENDING = 2**20
# Edges per chunk for a graph on disk. Every look-up of strings rehashes all ids, so large chunks pay off.
_EDGES_AT_ONCE = {"numbers": 2**20, "strings": 2**23}
_PADDED_NUMBER = re.compile(r"0*(\d+)(\.0+)?")
_ROUNDED = re.compile(r"\d([.,]\d+)?E\+\d+", re.IGNORECASE)
# A direct look-up table from the lowest to the highest id has at most this many entries per node.
_SPREAD = 8
# An error names up to this many ids that occur more than once.
_FEW_REPEATED = 3


def read_ids(array: Any, batch: Batch, column: str) -> Any:
    """Read ids as integers or trimmed strings, none of them missing."""
    if pa.types.is_uint64(array.type):  # may be too large for int64
        array = array.cast(pa.string())
    elif pa.types.is_integer(array.type):
        array = array.cast(pa.int64())
    elif pa.types.is_string(array.type):
        array = pc.utf8_trim_whitespace(array)
        array = pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)
    elif not pa.types.is_null(array.type):
        raise TableError(f"{batch.table}: column {column!r} holds {array.type}, expected ids as text or integers")
    if array.null_count:
        row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise TableError(f"{batch.table}: column {column!r} has no id in {batch.row_name(row)}")
    return array


def num_trimmed(array: Any) -> int:
    """The number of strings with blanks around them, which `read_ids` trims."""
    if not pa.types.is_string(array.type):
        return 0
    return pc.sum(pc.not_equal(array, pc.utf8_trim_whitespace(array))).as_py() or 0


def note_on_blanks(count: int, where: str) -> list[str]:
    """A note that blanks around ids were ignored."""
    return [f"{where}: blanks around {count} {'id' if count == 1 else 'ids'} are ignored"] if count else []


def check_unique(ids: Any, table: TableSource, column: str) -> None:
    """Raise an error if two nodes have the same id."""
    if pa.types.is_integer(ids.type):
        numbers = ids.to_numpy(zero_copy_only=False)
        if bool((numbers[1:] > numbers[:-1]).all()):  # a fast check that needs little memory
            return
    if len(ids.unique()) == len(ids):
        return
    counts = ids.value_counts()
    repeated = counts.field(0).filter(pc.greater(counts.field(1), 1))
    shown = {value: list[str]() for value in repeated.slice(0, _FEW_REPEATED).to_pylist()}
    for batch in table.batches([column]):  # again, for the numbers of the rows
        read = read_ids(batch.arrays[0], batch, column)
        read = read if read.type == repeated.type else read.cast(repeated.type)
        for row in np.flatnonzero(pc.is_in(read, value_set=pa.array(list(shown), repeated.type))):
            name = batch.row_name(int(row))
            shown[read[int(row)].as_py()].append(name if len(table.parts) == 1 else f"{batch.table}, {name}")
    named = [f"{quoted(value)} ({listed(rows, _FEW_REPEATED)})" for value, rows in shown.items()]
    count = f"{len(repeated)} ids" if len(repeated) > 1 else "an id"
    more = ", ..." if len(repeated) > len(shown) else ""
    raise TableError(
        f"{table.name}: column {column!r} has {count} more than once: {', '.join(named)}{more}; "
        f"{advice_on_id(next(iter(shown)), 'ids must be unique')}"
    )


def advice_on_id(value: Any, otherwise: str) -> str:
    """What to do about an id that is wrong: a spreadsheet rounds long numbers, to such as ``4.00638E+12``."""
    advice = "a spreadsheet has rounded the ids; format their column as text before you save it as CSV"
    return advice if _ROUNDED.fullmatch(str(value).strip()) else otherwise


def similar_id(unknown: Any, ids: Any) -> Any | None:
    """Find an id that differs only in zeros or case, such as ``7`` and ``007`` or ``7.0``."""
    wanted = _simplified(unknown)
    return next((known for known in ids.slice(0, 2**20).to_pylist() if _simplified(known) == wanted), None)


def _simplified(value: Any) -> str:
    text = str(value).strip().casefold()
    number = _PADDED_NUMBER.fullmatch(text)
    return number.group(1) if number else text


class IdIndex:
    """Finds the indices of nodes by their ids."""

    def __init__(self, ids: Any):
        self._ids = ids
        self._numbers = ids.to_numpy() if pa.types.is_integer(ids.type) else None
        self._strings: Any = None
        if self._numbers is not None and len(self._numbers):
            self._prepare(self._numbers)

    def _prepare(self, numbers: np.ndarray) -> None:
        self._low, span = int(numbers.min()), int(numbers.max()) - int(numbers.min()) + 1
        self._is_range = span == len(numbers) and bool((numbers == np.arange(self._low, self._low + span)).all())
        self._table: np.ndarray | None = None
        if not self._is_range and span <= _SPREAD * len(numbers):
            self._table = np.full(span, -1, np.int64)
            self._table[numbers - self._low] = np.arange(len(numbers))
        elif not self._is_range:
            self._order = np.argsort(numbers, kind="stable")
            self._sorted = numbers[self._order]

    def indices(self, array: Any) -> np.ndarray:
        """Find the indices of ids; -1 = unknown."""
        if self._numbers is not None and pa.types.is_integer(array.type):
            return self._of_numbers(array.to_numpy(zero_copy_only=False))
        if self._strings is None:
            self._strings = self._ids.cast(pa.large_string())
        index = pc.index_in(array.cast(pa.large_string()), value_set=self._strings)
        return index.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)

    def _of_numbers(self, wanted: np.ndarray) -> np.ndarray:
        assert self._numbers is not None
        count = len(self._numbers)
        if not count:
            return np.full(len(wanted), -1)
        if self._is_range or self._table is not None:
            offset = wanted - self._low
            inside = (offset >= 0) & (offset < (count if self._table is None else len(self._table)))
            if self._table is None:
                return np.where(inside, offset, -1)
            return np.where(inside, self._table[np.where(inside, offset, 0)], -1)
        offset = np.minimum(np.searchsorted(self._sorted, wanted), count - 1)
        return np.where(self._sorted[offset] == wanted, self._order[offset], -1)


@dataclass(frozen=True)
class Edges:
    """A table of E edges in memory."""

    index: np.ndarray  # Edges `[2, E]` as node indices, without duplicates or self-loops
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
    return table.columns[0], table.columns[1]


def ends_of_parts(table: TableSource, options: TableOptions) -> tuple[list[tuple[str, str]], list[str]]:
    """Choose the columns with the ends of the edges in every part of a table, and note on parts that differ.

    A part that has the columns of the first one is read by these names, whatever their order.
    """
    ends, notes = list[tuple[str, str]](), list[str]()
    for part in table.parts:
        if len(part.columns) < 2:
            raise TableError(
                f"{part.name} has one column, {part.columns[0]!r}, but a table of edges needs two columns: the ids at "
                "both ends; if they are in one cell, separate them by a comma, semicolon, tab or bar"
            )
        own = edge_columns(part, options.source_column, options.target_column)
        if ends and own != ends[0]:
            if set(ends[0]) <= set(part.columns):
                own = ends[0]
            else:
                first, names = table.parts[0].name, "{!r} and {!r}"
                what = f"{part.name} has edges in {names.format(*own)}, {first} in {names.format(*ends[0])}"
                if options.directed:
                    raise TableError(f"{what}, so directions could differ; give the columns the same names")
                notes.append(f"{what}; both are read")
        ends.append(own)
    return ends, notes


@dataclass
class EdgeReader:
    """Reads a table of edges in chunks, and counts the rows it leaves out."""

    table: TableSource
    ids: Any
    options: TableOptions
    weights: WeightColumn | None = None
    rows: int = 0
    unknown: int = 0
    trimmed: int = 0
    notes: list[str] = field(default_factory=list)

    def chunks(self, by_batch: bool) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Yield node indices ``[2, n]`` and weights ``[n]``, one batch at a time, or several if look-ups are slow."""
        index, options = IdIndex(self.ids), self.options
        all_ends, notes = ends_of_parts(self.table, options)
        self.notes += notes
        kind = "numbers" if pa.types.is_integer(self.ids.type) else "strings"
        at_once = 1 if by_batch else _EDGES_AT_ONCE[kind]
        for part, ends in zip(self.table.parts, all_ends, strict=True):
            if options.source_column is None:
                _check_header(part, ends, self.ids)
            columns = ends if self.weights is None else (*ends, self.weights.name)
            part.require(columns[2:], "weight")
            others = [name for name in part.columns if name.strip() and name not in columns]
            if others:
                advice = "; if one holds weights, name it when fitting with `weight_column`"
                advice = "" if self.weights else advice
                self.notes.append(f"{part.name}: unused columns: {listed(others)}{advice}")
            for batches in _gathered(part.batches(columns), at_once):
                yield self._chunk(batches, ends, index)
        if self.unknown:
            counts = f"{self.unknown} of {self.rows}"
            self.notes.append(f"{counts} edges were left out: they name unknown nodes")
        self.notes += note_on_blanks(self.trimmed, self.table.name)

    def _chunk(
        self, batches: Sequence[Batch], ends: tuple[str, str], index: IdIndex
    ) -> tuple[np.ndarray, np.ndarray | None]:
        with arrow_errors(f"{batches[0].table} cannot be read"):
            ids = [
                concatenated([read_ids(batch.arrays[side], batch, ends[side]) for batch in batches]) for side in (0, 1)
            ]
            self.trimmed += sum(num_trimmed(batch.arrays[side]) for batch in batches for side in (0, 1))
            pairs = np.stack(list(map(index.indices, ids)))
            weight = None
            if self.weights is not None:
                weight = np.concatenate([self.weights.read(batch.arrays[2], batch) for batch in batches])
        known: np.ndarray = np.all(pairs >= 0, axis=0)
        self.rows += len(known)
        self.unknown += int((~known).sum())
        if known.all():
            return pairs, weight
        if not self.options.ignore_unknown_edges:
            raise self._unknown_id(batches, ends, ids, pairs)
        return pairs[:, known], None if weight is None else weight[known]

    def _unknown_id(
        self, batches: Sequence[Batch], ends: tuple[str, str], ids: list[Any], pairs: np.ndarray
    ) -> TableError:
        row = int(np.argmin((pairs >= 0).all(axis=0)))
        side = 0 if pairs[0, row] < 0 else 1
        unknown, column = ids[side][row].as_py(), ends[side]
        for batch in batches:
            if row < batch.num_rows:
                break
            row -= batch.num_rows
        near = similar_id(unknown, self.ids)
        advice = (
            "give all nodes, old and new (`nodes` can be several tables), or leave such edges out with "
            "`ignore_unknown_edges`"
            if near is None
            else f"the table of nodes has {quoted(near)}: write ids the same way in both tables"
        )
        if self.options.source_column is None and column not in ("source", "target"):
            advice += f"; if {column!r} does not hold ids, name others when fitting (`source_column`, `target_column`)"
        return TableError(
            f"{batch.table}: {self.unknown} of {self.rows} edges name a node that the table of nodes does not have, "
            f"first {quoted(unknown)} in column {column!r}, {batch.row_name(row)}; {advice_on_id(unknown, advice)}"
        )


def _gathered(batches: Iterator[Batch], at_once: int) -> Iterator[list[Batch]]:
    pending, rows = list[Batch](), 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        if rows >= at_once:
            yield pending
            pending, rows = [], 0
    if pending:
        yield pending


def read_edges(table: TableSource, ids: Any, options: TableOptions, weights: WeightColumn | None = None) -> Edges:
    """Read a table of edges into memory.

    Without weights, rows that name the same two nodes are one edge; with weights, these are summed. Edges of weight 0
    are dropped.
    """
    reader, counted, waiting = EdgeReader(table, ids, options, weights), 0, 0
    none = np.empty(0, dtype=np.int64)
    pending = [_Keys(none, None if weights is None else np.empty(0))]
    # An edge as one integer takes half the memory of a pair, and sorting brings duplicates together.
    for (a, b), weight in reader.chunks(by_batch=True):
        low, high = (a, b) if options.directed else (np.minimum(a, b), np.maximum(a, b))
        counts = a != b if weight is None else (a != b) & (weight > 0)
        keys = _Keys((low * len(ids) + high)[counts], None if weight is None else weight[counts])
        counted += len(keys.keys)
        pending.append(keys.unique())
        waiting += len(pending[-1].keys)
        # Memory stays within a few times that of the distinct edges.
        if waiting > max(_PENDING, len(pending[0].keys)):
            pending, waiting = [_Keys.joined(pending)], 0
    keys = _Keys.joined(pending)
    notes, repeated = reader.notes, counted - len(keys.keys)
    if weights is not None and repeated:
        notes.append(note_on_repeated(f"{repeated} of {reader.rows}", options.directed))
    index, weight = np.stack(np.divmod(keys.keys, max(len(ids), 1))), keys.weights
    if not options.directed:
        index = np.hstack([index, index[::-1]])
        weight = None if weight is None else np.concatenate([weight, weight])
    if not index.shape[1]:
        notes.append(NO_EDGES)
    return Edges(index, weight, notes)


class _Keys(NamedTuple):
    """Edges as numbers ``[n]``, and their weights ``[n]``."""

    keys: np.ndarray
    weights: np.ndarray | None

    @classmethod
    def joined(cls, parts: Sequence[_Keys]) -> _Keys:
        """The distinct keys of some parts."""
        weights = [part.weights for part in parts if part.weights is not None]
        return cls(np.concatenate([part.keys for part in parts]), np.concatenate(weights) if weights else None).unique()

    def unique(self) -> _Keys:
        """The distinct keys, each with the sum of its weights.

        Like `numpy.unique`, which hashes integers; for millions of edges, sorting is several times faster.
        """
        order = None if self.weights is None else np.argsort(self.keys, kind="stable")
        keys = np.sort(self.keys) if order is None else self.keys[order]
        is_new = np.ones(len(keys), dtype=bool)
        is_new[1:] = keys[1:] != keys[:-1]
        if self.weights is None:
            return _Keys(keys[is_new], None)
        first = np.flatnonzero(is_new)
        return _Keys(keys[first], np.add.reduceat(self.weights[order], first) if len(first) else self.weights)


def _check_header(table: TableSource, ends: tuple[str, str], ids: Any) -> None:
    """Raise an error for a table without a header: the names of its columns are ids of nodes."""
    as_ids = pa.array(list(map(str.strip, ends)), pa.large_string())
    if ends != ("source", "target") and pc.all(pc.is_in(as_ids, value_set=ids.cast(pa.large_string()))).as_py():
        raise TableError(
            f"{table.name} has no header: the first line holds the nodes {quoted(ends[0])} and {quoted(ends[1])}; "
            "add a first line with the names source and target; if these are the names of columns, say so when fitting "
            "with `source_column` and `target_column`"
        )


def note_on_repeated(count: str, directed: bool) -> str:
    """A note that weights were summed."""
    ways = "" if directed else "; if every edge is listed in both directions: `directed`"
    return f"{count} edges repeat others; their weights add up{ways}"
