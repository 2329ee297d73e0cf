"""Two tables as a graph in memory: ids, features, further columns and edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from oddnode.tables.columns import ColumnCounts, FeatureRecipe, notes_on_scored_columns
from oddnode.tables.edges import Edges, check_unique, note_on_blanks, num_trimmed, read_edges, read_ids
from oddnode.tables.reader import JoinedTable, TableSource, check_not_swapped, open_table
from oddnode.tables.schema import TableOptions, TableSchema
from oddnode.tables.values import TableError, arrow_errors, concatenated, pa

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass
class Nodes:
    """A table of N nodes in memory."""

    ids: Any
    x: np.ndarray
    columns: dict[str, Any]  # Further columns as they are, by name
    counts: list[ColumnCounts]  # Counts from encoding each feature column
    notes: list[str] = field(default_factory=list)  # Notes for the user

    def filter(self, keep: np.ndarray) -> Nodes:
        """Keep some rows."""
        chosen = pa.array(keep)
        columns = {name: array.filter(chosen) for name, array in self.columns.items()}
        return Nodes(self.ids.filter(chosen), self.x[keep], columns, self.counts, self.notes)


def nodes_of(source: Any, options: TableOptions) -> TableSource:
    """Open a table of nodes; where nodes have types, a table may lack the columns of types that it does not have."""
    table = open_table(source, "nodes", options.encoding)
    return table if options.type_column is None else JoinedTable(table.parts, "nodes")


def read_nodes(table: TableSource, id_column: str, recipe: FeatureRecipe, extra: Sequence[str] = ()) -> Nodes:
    """Read all rows of a table of nodes, features encoded batch by batch."""
    names = recipe.names
    counts = [ColumnCounts() for _ in names]
    trimmed = 0
    ids, blocks, kept = [], [], {name: [] for name in extra}  # type: ignore[var-annotated]
    for batch in table.batches([id_column, *names, *extra]):
        id_array, *arrays = batch.arrays
        ids.append(read_ids(id_array, batch, id_column))
        trimmed += num_trimmed(id_array)
        blocks.append(recipe.encode(arrays[: len(names)], batch, counts))
        for name, array in zip(extra, arrays[len(names) :], strict=True):
            kept[name].append(array)
    if not sum(map(len, ids)):
        raise TableError(f"{table.name} has a header, but no rows")
    with arrow_errors(f"{table.name} cannot be read"):
        joined = concatenated(ids)
        columns = {name: concatenated(arrays) for name, arrays in kept.items()}
    check_unique(joined, table, id_column)
    return Nodes(joined, np.concatenate(blocks), columns, counts, note_on_blanks(trimmed, table.name))


@dataclass(frozen=True)
class TableGraph:
    """Two tables in memory, ready to be scored."""

    ids: Any  #: Ids of the N nodes, in the order of the table.
    source: Any  #: Their features and edges, with edge weights if there are any.
    num_edges: int  #: Number of distinct edges in the table of edges.
    columns: dict[str, Any]  #: Further columns of the table of nodes, by name.
    name: str  #: The name of the table of nodes, for messages.
    notes: list[str]  #: Notes for the user.
    #: Whether rows are later than the training rows ``[N]``; ``None`` if their times are unknown.
    is_arrival: np.ndarray | None = None
    counts: list[ColumnCounts] = field(default_factory=list)  #: What encoding found in each feature column.
    days: np.ndarray | None = None  #: The days of the rows, as numbers ``[N]``; ``None`` if their times are unknown.

    @cached_property
    def data(self) -> Data:
        """The graph as a `torch_geometric.data.Data`."""
        from torch_geometric.data import Data

        return Data(**vars(self.source))

    def only(self, keep: np.ndarray) -> TableGraph:
        """Keep some rows and the edges between them, as if the tables had no others.

        Parameters
        ----------
        keep : numpy.ndarray
            Which rows to keep: one boolean per node ``[N]``.
        """
        if keep.all():
            return self
        weight, chosen = self.source.edge_weight, pa.array(keep)
        edges = Edges(self.source.edge_index.numpy(), None if weight is None else weight.numpy(), []).between(keep)
        source = as_source(x=self.source.x.numpy()[keep], edge_index=edges.index, edge_weight=edges.weight)
        directions = self.source.edge_index.shape[1] // max(self.num_edges, 1)
        return replace(
            self,
            ids=self.ids.filter(chosen),
            source=source,
            num_edges=edges.index.shape[1] // max(directions, 1),
            columns={name: array.filter(chosen) for name, array in self.columns.items()},
            is_arrival=None if self.is_arrival is None else self.is_arrival[keep],
            counts=[each.only(keep) for each in self.counts],
            days=None if self.days is None else self.days[keep],
        )


def as_source(**arrays: Any) -> SimpleNamespace:
    """Make a graph that shares these arrays; a `Data` would import PyG, which takes as long as importing torch."""
    import torch  # here, so that column names are checked without it

    tensors = {name: torch.from_numpy(a) if isinstance(a, np.ndarray) else a for name, a in arrays.items()}
    return SimpleNamespace(**tensors)


def read_graph(
    schema: TableSchema, nodes: Any, edges: Any, also: Sequence[str] = (), ignore_unknown_edges: bool = False
) -> TableGraph:
    """Read two tables with the columns that a model was fitted on.

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
    table, edge_table = nodes_of(nodes, schema), open_table(edges, "edges", schema.encoding)
    check_not_swapped(table, edge_table, [schema.id_column, *schema.features.names])
    table.require(also, "known")
    notes = schema.check_columns(table, also)
    rows = read_nodes(table, schema.id_column, schema.features, list(also))
    until, is_arrival, days = schema.until, None, None
    if until is not None and until.column in table.columns:
        placed = [until.placed(batch.arrays[0], batch) for batch in table.batches([until.column])]
        is_arrival, days = (np.concatenate(parts) for parts in zip(*placed, strict=True))
        notes += until.notes_on_zones(table)
    elif until is not None:
        notes.append(f"there is no column {until.column!r}, so the column split does not say which rows are arrivals")
    options = msgspec.structs.replace(schema, ignore_unknown_edges=ignore_unknown_edges)
    read = read_edges(edge_table, rows.ids, options, schema.weights)
    source = as_source(x=rows.x, edge_index=read.index, edge_weight=read.weight)
    num_edges = read.index.shape[1] // (1 if schema.directed else 2)
    notes += rows.notes + notes_on_scored_columns(schema.features, rows.counts) + read.notes
    if schema.features.types is not None:
        notes += schema.features.types.notes(schema.features, rows.x, rows.counts)
    return TableGraph(rows.ids, source, num_edges, rows.columns, table.name, notes, is_arrival, rows.counts, days)


@dataclass(frozen=True)
class Arrivals:
    """Rows later than the training rows. Nothing is learnt from them; they check a fitted model."""

    graph: TableGraph  # All N rows with all edges
    is_arrival: np.ndarray  # One boolean per row `[N]`
    has_known_label: np.ndarray
    has_new_label: np.ndarray
    num_edges: int  # Number of edges of arrivals

    def check(self, is_flagged: np.ndarray) -> dict[str, Any]:
        """Count how a fitted model judges the arrivals, as fields of a `FitReport`."""
        known, new = self.is_arrival & self.has_known_label, self.is_arrival & self.has_new_label
        unlabelled = self.is_arrival & ~known & ~new
        return {
            "num_arrivals": int(self.is_arrival.sum()),
            "num_arrival_edges": self.num_edges,
            "num_known_arrivals": int(known.sum()),
            "observed_false_alarm_rate": float(is_flagged[known].mean()) if known.any() else None,
            "num_new_label_arrivals": int(new.sum()),
            "num_new_label_flagged": int(is_flagged[new].sum()),
            "num_unlabelled_arrivals": int(unlabelled.sum()),
            "num_unlabelled_flagged": int(is_flagged[unlabelled].sum()),
        }
