"""Learning how columns become features: one pass over the table, with statistics that are updated batch by batch."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oddnode.tables.amounts import PLAIN, Form, amounts_in
from oddnode.tables.columns import (
    MOST_CATEGORIES,
    Category,
    FeatureRecipe,
    Number,
    check_type,
    how_counts_are_filled,
)
from oddnode.tables.labels import SPLIT_WORDS
from oddnode.tables.reader import Batch, TableSource
from oddnode.tables.values import TableError, arrow_errors, as_argument, as_text, listed, pa, pc, quoted

_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./]\d\d?[./](\d\d|\d{4})")
# A column with fewer rows per value holds amounts rather than codes.
_ROWS_PER_CODE = 10
# Whole numbers that differ in every row are ids, or times, if they number so many rows or have so many digits.
_FEWEST_ROWS = 20
_ID_DIGITS = 10


def learn_features(
    table: TableSource,
    names: Sequence[str],
    category_columns: Sequence[str] = (),
    number_columns: Sequence[str] = (),
    decimal_comma: bool = False,
) -> tuple[FeatureRecipe, list[ColumnStatistics]]:
    """Learn how columns become features, in one pass over the table, and another over columns of amounts such as $5.

    A column is numeric if all of its values are numbers, and categorical otherwise. Constant columns, ids and dates are
    left out.
    """
    columns = [
        ColumnStatistics(name, name in category_columns, name in number_columns, Form(decimal_comma)) for name in names
    ]
    rows = _update(columns, table)
    forms = {column.name: column.other_form(decimal_comma) for column in columns}
    if any(form is not None and form.decimal_comma for form in forms.values()):
        # One file is written in one way: 1.234 in another column is 1234.
        marked = [column for column in columns if column.has_marks]
        forms |= {column.name: form for column in marked if (form := column.other_form(True)) and form.point_groups}
    again = [ColumnStatistics(c.name, False, c.is_number, form, True) for c in columns if (form := forms[c.name])]
    if again:
        _update(again, table)
        amounts = {column.name: column for column in again if not column.is_text}
        columns = [amounts.get(column.name, column) for column in columns]
    if rows == 0:
        raise TableError(f"{table.name} has a header, but no rows")
    if rows == 1:
        raise TableError(f"{table.name} has one node; fitting needs more")
    encodings: list[Number | Category | None] = [column.encoding(table.name) for column in columns]
    kept: tuple[Number | Category, ...] = tuple(filter(None, encodings))
    if not kept:
        raise TableError(
            f"{table.name}: all feature columns ({listed(names)}) are constant, ids or dates; nothing can be learnt "
            "from them"
        )
    return FeatureRecipe(kept), columns


def _update(columns: Sequence[ColumnStatistics], table: TableSource) -> int:
    """Update the statistics of columns, and return the number of rows."""
    rows = 0
    for batch in table.batches([column.name for column in columns]):
        with arrow_errors(f"{batch.table} cannot be read"):
            for column, array in zip(columns, batch.arrays, strict=True):
                column.update(array, batch)
        rows += batch.num_rows
    return rows


@dataclass
class ColumnStatistics:
    """Statistics of one column, updated batch by batch, both as numbers and as categories."""

    name: str
    is_category: bool = False  # Given by the user, like the next two
    is_number: bool = False
    form: Form = PLAIN
    is_recognised: bool = False  # Whether the form was found in the strings
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
    is_different: bool = True  # Whether all are whole numbers, no two alike in a batch, and long or consecutive
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
            values = self.form.numbers(array, self.is_number) if self.first_text is None else None
            if values is None:
                self._add_text(array, batch)
            else:
                self._add_numbers(values)
                self.is_different = self.is_different and _are_different(array, values)
        if self._is_text or self.is_text:
            strings = as_text(array, batch.table, self.name)
            if self.is_category:
                self.missing += strings.null_count
            if len(self.strings) <= MOST_CATEGORIES:
                self.strings |= set(strings.drop_null().unique().to_pylist())

    def _add_text(self, array: Any, batch: Batch) -> None:
        numbers = self.form.are_numbers(array)
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
        """The column's encoding; ``None`` if it is left out: a constant, an id, or dates, which never come again."""
        if self.is_text:
            return None if self.holds_dates else self._category(where)
        if self.count == 0:  # all values are missing
            if self.is_number and self.strings:
                raise TableError(
                    f"{where}: no value of column {self.name!r}, which `number_columns` names, can be read as a number"
                    f"{self._other_units or f', such as {quoted(min(self.strings))}'}"
                )
            return None
        scale = math.sqrt(self.squares / self.count) if math.isfinite(self.squares) else math.inf
        if not math.isfinite(scale) or abs(self.mean) > 1e299:
            raise TableError(f"{where}: the values of column {self.name!r} are too large to be scaled")
        if scale <= 1e-12 * max(abs(self.mean), 1e-290) or self.is_id:
            return None
        has_missing = self.missing + self.infinite > 0
        is_count = self.whole is not None and self.low == 0 and 2 * self.zeros >= self.count
        comma, unit, groups = self.form
        groups = groups or (comma and not any("." in text for text in self.strings))
        return Number(self.name, self.mean, scale, has_missing, comma, self.is_number, is_count, unit, groups)

    def _category(self, where: str) -> Category | None:
        if len(self.strings) <= MOST_CATEGORIES:
            return Category(self.name, tuple(sorted(self.strings))) if len(self.strings) > 1 else None
        first = None if self.first_text is None else f"{quoted(self.first_text[0])} in {self.first_text[1]}"
        verb = "has" if first is None else f"is text (first {first}) with"
        name = as_argument([self.name])
        advice = f"leave it out with `drop_columns` {name}"
        if self.numeric > self.others or Form.of(self.strings, self.form.decimal_comma, only_amounts=True):
            advice = f"read it as numbers with `number_columns` {name}, or {advice}"
        raise TableError(
            f"{where}: column {self.name!r} {verb} more than {MOST_CATEGORIES} different values, "
            f"too many for categories{self._other_units}; {advice}"
        )

    @property
    def _other_units(self) -> str:
        _, units, clash = amounts_in(self.strings)
        named = listed([quoted(text) for text in units.values()], 3)
        return f"; its amounts have different units ({named}), write all in one" if clash else ""

    @property
    def has_marks(self) -> bool:
        """Whether strings have points or commas."""
        return any("." in text or "," in text for text in self.strings)

    def other_form(self, decimal_comma: bool) -> Form | None:
        """The form in which the strings are numbers, if it is not the one they were read in."""
        if self.is_category or not self.strings:
            return None
        if not self.is_text and not self.is_number and not (decimal_comma and self.has_marks):
            return None
        form = Form.of(self.strings, decimal_comma, only_amounts=self.is_number)
        return None if form == self.form else form

    @property
    def holds_dates(self) -> bool:
        """Whether the strings are dates or times, which `category_columns` does not name."""
        return bool(self.strings) and not self.is_category and all(_DATE.fullmatch(text) for text in self.strings)

    @property
    def is_id(self) -> bool:
        """Whether the numbers are ids: different in every row, and numbers of the rows, or long and of one length."""
        if not self.is_different or self.is_number or self.is_text or self.count < self.rows:
            return False
        if self.low in (0, 1) and self.high - self.low == self.rows - 1:
            return self.rows >= _FEWEST_ROWS
        return len(str(int(self.low))) == len(str(int(self.high))) >= _ID_DIGITS


def _are_different(array: Any, values: np.ndarray) -> bool:
    """Whether values are whole numbers, no two of them alike; checked only if they are long, or consecutive."""
    if not values.size or not np.isfinite(values).all() or bool((values != np.floor(values)).any()):
        return not values.size
    if values.min() < 10 ** (_ID_DIGITS - 1) and values.max() - values.min() != len(values) - 1:
        return False
    return bool(pc.count_distinct(array).as_py() == len(values))


@dataclass(frozen=True)
class ColumnSummary:
    """How `TableModel.fit` read a column."""

    name: str  #: The column.
    #: ``"id"``, ``"label"``, ``"split"``, ``"exposure"``, ``"time"``, ``"number"``, ``"count"`` (mostly 0),
    #: ``"category"``, or ``"constant"``, ``"other id"`` and ``"dates"``, which are left out.
    read_as: str
    detail: str  #: The range of numbers, or the number of different values.
    num_values: int  #: `num_values`, `num_missing`: numbers of rows with and without a value.
    num_missing: int
    low: float | None = None  #: `low`, `high`: the smallest and the largest number.
    high: float | None = None

    def __str__(self) -> str:
        detail = f", {self.detail}" if self.detail else ""
        return f"{self.read_as}{detail}, {self.num_values} values, {self.num_missing} missing"


def summary_of_features(columns: Sequence[ColumnStatistics], recipe: FeatureRecipe) -> list[ColumnSummary]:
    """Summarise the feature columns."""
    used = {column.name: column for column in recipe.columns}
    summaries = []
    for column in columns:
        kind, missing, ends = used.get(column.name), column.missing + column.infinite, tuple[float, ...]()
        read_as, detail = ("other id", "different in every row") if column.is_id else ("constant", "")
        if column.holds_dates:
            read_as = "dates"
        if isinstance(kind, Category):
            read_as, detail = "category", f"{len(column.strings)} different"
        elif isinstance(kind, Number):
            read_as = "count" if kind.is_count else "number"
            detail = f"{column.low:g} to {column.high:g} {kind.unit}".rstrip()
            ends = column.low, column.high
        summaries.append(ColumnSummary(column.name, read_as, detail, column.rows - missing, missing, *ends))
    return summaries


def notes_on_fitted_columns(columns: Sequence[ColumnStatistics], recipe: FeatureRecipe) -> list[str]:
    """Notes on feature columns of the fitted table that may not have been read as intended."""
    used = {column.name: column for column in recipe.columns}
    left_out = [column for column in columns if column.name not in used]
    ids = [column.name for column in left_out if column.is_id]
    dates = [column.name for column in left_out if column.holds_dates]
    constant = [column.name for column in left_out if not column.is_id and not column.holds_dates]
    numbers = [column for column in columns if isinstance(used.get(column.name), Number)]
    is_count = {name for name, column in used.items() if isinstance(column, Number) and column.is_count}
    infinite = [f"{column.name} ({column.infinite} of {column.rows})" for column in numbers if column.infinite]
    few = [column for column in numbers if 2 < len(column.whole or ()) <= column.count / _ROWS_PER_CODE]
    codes = [column for column in few if not column.is_number and column.name not in is_count]
    notes = []
    if ids:
        notes.append(
            f"whole numbers that differ in every row look like ids or times and are left out: {listed(ids)}; if they "
            f"are amounts: `number_columns` {as_argument(ids[:10])}; one with times can be the `time_column`"
        )
    if dates:
        notes.append(
            f"dates are left out: {listed(dates)}; they can tell later rows apart (`time_column` "
            f"{as_argument(dates[:1])} with `train_until`); if the same ones come again: `category_columns` "
            f"{as_argument(dates[:10])}"
        )
    if constant:
        notes.append(f"constant columns are left out: {listed(constant)}")
    for counts, how in enumerate(("missing numbers count as the mean of their column", how_counts_are_filled(recipe))):
        missing = [column for column in numbers if column.missing and (column.name in is_count) == bool(counts)]
        shown = listed(
            [f"{column.name} ({column.missing} of {column.rows})" for column in missing], 3 if counts else 10
        )
        notes += [f"{how}, and a feature marks them: {shown}"] if missing else []
    if infinite:
        notes.append(f"infinite numbers count as missing: {listed(infinite)}")
    if codes:
        shown = listed([f"{column.name} ({len(column.whole or ())} values)" for column in codes])
        names = as_argument([column.name for column in codes[:10]])
        notes.append(
            f"integers with few values are read as amounts: {shown}; if they are codes: `category_columns` {names}"
        )
    texts = [column for column in columns if column.name in used and column.is_text]
    return notes + _notes_on_amounts(numbers) + list(filter(None, map(_note_on_text, texts)))


def _notes_on_amounts(columns: Sequence[ColumnStatistics]) -> list[str]:
    """One note for each way of writing numbers."""
    forms: dict[Form, list[str]] = {}
    grouped: dict[bool, list[str]] = {}
    for column in columns:
        if column.is_recognised and str(column.form):
            example = quoted(max(sorted(column.strings), key=lambda text: (column.form.unit in text, "," in text)))
            forms.setdefault(column.form, []).append(f"{column.name} ({example})")
        first = column.form.first_grouped(column.strings)
        if first is not None:
            is_unclear = not column.form.decimal_comma and not any("." in text for text in column.strings)
            grouped.setdefault(is_unclear, []).append(f"{column.name} ({quoted(first)})")
    notes = [f"numbers with {form}: {listed(names)}" for form, names in forms.items()]
    for is_unclear, names in grouped.items():
        advice = "; if these are decimal commas: `decimal_comma`" if is_unclear else ""
        notes.append(f"thousands are separated in the numbers of {listed(names)}{advice}")
    return notes


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
    if column.numeric > column.others and column.first_text is not None:
        text, row = column.first_text
        return (
            f"column {name!r} is read as {count} categories, because {column.others} of "
            f"{column.numeric + column.others} values are not numeric (first {quoted(text)} in {row}); correct them, "
            f"or treat them as missing with `number_columns` {argument}"
        )
    return None
