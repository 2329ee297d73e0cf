"""Learning how columns become features: one pass over the table, with statistics that are updated batch by batch."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oddnode.tables.columns import (
    MOST_CATEGORIES,
    Category,
    FeatureRecipe,
    Number,
    are_numbers,
    check_type,
    to_numbers,
)
from oddnode.tables.labels import SPLIT_WORDS
from oddnode.tables.reader import Batch, TableSource
from oddnode.tables.values import TableError, arrow_errors, as_argument, as_text, listed, pa, quoted

_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./]\d\d?[./](\d\d|\d{4})")
# A column with fewer rows per value holds amounts rather than codes.
_ROWS_PER_CODE = 10


def learn_features(
    table: TableSource,
    names: Sequence[str],
    category_columns: Sequence[str] = (),
    number_columns: Sequence[str] = (),
    decimal_comma: bool = False,
) -> tuple[FeatureRecipe, list[ColumnStatistics]]:
    """Learn in one pass over the table how columns become features.

    A column is numeric if all of its values are numbers, and categorical otherwise. Constant columns are left out.
    """
    columns = [
        ColumnStatistics(name, name in category_columns, name in number_columns, decimal_comma) for name in names
    ]
    rows = 0
    for batch in table.batches(names):
        with arrow_errors(f"{batch.table} cannot be read"):
            for column, array in zip(columns, batch.arrays, strict=True):
                column.update(array, batch)
        rows += batch.num_rows
    if rows == 0:
        raise TableError(f"{table.name} has a header, but no rows")
    if rows == 1:
        raise TableError(f"{table.name} has one node; fitting needs more")
    encodings: list[Number | Category | None] = [column.encoding(table.name) for column in columns]
    kept: tuple[Number | Category, ...] = tuple(filter(None, encodings))
    if not kept:
        raise TableError(
            f"{table.name}: all feature columns ({listed(names)}) are constant; nothing can be learnt from them"
        )
    return FeatureRecipe(kept), columns


@dataclass
class ColumnStatistics:
    """Statistics of one column, updated batch by batch, both as numbers and as categories."""

    name: str
    is_category: bool = False  # Given by the user, like the next two
    is_number: bool = False
    decimal_comma: bool = False
    rows: int = 0
    missing: int = 0
    infinite: int = 0
    count: int = 0  # Number of finite values, whose statistics follow
    zeros: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    numeric: int = 0
    others: int = 0  # Number of values that are not numbers
    first_text: tuple[str, str] | None = None
    strings: set[str] = field(default_factory=set)
    whole: set[float] | None = field(default_factory=set)
    _is_text: bool = True

    @property
    def is_text(self) -> bool:
        return self.is_category or self.first_text is not None

    def update(self, array: Any, batch: Batch) -> None:
        types = pa.types
        check_type(array, batch, self.name)
        if not types.is_string(array.type) and not types.is_null(array.type):
            self._is_text = False
        self.rows += len(array)
        if not self.is_category:
            values = to_numbers(array, self.decimal_comma, self.is_number) if self.first_text is None else None
            if values is None:
                self._add_text(array, batch)
            else:
                self._add_numbers(values)
        if (self._is_text or self.is_text) and not self.is_number:
            strings = as_text(array, batch.table, self.name)
            if self.is_category:
                self.missing += strings.null_count
            if len(self.strings) <= MOST_CATEGORIES:
                self.strings |= set(strings.drop_null().unique().to_pylist())

    def _add_text(self, array: Any, batch: Batch) -> None:
        numbers = are_numbers(array, self.decimal_comma)
        missing = as_text(array, batch.table, self.name).null_count
        self.missing += missing
        self.numeric += int(numbers.sum()) - missing
        self.others += int((~numbers).sum())
        if self.first_text is None:
            row = int(np.argmin(numbers))
            if not self._is_text:
                raise TableError(
                    f"{batch.table}: column {self.name!r} has the text {quoted(array[row].as_py())} in "
                    f"{batch.row_name(row)}, but numbers in another table; give all of them as text or all as numbers"
                )
            self.first_text = (str(array[row].as_py()).strip()[:60], batch.row_name(row))

    def _add_numbers(self, values: np.ndarray) -> None:
        self.missing += int(np.isnan(values).sum())
        self.infinite += int(np.isinf(values).sum())
        self.numeric += int((~np.isnan(values)).sum())
        values = values[np.isfinite(values)]
        if not values.size:
            return
        self.zeros += int((values == 0).sum())
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        if self.whole is not None and not bool((values != np.floor(values)).any()):
            self.whole |= set(np.unique(values).tolist())
        else:
            self.whole = None
        if self.whole is not None and len(self.whole) > MOST_CATEGORIES:
            self.whole = None
        with np.errstate(over="ignore", invalid="ignore"):
            # Chan's update: batches of any size, without the cancellation of sums of squares.
            mean, total = float(values.mean()), self.count + values.size
            shift = mean - self.mean
            self.squares += float(np.square(values - mean).sum()) + shift * shift * self.count * values.size / total
            self.mean += shift * values.size / total
            self.count = total

    def encoding(self, where: str) -> Number | Category | None:
        """The column's encoding; ``None`` if it is constant."""
        if self.is_text:
            return self._category(where)
        if self.count == 0:
            return None  # all values are missing
        scale = math.sqrt(self.squares / self.count) if math.isfinite(self.squares) else math.inf
        if not math.isfinite(scale) or abs(self.mean) > 1e299:
            raise TableError(f"{where}: the values of column {self.name!r} are too large to be scaled")
        if scale <= 1e-12 * max(abs(self.mean), 1e-290):
            return None
        has_missing = self.missing + self.infinite > 0
        is_count = self.whole is not None and self.low == 0 and 2 * self.zeros >= self.count
        return Number(self.name, self.mean, scale, has_missing, self.decimal_comma, self.is_number, is_count)

    def _category(self, where: str) -> Category | None:
        if len(self.strings) <= MOST_CATEGORIES:
            return Category(self.name, tuple(sorted(self.strings))) if len(self.strings) > 1 else None
        first = None if self.first_text is None else f"{quoted(self.first_text[0])} in {self.first_text[1]}"
        verb = "has" if first is None else f"is text (first {first}) with"
        name = as_argument([self.name])
        advice = f"leave it out with `drop_columns` {name}"
        if self.has_decimal_commas:
            advice = "read it as numbers with `decimal_comma`, or " + advice
        elif self.numeric > self.others:
            advice = f"read it as numbers with `number_columns` {name}, or {advice}"
        raise TableError(
            f"{where}: column {self.name!r} {verb} more than {MOST_CATEGORIES} different values, "
            f"too many for categories; {advice}"
        )

    @property
    def has_decimal_commas(self) -> bool:
        """Whether the values of a text column are numbers with decimal commas, as far as its first strings show."""
        if self.decimal_comma or not self.strings:
            return False
        strings = pa.array(sorted(self.strings))
        return any("," in text for text in self.strings) and bool(are_numbers(strings, decimal_comma=True).all())


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
    """Summarise the feature columns."""
    used = set(recipe.names)
    summaries = []
    for column in columns:
        kind, detail = "number", f"{column.low:g} to {column.high:g}"
        if column.name not in used:
            kind, detail = "constant", ""
        elif column.is_text:
            kind, detail = "category", f"{len(column.strings)} different"
        missing = column.missing + column.infinite
        summaries.append(ColumnSummary(column.name, kind, detail, column.rows - missing, missing))
    return summaries


def notes_on_fitted_columns(columns: Sequence[ColumnStatistics], recipe: FeatureRecipe) -> list[str]:
    """Notes on feature columns of the fitted table that may not have been read as intended."""
    used = set(recipe.names)
    constant = [column.name for column in columns if column.name not in used]
    numbers = [column for column in columns if column.name in used and not column.is_text]
    missing = [f"{column.name} ({column.missing} of {column.rows})" for column in numbers if column.missing]
    infinite = [f"{column.name} ({column.infinite} of {column.rows})" for column in numbers if column.infinite]
    few = [column for column in numbers if 2 < len(column.whole or ()) <= column.count / _ROWS_PER_CODE]
    codes = [column for column in few if not column.is_number]
    notes = []
    if constant:
        notes.append(f"constant columns are left out: {listed(constant)}")
    if missing:
        notes.append(f"missing numbers count as the mean of their column, and a feature marks them: {listed(missing)}")
    if infinite:
        notes.append(f"infinite numbers count as missing: {listed(infinite)}")
    if codes:
        shown = listed([f"{column.name} ({len(column.whole or ())} values)" for column in codes])
        names = as_argument([column.name for column in codes[:10]])
        notes.append(
            f"integers with few values are read as amounts: {shown}; if they are codes: `category_columns` {names}"
        )
    texts = [column for column in columns if column.name in used and column.is_text]
    return notes + list(filter(None, map(_note_on_text, texts)))


def _note_on_text(column: ColumnStatistics) -> str | None:
    name, count, argument = column.name, len(column.strings), as_argument([column.name])
    if column.is_category:
        return None
    if {text.lower() for text in column.strings} <= set(SPLIT_WORDS):
        words = listed(sorted(column.strings))
        return (
            f"column {name!r} looks like a split ({words}), but is used as a feature; "
            f"use it with `split_column` {argument}, or leave it out with `drop_columns` {argument}"
        )
    if column.has_decimal_commas:
        example = next(text for text in sorted(column.strings) if "," in text)
        return f"column {name!r} is read as {count} categories; if {example} is a number: `decimal_comma`"
    if column.numeric > column.others and column.first_text is not None:
        text, row = column.first_text
        return (
            f"column {name!r} is read as {count} categories, because {column.others} of "
            f"{column.numeric + column.others} values are not numeric (first {quoted(text)} in {row}); correct them, "
            f"or treat them as missing with `number_columns` {argument}"
        )
    if all(_DATE.fullmatch(text) for text in column.strings):
        return f"column {name!r} holds dates, read as {count} categories; leave it out with `drop_columns` {argument}"
    return None
