"""Learning how columns become features: one pass over the table, with statistics that are updated batch by batch."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
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
from oddnode.tables.reader import Batch, TableSource
from oddnode.tables.values import TableError, arrow_errors, as_argument, as_text, listed, pyarrow, quoted

__all__ = ["ColumnStatistics", "ReadAs", "learn_features"]


@dataclass(frozen=True)
class ReadAs:
    """What the user says about the kinds of columns.

    Parameters
    ----------
    category_columns : collection of str
        Columns whose values are categories, even if they are numbers.
    number_columns : collection of str
        Columns whose values are numbers; other texts in them count as missing.
    decimal_comma : bool
        Whether texts like ``"3,5"`` are numbers.
    """

    category_columns: Collection[str] = ()
    number_columns: Collection[str] = ()
    decimal_comma: bool = False

    def check(self, features: Sequence[str]) -> None:
        """Raise an error for a name that is no feature column, or that is given as both kinds.

        Parameters
        ----------
        features : sequence of str
            The feature columns.
        """
        for argument, names in (
            ("category_columns", self.category_columns),
            ("number_columns", self.number_columns),
        ):
            other = sorted(set(names) - set(features))
            if other:
                raise TableError(f"`{argument}` names {other[0]!r}, which is no feature column")
        both = sorted(set(self.category_columns) & set(self.number_columns))
        if both:
            raise TableError(f"{both[0]!r} is in both `category_columns` and `number_columns`")


def learn_features(
    table: TableSource, names: Sequence[str], read_as: ReadAs | None = None
) -> tuple[FeatureRecipe, list[ColumnStatistics]]:
    """Learn in one pass over the table how columns become features.

    A column is numeric if all of its values are numbers, and categorical otherwise. Constant columns are left out.

    Parameters
    ----------
    table : TableSource
        The table of nodes to fit on.
    names : sequence of str
        Its feature columns.
    read_as : ReadAs, optional
        What the user says about the columns.

    Returns
    -------
    FeatureRecipe
        The encoding of the columns that are not constant.
    list of ColumnStatistics
        The statistics of every column.
    """
    read_as = read_as or ReadAs()
    read_as.check(names)
    columns = [
        ColumnStatistics(name, name in read_as.category_columns, name in read_as.number_columns, read_as.decimal_comma)
        for name in names
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
    encodings = [column.encoding(table.name) for column in columns]
    kept = tuple(encoding for encoding in encodings if encoding is not None)
    if not kept:
        raise TableError(
            f"{table.name}: all feature columns ({listed(names)}) are constant; nothing can be learnt from them"
        )
    return FeatureRecipe(kept), columns


@dataclass
class ColumnStatistics:
    """Statistics of one column, updated batch by batch, both as numbers and as categories.

    Parameters
    ----------
    name : str
        The column.
    is_category, is_number, decimal_comma : bool
        What the user says about it.

    Attributes
    ----------
    rows, missing, infinite : int
        Numbers of all values, of missing ones and of infinite ones.
    count, mean, squares, low, high
        Number, mean, sum of squared deviations, least and greatest of the finite numbers.
    numeric, others : int
        In a text column, the numbers of values that are numbers and of those that are not.
    first_text : tuple of str or None
        The first value that is not a number, and its place.
    texts : set of str
        The different texts; after more than `MOST_CATEGORIES` no further ones are added.
    whole : set of float or None
        The different numbers as long as all of them are whole and there are not many; ``None`` after that.
    """

    name: str
    is_category: bool = False
    is_number: bool = False
    decimal_comma: bool = False
    rows: int = field(default=0, init=False)
    missing: int = field(default=0, init=False)
    infinite: int = field(default=0, init=False)
    count: int = field(default=0, init=False)
    mean: float = field(default=0.0, init=False)
    squares: float = field(default=0.0, init=False)
    low: float = field(default=math.inf, init=False)
    high: float = field(default=-math.inf, init=False)
    numeric: int = field(default=0, init=False)
    others: int = field(default=0, init=False)
    first_text: tuple[str, str] | None = field(default=None, init=False)
    texts: set[str] = field(default_factory=set, init=False)
    whole: set[float] | None = field(default_factory=set, init=False)
    _is_text: bool = field(default=True, init=False)

    @property
    def is_text(self) -> bool:
        """Whether the column is read as categories."""
        return self.is_category or self.first_text is not None

    def update(self, array: Any, batch: Batch) -> None:
        """Add the values of a batch.

        Parameters
        ----------
        array : pyarrow.Array
            The column's values.
        batch : Batch
            The batch they come from.
        """
        types = pyarrow().types
        check_type(array, batch, self.name)
        if not types.is_string(array.type) and not types.is_null(array.type):
            self._is_text = False
        self.rows += len(array)
        if not self.is_category:
            self._add_as_numbers(array, batch)
        if (self._is_text or self.is_text) and not self.is_number:
            self._add_as_texts(array, batch)

    def _add_as_numbers(self, array: Any, batch: Batch) -> None:
        values = to_numbers(array, self.decimal_comma, self.is_number) if self.first_text is None else None
        if values is not None:
            self.missing += int(np.isnan(values).sum())
            self.infinite += int(np.isinf(values).sum())
            self.numeric += int((~np.isnan(values)).sum())
            self._add(values[np.isfinite(values)])
            return
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
                    f"{batch.place(row)}, but numbers in another table; give all of them as text or all as numbers"
                )
            self.first_text = (str(array[row].as_py()).strip()[:60], batch.place(row))

    def _add_as_texts(self, array: Any, batch: Batch) -> None:
        texts = as_text(array, batch.table, self.name)
        if self.is_category:
            self.missing += texts.null_count
        if len(self.texts) <= MOST_CATEGORIES:
            self.texts |= set(texts.drop_null().unique().to_pylist())

    def _add(self, values: np.ndarray) -> None:
        if not values.size:
            return
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        self._add_whole(values)
        with np.errstate(over="ignore", invalid="ignore"):
            # Chan's update: batches of any size, without the cancellation of sums of squares.
            mean, total = float(values.mean()), self.count + values.size
            shift = mean - self.mean
            self.squares += float(np.square(values - mean).sum()) + shift * shift * self.count * values.size / total
            self.mean += shift * values.size / total
            self.count = total

    def _add_whole(self, values: np.ndarray) -> None:
        if self.whole is None:
            return
        if bool((values != np.floor(values)).any()):
            self.whole = None
            return
        self.whole |= set(np.unique(values).tolist())
        if len(self.whole) > MOST_CATEGORIES:
            self.whole = None

    def encoding(self, where: str) -> Number | Category | None:
        """The column's encoding; ``None`` if it is constant.

        Parameters
        ----------
        where : str
            The name of the table, for messages.
        """
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
        return Number(self.name, self.mean, scale, has_missing, self.decimal_comma, self.is_number)

    def _category(self, where: str) -> Category | None:
        if len(self.texts) <= MOST_CATEGORIES:
            return Category(self.name, tuple(sorted(self.texts))) if len(self.texts) > 1 else None
        first = None if self.first_text is None else f"{quoted(self.first_text[0])} in {self.first_text[1]}"
        found = "has" if first is None else f"is text (first {first}) with"
        name = as_argument([self.name])
        advice = f"leave it out with `drop_columns` {name}"
        if self.has_decimal_commas:
            advice = "read it as numbers with `decimal_comma`, or " + advice
        elif self.numeric > self.others:
            advice = f"read it as numbers with `number_columns` {name}, or {advice}"
        raise TableError(
            f"{where}: column {self.name!r} {found} more than {MOST_CATEGORIES} different values, "
            f"too many for categories; {advice}"
        )

    @property
    def has_decimal_commas(self) -> bool:
        """Whether the values of a text column are numbers with decimal commas, as far as its first texts show."""
        if self.decimal_comma or not self.texts:
            return False
        texts = pyarrow().array(sorted(self.texts))
        return any("," in text for text in self.texts) and bool(are_numbers(texts, decimal_comma=True).all())
