"""Two tables of the kind that a model was fitted on, as a graph to score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from oddnode.tables.edges import read_edges
from oddnode.tables.nodes import read_nodes
from oddnode.tables.notes import notes_on_scored_columns
from oddnode.tables.reader import open_table
from oddnode.tables.schema import TableSchema

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["TableGraph", "as_data", "read_graph"]


@dataclass(frozen=True)
class TableGraph:
    """Two tables that were read, ready to be scored.

    Parameters
    ----------
    ids : pyarrow.Array
        Ids of the N nodes, in the order of the table.
    data : torch_geometric.data.Data
        Their features and edges, with weights if the edges have some.
    num_edges : int
        Number of different edges in the table of edges.
    columns : dict
        Further columns of the table of nodes, by name.
    name : str
        The name of the table of nodes, for messages.
    notes : list of str
        Notes for the user.
    is_arrival : numpy.ndarray or None
        Whether rows came after those that the model was trained on ``[N]``; ``None`` if their times are not known.
    """

    ids: Any
    data: Data
    num_edges: int
    columns: dict[str, Any]
    name: str
    notes: list[str]
    is_arrival: np.ndarray | None = None


def as_data(**arrays: Any) -> Data:
    """Make a graph of arrays, which it shares.

    Parameters
    ----------
    **arrays : numpy.ndarray, Tensor or None
        Its attributes: ``x``, ``edge_index``, ``edge_weight``, ``y``, masks; ``None`` for one that it lacks.
    """
    import torch  # here, because names of columns are checked without it
    from torch_geometric.data import Data

    return Data(**{name: torch.from_numpy(a) if isinstance(a, np.ndarray) else a for name, a in arrays.items()})


def read_graph(
    schema: TableSchema, nodes: Any, edges: Any, also: Sequence[str] = (), ignore_unknown_edges: bool = False
) -> TableGraph:
    """Read two tables of the kind that a model was fitted on.

    Parameters
    ----------
    schema : TableSchema
        How to read them.
    nodes, edges : path, table in memory, or a list of these
        As for `oddnode.tables.open_table`.
    also : sequence of str
        Further columns of the table of nodes to keep.
    ignore_unknown_edges : bool
        Whether to leave out edges of nodes that are not in the table of nodes; if not, they are an error.
    """
    table, edge_table = open_table(nodes, "nodes"), open_table(edges, "edges")
    table.require(also, "known")
    notes = schema.check_columns(table, also)
    rows = read_nodes(table, schema.id_column, schema.features, list(also))
    until, is_arrival = schema.until, None
    if until is not None and until.column in table.columns:
        times = table.batches([until.column])
        is_arrival = np.concatenate([until.is_arrival(batch.arrays[0], batch) for batch in times])
    elif until is not None:
        notes.append(f"there is no column {until.column!r}, so the column split does not say which rows are arrivals")
    ends = schema.source_column, schema.target_column
    read = read_edges(edge_table, rows.ids, *ends, schema.directed, ignore_unknown_edges, schema.weights)
    data = as_data(x=rows.x, edge_index=read.index, edge_weight=read.weight)
    num_edges = data.num_edges if schema.directed else data.num_edges // 2
    notes += notes_on_scored_columns(schema.features, rows.counts) + read.notes
    return TableGraph(rows.ids, data, num_edges, rows.columns, table.name, notes, is_arrival)
