"""Two tables as a graph to fit on: features are learnt, labels numbered, labelled nodes split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from oddnode.tables.columns import FeatureRecipe, learn_features
from oddnode.tables.reader import TableError, TableSource, open_table, pyarrow
from oddnode.tables.rows_to_graph import (
    Nodes,
    edge_columns,
    encode_labels,
    read_edges,
    read_marks,
    read_nodes,
)
from oddnode.tables.schema import TableSchema
from oddnode.tables.splits import Split, read_split, split_labelled

__all__ = ["TrainingGraph", "TrainingTables"]


@dataclass(frozen=True)
class TrainingTables:
    """The tables to fit on, and which of their columns mean what.

    Parameters
    ----------
    nodes, edges : path, or table in memory
        As for `oddnode.tables.open_table`.
    id_column : str
        Ids of the nodes, text or whole numbers.
    label_column : str
        Column with labels; nodes without a label are part of the graph, but not trained on.
    feature_columns : sequence of str or None
        Columns with features; all others if ``None``.
    source_column, target_column : str or None
        Columns with the ends of the edges; if ``None``, ``source`` and ``target``, or else the first two columns.
    directed : bool
        Whether to use edges in their direction only.
    split_column : str or None
        Column with train, validation or calibration; if ``None``, a random split of 40, 20 and 40 % of every label.
    exposure_nodes, exposure_edges : path, table in memory or None
        Nodes that are known to be OOD, and the edges between them.
    exposure_column : str or None
        Column that marks the nodes known to be OOD.
    """

    nodes: Any
    edges: Any
    id_column: str
    label_column: str
    feature_columns: Sequence[str] | None = None
    source_column: str | None = None
    target_column: str | None = None
    directed: bool = False
    split_column: str | None = None
    exposure_nodes: Any = None
    exposure_edges: Any = None
    exposure_column: str | None = None

    def read(self, seed: int) -> TrainingGraph:
        """Read the tables.

        Parameters
        ----------
        seed : int
            Seed of the random split.
        """
        table, edge_table = open_table(self.nodes, "nodes"), open_table(self.edges, "edges")
        extra = [name for name in (self.label_column, self.split_column, self.exposure_column) if name is not None]
        table.require([self.id_column], "id")
        table.require(extra, "label, split or exposure")
        recipe, notes = learn_features(table, self._features(table, {self.id_column, *extra}))
        ends = edge_columns(edge_table, self.source_column, self.target_column)
        rows = read_nodes(table, self.id_column, recipe, extra)
        y, classes, marked = self._labels(rows, table)
        if self.split_column is None:
            split = split_labelled(y, classes, seed)
        else:
            split = read_split(rows.columns[self.split_column], y, classes, table, self.split_column)
        data = _data(rows.x, read_edges(edge_table, *ends, rows.ids, self.directed), y, split)
        exposure = self._exposure(data, marked, recipe, ends)
        schema = self._schema(table, recipe, classes)
        return TrainingGraph(data, exposure, split, schema, notes)

    def _features(self, table: TableSource, taken: set[str]) -> list[str]:
        named = self.feature_columns
        if named is None:
            chosen = [name for name in table.columns if name.strip() and name not in taken]
            if not chosen:
                raise TableError(f"{table.name} has no feature columns, only {', '.join(sorted(taken))}")
            return chosen
        table.require(named, "feature")
        both = [name for name in named if name in taken]
        if both:
            raise TableError(f"the column {both[0]!r} cannot be a feature: it holds ids, labels, the split or exposure")
        if not named or len(set(named)) < len(named):
            raise TableError("no feature column is named, or one is named twice")
        return list(named)

    def _labels(self, rows: Nodes, table: TableSource) -> tuple[np.ndarray, list[Any], np.ndarray | None]:
        """Classes of the nodes; known OOD nodes are unlabelled, whatever the table says."""
        array = rows.columns[self.label_column]
        if self.exposure_column is None:
            return (*encode_labels(array, table, self.label_column), None)
        marked = read_marks(rows.columns[self.exposure_column], table, self.exposure_column)
        if not marked.any():
            raise TableError(f"{table.name}: column {self.exposure_column!r} marks no node")
        pa = pyarrow()
        import pyarrow.compute as pc

        cleared = pc.if_else(pa.array(marked), pa.scalar(None, array.type), array)
        return (*encode_labels(cleared, table, self.label_column), marked)

    def _exposure(
        self, data: Data, marked: np.ndarray | None, recipe: FeatureRecipe, ends: tuple[str, str]
    ) -> Data | None:
        if self.exposure_nodes is not None and marked is not None:
            raise TableError("give either a table of exposed nodes or a column that marks them, not both")
        if self.exposure_edges is not None and self.exposure_nodes is None:
            raise TableError("edges of exposed nodes were given, but not the nodes")
        if marked is not None:
            return Data(x=data.x, edge_index=data.edge_index, ood_mask=torch.from_numpy(marked))
        if self.exposure_nodes is None:
            return None
        table = open_table(self.exposure_nodes, "exposed nodes")
        table.require([self.id_column, *recipe.names], "exposure")
        rows = read_nodes(table, self.id_column, recipe)
        edge_index = np.empty((2, 0), dtype=np.int64)
        if self.exposure_edges is not None:
            edge_table = open_table(self.exposure_edges, "edges of exposed nodes")
            edge_index = read_edges(edge_table, *ends, rows.ids, self.directed)
        return Data(x=torch.from_numpy(rows.x), edge_index=torch.from_numpy(edge_index))

    def _schema(self, table: TableSource, recipe: FeatureRecipe, classes: list[Any]) -> TableSchema:
        return TableSchema(
            id_column=self.id_column,
            source_column=self.source_column,
            target_column=self.target_column,
            directed=self.directed,
            features=recipe,
            classes=tuple(classes),
            other_columns=tuple(n for n in table.columns if n and n != self.id_column and n not in recipe.names),
            named_features=self.feature_columns is not None,
        )


@dataclass(frozen=True)
class TrainingGraph:
    """The return value of `TrainingTables.read`.

    Parameters
    ----------
    data : torch_geometric.data.Data
        The graph, with classes and masks.
    exposure : torch_geometric.data.Data or None
        Known OOD nodes.
    split : Split
        The use of the labelled nodes.
    schema : TableSchema
        The schema to read further tables with.
    notes : list of str
        Notes for the user.
    """

    data: Data
    exposure: Data | None
    split: Split
    schema: TableSchema
    notes: list[str]


def _data(x: np.ndarray, edge_index: np.ndarray, y: np.ndarray, split: Split) -> Data:
    data = Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(edge_index), y=torch.from_numpy(y))
    for name, nodes in (
        ("train_mask", split.train),
        ("val_mask", split.validation),
        ("calibration_mask", split.calibration),
    ):
        data[name] = torch.zeros(len(y), dtype=torch.bool)
        data[name][torch.from_numpy(nodes)] = True
    return data
