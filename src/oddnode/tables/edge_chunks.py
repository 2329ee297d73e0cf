"""A table of edges of any size, read in chunks of positions of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from oddnode.tables.edge_weights import WeightColumn
from oddnode.tables.edges import check_header, edge_columns, note_on_columns, with_weight_column
from oddnode.tables.id_index import IdIndex
from oddnode.tables.nodes import read_ids
from oddnode.tables.reader import Batch, TableSource
from oddnode.tables.values import TableError, arrow_errors, concatenated, pyarrow, quoted

if TYPE_CHECKING:
    from oddnode.large import EdgeChunk

__all__ = ["edge_chunks"]

# Edges whose ids are looked up together: a look-up of texts prepares all ids anew.
_EDGES_AT_ONCE = {"numbers": 2**20, "texts": 2**23}


def edge_chunks(
    table: TableSource,
    ids: Any,
    source: str | None,
    target: str | None,
    weights: WeightColumn | None,
    ignore_unknown: bool,
    notes: list[str],
) -> Iterator[EdgeChunk]:
    """Read a table of edges, some rows at a time.

    Parameters
    ----------
    table, ids, source, target, weights, ignore_unknown
        As for `oddnode.tables.read_edges`.
    notes : list of str
        Notes for the user are added to it.

    Yields
    ------
    numpy.ndarray, or (numpy.ndarray, numpy.ndarray)
        The edges of some rows ``[2, n]`` as positions of nodes; with weights, a pair of these and the weights ``[n]``.
    """
    index = IdIndex(ids)
    is_number = pyarrow().types.is_integer(ids.type)
    at_once = _EDGES_AT_ONCE["numbers" if is_number else "texts"]
    rows = left_out = 0
    for part in table.parts:
        ends = edge_columns(part, source, target)
        if source is None:
            check_header(part, ends, ids)
        columns = with_weight_column(part, ends, weights)
        notes += note_on_columns(part, columns)
        for batches in _gathered(part.batches(columns), at_once):
            positions = _positions(batches, ends, index)
            known: np.ndarray = np.all(positions >= 0, axis=0)
            if not known.all() and not ignore_unknown:
                raise _unknown_id(batches, ends, positions)
            rows, left_out = rows + len(known), left_out + int((~known).sum())
            positions = positions if known.all() else positions[:, known]
            if weights is None:
                yield positions
            else:
                yield positions, np.concatenate([weights.read(batch.arrays[2], batch) for batch in batches])[known]
    if left_out:
        notes.append(f"{left_out} of {rows} edges were left out: they name nodes that were not given")


def _positions(batches: Sequence[Batch], ends: tuple[str, str], index: IdIndex) -> np.ndarray:
    columns = []
    for place, name in enumerate(ends):
        with arrow_errors(f"{batches[0].table} cannot be read"):
            joined = concatenated([read_ids(batch.arrays[place], batch, name) for batch in batches])
            columns.append(index.positions(joined))
    return np.stack(columns)


def _gathered(batches: Iterator[Batch], at_once: int) -> Iterator[list[Batch]]:
    pending: list[Batch] = []
    for batch in batches:
        pending.append(batch)
        if sum(each.num_rows for each in pending) >= at_once:
            yield pending
            pending = []
    if pending:
        yield pending


def _unknown_id(batches: Sequence[Batch], ends: tuple[str, str], positions: np.ndarray) -> TableError:
    row = int(np.argmin((positions >= 0).all(axis=0)))
    side = 0 if positions[0, row] < 0 else 1
    for batch in batches:
        if row < batch.num_rows:
            break
        row -= batch.num_rows
    unknown = read_ids(batch.arrays[side], batch, ends[side])[row].as_py()
    return TableError(
        f"{batch.table}: an edge names a node that the table of nodes does not have, {quoted(unknown)} in column "
        f"{ends[side]!r}, {batch.place(row)}; give all nodes (`nodes` can be several tables), or leave such edges out "
        "with `ignore_unknown_edges`"
    )
