"""Conversion of rows to a graph: ids to positions, labels to classes, pairs of ids to edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oddnode.tables.columns import FeatureRecipe
from oddnode.tables.reader import TableError, TableSource, missing_to_null, pyarrow, quoted, trimmed

__all__ = [
    "Nodes",
    "edge_columns",
    "encode_labels",
    "read_edges",
    "read_marks",
    "read_nodes",
]

_YES, _NO = ("1", "true", "yes"), ("0", "false", "no", "")


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
    unseen_categories : int
        Number of values whose category was not seen at fit.
    """

    ids: Any
    x: np.ndarray
    columns: dict[str, Any]
    unseen_categories: int


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
    pa = pyarrow()
    ids, blocks, kept = [], [], {name: [] for name in extra}  # type: ignore[var-annotated]
    rows = unseen = 0
    for id_array, *arrays in table.batches([id_column, *recipe.names, *extra]):
        ids.append(_ids(id_array, table, id_column, rows + 1))
        features, unknown = recipe.encode(arrays[: len(recipe.names)], table.name, rows + 1)
        blocks.append(features)
        for name, array in zip(extra, arrays[len(recipe.names) :], strict=True):
            kept[name].append(array)
        rows += len(id_array)
        unseen += unknown
    if not rows:
        raise TableError(f"{table.name} has a header, but no rows")
    joined = pa.concat_arrays(ids)
    _check_unique(joined, table, id_column)
    columns = {name: pa.concat_arrays(arrays) for name, arrays in kept.items()}
    return Nodes(joined, np.concatenate(blocks), columns, unseen)


def _ids(array: Any, table: TableSource, column: str, first_row: int) -> Any:
    """Ids as whole numbers or trimmed text, none of them missing."""
    pa = pyarrow()
    import pyarrow.compute as pc

    if pa.types.is_integer(array.type):
        array = array.cast(pa.int64())
    elif pa.types.is_string(array.type):
        array = trimmed(array)
        array = pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)
    else:
        raise TableError(f"{table.name}: column {column!r} holds {array.type}, expected ids as text or whole numbers")
    if array.null_count:
        row = first_row + int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise TableError(f"{table.name}: column {column!r} has no id in row {row}")
    return array


def _check_unique(ids: Any, table: TableSource, column: str) -> None:
    if len(ids.unique()) == len(ids):
        return
    counts = ids.value_counts()
    repeated = counts.field(0).to_pylist()[int(np.argmax(counts.field(1).to_numpy() > 1))]
    raise TableError(
        f"{table.name}: column {column!r} has the id {quoted(repeated)} more than once; ids must be unique"
    )


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
        raise TableError("give both the source and the target column of the edges, or neither")
    if source is not None and target is not None:
        table.require([source, target], "edge")
        if source == target:
            raise TableError(f"source and target column of the edges are both {source!r}")
        return source, target
    if {"source", "target"} <= set(table.columns):
        return "source", "target"
    if len(table.columns) < 2:
        table.require(["source", "target"], "edge")
    return table.columns[0], table.columns[1]


def read_edges(table: TableSource, source: str, target: str, ids: Any, directed: bool) -> np.ndarray:
    """Read a table of edges.

    Parameters
    ----------
    table : TableSource
        The table of edges.
    source, target : str
        Its columns with the ids where edges start and end.
    ids : pyarrow.Array
        The ids of the nodes.
    directed : bool
        Whether to keep edges in their direction only.

    Returns
    -------
    numpy.ndarray
        Edges ``[2, E]`` as positions in ``ids``, each once, without self-loops.
    """
    table.require([source, target], "edge")
    num_nodes, rows = len(ids), 0
    as_text: Any = None
    keys: list[np.ndarray] = []
    for arrays in table.batches([source, target]):
        ends = []
        for name, array in zip((source, target), arrays, strict=True):
            array = _ids(array, table, name, rows + 1)
            known = ids
            if array.type != ids.type:  # 7 in one file and "7" in the other are the same node
                as_text = ids.cast(pyarrow().string()) if as_text is None else as_text
                array, known = array.cast(pyarrow().string()), as_text
            ends.append(_positions(array, known, table, name, rows + 1))
        rows += len(arrays[0])
        a, b = ends
        low, high = (a, b) if directed else (np.minimum(a, b), np.maximum(a, b))
        # One number per edge: half the memory of a pair, and sorting it finds repeated edges.
        keys.append((low * num_nodes + high)[a != b])
    joined = np.unique(np.concatenate(keys)) if keys else np.empty(0, dtype=np.int64)
    del keys
    low, high = np.divmod(joined, max(num_nodes, 1))
    if directed:
        return np.stack([low, high])
    return np.stack([np.concatenate([low, high]), np.concatenate([high, low])])


def _positions(array: Any, ids: Any, table: TableSource, column: str, first_row: int) -> np.ndarray:
    import pyarrow.compute as pc

    index = pc.index_in(array, value_set=ids)
    if index.null_count:
        row = int(np.argmax(index.is_null().to_numpy(zero_copy_only=False)))
        raise TableError(
            f"{table.name}: row {first_row + row} names the node {quoted(array[row].as_py())} in column {column!r}, "
            "but the table of nodes has no such id"
        )
    return index.to_numpy(zero_copy_only=False).astype(np.int64)


def encode_labels(array: Any, table: TableSource, column: str) -> tuple[np.ndarray, list[str | int | bool]]:
    """Number the labels.

    Parameters
    ----------
    array : pyarrow.Array
        The labels of n nodes; missing ones are allowed.
    table : TableSource
        The table they come from, for messages.
    column : str
        Their column, for messages.

    Returns
    -------
    numpy.ndarray
        Classes 0, 1, 2, ... ``[n]``; -1 = unlabelled.
    list of str, int or bool
        The label that each class stands for.
    """
    pa = pyarrow()
    import pyarrow.compute as pc

    labels = missing_to_null(array)
    if pa.types.is_floating(labels.type):
        # Many tools write integers with missing values as floats.
        try:
            labels = labels.cast(pa.int64())
        except pa.ArrowInvalid:
            raise TableError(
                f"{table.name}: column {column!r} has fractions, expected labels (text or whole numbers)"
            ) from None
    types = pa.types
    if not any(test(labels.type) for test in (types.is_string, types.is_integer, types.is_boolean, types.is_null)):
        raise TableError(
            f"{table.name}: column {column!r} holds {labels.type}, expected labels (text or whole numbers)"
        )
    if labels.null_count == len(labels):
        raise TableError(f"{table.name}: column {column!r} has no label in any row; some nodes must be labelled")
    classes = sorted(labels.drop_null().unique().to_pylist())
    index = pc.index_in(labels, value_set=pa.array(classes, labels.type), skip_nulls=True)
    return index.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64), classes


def read_marks(array: Any, table: TableSource, column: str) -> np.ndarray:
    """Read a column of yes and no (true/false, 1/0, yes/no; nothing = no).

    Parameters
    ----------
    array : pyarrow.Array
        The marks of n nodes.
    table : TableSource
        The table they come from, for messages.
    column : str
        Their column, for messages.

    Returns
    -------
    numpy.ndarray
        One boolean per node ``[n]``.
    """
    pa = pyarrow()
    texts = [str(t or "").strip().lower() for t in array.cast(pa.string()).to_pylist()]
    wrong = next((t for t in texts if t not in _YES + _NO), None)
    if wrong is not None:
        raise TableError(f"{table.name}: column {column!r} has {quoted(wrong)}, expected true or false")
    return np.array([t in _YES for t in texts])
