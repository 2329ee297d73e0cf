"""Tables of any size as a graph folder: read batch by batch, as `TrainingTables` reads features, labels and edges."""

from __future__ import annotations

import glob
import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oddnode.tables.columns import ColumnCounts, FeatureRecipe
from oddnode.tables.edge_chunks import edge_chunks
from oddnode.tables.edge_weights import WeightColumn
from oddnode.tables.edges import note_on_repeated
from oddnode.tables.id_index import arrow_ids
from oddnode.tables.labels import Labels, encode_labels
from oddnode.tables.learning import learn_features
from oddnode.tables.nodes import check_unique, read_ids
from oddnode.tables.notes import notes_on_fitted_columns, notes_on_scored_columns
from oddnode.tables.reader import Table, TableSource, files_of, open_table
from oddnode.tables.schema import TableSchema
from oddnode.tables.splits import Split, read_split
from oddnode.tables.training_tables import TrainingTables
from oddnode.tables.values import TableError, arrow_errors, concatenated

if TYPE_CHECKING:
    from oddnode.large import FolderBuilder, GraphFolder, NodeChunk

__all__ = ["FolderTables", "PrepareReport", "files_matching"]

_MASKS = {"train_mask": "train", "val_mask": "validation", "calibration_mask": "calibration"}


@dataclass(frozen=True)
class PrepareReport:
    """A report on a graph folder.

    Parameters
    ----------
    num_nodes, num_edges, num_features : int
        Its size; edges are columns of an ``edge_index``.
    labels : list or None
        The label of each class; ``None`` if there are no labels.
    notes : list of str
        Notes for the user.
    """

    num_nodes: int
    num_edges: int
    num_features: int
    labels: list[str | int | bool] | None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, folder: GraphFolder) -> PrepareReport:
        """Report on a folder.

        Parameters
        ----------
        folder : GraphFolder
            The folder.
        """
        manifest = folder.manifest
        return cls(folder.num_nodes, folder.num_edges, folder.num_features, manifest.classes, manifest.notes)


def files_matching(patterns: Sequence[str | os.PathLike]) -> list[Path]:
    """Find files by their names or by patterns such as ``edges/*.parquet``.

    Parameters
    ----------
    patterns : sequence of path
        Names and patterns.

    Returns
    -------
    list of Path
        The files; those of a pattern in alphabetical order.
    """
    found: list[Path] = []
    for each in patterns:
        pattern = str(each)
        matches = sorted(glob.glob(pattern)) if glob.has_magic(pattern) and not Path(pattern).exists() else [pattern]
        if not matches:
            raise TableError(f"no file matches {pattern!r}")
        found += map(Path, matches)
    return found


@dataclass(frozen=True)
class FolderTables(TrainingTables):
    """The tables of a graph that is to be a folder, and which of their columns mean what.

    Features, labels and edges are read as `TrainingTables` does, which learns from them how to read other tables.
    Exposure and times are not supported.

    Parameters
    ----------
    nodes, edges, id_column, label_column, feature_columns, drop_columns, read_as, unlabelled
        As for `TrainingTables`; with a ``schema`` the columns are those of the schema.
    source_column, target_column, directed, weight_column, unweighted, ignore_unknown_edges, split_column
        As for `TrainingTables`.
    exposure_nodes, exposure_edges, exposure_column, time_column, train_until
        Must be ``None``.
    schema : TableSchema, optional
        How a fitted model reads tables, for a graph that is to be scored by it.
    """

    schema: TableSchema | None = None

    @classmethod
    def like(
        cls,
        schema: TableSchema,
        nodes: Any,
        edges: Any,
        label_column: str = "",
        unlabelled: Sequence[str] = (),
        ignore_unknown_edges: bool = False,
    ) -> FolderTables:
        """Read tables as a fitted model does.

        Parameters
        ----------
        schema : TableSchema
            That of the model.
        nodes, edges, unlabelled, ignore_unknown_edges
            As for `TrainingTables`.
        label_column : str
            Column with labels of known nodes, for a calibration; empty if there is none. Labels that the model does
            not know count as no label.
        """
        return cls(
            nodes,
            edges,
            schema.id_column,
            label_column,
            unlabelled=unlabelled,
            source_column=schema.source_column,
            target_column=schema.target_column,
            directed=schema.directed,
            ignore_unknown_edges=ignore_unknown_edges,
            schema=schema,
        )

    def check_columns(self) -> None:
        """As for `TrainingTables`; with a ``schema``, the tables must have its columns."""
        if self.schema is None:
            super().check_columns()
        else:
            self._recipe(open_table(self.nodes, "nodes"), [])
            self._weights(open_table(self.edges, "edges"))

    def prepare(self, out: str | os.PathLike, on_progress: Any = None) -> GraphFolder:
        """Build the folder, or go on with a build that was stopped.

        Parameters
        ----------
        out : path
            The folder: a new or empty one, or one whose build was not finished.
        on_progress : callable, optional
            Called with what is done, how much there is (``None`` if unknown), and a description.

        Returns
        -------
        GraphFolder
            The folder.
        """
        from oddnode.large import FolderBuilder  # here, because files and names of columns are checked without torch

        unsupported = ("exposure_nodes", "exposure_edges", "exposure_column", "time_column", "train_until")
        named = next((name for name in unsupported if getattr(self, name) is not None), None)
        if named is not None:
            raise TableError(f"`{named}` is not supported for graphs on disk")
        table, edge_table = open_table(self.nodes, "nodes"), open_table(self.edges, "edges")
        weights, on_weights = self._weights(edge_table)
        with FolderBuilder(out, self._fingerprint(), on_progress) as builder:
            on_repeated: list[str] = []
            if not builder.is_complete:
                facts: dict[str, Any] = {}
                notes: list[str] = []
                builder.add_nodes(lambda: self._node_chunks(table, weights, facts, notes), facts, notes)
                on_edges = list(on_weights)
                ends = self.source_column, self.target_column
                builder.add_edges(
                    lambda: edge_chunks(
                        edge_table, _ids_of(builder), *ends, weights, self.ignore_unknown_edges, on_edges
                    ),
                    both_directions=not self.directed,
                    simple=True,
                    total=_num_rows(edge_table),
                    notes=on_edges,
                )
                on_repeated = self._note_on_repeated(builder.num_repeated, weights)
            return builder.finish(on_repeated)

    def _weights(self, table: TableSource) -> tuple[WeightColumn | None, list[str]]:
        """As for `TrainingTables`, or the column of the schema; all parts of the table must have it."""
        weights, notes = super()._weights(table) if self.schema is None else (self.schema.weights, [])
        for part in table.parts:
            part.require([] if weights is None else [weights.name], "weight")
        return weights, notes

    def _note_on_repeated(self, count: int, weights: WeightColumn | None) -> list[str]:
        rows = count if self.directed else count // 2  # a row is an edge in each direction
        return [note_on_repeated(str(rows), self.directed)] if rows and weights is not None else []

    def _fingerprint(self) -> str:
        """Of the files and the settings; of tables in memory there is none, so that it is a new one every time."""
        files = files_of(self.nodes), files_of(self.edges)
        if not all(files):
            return secrets.token_hex(16)
        found = [[(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in own] for own in files]
        rest = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("nodes", "edges")}
        return hashlib.sha256(repr((found, sorted(rest.items()))).encode()).hexdigest()

    def _node_chunks(
        self, table: TableSource, weights: WeightColumn | None, facts: dict[str, Any], notes: list[str]
    ) -> Iterator[NodeChunk]:
        from oddnode.large import NodeChunk

        recipe, roles = self._recipe(table, notes)
        ids, columns = self._short_columns(table, list(roles))
        labels = self._read_labels(columns, table)
        notes += labels.notes
        split = self._masks(columns, labels, ids, table)
        facts["classes"] = labels.classes
        facts["table"] = (self.schema or self._schema(table, recipe, labels.classes, weights)).to_json()
        counts = [ColumnCounts() for _ in recipe.names]
        start = 0
        for batch in table.batches(recipe.names):
            stop = start + batch.num_rows
            x = recipe.encode(batch.arrays, batch, counts)
            own = ids.slice(start, stop - start).to_numpy(zero_copy_only=False)
            masks = {name: mask[start:stop] for name, mask in (split or {}).items()}
            yield NodeChunk(x, labels.y[start:stop] if len(labels.y) else None, own, masks)
            start = stop
        if self.schema is not None:
            notes += notes_on_scored_columns(recipe, counts)

    def _recipe(self, table: TableSource, notes: list[str]) -> tuple[FeatureRecipe, dict[str, str]]:
        if self.schema is not None:
            named = [self.label_column] if self.label_column else []
            table.require(named, "label")
            notes += self.schema.check_columns(table, named)
            return self.schema.features, dict.fromkeys(named, "label")
        roles = self._roles(table)
        recipe, statistics = learn_features(table, self._features(table, {self.id_column, *roles}), self.read_as)
        notes += notes_on_fitted_columns(statistics, recipe)
        return recipe, roles

    def _short_columns(self, table: TableSource, names: list[str]) -> tuple[Any, dict[str, Any]]:
        """The columns of which a node has one value, all of them in memory: ids, labels and the split."""
        ids, kept = [], {name: [] for name in names}  # type: ignore[var-annotated]
        for batch in table.batches([self.id_column, *names]):
            ids.append(read_ids(batch.arrays[0], batch, self.id_column))
            for name, array in zip(names, batch.arrays[1:], strict=True):
                kept[name].append(array)
        if not sum(map(len, ids)):
            raise TableError(f"{table.name} has a header, but no rows")
        with arrow_errors(f"{table.name} cannot be read"):
            joined = concatenated(ids)
            columns = {name: concatenated(arrays) for name, arrays in kept.items()}
        check_unique(joined, table, self.id_column)
        return joined, columns

    def _read_labels(self, columns: dict[str, Any], table: TableSource) -> Labels:
        """The labels, those of a fitted model numbered as there; no classes of nodes if they are not read."""
        if not self.label_column:
            assert self.schema is not None
            return Labels(np.empty(0, np.int64), list(self.schema.classes), [])
        labels = encode_labels(columns[self.label_column], table.name, self.label_column, self.unlabelled)
        if self.schema is None:
            return labels
        places = {str(label): number for number, label in enumerate(self.schema.classes)}
        numbers = np.array([*(places.get(str(label), -1) for label in labels.classes), -1])
        return Labels(numbers[labels.y], list(self.schema.classes), [])

    def _masks(
        self, columns: dict[str, Any], labels: Labels, ids: Any, table: TableSource
    ) -> dict[str, np.ndarray] | None:
        if self.split_column is None:
            return None
        split: Split = read_split(columns[self.split_column], labels, ids, table.name, self.split_column)
        masks = {}
        for name, part in _MASKS.items():
            masks[name] = np.zeros(len(labels.y), dtype=bool)
            masks[name][getattr(split, part)] = True
        return masks


def _ids_of(builder: FolderBuilder) -> Any:
    return arrow_ids(builder.id_arrays(), 0, builder.num_nodes)


def _num_rows(table: TableSource) -> int | None:
    """The number of rows, if the files say it."""
    from pyarrow import parquet

    paths = [part.path for part in table.parts if isinstance(part, Table)]
    if len(paths) < len(table.parts) or any(path.suffix.lower() not in (".parquet", ".pq") for path in paths):
        return None
    return sum(parquet.read_metadata(path).num_rows for path in paths)
