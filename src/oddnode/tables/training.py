"""Two tables as a graph to fit on, in memory or on disk: features are learnt, labels numbered, labelled nodes split."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from oddnode.tables.columns import ColumnCounts, FeatureRecipe, WeightColumn, notes_on_scored_columns
from oddnode.tables.edges import NO_EDGES, EdgeReader, Edges, ends_of_parts, note_on_repeated, read_edges
from oddnode.tables.graphs import Arrivals, Nodes, TableGraph, as_source, nodes_of, read_nodes
from oddnode.tables.known_values import Cells, KnownValues
from oddnode.tables.labels import NO_CLASSES, Labels, Split, encode_labels, read_marks, read_split, split_labelled
from oddnode.tables.learning import (
    ColumnStatistics,
    ColumnSummary,
    learn_features,
    notes_on_fitted_columns,
    summary_of_features,
)
from oddnode.tables.node_types import learn_types
from oddnode.tables.reader import ChosenRows, Table, TableSource, check_not_swapped, files_of, open_table
from oddnode.tables.schema import TableOptions, TableSchema
from oddnode.tables.used_rows import UsedRows, arrow_ids
from oddnode.tables.values import TableError, as_text, listed, pa, pc, quoted

if TYPE_CHECKING:
    from pathlib import Path

    from oddnode.large import GraphFolder, NodeChunk

_WITHOUT_LABELS = (
    "there is no `label_column`, so nothing is predicted, and rows are compared with some that were drawn at random. "
    "These may be odd, too: the false-alarm rate is the share of all such rows that is flagged, odd ones included. "
    "If a column holds labels, name it: now it counts as a feature"
)


@dataclass(frozen=True)
class TrainingGraph:
    """A graph to fit on, in memory or on disk."""

    data: Any  # The graph, with classes and masks
    exposure: SimpleNamespace | None
    split: Split  # The use of the labelled nodes
    schema: TableSchema  # The schema to read further tables with
    used_rows: UsedRows | None  # The ids of the labelled nodes, as hashes
    columns: list[ColumnSummary]  # How the columns were read
    notes: list[str]  # Notes for the user
    arrivals: Arrivals | None = None  # The rows later than the training rows; `None` if rows have no times
    known: KnownValues | None = None  # What the labelled rows have in each column; `None` for a graph on disk


@dataclass(frozen=True)
class TrainingTables:
    """The tables to fit on. Files are opened once, when they are first needed."""

    nodes: Any  #: `nodes`, `edges`: as for `oddnode.tables.open_table`.
    edges: Any
    options: TableOptions  #: The roles of their columns; a `TableSchema` reads tables as its model does, for `prepare`.
    #: `exposure_nodes`, `exposure_edges`: nodes that are known to be OOD, and the edges between them.
    exposure_nodes: Any = None
    exposure_edges: Any = None

    @cached_property
    def columns(self) -> list[ColumnSummary]:
        """How `prepare` read the columns: empty before it, with a model's columns, and where it found them written."""
        return []

    @cached_property
    def _table(self) -> TableSource:
        return nodes_of(self.nodes, self.options)

    @cached_property
    def _edge_table(self) -> TableSource:
        return open_table(self.edges, "edges", self.options.encoding)

    def check_columns(self) -> None:
        """Raise an error for columns that the tables lack; only their headers are read."""
        self._feature_columns()
        self._weights()

    def read(self, seed: int) -> TrainingGraph:
        """Read the tables into memory.

        Parameters
        ----------
        seed : int
            Seed of the random split.
        """
        options, table = self.options, self._table
        names, roles = self._feature_columns()
        is_arrival, times = self._arrivals_and_times()
        past = table if is_arrival is None else ChosenRows(table, ~is_arrival)
        recipe, statistics = self._learn(past, names)
        rows = read_nodes(table, options.id_column, recipe, list(roles))
        weights, weight_notes = self._weights()
        edges = read_edges(self._edge_table, rows.ids, options, weights)
        all_rows, all_edges = rows, edges
        if is_arrival is not None:
            rows, edges = rows.filter(~is_arrival), edges.between(~is_arrival)
        labels, marked = self._labels(rows.columns, len(rows.x))
        recipe = recipe.with_profiles([(rows.x, labels.y)], len(labels.classes))
        if recipe.fills(all_rows.counts):
            all_rows = read_nodes(table, options.id_column, recipe, list(roles))
            rows = all_rows if is_arrival is None else all_rows.filter(~is_arrival)
        split = self._split(rows, labels, seed, times)
        data = as_source(
            x=rows.x, edge_index=edges.index, edge_weight=edges.weight, y=labels.y, **split.masks(len(rows.x))
        )
        data.directed = options.directed
        used = UsedRows.of(rows.ids, split, rows.x, edges.index)
        notes = [*rows.notes, *labels.notes, *notes_on_fitted_columns(statistics, recipe), *weight_notes, *edges.notes]
        if recipe.types is not None:
            types = recipe.types.with_labels(recipe, rows.x[labels.y >= 0])
            recipe = msgspec.structs.replace(recipe, types=types)
            notes += types.notes(recipe, rows.x, rows.counts)
        if used is None:
            notes.append("too many rows are labelled for the model to remember which they are")
        arrivals = None
        if is_arrival is not None:
            arrivals = self._arrivals(all_rows, all_edges, is_arrival, labels.classes)
            notes.append(self._note_on_arrivals(arrivals))
            notes += [] if options.until is None else options.until.notes_on_zones(table)
        return TrainingGraph(
            data=data,
            exposure=self._exposure(data, marked, recipe, weights),
            split=split,
            schema=self._fitted_schema(recipe, statistics, labels.classes, weights),
            used_rows=used,
            columns=self._summary(rows, labels) + summary_of_features(statistics, recipe),
            notes=notes,
            arrivals=arrivals,
            known=self._known(all_rows, recipe, is_arrival, labels, split),
        )

    def _learn(self, table: TableSource, names: Sequence[str]) -> tuple[FeatureRecipe, list[ColumnStatistics]]:
        options, kind = self.options, self.options.type_column
        categories = [*options.category_columns, *([] if kind is None else [kind])]
        recipe, statistics = learn_features(table, names, categories, options.number_columns, options.decimal_comma)
        return recipe if kind is None else learn_types(table, kind, recipe, statistics), statistics

    @staticmethod
    def _known(
        rows: Nodes, recipe: FeatureRecipe, is_arrival: np.ndarray | None, labels: Labels, split: Split
    ) -> KnownValues:
        used = np.sort(np.concatenate([split.train, split.validation, split.calibration]))
        places = np.arange(len(rows.x)) if is_arrival is None else np.flatnonzero(~is_arrival)
        return KnownValues.of(Cells(recipe, rows.x, rows.counts), places[used], labels.y[used], len(labels.classes))

    def _feature_columns(self) -> tuple[list[str], dict[str, str]]:
        """The names of the feature columns, and the roles of the columns that are neither ids nor features."""
        options, table = self.options, self._table
        names = [options.label_column] if options.label_column else []
        check_not_swapped(table, self._edge_table, [options.id_column, *names])
        if isinstance(options, TableSchema):
            labels = [options.label_column] if options.label_column else []
            table.require(labels, "label")
            options.check_columns(table, labels)
            return options.features.names, dict.fromkeys(labels, "label")
        if self.exposure_nodes is not None and options.exposure_column is not None:
            raise TableError("give either `exposure_nodes` or `exposure_column`, not both")
        if self.exposure_edges is not None and self.exposure_nodes is None:
            raise TableError("`exposure_edges` were given, but not the nodes, `exposure_nodes`")
        roles = {options.label_column: "label", options.split_column: "split", options.exposure_column: "exposure"}
        time = options.time_column
        if (time is None) != (options.train_until is None):
            raise TableError("give both `time_column` and `train_until`, or neither")
        if time is not None and time in (options.id_column, *roles):
            raise TableError(f"`time_column` is {time!r}, which has another role")
        for part in table.parts:
            part.require([options.id_column], "id")
            part.require([] if time is None else [time], "time")
        if time not in (options.feature_columns or ()):
            roles[time] = "time"
        named = {name: role for name, role in roles.items() if name}
        for name, role in named.items():
            table.require([name], role)
        return self._chosen_features(named), named

    def _chosen_features(self, roles: dict[str, str]) -> list[str]:
        options, table = self.options, self._table
        table.require(options.drop_columns, "such")
        named, taken = options.feature_columns, {options.id_column, *roles, *options.drop_columns}
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
        kind = options.type_column
        for part in table.parts:
            part.require(chosen if kind is None else [kind], "feature" if kind is None else "type")
        if kind is not None and kind not in chosen:
            raise TableError(f"`type_column` is {kind!r}, which has another role or is no feature")
        for argument in ("category_columns", "number_columns"):
            other = sorted(set(getattr(options, argument)) - set(chosen))
            if other:
                raise TableError(f"`{argument}` names {other[0]!r}, which is not a feature column")
        both = sorted(set(options.category_columns) & set(options.number_columns))
        if both:
            raise TableError(f"{both[0]!r} is in both `category_columns` and `number_columns`")
        return chosen

    def _weights(self) -> tuple[WeightColumn | None, list[str]]:
        """The column of weights: the named one, or else ``weight`` if there is one; and a note on the choice."""
        options, table = self.options, self._edge_table
        (ends, *_), _ = ends_of_parts(table, options)
        if isinstance(options, TableSchema):
            for part in table.parts:
                part.require([] if options.weights is None else [options.weights.name], "weight")
            return options.weights, []
        name = options.weight_column
        if name is not None and options.unweighted:
            raise TableError("give either `weight_column` or `unweighted`, not both")
        if name in ends:
            raise TableError(f"`weight_column` is {name!r}, which holds ids")
        if options.unweighted or (name is None and ("weight" not in table.columns or "weight" in ends)):
            return None, []
        note = "the column 'weight' of the edges holds their weights; `unweighted` leaves it out"
        for part in table.parts:
            part.require([name or "weight"], "weight")
        return WeightColumn(name or "weight", options.decimal_comma), [] if name is not None else [note]

    def _fitted_schema(
        self,
        recipe: FeatureRecipe,
        statistics: Sequence[ColumnStatistics],
        classes: Sequence[Any],
        weights: WeightColumn | None,
    ) -> TableSchema:
        options, features = msgspec.structs.asdict(self.options), {self.options.id_column, *recipe.names}
        if self.options.directed:  # so that no further table is read in the other direction
            (ends, *_), _ = ends_of_parts(self._edge_table, self.options)
            options |= {"source_column": ends[0], "target_column": ends[1]}
        missing = {column.name: (column.missing + column.infinite) / column.rows for column in statistics}
        return TableSchema(
            **options,
            features=recipe,
            weights=weights,
            classes=tuple(classes),
            other_columns=tuple(name for name in self._table.columns if name and name not in features),
            missing_shares=tuple(missing[name] for name in recipe.names),
        )

    def _summary(self, rows: Nodes, labels: Labels) -> list[ColumnSummary]:
        """Summaries of the columns that are not features."""
        options, summaries = self.options, list[ColumnSummary]()
        others = {"split": options.split_column, "exposure": options.exposure_column, "time": options.time_column}
        for role, name in {"id": options.id_column, "label": options.label_column, **others}.items():
            if not name:
                continue
            if role == "label":
                different, used = len(labels.classes), int((labels.y >= 0).sum())
            elif role == "id" or name in rows.columns:
                values = as_text(rows.ids if role == "id" else rows.columns[str(name)], self._table.name, str(name))
                different, used = len(values.drop_null().unique()), len(values) - values.null_count
            else:
                continue
            missing = len(rows.ids) - used
            summaries.append(ColumnSummary(str(name), role, f"{different} different", used, missing))
        return summaries

    def _encoded(self, array: Any) -> Labels:
        return encode_labels(array, self._table.name, self.options.label_column, self.options.unlabelled)

    def _marked(self, columns: dict[str, Any]) -> np.ndarray | None:
        """The nodes that are marked as known to be OOD; ``None`` if no column marks them."""
        name = self.options.exposure_column
        return None if name is None else read_marks(columns[name], self._table.name, name)

    def _labels(self, columns: dict[str, Any], num_rows: int) -> tuple[Labels, np.ndarray | None]:
        """Classes of the nodes; known OOD nodes are unlabelled, whatever the table says."""
        if not self.options.label_column:
            return Labels(np.zeros(num_rows, np.int64), list(NO_CLASSES), [_WITHOUT_LABELS]), self._marked(columns)
        array = columns[self.options.label_column]
        labels, marked = self._encoded(array), self._marked(columns)
        if marked is None:
            return labels, None
        if not marked.any():
            raise TableError(f"{self._table.name}: column {self.options.exposure_column!r} marks no node")
        rest = self._encoded(pc.if_else(pa.array(marked), pa.scalar(None, array.type), array))
        lost = [quoted(label) for label in labels.classes if label not in rest.classes]
        count = int((marked & (labels.y >= 0)).sum())
        if count:
            gone = f"; no other node has the label {listed(lost)}, so the model does not know it" if lost else ""
            rest.notes.append(f"the labels of {count} nodes that are marked as known to be OOD are not used{gone}")
        return rest, marked

    def _split(self, rows: Nodes, labels: Labels, seed: int, times: np.ndarray | None = None) -> Split:
        name = self.options.split_column
        if name is None and not self.options.label_column:
            from oddnode.graph import split_unlabelled  # imports torch

            return Split(*split_unlabelled(len(rows.x), seed))
        if name is None:
            return split_labelled(labels.y, labels.classes, seed, times)
        return read_split(rows.columns[name], labels, rows.ids, self._table.name, name)

    def _arrivals_and_times(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Whether each row is an arrival, and the times of the others; ``None`` if rows have no times."""
        until = self.options.until
        if until is None:
            return None, None
        times = until.times(self._table)
        is_arrival = (times > until.last).astype(bool)
        if len(is_arrival) and is_arrival.all():
            raise TableError(
                f"{self._table.name}: no row is from {until.value} or earlier ({until.column}), so there is none to "
                "train on; give a later `train_until`"
            )
        return is_arrival, times[~is_arrival]

    def _arrivals(self, rows: Nodes, edges: Edges, is_arrival: np.ndarray, classes: Sequence[Any]) -> Arrivals:
        is_new, is_known, marked = np.zeros_like(is_arrival), np.zeros_like(is_arrival), self._marked(rows.columns)
        if self.options.label_column:
            labels = self._encoded(rows.columns[self.options.label_column])
            is_new = np.array([label not in set(classes) for label in labels.classes])[labels.y] & (labels.y >= 0)
            is_known = ~is_new & (labels.y >= 0)
        if marked is not None:
            is_known &= ~marked
        data = as_source(x=rows.x, edge_index=edges.index, edge_weight=edges.weight)
        directions = 1 if self.options.directed else 2
        graph = TableGraph(rows.ids, data, edges.index.shape[1] // directions, rows.columns, self._table.name, [])
        num_edges = int(is_arrival[edges.index].any(axis=0).sum()) // directions
        return Arrivals(graph, is_arrival, is_known, is_new, num_edges)

    def _note_on_arrivals(self, arrivals: Arrivals) -> str:
        count, until = int(arrivals.is_arrival.sum()), f"{self.options.train_until} ({self.options.time_column})"
        if not count:
            return f"no row is later than {until}: all were there for training, and there are no arrivals to check"
        recent = "" if self.options.split_column else "; the most recent labelled rows before are for calibration"
        return (
            f"{count} of {len(arrivals.is_arrival)} rows are later than {until}; they and their "
            f"{arrivals.num_edges} edges are kept out of training{recent}"
        )

    def _exposure(
        self, data: SimpleNamespace, marked: np.ndarray | None, recipe: FeatureRecipe, weights: WeightColumn | None
    ) -> SimpleNamespace | None:
        if marked is not None:
            return as_source(x=data.x, edge_index=data.edge_index, edge_weight=data.edge_weight, ood_mask=marked)
        if self.exposure_nodes is None:
            return None
        table = open_table(self.exposure_nodes, "exposed nodes", self.options.encoding)
        index, weight = np.empty((2, 0), dtype=np.int64), None
        for part in table.parts:
            part.require([self.options.id_column, *recipe.names], "exposure")
        rows = read_nodes(table, self.options.id_column, recipe)
        if self.exposure_edges is not None:
            edge_table = open_table(self.exposure_edges, "edges of exposed nodes", self.options.encoding)
            edges = read_edges(edge_table, rows.ids, self.options, weights)
            index, weight = edges.index, edges.weight
        return as_source(x=rows.x, edge_index=index, edge_weight=weight)

    def prepare(self, out: str | os.PathLike, on_progress: Any = None) -> GraphFolder:
        """Write the graph to a folder, with little memory, or resume an interrupted run.

        Exposure and times are not supported.

        Parameters
        ----------
        out : path
            The folder.
        on_progress : callable, optional
            Called with the work done, the total (or ``None``), and a description.
        """
        from oddnode.large import FolderBuilder  # here, so that files and column names are checked without torch

        self._check_supported()
        weights, edge_notes = self._weights()
        with FolderBuilder(out, self._fingerprint(), on_progress) as builder:
            repeated: list[str] = []
            if not builder.is_complete:
                facts: dict[str, Any] = {}
                notes: list[str] = []
                builder.add_nodes(lambda: self._node_chunks(weights, facts, notes), facts, notes)

                def chunks() -> Iterator[Any]:
                    ids = arrow_ids(builder.id_arrays(), 0, builder.num_nodes)
                    reader = EdgeReader(self._edge_table, ids, self.options, weights)
                    for pairs, weight in reader.chunks(by_batch=False):
                        yield pairs if weight is None else (pairs, weight)
                    edge_notes.extend(reader.notes)

                builder.add_edges(
                    chunks,
                    both_directions=not self.options.directed,
                    simple=True,
                    total=self._num_edge_rows(),
                    notes=edge_notes,
                )
                # A row is an edge in each direction.
                rows = builder.num_repeated if self.options.directed else builder.num_repeated // 2
                if not builder.num_edges:
                    repeated = [NO_EDGES]
                elif rows and weights is not None:
                    repeated = [note_on_repeated(str(rows), self.options.directed)]
            if self._are_files and self._fingerprint() != builder.made_from:
                raise TableError(f"a file of nodes or edges changed while {out} was prepared; prepare it again")
            return builder.finish(repeated)

    def _check_supported(self) -> None:
        names = ("exposure_column", "time_column", "train_until")
        given: dict[str, Any] = (
            {} if isinstance(self.options, TableSchema) else {name: getattr(self.options, name) for name in names}
        )
        given |= {"exposure_nodes": self.exposure_nodes, "exposure_edges": self.exposure_edges}
        for name, value in given.items():
            if value is not None:
                raise TableError(f"`{name}` is not supported for graphs on disk")

    def _num_edge_rows(self) -> int | None:
        """The number of rows, if the files state it."""
        counts = [part.file.num_rows if isinstance(part, Table) else None for part in self._edge_table.parts]
        return None if None in counts else sum(filter(None, counts))

    @property
    def _are_files(self) -> bool:
        return all(isinstance(part, Table) for part in [*self._table.parts, *self._edge_table.parts])

    def _fingerprint(self) -> str:
        """A hash of the files and the options; for queries and tables in memory, a new one every time."""
        if not self._are_files:
            return secrets.token_hex(16)
        files = files_of(self._table), files_of(self._edge_table)
        stats = [[(str(path.resolve()), path.stat().st_size, *_times(path)) for path in own] for own in files]
        return hashlib.sha256(repr((stats, self.options)).encode()).hexdigest()

    def _node_chunks(
        self, weights: WeightColumn | None, facts: dict[str, Any], notes: list[str]
    ) -> Iterator[NodeChunk]:
        from oddnode.large import NodeChunk

        options, (names, roles) = self.options, self._feature_columns()
        if isinstance(options, TableSchema):
            recipe, statistics = options.features, list[ColumnStatistics]()
            notes += options.check_columns(self._table, list(roles))
        else:
            recipe, statistics = self._learn(self._table, names)
        rows = read_nodes(self._table, self.options.id_column, FeatureRecipe(()), list(roles))
        labels = self._labels_on_disk(rows.columns)
        if not isinstance(options, TableSchema):
            self.columns[:] = self._summary(rows, labels) + summary_of_features(statistics, recipe)
            recipe = recipe.with_profiles(self._encoded_chunks(recipe, labels.y), len(labels.classes))
            if recipe.types is not None:
                chunks = self._encoded_chunks(recipe, labels.y)
                kinds = {kind for x, y in chunks for kind in recipe.types.with_labels(recipe, x[y >= 0]).labelled}
                types = msgspec.structs.replace(recipe.types, labelled=tuple(sorted(kinds)))
                recipe = msgspec.structs.replace(recipe, types=types)
            notes += notes_on_fitted_columns(statistics, recipe)
        notes += rows.notes + labels.notes
        masks = {} if self.options.split_column is None else self._split(rows, labels, 0).masks(len(labels.y))
        schema = options
        if not isinstance(schema, TableSchema):
            schema = self._fitted_schema(recipe, statistics, labels.classes, weights)
        facts |= {"classes": labels.classes, "table": schema.to_json()}
        counts, start = [ColumnCounts() for _ in recipe.names], 0
        for x, y in self._encoded_chunks(recipe, labels.y, counts):
            chunk = slice(start, start + len(x))
            yield NodeChunk(
                x,
                y if len(labels.y) else None,
                rows.ids.slice(start, len(x)).to_numpy(zero_copy_only=False),
                {name: mask[chunk] for name, mask in masks.items()},
            )
            start = chunk.stop
        if schema is options:
            notes += notes_on_scored_columns(recipe, counts)

    def _encoded_chunks(
        self, recipe: FeatureRecipe, y: np.ndarray, counts: Sequence[ColumnCounts] | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Features and labels, batch by batch."""
        counts, start = counts or [ColumnCounts() for _ in recipe.names], 0
        for batch in self._table.batches(recipe.names):
            yield recipe.encode(batch.arrays, batch, counts), y[start : start + batch.num_rows]
            start += batch.num_rows

    def _labels_on_disk(self, columns: dict[str, Any]) -> Labels:
        """The labels, numbered as in the schema if there is one; no classes if there is no column of labels."""
        options = self.options
        if not isinstance(options, TableSchema):
            return self._encoded(columns[options.label_column])
        classes = list(options.classes)
        if not options.label_column:
            return Labels(np.empty(0, np.int64), classes, [])
        labels = self._encoded(columns[options.label_column])
        numbers = {str(label): number for number, label in enumerate(classes)}
        renumbered = np.array([*(numbers.get(str(label), -1) for label in labels.classes), -1])
        return Labels(renumbered[labels.y], classes, [])


def _times(path: Path) -> tuple[int, int]:
    """When a file was written, and when anything about it changed: the first of these can be set by anybody."""
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_ctime_ns
