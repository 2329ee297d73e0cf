"""What labelled rows have in each column, learnt at fit: what the columns of a flagged row are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from oddnode.detector import ModelFileError
from oddnode.tables.columns import Category, ColumnCounts, FeatureRecipe, Number

if TYPE_CHECKING:
    from torch import Tensor

#: A label with fewer known rows is compared with the known rows of all labels.
ENOUGH = 20
# The range that is told of a number leaves out this share of the known rows.
_RARE = 0.05
# Columns are told of a row if its rarest values are rarer than those of most known rows: all but this share.
_NOTABLE = 0.1
#: So many values of a row are told, and compared together: several rare words say more than one.
MOST_COLUMNS = 3
# The statistics of a feature. The range from low to high has 95 % of the values. The last one counts rows: those that
# have the category or the word, a missing number or, for other numbers, a number at all.
_STATISTICS = ("least", "low", "median", "high", "most", "rows")
_ROWS = 4096


@dataclass(frozen=True)
class Cells:
    """The cells of N rows: their features, and what features do not tell."""

    recipe: FeatureRecipe
    x: np.ndarray
    counts: Sequence[ColumnCounts]

    @cached_property
    def columns(self) -> list[tuple[Number | Category, slice, ColumnCounts]]:
        """Each column with its features and its counts."""
        return [(*placed, count) for placed, count in zip(self.recipe.placed, self.counts, strict=True)]

    def have(self, column: Number | Category, rows: np.ndarray) -> np.ndarray:
        """Which of some rows are of a type that has a column ``[n]``."""
        types = self.recipe.types
        if types is None or column.name not in types.owners:
            return np.ones(len(rows), dtype=bool)
        return ~types.absent(self.recipe, column.name, self.x[rows])

    def numbers(self, column: Number, features: slice, counts: ColumnCounts, rows: np.ndarray) -> np.ndarray:
        """The values of a numeric column ``[n]``; NaN where they are missing."""
        scaled = self.x[rows, features.start].astype(np.float64)
        values = scaled * column.scale + (0.0 if column.is_count else column.mean)
        if column.has_missing:
            values[self.x[rows, features.start + 1] > 0] = np.nan
        values[~self.have(column, rows)] = np.nan
        if counts.hidden_rows:
            hidden = (counts.hidden_rows.get(row) for row in rows.tolist())
            values = np.fromiter((v if h is None else h for v, h in zip(values.tolist(), hidden, strict=True)), float)
        values[~np.isfinite(values)] = np.nan
        return values


@dataclass(frozen=True, eq=False)
class KnownValues:
    """Statistics of the labelled rows that a model was fitted on, by label and feature. Saved with the model."""

    num_rows: np.ndarray  #: Number of rows of each label, and of all labels ``[C + 1]``.
    #: Surprise of the three rarest values of a row together, which nine in ten of these rows do not reach ``[C + 1]``.
    notable: np.ndarray
    #: Statistics of each feature ``[C + 1, F, 6]``: least, low, median, high and most, and a number of rows.
    features: np.ndarray

    @classmethod
    def of(cls, cells: Cells, rows: np.ndarray, y: np.ndarray, num_classes: int) -> KnownValues:
        """Learn from rows with known labels.

        Parameters
        ----------
        cells : Cells
            All rows of the table.
        rows : numpy.ndarray
            Indices ``[n]`` of the labelled ones.
        y : numpy.ndarray
            Their classes ``[n]``.
        num_classes : int
            The number of classes C.
        """
        groups = [*(rows[y == label] for label in range(num_classes)), rows]
        features = np.zeros((num_classes + 1, cells.x.shape[1], len(_STATISTICS)))
        for number, group in enumerate(groups):
            for column, place, counts in cells.columns:
                features[number, place, 5] = np.count_nonzero(cells.x[group, place], axis=0)
                if isinstance(column, Number):
                    values = cells.numbers(column, place, counts, group)
                    features[number, place.start] = _summary(np.sort(values[~np.isnan(values)]), column)
        sizes = np.array([len(group) for group in groups])
        made = cls(sizes, np.zeros(len(groups)), features)
        parts = [largest_sum(made.surprises(cells, part, y[at], 1)) for part, at in rows_in_parts(rows)]
        rarest = np.concatenate([np.zeros(0), *parts])
        own = made.group_of(y)
        for number in range(len(groups)):
            mine = rarest[own == number] if number < num_classes else rarest
            made.notable[number] = np.quantile(mine, 1 - _NOTABLE) if len(mine) else 0.0
        return made

    def group_of(self, label: np.ndarray) -> np.ndarray:
        """With which rows a row is compared ``[n]``: those of its label, or all (C) if there are not enough.

        Parameters
        ----------
        label : numpy.ndarray
            The predicted classes ``[n]``.
        """
        return np.where(self.num_rows[label] >= ENOUGH, label, len(self.num_rows) - 1)

    def surprises(self, cells: Cells, rows: np.ndarray, label: np.ndarray, counted: int = 0) -> np.ndarray:
        """How rare the values of rows are among known rows ``[n, columns]``, as minus the logs of p-values.

        Parameters
        ----------
        cells : Cells
            All rows.
        rows, label : numpy.ndarray
            Indices ``[n]`` and classes ``[n]``.
        counted : int
            1 if the rows themselves are among the known ones, otherwise 0.
        """
        group = self.group_of(label)
        total = self.num_rows[group] + 1.0 - counted
        found = np.empty((len(rows), len(cells.recipe.columns)))
        for place, (column, features, counts) in enumerate(cells.columns):
            if isinstance(column, Category):
                alike = self._alike(group, cells.x[rows, features], features)
            else:
                values = cells.numbers(column, features, counts, rows)
                alike = self._as_far(group, values, column, features)
            found[:, place] = -np.log((alike + 1.0 - counted).clip(0.5) / total)
            if isinstance(column, Number):
                found[:, place] += self._beyond(group, values, features.start)
        return found

    def _alike(self, group: np.ndarray, x: np.ndarray, features: slice) -> np.ndarray:
        """Number of known rows with a category as rare as the row's, or rarer ``[n]``; 0 for a category not seen."""
        counts = self.features[:, features, 5]
        ordered = np.sort(counts, axis=1)
        sums = np.concatenate([np.zeros((len(counts), 1)), ordered.cumsum(axis=1)], axis=1)
        each = zip(sums, ordered, counts, strict=True)
        rarer = np.stack([total[np.searchsorted(ascending, own, "right")] for total, ascending, own in each])
        # A missing value and one that was not seen have the same features; neither says much about the row.
        return np.where(x.any(axis=1), rarer[group, x.argmax(axis=1)], self.num_rows[group])

    def _as_far(self, group: np.ndarray, values: np.ndarray, column: Number, features: slice) -> np.ndarray:
        """Number of known rows with a number as far out as the row's, by interpolation ``[n]``."""
        least, low, median, high, most, rows = self.features[group, features.start].T
        total = self.num_rows[group].astype(np.float64)
        is_above = values >= median
        near, far = np.where(is_above, high, low), np.where(is_above, most, least)
        inner, outer = _share(values - median, near - median), _share(values - near, far - near)
        log_rare, log_least = np.log(_RARE), np.log(1.0 / np.maximum(total, 1.0))
        inside = np.abs(values - median) <= np.abs(near - median)
        logs = np.where(inside, inner * log_rare, log_rare + outer.clip(0, 1) * np.minimum(log_least - log_rare, 0.0))
        alike = np.exp(logs) * total
        alike[(values > most) | (values < least)] = 0.0
        alike = np.where(is_word(column, values, median, most), np.where(values == 0, total, rows), alike)
        # A number is not compared with known rows of a type that does not have the column.
        has_none = (rows == 0) & (least == most) & (not column.is_count)
        return np.where(np.isnan(values) | has_none, total, alike)

    def _beyond(self, group: np.ndarray, values: np.ndarray, feature: int) -> np.ndarray:
        """How far numbers are beyond all known ones ``[n]``, so that the farthest is named first."""
        least, most = self.features[group, feature, 0], self.features[group, feature, 4]
        outside = np.nan_to_num(np.maximum(values - most, least - values)).clip(0.0)
        return np.log1p(_share(outside, most - least).clip(0.0, 1e6)) * (most > least)

    def to_tensor(self) -> Tensor:
        """All statistics, as a tensor of 64-bit integers (the bits of the numbers) that is saved with the model."""
        import torch

        head = np.stack([self.num_rows.astype(np.float64), self.notable], axis=1)
        table = np.concatenate([head, self.features.reshape(len(head), -1)], axis=1)
        return torch.from_numpy(np.ascontiguousarray(table).view(np.int64))

    @classmethod
    def from_saved(cls, saved: Tensor | None, num_classes: int, num_features: int) -> KnownValues | None:
        """Read the statistics of a saved model; ``None`` if it has none.

        Parameters
        ----------
        saved : Tensor or None
            As `to_tensor` returns it; its shape and values are checked.
        num_classes, num_features : int
            Classes and features of the model.
        """
        if saved is None:
            return None
        shape = (num_classes + 1, 2 + len(_STATISTICS) * num_features)
        if tuple(saved.shape) != shape:
            raise ModelFileError(f"table_known has shape {list(saved.shape)}, expected {list(shape)}")
        table = saved.contiguous().numpy().view(np.float64)
        if not np.isfinite(table).all() or (table[:, 0] < 0).any():
            raise ModelFileError("table_known has numbers that no table gives")
        features = table[:, 2:].reshape(len(table), num_features, len(_STATISTICS))
        return cls(table[:, 0].astype(np.int64), table[:, 1].copy(), features)


def is_word(column: Number, value: Any, median: Any, most: Any) -> Any:
    """Whether a count is unusual because it is not 0, rather than by its size: most known rows have 0."""
    return column.is_count & (median == 0) & ((value <= most) | (most == 0))


def largest_sum(surprises: np.ndarray) -> np.ndarray:
    """The sum of the largest surprises of each row ``[n]``."""
    return np.sort(surprises, axis=1)[:, -MOST_COLUMNS:].sum(axis=1)


def _summary(values: np.ndarray, column: Number) -> list[float]:
    """Least, low, median, high and most of sorted values, and how many there are or, of counts, how many are not 0."""
    if not len(values):
        return [0.0] * len(_STATISTICS)
    left_out = int(_RARE / 2 * len(values))
    ends = values[[0, left_out, len(values) // 2, -1 - left_out, -1]]
    return [*ends.tolist(), float(np.count_nonzero(values) if column.is_count else len(values))]


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """The absolute ratio; infinite parts of nothing are 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(whole == 0, 1.0 * (part != 0), np.abs(part / whole))


def rows_in_parts(rows: np.ndarray) -> Iterator[tuple[np.ndarray, slice]]:
    """Some rows at a time, and their places: columns of surprises are wide."""
    for start in range(0, len(rows), _ROWS):
        yield rows[start : start + _ROWS], slice(start, start + _ROWS)
