"""Several types of nodes in one table: a column that a type does not have is absent there, not missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct

from oddnode.tables.values import TableError, as_text, listed, missing_to_null, pa, pc

if TYPE_CHECKING:
    from oddnode.tables.columns import ColumnCounts, FeatureRecipe
    from oddnode.tables.learning import ColumnStatistics
    from oddnode.tables.reader import Batch, TableSource


class NodeTypes(Struct, frozen=True, forbid_unknown_fields=True):
    """Which types of nodes have which columns. Saved with the model."""

    column: str  #: The column with the types.
    owners: dict[str, tuple[str, ...]]  #: By column, the types that had values in it at fit; others have all types.
    labelled: tuple[str, ...] = ()  #: The types with labels; rows of others are not judged.

    def absent(self, recipe: FeatureRecipe, column: str, x: np.ndarray) -> np.ndarray:
        """Find the rows whose type does not have a column ``[n]``, by their features ``[n, width]``."""
        return ~self.are_of(recipe, self.owners[column], x)

    def are_of(self, recipe: FeatureRecipe, types: Sequence[str], x: np.ndarray) -> np.ndarray:
        """Find the rows of some types ``[n]``, by their features ``[n, width]``."""
        return np.asarray(x[:, self.features_of(recipe, types)].any(axis=1))

    def features_of(self, recipe: FeatureRecipe, types: Sequence[str]) -> list[int]:
        """The features that stand for some types."""
        column, own = recipe.placed[recipe.names.index(self.column)]
        return [own.start + column.categories.index(kind) for kind in types]  # type: ignore[union-attr]

    def clear(
        self, recipe: FeatureRecipe, x: np.ndarray, arrays: Sequence[Any], batch: Batch, counts: Sequence[ColumnCounts]
    ) -> None:
        """Set the features of absent cells to 0, and do not count these cells as missing."""
        types = as_text(arrays[recipe.names.index(self.column)], batch.table, self.column)
        _check_types(types, batch, self.column)
        for (column, own), array, count in zip(recipe.placed, arrays, counts, strict=True):
            if column.name in self.owners:
                absent = self.absent(recipe, column.name, x)
                if pa.types.is_null(array.type) and not absent.all():
                    raise TableError(
                        f"{batch.table} has no values in the column {column.name!r}, but rows of the type "
                        f"{types[int(absent.argmin())].as_py()!r}, which had it when the model was fitted"
                    )
                filled = missing_to_null(array).is_valid().to_numpy(zero_copy_only=False)
                count.missing -= int((absent & ~filled).sum())
                count.misplaced += int((absent & filled).sum())
                x[absent, own] = 0.0

    def with_labels(self, recipe: FeatureRecipe, x: np.ndarray) -> NodeTypes:
        """Note the types of labelled rows, given by their features ``[n, width]``."""
        known = recipe.columns[recipe.names.index(self.column)].categories  # type: ignore[union-attr]
        labelled = tuple(kind for kind in known if self.are_of(recipe, [kind], x).any())
        return msgspec.structs.replace(self, labelled=labelled)

    def notes(self, recipe: FeatureRecipe, x: np.ndarray, counts: Sequence[ColumnCounts]) -> list[str]:
        """Say which rows are not judged, and which cells are ignored."""
        other = int((~self.are_of(recipe, self.labelled, x)).sum())
        misplaced = [f"{c.name} ({n.misplaced})" for c, n in zip(recipe.columns, counts, strict=True) if n.misplaced]
        notes = [f"values of types that did not have the column at fit are ignored: {listed(misplaced)}"]
        if other:
            notes.append(
                f"{other} of {len(x)} rows are of types without labels: they are scored, but have no p-value and are "
                f"not flagged, because the threshold is calibrated on rows of {listed(self.labelled)} only"
            )
        return notes if misplaced else notes[1:]


def learn_types(
    table: TableSource, column: str, recipe: FeatureRecipe, statistics: Sequence[ColumnStatistics]
) -> FeatureRecipe:
    """Learn which types have which columns; absent cells no longer count as missing, in the statistics, too."""
    names = [each.name for each in statistics if each.name != column]
    rows, owners = dict[str, int](), {name: set[str]() for name in names}
    for batch in table.batches([column, *names]):
        types = as_text(batch.arrays[0], batch.table, column)
        _check_types(types, batch, column)
        for counted in types.value_counts().to_pylist():
            rows[counted["values"]] = rows.get(counted["values"], 0) + counted["counts"]
        for name, array in zip(names, batch.arrays[1:], strict=True):
            owners[name] |= set(types.filter(missing_to_null(array).is_valid()).unique().to_pylist())
    if column not in recipe.names:  # one type has all rows
        return recipe
    columns = {each.name: each for each in recipe.columns}
    for each in statistics:
        absent = sum(count for kind, count in rows.items() if kind not in owners.get(each.name, rows))
        each.rows -= absent
        each.missing -= absent
        if getattr(columns.get(each.name), "has_missing", False):
            has_missing = each.missing + each.infinite > 0
            columns[each.name] = msgspec.structs.replace(columns[each.name], has_missing=has_missing)
    some = {name: tuple(sorted(kinds)) for name, kinds in owners.items() if name in columns and len(kinds) < len(rows)}
    return msgspec.structs.replace(recipe, columns=tuple(columns.values()), types=NodeTypes(column, some))


def _check_types(types: Any, batch: Batch, column: str) -> None:
    if types.null_count:
        row = batch.row_name(int(pc.index(types.is_null(), True).as_py()))
        raise TableError(f"{batch.table}: column {column!r} has no type in {row}; every row needs one")
