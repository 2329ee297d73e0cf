"""Columns of a table as features: numbers are scaled, categories one-hot, with the statistics of the fitted table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from oddnode.detector import ModelFileError
from oddnode.tables.reader import TableError, TableSource, missing_to_null, pyarrow

__all__ = ["Category", "FeatureRecipe", "Number", "learn_features"]

# More different texts than this in one column are names or free text, not categories.
_MOST_CATEGORIES = 256
# Numbers are clipped at this many standard deviations, so that one outlier does not dominate the network's sums.
_FARTHEST = 5.0


class Number(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="number"):
    """A numeric column, standardised and clipped at five standard deviations.

    Parameters
    ----------
    name : str
        The column.
    mean, scale : float
        Mean and standard deviation at fit.
    """

    name: str
    mean: Annotated[float, Meta(ge=-1e300, le=1e300)]
    scale: Annotated[float, Meta(gt=0, le=1e300)]

    @property
    def width(self) -> int:
        """One feature."""
        return 1

    def encode(self, array: Any, where: str, first_row: int) -> tuple[np.ndarray, int]:
        """Turn the values of a batch into features.

        Parameters
        ----------
        array : pyarrow.Array
            The column's values in n rows.
        where : str
            The name of the table, for messages.
        first_row : int
            The number of the first of these rows, for messages.

        Returns
        -------
        numpy.ndarray
            Features ``[n, width]``.
        int
            Number of values whose category was not seen at fit.
        """
        values = _numbers(array)
        if values is None:
            row, text = _first_text(array)
            raise TableError(
                f"{where}: column {self.name!r} has the text {text!r} in row {first_row + row}, "
                "but had numbers when the model was fitted"
            )
        bad = ~np.isfinite(values)
        if bad.any():
            raise _not_finite(where, self.name, first_row + int(bad.argmax()), values[bad.argmax()])
        scaled = np.clip((values - self.mean) / self.scale, -_FARTHEST, _FARTHEST)
        return scaled.astype(np.float32)[:, None], 0


class Category(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="category"):
    """A text column, one-hot. Missing values and values not seen at fit become zeros.

    Parameters
    ----------
    name : str
        The column.
    categories : tuple of str
        The values seen at fit.
    """

    name: str
    categories: Annotated[tuple[str, ...], Meta(min_length=1)]

    @property
    def width(self) -> int:
        """One feature per category."""
        return len(self.categories)

    def encode(self, array: Any, where: str, first_row: int) -> tuple[np.ndarray, int]:
        """Turn the values of a batch into features.

        Parameters
        ----------
        array : pyarrow.Array
            The column's values in n rows.
        where : str
            The name of the table, for messages.
        first_row : int
            The number of the first of these rows, for messages.

        Returns
        -------
        numpy.ndarray
            Features ``[n, width]``.
        int
            Number of values whose category was not seen at fit.
        """
        pa = pyarrow()
        import pyarrow.compute as pc

        texts = missing_to_null(array.cast(pa.string()))
        index = pc.index_in(texts, value_set=pa.array(self.categories, pa.string()), skip_nulls=True)
        known = index.is_valid().to_numpy(zero_copy_only=False)
        out = np.zeros((len(array), self.width), dtype=np.float32)
        out[np.flatnonzero(known), index.fill_null(0).to_numpy(zero_copy_only=False)[known]] = 1.0
        return out, int((~known & texts.is_valid().to_numpy(zero_copy_only=False)).sum())


class FeatureRecipe(Struct, frozen=True, forbid_unknown_fields=True):
    """How the columns of a table become features. Saved with the model.

    Parameters
    ----------
    columns : tuple of Number or Category
        The columns in the order of their features.
    """

    columns: Annotated[tuple[Number | Category, ...], Meta(min_length=1)]

    @property
    def names(self) -> list[str]:
        """The columns it reads."""
        return [column.name for column in self.columns]

    @property
    def width(self) -> int:
        """The number of features."""
        return sum(column.width for column in self.columns)

    def check(self) -> None:
        """Raise an error for a saved recipe in which a category occurs twice."""
        for column in self.columns:
            if isinstance(column, Category) and len(set(column.categories)) < len(column.categories):
                raise ModelFileError(f"table.features: the column {column.name[:60]!r} has a category twice")

    def encode(self, arrays: Sequence[Any], where: str, first_row: int) -> tuple[np.ndarray, int]:
        """Turn a batch of rows into features.

        Parameters
        ----------
        arrays : sequence of pyarrow.Array
            The columns named by `names`, with n rows.
        where : str
            The name of the table, for messages.
        first_row : int
            The number of the first of these rows, for messages.

        Returns
        -------
        numpy.ndarray
            Features ``[n, width]``.
        int
            Number of values whose category was not seen at fit.
        """
        out = np.empty((len(arrays[0]), self.width), dtype=np.float32)
        unseen, start = 0, 0
        for column, array in zip(self.columns, arrays, strict=True):
            values, unknown = column.encode(array, where, first_row)
            out[:, start : start + column.width] = values
            start += column.width
            unseen += unknown
        return out, unseen


def learn_features(table: TableSource, names: Sequence[str]) -> tuple[FeatureRecipe, list[str]]:
    """Learn in one pass over the table how columns become features.

    A column is numeric if all of its values are numbers, and categorical otherwise. Constant columns are left out.

    Parameters
    ----------
    table : TableSource
        The table of nodes to fit on.
    names : sequence of str
        Its feature columns.

    Returns
    -------
    FeatureRecipe
        The encoding of the columns that are not constant.
    list of str
        Notes for the user.
    """
    learners = [_Learner(name) for name in names]
    rows = 0
    for arrays in table.batches(names):
        for learner, array in zip(learners, arrays, strict=True):
            learner.see(array, rows + 1, table.name)
        rows += len(arrays[0]) if arrays else 0
    if rows == 0:
        raise TableError(f"{table.name} has a header, but no rows")
    if rows == 1:
        raise TableError(f"{table.name} has one node; fitting needs more")
    columns = [(learner.name, learner.column(table.name)) for learner in learners]
    constant = [name for name, column in columns if column is None]
    kept = tuple(column for _, column in columns if column is not None)
    if not kept:
        raise TableError(
            f"{table.name}: all feature columns ({', '.join(constant[:10])}) are constant; "
            "nothing can be learnt from them"
        )
    notes = [f"constant columns are left out: {', '.join(constant)}"] if constant else []
    return FeatureRecipe(kept), notes


@dataclass
class _Learner:
    """Statistics of one column, updated batch by batch, both as numbers and as categories."""

    name: str
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    first_bad: tuple[int, float] | None = None
    first_text: tuple[int, str] | None = None
    texts: set[str] = field(default_factory=set)
    is_text: bool = True

    def see(self, array: Any, first_row: int, where: str) -> None:
        pa = pyarrow()
        if not _usable(array):
            raise TableError(f"{where}: column {self.name!r} holds {array.type}, expected numbers or text")
        if not pa.types.is_string(array.type) and not pa.types.is_null(array.type):
            self.is_text = False
        if self.first_text is None:
            values = _numbers(array)
            if values is None:
                row, text = _first_text(array)
                self.first_text = (first_row + row, text)
            else:
                self._add(values, first_row)
        if self.is_text and len(self.texts) <= _MOST_CATEGORIES:
            self.texts |= set(missing_to_null(array).drop_null().unique().to_pylist())

    def _add(self, values: np.ndarray, first_row: int) -> None:
        bad = ~np.isfinite(values)
        if bad.any() and self.first_bad is None:
            self.first_bad = (first_row + int(bad.argmax()), float(values[bad.argmax()]))
        values = values[~bad]
        if not values.size:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            # Chan's update: batches of any size, without the cancellation of sums of squares.
            mean, total = float(values.mean()), self.count + values.size
            shift = mean - self.mean
            self.squares += float(np.square(values - mean).sum()) + shift * shift * self.count * values.size / total
            self.mean += shift * values.size / total
            self.count = total

    def column(self, where: str) -> Number | Category | None:
        """The column's encoding; ``None`` if it is constant."""
        if self.first_text is not None:
            return self._category(where)
        if self.count == 0 and (self.first_bad is None or math.isnan(self.first_bad[1])):
            return None  # all values are missing
        if self.first_bad is not None:
            raise _not_finite(where, self.name, *self.first_bad)
        scale = math.sqrt(self.squares / self.count) if math.isfinite(self.squares) else math.inf
        if not math.isfinite(scale) or abs(self.mean) > 1e299:
            raise TableError(f"{where}: the values of column {self.name!r} are too large to be scaled")
        if scale <= 1e-12 * max(abs(self.mean), 1e-290):
            return None
        return Number(self.name, self.mean, scale)

    def _category(self, where: str) -> Category | None:
        assert self.first_text is not None
        if len(self.texts) > _MOST_CATEGORIES:
            row, text = self.first_text
            raise TableError(
                f"{where}: column {self.name!r} is text (first in row {row}: {text!r}) with more than "
                f"{_MOST_CATEGORIES} different values, too many for categories; correct it if it should hold numbers, "
                "or leave it out by naming the other feature columns"
            )
        return Category(self.name, tuple(sorted(self.texts))) if len(self.texts) > 1 else None


def _usable(array: Any) -> bool:
    types = pyarrow().types
    kind = array.type
    return any(
        test(kind)
        for test in (
            types.is_integer,
            types.is_floating,
            types.is_boolean,
            types.is_string,
            types.is_null,
            types.is_decimal,
        )
    )


def _numbers(array: Any) -> np.ndarray | None:
    """The values as numbers, missing ones as NaN; ``None`` if some value is not a number."""
    pa = pyarrow()
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    try:
        numbers = missing_to_null(array).cast(pa.float64(), safe=False)
    except pa.ArrowInvalid:
        return None
    return numbers.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)


def _first_text(array: Any) -> tuple[int, str]:
    """Position and value of the first entry that is not a number."""
    for row, text in enumerate(missing_to_null(array).to_pylist()):
        if text is not None and not _parses(text):
            return row, str(text)[:60]
    return 0, ""


def _parses(text: Any) -> bool:
    pa = pyarrow()
    try:
        pa.array([text]).cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _not_finite(where: str, name: str, row: int, value: float) -> TableError:
    what = "is missing or NaN" if math.isnan(value) else "is infinite"
    return TableError(
        f"{where}: column {name!r} {what} in row {row}; fill or remove such rows, or leave the column out "
        "by naming the other feature columns"
    )
