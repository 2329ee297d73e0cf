"""Two tables as a graph to fit on: features are learnt, labels numbered, labelled nodes split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from oddnode.tables.arrivals import Arrivals, rows_and_edges
from oddnode.tables.columns import FeatureRecipe
from oddnode.tables.edge_weights import WeightColumn, weight_column_of
from oddnode.tables.edges import Edges, edge_columns, read_edges
from oddnode.tables.labels import Labels, encode_labels, read_marks
from oddnode.tables.learning import ReadAs, learn_features
from oddnode.tables.nodes import Nodes, read_nodes
from oddnode.tables.notes import notes_on_fitted_columns
from oddnode.tables.reader import ChosenRows, TableSource, open_table
from oddnode.tables.schema import TableSchema
from oddnode.tables.splits import Split, read_split, split_labelled
from oddnode.tables.summary import ColumnSummary, summary_of_features, summary_of_labels, summary_of_role
from oddnode.tables.table_graph import TableGraph, as_data
from oddnode.tables.times import TrainUntil
from oddnode.tables.used_rows import UsedRows
from oddnode.tables.values import TableError, listed, pyarrow, quoted

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["TrainingGraph", "TrainingTables"]


@dataclass(frozen=True)
class TrainingTables:
    """The tables to fit on, and which of their columns mean what.

    Parameters
    ----------
    nodes, edges : path, table in memory, or a list of these
        As for `oddnode.tables.open_table`.
    id_column : str
        Ids of the nodes, text or whole numbers.
    label_column : str
        Column with labels; nodes without a label are part of the graph, but not trained on.
    feature_columns : sequence of str or None
        Columns with features; all others if ``None``.
    drop_columns : sequence of str
        Columns that are no features.
    read_as : ReadAs
        Which feature columns are categories and which are numbers.
    unlabelled : sequence of str
        Labels that stand for "not labelled".
    source_column, target_column : str or None
        Columns with the ends of the edges; if ``None``, ``source`` and ``target``, or else the first two columns.
    directed : bool
        Whether to use edges in their direction only.
    ignore_unknown_edges : bool
        Whether to leave out edges of nodes that are not in the table of nodes; if not, they are an error.
    split_column : str or None
        Column with train, validation or calibration; if ``None``, a random split of 40, 20 and 40 % of every label.
    exposure_nodes, exposure_edges : path, table in memory, a list of these, or None
        Nodes that are known to be OOD, and the edges between them.
    exposure_column : str or None
        Column that marks the nodes known to be OOD.
    time_column, train_until : str or None
        The column with the times of the rows, and the last time of those to train on, as for
        `oddnode.tables.TrainUntil`. Later rows are arrivals: nothing of them is learnt.
    weight_column : str or None
        Column with the weights of the edges; if ``None``, ``weight`` if there is such a column.
    unweighted : bool
        Whether all edges count the same, whatever the columns.
    """

    nodes: Any
    edges: Any
    id_column: str
    label_column: str
    feature_columns: Sequence[str] | None = None
    drop_columns: Sequence[str] = ()
    read_as: ReadAs = field(default_factory=ReadAs)
    unlabelled: Sequence[str] = ()
    source_column: str | None = None
    target_column: str | None = None
    directed: bool = False
    ignore_unknown_edges: bool = False
    split_column: str | None = None
    exposure_nodes: Any = None
    exposure_edges: Any = None
    exposure_column: str | None = None
    time_column: str | None = None
    train_until: str | None = None
    weight_column: str | None = None
    unweighted: bool = False

    def check_columns(self) -> None:
        """Raise an error for names of columns that the tables do not have; only their headers are read."""
        table, edge_table = open_table(self.nodes, "nodes"), open_table(self.edges, "edges")
        self.read_as.check(self._features(table, {self.id_column, *self._roles(table)}))
        for part in edge_table.parts:
            edge_columns(part, self.source_column, self.target_column)
        self._weights(edge_table)

    def read(self, seed: int) -> TrainingGraph:
        """Read the tables.

        Parameters
        ----------
        seed : int
            Seed of the random split.
        """
        table, edge_table = open_table(self.nodes, "nodes"), open_table(self.edges, "edges")
        roles = self._roles(table)
        names = self._features(table, {self.id_column, *roles})
        is_arrival = self._arrivals(table)
        past = table if is_arrival is None else ChosenRows(table, ~is_arrival)
        recipe, statistics = learn_features(past, names, self.read_as)
        rows = read_nodes(table, self.id_column, recipe, list(roles))
        weights, weight_notes = self._weights(edge_table)
        edges = self._read_edges(edge_table, rows.ids, weights)
        every = rows, edges
        if is_arrival is not None:
            rows, edges = rows_and_edges(rows, edges, ~is_arrival)
        labels, marked = self._labels(rows, table)
        split = self._split(rows, labels, table, seed)
        data = _data(rows.x, edges, labels.y, split)
        used = UsedRows.of(rows.ids, split, rows.x, edges.index)
        notes = [*labels.notes, *notes_on_fitted_columns(statistics, recipe), *weight_notes, *edges.notes]
        if used is None:
            notes.append("too many rows are labelled for the model to remember which they are")
        arrivals = None
        if is_arrival is not None:
            arrivals = self._arrival_graph(*every, is_arrival, labels.classes, table.name)
            until = f"{self.train_until} ({self.time_column})"
            notes.append(
                f"{int(is_arrival.sum())} of {len(is_arrival)} rows are later than {until}; they and their "
                f"{arrivals.num_edges} edges are kept out of training"
                if is_arrival.any()
                else f"no row is later than {until}: all were there for training, and there are no arrivals to check"
            )
        return TrainingGraph(
            data=data,
            exposure=self._exposure(data, marked, recipe, weights),
            split=split,
            schema=self._schema(table, recipe, labels.classes, weights),
            used_rows=used,
            columns=self._summary(rows, labels, table) + summary_of_features(statistics, recipe),
            notes=notes,
            arrivals=arrivals,
        )

    def _roles(self, table: TableSource) -> dict[str, str]:
        """What the columns hold that are neither ids nor features, by name."""
        roles = {self.label_column: "label", self.split_column: "split", self.exposure_column: "exposure"}
        if (self.time_column is None) != (self.train_until is None):
            raise TableError("give both `time_column` and `train_until`, or neither")
        if self.time_column in (self.id_column, *roles) and self.time_column is not None:
            raise TableError(f"`time_column` is {self.time_column!r}, which holds other things")
        if self.exposure_nodes is not None and self.exposure_column is not None:
            raise TableError("give either `exposure_nodes` or `exposure_column`, not both")
        if self.exposure_edges is not None and self.exposure_nodes is None:
            raise TableError("`exposure_edges` were given, but not the nodes, `exposure_nodes`")
        for part in table.parts:
            part.require([self.id_column], "id")
            part.require([] if self.time_column is None else [self.time_column], "time")
        if self.time_column not in (self.feature_columns or ()):
            roles[self.time_column] = "time"
        for name, role in roles.items():
            if name is not None:
                table.require([name], role)
        return {name: role for name, role in roles.items() if name is not None}

    def _features(self, table: TableSource, taken: set[str]) -> list[str]:
        table.require(self.drop_columns, "such")
        named, taken = self.feature_columns, taken | set(self.drop_columns)
        if named is None:
            chosen = [name for name in table.columns if name.strip() and name not in taken]
            if not chosen:
                raise TableError(f"{table.name} has no feature columns, only {', '.join(sorted(taken))}")
        else:
            both = [name for name in named if name in taken]
            if both:
                raise TableError(
                    f"the column {both[0]!r} cannot be a feature: it holds ids, labels, the split or exposure, "
                    "or is dropped"
                )
            if not named or len(set(named)) < len(named):
                raise TableError("no feature column is named, or one is named twice")
            chosen = list(named)
        for part in table.parts:
            part.require(chosen, "feature")
        return chosen

    def _arrivals(self, table: TableSource) -> np.ndarray | None:
        """One boolean per row, True for those not to train on; ``None`` if rows have no times."""
        if self.time_column is None or self.train_until is None:
            return None
        is_arrival = TrainUntil(self.time_column, self.train_until).arrivals(table)
        if len(is_arrival) and is_arrival.all():
            raise TableError(
                f"{table.name}: no row is from {self.train_until} or earlier ({self.time_column}), so there is none to "
                "train on; give a later `train_until`"
            )
        return is_arrival

    def _arrival_graph(
        self, rows: Nodes, edges: Edges, is_arrival: np.ndarray, classes: Sequence[Any], where: str
    ) -> Arrivals:
        found = encode_labels(rows.columns[self.label_column], where, self.label_column, self.unlabelled)
        is_new = np.array([label not in set(classes) for label in found.classes])[found.y] & (found.y >= 0)
        is_known = ~is_new & (found.y >= 0)
        if self.exposure_column is not None:
            is_known &= ~read_marks(rows.columns[self.exposure_column], where, self.exposure_column)
        data = as_data(x=rows.x, edge_index=edges.index, edge_weight=edges.weight)
        num_directions = 1 if self.directed else 2
        num_all = edges.index.shape[1] // num_directions
        graph = TableGraph(rows.ids, data, num_all, rows.columns, where, [])
        num_edges = int(is_arrival[edges.index].any(axis=0).sum()) // num_directions
        return Arrivals(graph, is_arrival, is_known, is_new, num_edges)

    def _labels(self, rows: Nodes, table: TableSource) -> tuple[Labels, np.ndarray | None]:
        """Classes of the nodes; known OOD nodes are unlabelled, whatever the table says."""
        array, where = rows.columns[self.label_column], table.name
        labels = encode_labels(array, where, self.label_column, self.unlabelled)
        if self.exposure_column is None:
            return labels, None
        marked = read_marks(rows.columns[self.exposure_column], where, self.exposure_column)
        if not marked.any():
            raise TableError(f"{where}: column {self.exposure_column!r} marks no node")
        pa = pyarrow()
        import pyarrow.compute as pc

        cleared = pc.if_else(pa.array(marked), pa.scalar(None, array.type), array)
        rest = encode_labels(cleared, where, self.label_column, self.unlabelled)
        lost = [quoted(label) for label in labels.classes if label not in rest.classes]
        count = int((marked & (labels.y >= 0)).sum())
        if count:
            gone = f"; no other node has the label {listed(lost)}, so it is not known" if lost else ""
            rest.notes.append(f"the labels of {count} nodes that are marked as known to be OOD are not used{gone}")
        return rest, marked

    def _weights(self, table: TableSource) -> tuple[WeightColumn | None, list[str]]:
        ends = edge_columns(table.parts[0], self.source_column, self.target_column)
        return weight_column_of(table, ends, self.weight_column, self.unweighted, self.read_as.decimal_comma)

    def _read_edges(self, table: TableSource, ids: Any, weights: WeightColumn | None) -> Edges:
        ends = self.source_column, self.target_column
        return read_edges(table, ids, *ends, self.directed, self.ignore_unknown_edges, weights)

    def _split(self, rows: Nodes, labels: Labels, table: TableSource, seed: int) -> Split:
        if self.split_column is None:
            return split_labelled(labels.y, labels.classes, seed)
        return read_split(rows.columns[self.split_column], labels, rows.ids, table.name, self.split_column)

    def _exposure(
        self, data: Data, marked: np.ndarray | None, recipe: FeatureRecipe, weights: WeightColumn | None
    ) -> Data | None:
        if marked is not None:
            return as_data(x=data.x, edge_index=data.edge_index, edge_weight=data.edge_weight, ood_mask=marked)
        if self.exposure_nodes is None:
            return None
        table = open_table(self.exposure_nodes, "exposed nodes")
        for part in table.parts:
            part.require([self.id_column, *recipe.names], "exposure")
        rows = read_nodes(table, self.id_column, recipe)
        edges = Edges.none()
        if self.exposure_edges is not None:
            edges = self._read_edges(open_table(self.exposure_edges, "edges of exposed nodes"), rows.ids, weights)
        return as_data(x=rows.x, edge_index=edges.index, edge_weight=edges.weight)

    def _schema(
        self, table: TableSource, recipe: FeatureRecipe, classes: list[Any], weights: WeightColumn | None
    ) -> TableSchema:
        features = {self.id_column, *recipe.names}
        return TableSchema(
            id_column=self.id_column,
            source_column=self.source_column,
            target_column=self.target_column,
            directed=self.directed,
            weights=weights,
            features=recipe,
            classes=tuple(classes),
            other_columns=tuple(name for name in table.columns if name and name not in features),
            named_features=self.feature_columns is not None,
            time_column=self.time_column,
            train_until=self.train_until,
        )

    def _summary(self, rows: Nodes, labels: Labels, table: TableSource) -> list[ColumnSummary]:
        others = [
            summary_of_role(name, role, rows.columns[name], table.name)
            for name, role in (
                (self.split_column, "split"),
                (self.exposure_column, "exposure"),
                (self.time_column, "time"),
            )
            if name in rows.columns
        ]
        ids = summary_of_role(self.id_column, "id", rows.ids, table.name)
        return [ids, summary_of_labels(self.label_column, labels), *others]


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
    used_rows : UsedRows or None
        The ids of the labelled nodes, as hashes.
    columns : list of ColumnSummary
        How the columns were read.
    notes : list of str
        Notes for the user.
    arrivals : Arrivals or None
        The rows that came after those to train on; ``None`` if rows have no times.
    """

    data: Data
    exposure: Data | None
    split: Split
    schema: TableSchema
    used_rows: UsedRows | None
    columns: list[ColumnSummary]
    notes: list[str]
    arrivals: Arrivals | None = None


def _data(x: np.ndarray, edges: Edges, y: np.ndarray, split: Split) -> Data:
    masks = {name: np.zeros(len(y), dtype=bool) for name in ("train_mask", "val_mask", "calibration_mask")}
    for mask, nodes in zip(masks.values(), (split.train, split.validation, split.calibration), strict=True):
        mask[nodes] = True
    return as_data(x=x, edge_index=edges.index, edge_weight=edges.weight, y=y, **masks)
