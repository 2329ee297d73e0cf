"""What a model remembers of the tables it was fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oddnode.detector import ModelFileError
from oddnode.tables.columns import FeatureRecipe
from oddnode.tables.reader import Table, TableError

__all__ = ["TableSchema"]


@dataclass(frozen=True)
class TableSchema:
    """Which columns mean what, and what was learnt of them. Saved with the model."""

    id_column: str
    source_column: str | None
    target_column: str | None
    directed: bool
    features: FeatureRecipe
    classes: tuple[str | int | bool, ...]
    other_columns: tuple[str, ...]
    """Columns that are known and are no features: labels, splits, constant ones."""
    named_features: bool
    """Whether the user named the feature columns; if not, a column never seen before is an error."""

    def check_columns(self, table: Table, also: Sequence[str] = ()) -> None:
        """A table to score must have the features that the model was fitted on, no more (but ``also``) and no fewer."""
        table.require([self.id_column], "id")
        missing = [name for name in self.features.names if name not in table.columns]
        known = {self.id_column, "", *self.features.names, *self.other_columns, *also}
        extra = [] if self.named_features else [name for name in table.columns if name not in known]
        if not missing and not extra:
            return
        parts = []
        if missing:
            parts.append(f"lacks {len(missing)} ({', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''})")
        if extra:
            parts.append(f"has {len(extra)} more ({', '.join(extra[:5])}{', ...' if len(extra) > 5 else ''})")
        raise TableError(
            f"{table.path} {' and '.join(parts)} of the {len(self.features.names)} feature columns "
            "that the model was fitted on; give a table with the same columns"
        )

    def to_json(self) -> dict[str, Any]:
        """For the model's config."""
        return {
            "id_column": self.id_column,
            "source_column": self.source_column,
            "target_column": self.target_column,
            "directed": self.directed,
            "classes": list(self.classes),
            "other_columns": list(self.other_columns),
            "named_features": self.named_features,
            "features": self.features.to_json(),
        }

    @classmethod
    def from_json(cls, config: Any, num_features: int, num_classes: int) -> TableSchema:
        """From a model's config, everything checked."""
        kinds: dict[str, Any] = {
            "id_column": str,
            "source_column": (str, type(None)),
            "target_column": (str, type(None)),
            "directed": bool,
            "classes": list,
            "other_columns": list,
            "named_features": bool,
        }
        if not isinstance(config, dict) or config.keys() != {*kinds, "features"}:
            raise ModelFileError("the section 'table' of the config is damaged")
        for key, kind in kinds.items():
            if not isinstance(config[key], kind):
                raise ModelFileError(f"table.{key} is of type {type(config[key]).__name__}")
        classes = config["classes"]
        if len({type(c) for c in classes}) != 1 or not isinstance(classes[0], (str, int)):
            raise ModelFileError("table.classes is not a list of labels")
        if isinstance(classes[0], int) and any(abs(c) >= 2**63 for c in classes):
            raise ModelFileError("table.classes has a number that is too large")
        if not all(isinstance(name, str) for name in config["other_columns"]):
            raise ModelFileError("table.other_columns is not a list of names")
        features = FeatureRecipe.from_json(config["features"])
        if features.width != num_features or len(classes) != num_classes:
            raise ModelFileError(
                f"the tables give {features.width} features and {len(classes)} classes, "
                f"but the network has {num_features} and {num_classes}"
            )
        values = {key: config[key] for key in kinds}
        values |= {"classes": tuple(classes), "other_columns": tuple(config["other_columns"])}
        return cls(features=features, **values)
