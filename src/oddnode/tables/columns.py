"""Encode columns as features: numbers are standardised and categories one-hot encoded, using statistics from fit.

Edge-weight columns are read here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from oddnode.detector import ModelFileError
from oddnode.tables.reader import Batch
from oddnode.tables.values import (
    TableError,
    arrow_errors,
    as_argument,
    as_text,
    listed,
    missing_to_null,
    pa,
    pc,
    quoted,
)

#: A column with more distinct strings than this holds names or free text, not categories.
MOST_CATEGORIES = 256
# Numbers are clipped at this many standard deviations, so that one outlier does not dominate the network's sums.
_FARTHEST = 5.0
# The reasons of this many rows name a category that was not seen, or a number that was clipped.
_MOST_UNSEEN = 100_000
# By Chebyshev's inequality, at most this share of the fitted values lies that far out.
_MOST_CLIPPED = 1 / 25
_NUMBER = r"(?i)^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)$"


@dataclass
class ColumnCounts:
    """Counts from encoding a column, for notes to the user."""

    rows: int = 0
    missing: int = 0
    infinite: int = 0
    clipped: int = 0  # Number of values beyond five standard deviations
    example: float = 0.0  # One of these values
    unseen: int = 0  # Number of values whose category was not seen at fit
    new: set[str] = field(default_factory=set)
    unseen_rows: dict[int, str] = field(default_factory=dict)  # Some of these values, by row
    hidden_rows: dict[int, float] = field(default_factory=dict)  # Numbers that the features do not tell, by row


class Number(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="number"):
    """A numeric column, standardised and clipped at five standard deviations; missing numbers count as the mean.

    Counts, most of which are 0, are divided by the standard deviation only, so that 0 stays 0; missing ones count as 0.
    """

    name: str
    mean: Annotated[float, Meta(ge=-1e300, le=1e300)]  #: Mean at fit.
    scale: Annotated[float, Meta(gt=0, le=1e300)]  #: Standard deviation at fit.
    has_missing: bool = False  #: Whether numbers were missing at fit; if so, a second feature marks missing ones.
    decimal_comma: bool = False  #: Whether strings like ``"3,5"`` are numbers.
    text_is_missing: bool = False  #: Whether strings that are not numbers count as missing; if not, they are an error.
    is_count: bool = False  #: Whether at fit all were whole numbers of 0 or more, and at least half of them 0.

    @property
    def width(self) -> int:
        """One feature, or two if missing numbers are marked."""
        return 2 if self.has_missing else 1

    def _encode(self, array: Any, batch: Batch, counts: ColumnCounts) -> np.ndarray:
        check_type(array, batch, self.name)
        values = to_numbers(array, self.decimal_comma, self.text_is_missing)
        if values is None:
            row = int(np.argmin(are_numbers(array, self.decimal_comma)))
            raise TableError(
                f"{batch.table}: column {self.name!r} has the text {quoted(array[row].as_py())} in "
                f"{batch.row_name(row)}, but had numbers when the model was fitted"
            )
        gone, centre = ~np.isfinite(values), 0.0 if self.is_count else self.mean
        scaled = (np.where(gone, centre, values) - centre) / self.scale
        far = np.abs(scaled) > _FARTHEST
        hidden = np.flatnonzero(far if self.has_missing else far | gone)[: _MOST_UNSEEN - len(counts.hidden_rows)]
        counts.hidden_rows |= dict(zip((counts.rows + hidden).tolist(), values[hidden].tolist(), strict=True))
        counts.rows += len(values)
        counts.infinite += int(np.isinf(values).sum())
        counts.missing += int(np.isnan(values).sum())
        if far.any():
            counts.example = float(values[far.argmax()])
            counts.clipped += int(far.sum())
        features = np.clip(scaled, -_FARTHEST, _FARTHEST).astype(np.float32)[:, None]
        return np.hstack([features, gone[:, None].astype(np.float32)]) if self.has_missing else features


class Category(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="category"):
    """A text column, one-hot. Missing values and values not seen at fit become zeros."""

    name: str
    categories: Annotated[tuple[str, ...], Meta(min_length=1)]  #: The values seen at fit.

    @property
    def width(self) -> int:
        """One feature per category."""
        return len(self.categories)

    def _encode(self, array: Any, batch: Batch, counts: ColumnCounts) -> np.ndarray:
        check_type(array, batch, self.name)
        strings = as_text(array, batch.table, self.name)
        index = pc.index_in(strings, value_set=pa.array(self.categories, pa.string()), skip_nulls=True)
        known = index.is_valid().to_numpy(zero_copy_only=False)
        out = np.zeros((len(array), self.width), dtype=np.float32)
        out[np.flatnonzero(known), index.fill_null(0).to_numpy(zero_copy_only=False)[known]] = 1.0
        unseen = ~known & strings.is_valid().to_numpy(zero_copy_only=False)
        room = np.flatnonzero(unseen)[: _MOST_UNSEEN - len(counts.unseen_rows)]
        values = strings.take(pa.array(room)).to_pylist()
        counts.unseen_rows |= dict(zip((counts.rows + room).tolist(), values, strict=True))
        counts.rows += len(array)
        counts.missing += strings.null_count
        counts.unseen += int(unseen.sum())
        if unseen.any() and len(counts.new) <= MOST_CATEGORIES:
            counts.new |= set(strings.filter(pa.array(unseen)).unique().to_pylist()[: MOST_CATEGORIES + 1])
        return out


class FeatureRecipe(Struct, frozen=True, forbid_unknown_fields=True):
    """How the columns of a table become features. Saved with the model."""

    columns: Annotated[tuple[Number | Category, ...], Meta(min_length=1)]  #: In the order of their features.

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def width(self) -> int:
        """The number of features."""
        return sum(column.width for column in self.columns)

    def marked(self, counts_only: bool) -> tuple[bool, ...]:
        """Which features are the values of numeric columns, or of counts; none marks a missing number or a category.

        Parameters
        ----------
        counts_only : bool
            Whether to leave out numbers that are not counts.
        """
        marks: list[bool] = []
        for column in self.columns:
            is_marked = isinstance(column, Number) and (column.is_count or not counts_only)
            marks += [is_marked] + [False] * (column.width - 1)
        return tuple(marks)

    def check(self) -> None:
        """Raise an error for a saved recipe in which a category occurs twice."""
        for column in self.columns:
            if isinstance(column, Category) and len(set(column.categories)) < len(column.categories):
                raise ModelFileError(f"table.features: the column {column.name[:60]!r} has a category twice")

    def encode(self, arrays: Sequence[Any], batch: Batch, counts: Sequence[ColumnCounts]) -> np.ndarray:
        """Turn a batch of n rows into features ``[n, width]``.

        Parameters
        ----------
        arrays : sequence of pyarrow.Array
            The columns named by `names`.
        batch : Batch
            The batch they come from, for messages.
        counts : sequence of ColumnCounts
            The counts of each column, updated in place.
        """
        out = np.empty((batch.num_rows, self.width), dtype=np.float32)
        start = 0
        with arrow_errors(f"{batch.table} cannot be read"):
            for column, array, count in zip(self.columns, arrays, counts, strict=True):
                out[:, start : start + column.width] = column._encode(array, batch, count)
                start += column.width
        return out


class WeightColumn(Struct, frozen=True, forbid_unknown_fields=True):
    """A column of edge weights: finite and non-negative, none missing."""

    name: str
    decimal_comma: bool = False  # Whether strings like `"3,5"` are numbers

    def read(self, array: Any, batch: Batch) -> np.ndarray:
        try:
            values = to_numbers(array, self.decimal_comma)
        except pa.ArrowException:  # dates, lists and the like
            raise self._wrong(array, batch, 0) from None
        if values is None:
            raise self._wrong(array, batch, int(np.argmin(are_numbers(array, self.decimal_comma))))
        wrong = ~((values >= 0) & (values < np.inf))  # NaN fails both comparisons
        if wrong.any():
            raise self._wrong(array, batch, int(wrong.argmax()))
        return values

    def _wrong(self, array: Any, batch: Batch, row: int) -> TableError:
        return TableError(
            f"{batch.table}: column {self.name!r} has {quoted(array[row].as_py())} in {batch.row_name(row)}, expected "
            "a non-negative edge weight; correct it, name another column when fitting with "
            "`weight_column`, or fit with `unweighted`"
        )


def check_type(array: Any, batch: Batch, column: str) -> None:
    """Raise an error for a column of dates, lists or other values that are neither numbers nor text."""
    types, kind = pa.types, array.type
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    if not (is_number or types.is_string(kind) or types.is_null(kind)):
        raise TableError(
            f"{batch.table}: column {column!r} holds {kind}, expected numbers or text; turn it into one of these, "
            f"or leave it out when fitting: `drop_columns` {as_argument([column])}"
        )


def to_numbers(array: Any, decimal_comma: bool = False, text_is_missing: bool = False) -> np.ndarray | None:
    """Convert values to numbers."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    array = missing_to_null(array)
    if pa.types.is_string(array.type):
        array = pc.replace_substring(array, ",", ".") if decimal_comma else array
        if text_is_missing:
            array = pc.if_else(pa.array(are_numbers(array)), array, pa.scalar(None, pa.string()))
    try:
        numbers = array.cast(pa.float64(), safe=False)
    except pa.ArrowInvalid:
        return None
    return numbers.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)


def are_numbers(array: Any, decimal_comma: bool = False) -> np.ndarray:
    """Whether each string is a number."""
    strings = missing_to_null(array).cast(pa.string())
    strings = pc.replace_substring(strings, ",", ".") if decimal_comma else strings
    return pc.match_substring_regex(strings, _NUMBER).fill_null(True).to_numpy(zero_copy_only=False)


def notes_on_scored_columns(recipe: FeatureRecipe, counts: Sequence[ColumnCounts]) -> list[str]:
    """Notes on columns that differ from the fitted table."""
    pairs = list(zip(recipe.columns, counts, strict=True))
    notes = []
    missing = [
        f"{column.name} ({count.missing} of {count.rows})"
        for column, count in pairs
        if not isinstance(column, Category) and count.missing and not column.has_missing
    ]
    infinite = [f"{column.name} ({count.infinite} of {count.rows})" for column, count in pairs if count.infinite]
    if missing:
        notes.append(
            f"missing numbers count as the mean; none was missing when the model was fitted: {listed(missing)}"
        )
    if infinite:
        notes.append(f"infinite numbers count as missing: {listed(infinite)}")
    for column, count in pairs:
        if isinstance(column, Category):
            notes += _note_on_categories(column, count)
        elif count.clipped > _MOST_CLIPPED * count.rows:
            notes.append(
                f"column {column.name!r}: {count.clipped} of {count.rows} values (for example {count.example:g}) are "
                f"more than 5 standard deviations from those the model was fitted on (mean {column.mean:g}, standard "
                f"deviation {column.scale:g}) and are clipped; has the unit changed?"
            )
    return notes


def _note_on_categories(column: Category, count: ColumnCounts) -> list[str]:
    if not count.unseen:
        return []
    values = count.rows - count.missing
    number = f"more than {MOST_CATEGORIES}" if len(count.new) > MOST_CATEGORIES else str(len(count.new))
    plural = "category" if number == "1" else "categories"
    note = (
        f"column {column.name!r}: {count.unseen} of {values} values are of {number} {plural} that the model was not "
        f"fitted on (for example {quoted(min(count.new))}); they count as missing"
    )
    if 2 * count.unseen > values:
        note += f". The model knows {listed([quoted(text) for text in column.categories], 5)}; check the spelling"
    return [note]
