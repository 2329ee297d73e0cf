"""The schema of the tables that a model was fitted on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from oddnode.detector import ModelFileError, checked, read_summary
from oddnode.tables.columns import FeatureRecipe
from oddnode.tables.edge_weights import WeightColumn
from oddnode.tables.reader import TableSource
from oddnode.tables.times import TrainUntil
from oddnode.tables.values import TableError, listed

__all__ = ["TableSchema", "read_schema", "schema_of"]

_Label = bool | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | str


class TableSchema(Struct, frozen=True, forbid_unknown_fields=True):
    """The roles of the columns and their encoding. Saved with the model.

    Parameters
    ----------
    id_column : str
        Ids of the nodes.
    source_column, target_column : str or None
        Columns with the ends of the edges; ``None`` if the user did not name them.
    directed : bool
        Whether edges are used in their direction only.
    weights : WeightColumn or None
        The column with the weights of the edges; ``None`` if they have none.
    features : FeatureRecipe
        How columns become features.
    classes : tuple of str, int or bool
        The label of each class.
    other_columns : tuple of str
        Known columns that are not features: labels, splits, constant columns.
    named_features : bool
        Whether the user named the feature columns; if not, columns that are ignored get a note.
    time_column, train_until : str or None
        The column with the times of the rows, and the last time of those that were trained on, as for
        `oddnode.tables.TrainUntil`.
    """

    id_column: str
    source_column: str | None
    target_column: str | None
    directed: bool
    weights: WeightColumn | None
    features: FeatureRecipe
    classes: Annotated[tuple[_Label, ...], Meta(min_length=1)]
    other_columns: tuple[str, ...]
    named_features: bool
    time_column: str | None
    train_until: str | None

    @property
    def until(self) -> TrainUntil | None:
        """The last time of the rows that were trained on; ``None`` if rows have no times."""
        if self.time_column is None or self.train_until is None:
            return None
        return TrainUntil(self.time_column, self.train_until)

    def check_columns(self, table: TableSource, also: Sequence[str] = ()) -> list[str]:
        """Check that a table has the features that the model was fitted on.

        Parameters
        ----------
        table : TableSource
            A table of nodes to score.
        also : sequence of str
            Further columns that are used.

        Returns
        -------
        list of str
            Notes on columns that are ignored.
        """
        features = self.features.names
        known = {self.id_column, "", *features, *self.other_columns, *also}
        notes = []
        for part in table.parts:
            part.require([self.id_column], "id")
            existing = set(part.columns)
            missing = [name for name in features if name not in existing]
            if missing:
                raise TableError(
                    f"{part.name} lacks {len(missing)} ({listed(missing, 5)}) of the {len(features)} feature columns "
                    "that the model was fitted on; give a table with these columns"
                )
            extra = [name for name in part.columns if name not in known]
            if extra and not self.named_features:
                notes.append(f"{part.name}: columns that the model was not fitted on are ignored: {listed(extra)}")
        return notes

    def to_json(self) -> dict[str, Any]:
        """The schema as a section of the model's config."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_json(cls, config: Any, num_features: int, num_classes: int) -> TableSchema:
        """Read a schema from the section of a model's config.

        Parameters
        ----------
        config : object
            Parsed JSON, as `to_json` returns it; everything is checked.
        num_features, num_classes : int
            Inputs and outputs of the model's network.
        """
        schema = checked(config, cls, "table")
        if len({type(label) for label in schema.classes}) > 1:
            raise ModelFileError("table.classes mixes labels of different types, expected texts, numbers or booleans")
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


def schema_of(folder: str | os.PathLike, config: Mapping[str, Any], num_features: int, num_classes: int) -> TableSchema:
    """Read the schema from the config of a saved model.

    Parameters
    ----------
    folder : path
        The model's folder, for messages.
    config : dict
        Its whole config.
    num_features, num_classes : int
        As for `TableSchema.from_json`.
    """
    if "table" not in config:
        raise ModelFileError(
            f"{folder} has a detector that was not fitted on tables; use it from Python with Detector.load"
        )
    try:
        return TableSchema.from_json(config["table"], num_features, num_classes)
    except ModelFileError as error:
        raise ModelFileError(f"{folder}: {error}") from None


def read_schema(folder: Path) -> TableSchema:
    """Read the schema of a saved model without building the model.

    Parameters
    ----------
    folder : Path
        The model's folder; its files are checked.
    """
    raw, config, _ = read_summary(folder)
    return schema_of(folder, raw, config.num_features, config.num_classes)
