"""The roles of columns: as given by the user, and as a fitted model reads further tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta, Struct

from oddnode._utils.checked_json import errors_in
from oddnode.detector import ModelFileError, checked, read_config
from oddnode.tables.columns import FeatureRecipe, WeightColumn
from oddnode.tables.reader import TableSource
from oddnode.tables.times import TrainUntil
from oddnode.tables.values import TableError, listed

_Share = Annotated[float, Meta(ge=0, le=1)]
_Label = bool | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | str


class TableOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The roles of the columns of a table of nodes and a table of edges.

    The command line, `TableModel.fit` and saved models share these options.
    """

    id_column: str  #: Ids of the nodes, text or integers.
    #: Column with labels; nodes without a label are part of the graph, but not trained on. ``""`` if there are none.
    label_column: str = ""
    #: Column with the types of the nodes, of which each has its own columns; empty cells of others are not missing.
    type_column: str | None = None
    unlabelled: tuple[str, ...] = ()  #: Labels that stand for "not labelled".
    feature_columns: tuple[str, ...] | None = None  #: Columns with features; all others if ``None``.
    drop_columns: tuple[str, ...] = ()  #: Columns to exclude from the features.
    category_columns: tuple[str, ...] = ()  #: Columns whose values are categories, even if they are numbers.
    #: Columns whose values are numbers; other strings in them count as missing.
    number_columns: tuple[str, ...] = ()
    decimal_comma: bool = False  #: Whether strings like ``"3,5"`` are numbers.
    encoding: str | None = None  #: Encoding of CSV files, for example ``"latin-1"``; UTF-8 if ``None``.
    #: Column with the sources of edges; if ``None``, ``source`` if ``target`` exists, too, or else the first column.
    source_column: str | None = None
    target_column: str | None = None  #: Column with the targets of edges, likewise.
    directed: bool = False  #: Whether to use edges in their direction only.
    #: Column with the weights of the edges; if ``None``, ``weight`` if there is such a column.
    weight_column: str | None = None
    unweighted: bool = False  #: Whether to ignore edge weights, even if there is a column ``weight``.
    #: Whether to leave out edges of nodes that are not in the table of nodes; if not, they are an error.
    ignore_unknown_edges: bool = False
    #: Column with train, validation or calibration; if ``None``, a random split of 40, 20 and 40 % of every label.
    split_column: str | None = None
    exposure_column: str | None = None  #: Column that marks the nodes known to be OOD.
    time_column: str | None = None  #: Column with the times of the rows: numbers, or dates and times.
    train_until: str | None = None  #: Last time to train on. Later rows are arrivals: nothing is learnt from them.

    def __post_init__(self) -> None:
        for name in ("unlabelled", "feature_columns", "drop_columns", "category_columns", "number_columns"):
            value = getattr(self, name)
            if value is not None:  # users may give lists
                msgspec.structs.force_setattr(self, name, tuple(value))

    @property
    def until(self) -> TrainUntil | None:
        """The last time of the rows to train on; ``None`` if rows have no times."""
        if self.time_column is None or self.train_until is None:
            return None
        return TrainUntil(self.time_column, self.train_until)


class TableSchema(TableOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options that a model was fitted with, and what was learnt about the columns. Saved with the model."""

    features: FeatureRecipe  #: How columns become features.
    weights: WeightColumn | None  #: The column with the weights of the edges; ``None`` if they have none.
    classes: Annotated[tuple[_Label, ...], Meta(min_length=1)]  #: The label of each class.
    other_columns: tuple[str, ...]  #: Known columns that are not features: labels, splits, constant columns.
    missing_shares: tuple[_Share, ...] = ()  #: The share of missing values of each feature column at fit.
    accuracy: _Share | None = None  #: The share of calibration rows whose label was predicted.

    def with_labels(
        self,
        label_column: str = "",
        unlabelled: Sequence[str] = (),
        ignore_unknown_edges: bool = False,
        encoding: str | None = None,
    ) -> Self:
        """The schema for further tables, with labels in another column; ``""`` for none.

        Parameters
        ----------
        label_column, unlabelled, ignore_unknown_edges, encoding
            As for `TableOptions`; the encoding by default as it was.
        """
        return msgspec.structs.replace(
            self,
            label_column=label_column,
            unlabelled=tuple(unlabelled),
            ignore_unknown_edges=ignore_unknown_edges,
            encoding=encoding or self.encoding,
            split_column=None,
            exposure_column=None,
        )

    def check_columns(self, table: TableSource, also: Sequence[str] = ()) -> list[str]:
        """Check that a table has the features that the model was fitted on; return notes on ignored columns.

        Parameters
        ----------
        table : TableSource
            A table of nodes to score.
        also : sequence of str
            Further columns that are used.
        """
        features = self.features.names
        known = {self.id_column, "", *features, *self.other_columns, *also}
        notes = []
        for part in table.parts:
            part.require([self.id_column], "id")
            existing = set(part.columns)
            if self.features.types is not None:
                part.require([self.features.types.column], "type")
                existing |= self.features.types.owners.keys()  # absent, if the table has no such rows
            missing = [name for name in features if name not in existing]
            if missing:
                raise TableError(
                    f"{part.name} lacks {len(missing)} ({listed(missing, 5)}) of the {len(features)} feature columns "
                    "that the model was fitted on; give a table with these columns"
                )
            extra = [name for name in part.columns if name not in known]
            if extra and self.feature_columns is None:
                notes.append(f"{part.name}: columns that the model was not fitted on are ignored: {listed(extra)}")
        return notes

    def to_json(self) -> dict[str, Any]:
        """The schema as a section of the model's config."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_json(cls, config: Any, num_features: Any, num_classes: Any) -> TableSchema:
        """Read a schema from the section of a model's config.

        Parameters
        ----------
        config : object
            Parsed JSON, as `to_json` returns it; everything is checked.
        num_features, num_classes : int
            Inputs and outputs of the model's network.
        """
        schema = checked(config, cls, "table")
        if len(set(map(type, schema.classes))) > 1:
            raise ModelFileError("table.classes mixes labels of different types, expected strings, numbers or booleans")
        schema.features.check()
        if (schema.time_column is None) != (schema.train_until is None):
            raise ModelFileError("table: time_column and train_until belong together, but one of them is missing")
        if schema.until is not None:
            try:
                _ = schema.until.last
            except TableError as error:
                raise ModelFileError(f"table: {error}") from None
        if schema.features.width != num_features or len(schema.classes) != num_classes:
            raise ModelFileError(
                f"the tables give {schema.features.width} features and {len(schema.classes)} classes, "
                f"but the network has {num_features} and {num_classes}"
            )
        return schema


def schema_of(folder: str | os.PathLike, config: Mapping[str, Any]) -> TableSchema:
    """Read the schema from the config of a saved model."""
    if "table" not in config:
        raise ModelFileError(
            f"{folder} has a detector that was not fitted on tables; use it from Python with Detector.load"
        )
    with errors_in(folder):
        return TableSchema.from_json(config["table"], config.get("num_features"), config.get("num_classes"))


def read_schema(folder: Path) -> TableSchema:
    """Read the schema of a saved model without building the model.

    Parameters
    ----------
    folder : Path
        The model's folder; its config is checked, its weights are not read.
    """
    return schema_of(folder, read_config(folder))
