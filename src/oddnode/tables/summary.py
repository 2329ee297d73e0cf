"""One line per column: how it was read, how many values it has and how many are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oddnode.tables.columns import FeatureRecipe
from oddnode.tables.labels import Labels
from oddnode.tables.learning import ColumnStatistics
from oddnode.tables.values import as_text

__all__ = ["ColumnSummary", "summary_of_features", "summary_of_labels", "summary_of_role"]


@dataclass(frozen=True)
class ColumnSummary:
    """How `TableModel.fit` read a column.

    Parameters
    ----------
    name : str
        The column.
    read_as : str
        ``"id"``, ``"label"``, ``"split"``, ``"exposure"``, ``"number"``, ``"category"`` or ``"constant"``.
    detail : str
        The range of numbers, or the number of different values.
    num_values, num_missing : int
        Numbers of rows with and without a value.
    """

    name: str
    read_as: str
    detail: str
    num_values: int
    num_missing: int

    def __str__(self) -> str:
        detail = f", {self.detail}" if self.detail else ""
        return f"{self.read_as}{detail}, {self.num_values} values, {self.num_missing} missing"


def summary_of_features(columns: Sequence[ColumnStatistics], recipe: FeatureRecipe) -> list[ColumnSummary]:
    """Summarise the feature columns.

    Parameters
    ----------
    columns : sequence of ColumnStatistics
        Their statistics.
    recipe : FeatureRecipe
        What was learnt from them.
    """
    used = set(recipe.names)
    found = []
    for column in columns:
        kind, detail = "number", f"{column.low:g} to {column.high:g}"
        if column.name not in used:
            kind, detail = "constant", ""
        elif column.is_text:
            kind, detail = "category", f"{len(column.texts)} different"
        missing = column.missing + column.infinite
        found.append(ColumnSummary(column.name, kind, detail, column.rows - missing, missing))
    return found


def summary_of_labels(name: str, labels: Labels) -> ColumnSummary:
    """Summarise the labels that are used.

    Parameters
    ----------
    name : str
        Their column.
    labels : Labels
        The labels.
    """
    used = int((labels.y >= 0).sum())
    return ColumnSummary(name, "label", f"{len(labels.classes)} different", used, len(labels.y) - used)


def summary_of_role(name: str, role: str, array: Any, where: str) -> ColumnSummary:
    """Summarise a column that is no feature.

    Parameters
    ----------
    name, role : str
        The column, and what it holds.
    array : pyarrow.Array
        Its values.
    where : str
        Its table, for messages.
    """
    texts = as_text(array, where, name)
    detail = f"{len(texts.drop_null().unique())} different"
    return ColumnSummary(name, role, detail, len(texts) - texts.null_count, texts.null_count)
