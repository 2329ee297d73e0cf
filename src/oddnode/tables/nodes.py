"""A table of nodes as arrays: ids, features and further columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oddnode.tables.columns import ColumnCounts, FeatureRecipe
from oddnode.tables.reader import Batch, TableSource
from oddnode.tables.values import TableError, arrow_errors, concatenated, pyarrow, quoted, trimmed

__all__ = ["Nodes", "check_unique", "read_ids", "read_nodes", "similar_id"]

_PADDED_NUMBER = re.compile(r"0*(\d+)(\.0+)?")


@dataclass
class Nodes:
    """A table of N nodes that was read.

    Parameters
    ----------
    ids : pyarrow.Array
        Their ids.
    x : numpy.ndarray
        Features ``[N, F]``.
    columns : dict
        Further columns as they are, by name.
    counts : list of ColumnCounts
        What encoding has met in each feature column.
    """

    ids: Any
    x: np.ndarray
    columns: dict[str, Any]
    counts: list[ColumnCounts]


def read_nodes(table: TableSource, id_column: str, recipe: FeatureRecipe, extra: Sequence[str] = ()) -> Nodes:
    """Read all rows of a table of nodes, features encoded batch by batch.

    Parameters
    ----------
    table : TableSource
        The table of nodes.
    id_column : str
        Its column with ids.
    recipe : FeatureRecipe
        How its columns become features.
    extra : sequence of str
        Further columns to keep as they are.
    """
    names = recipe.names
    counts = [ColumnCounts() for _ in names]
    ids, blocks, kept = [], [], {name: [] for name in extra}  # type: ignore[var-annotated]
    for batch in table.batches([id_column, *names, *extra]):
        id_array, *arrays = batch.arrays
        ids.append(read_ids(id_array, batch, id_column))
        blocks.append(recipe.encode(arrays[: len(names)], batch, counts))
        for name, array in zip(extra, arrays[len(names) :], strict=True):
            kept[name].append(array)
    if not sum(map(len, ids)):
        raise TableError(f"{table.name} has a header, but no rows")
    with arrow_errors(f"{table.name} cannot be read"):
        joined = concatenated(ids)
        columns = {name: concatenated(arrays) for name, arrays in kept.items()}
    check_unique(joined, table, id_column)
    return Nodes(joined, np.concatenate(blocks), columns, counts)


def read_ids(array: Any, batch: Batch, column: str) -> Any:
    """Read ids as whole numbers or trimmed text, none of them missing.

    Parameters
    ----------
    array : pyarrow.Array
        The ids.
    batch : Batch
        The batch they come from, for messages.
    column : str
        Their column, for messages.
    """
    pa = pyarrow()
    import pyarrow.compute as pc

    if pa.types.is_uint64(array.type):  # may be too large for int64
        array = array.cast(pa.string())
    elif pa.types.is_integer(array.type):
        array = array.cast(pa.int64())
    elif pa.types.is_string(array.type):
        array = trimmed(array)
        array = pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)
    elif not pa.types.is_null(array.type):
        raise TableError(f"{batch.table}: column {column!r} holds {array.type}, expected ids as text or whole numbers")
    if array.null_count:
        row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise TableError(f"{batch.table}: column {column!r} has no id in {batch.place(row)}")
    return array


def check_unique(ids: Any, table: TableSource, column: str) -> None:
    """Raise an error if two nodes have the same id.

    Parameters
    ----------
    ids : pyarrow.Array
        The ids of the nodes.
    table : TableSource
        Their table, for the message.
    column : str
        Their column, for the message.
    """
    if _is_ascending(ids) or len(ids.unique()) == len(ids):
        return
    counts = ids.value_counts()
    repeated = counts.field(0).to_pylist()[int(np.argmax(counts.field(1).to_numpy() > 1))]
    raise TableError(
        f"{table.name}: column {column!r} has the id {quoted(repeated)} more than once; ids must be unique"
    )


def _is_ascending(ids: Any) -> bool:
    """Whether ids are numbers that grow from row to row, which is quickly seen and takes little memory."""
    if not pyarrow().types.is_integer(ids.type):
        return False
    numbers = ids.to_numpy(zero_copy_only=False)
    return bool((numbers[1:] > numbers[:-1]).all())


def similar_id(unknown: Any, ids: Any) -> Any | None:
    """Find an id that differs from another one in its zeros or capitals only, as ``7`` from ``007`` or ``7.0``.

    Parameters
    ----------
    unknown : str or int
        An id that no node has.
    ids : pyarrow.Array
        The ids of the nodes.

    Returns
    -------
    str, int or None
        The first such id.
    """
    wanted = _simplified(unknown)
    return next((each for each in ids.to_pylist() if _simplified(each) == wanted), None)


def _simplified(value: Any) -> str:
    text = str(value).strip().casefold()
    number = _PADDED_NUMBER.fullmatch(text)
    return number.group(1) if number else text
