"""Encode columns as features: numbers are standardised and categories one-hot encoded, using statistics from fit.

Edge-weight columns are read here, too. `oddnode.tables.amounts` reads strings as numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from oddnode.detector import ModelFileError
from oddnode.tables.amounts import Form
from oddnode.tables.node_types import NodeTypes
from oddnode.tables.reader import Batch
from oddnode.tables.values import (
    TableError,
    arrow_errors,
    as_argument,
    as_text,
    listed,
    pa,
    pc,
    quoted,
)

#: A column with more distinct strings than this holds names or free text, not categories.
MOST_CATEGORIES = 256
# Numbers are clipped at this many standard deviations, so that one outlier does not dominate the network's sums.
_FARTHEST = 5.0
# Profiles of labels with more means are not saved.
_MOST_MEANS = 100_000
# Added to the counts of a label, so that no mean is 0.
_PRIOR_COUNT = 0.05
# The reasons of this many rows name a category that was not seen, or a number that was clipped.
_MOST_UNSEEN = 100_000
# What this share of at least so many new rows lacks is a property of their table.
_MOST_OF_THEM, _MANY_NEW = 0.9, 100
# By Chebyshev's inequality, at most this share of the fitted values lies that far out.
_MOST_CLIPPED = 1 / 25


@dataclass
class ColumnCounts:
    """Counts from encoding a column, for notes to the user."""

    rows: int = 0
    missing: int = 0
    infinite: int = 0
    clipped: int = 0  # Number of values beyond five standard deviations
    example: float = 0.0  # One of these values
    unseen: int = 0  # Number of values whose category was not seen at fit
    misplaced: int = 0  # Number of values of types that did not have the column at fit
    new: set[str] = field(default_factory=set)
    unseen_rows: dict[int, str] = field(default_factory=dict)  # Some of these values, by row
    hidden_rows: dict[int, float] = field(default_factory=dict)  # Numbers that the features do not tell, by row

    def only(self, keep: np.ndarray) -> ColumnCounts:
        """Name rows by their places among those that are kept; the counts stay those of all."""
        place = np.cumsum(keep) - 1
        unseen = {int(place[row]): value for row, value in self.unseen_rows.items() if keep[row]}
        hidden = {int(place[row]): value for row, value in self.hidden_rows.items() if keep[row]}
        return replace(self, unseen_rows=unseen, hidden_rows=hidden)


class Number(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="number"):
    """A numeric column, standardised and clipped at five standard deviations; missing numbers count as the mean.

    Counts, most of which are 0, are divided by the standard deviation only, so that 0 stays 0; `FeatureRecipe` fills in
    missing ones.
    """

    name: str
    mean: Annotated[float, Meta(ge=-1e300, le=1e300)]  #: Mean at fit.
    scale: Annotated[float, Meta(gt=0, le=1e300)]  #: Standard deviation at fit.
    has_missing: bool = False  #: Whether numbers were missing at fit; if so, a second feature marks missing ones.
    decimal_comma: bool = False  #: Whether strings like ``"3,5"`` are numbers.
    text_is_missing: bool = False  #: Whether strings that are not numbers count as missing; if not, they are an error.
    is_count: bool = False  #: Whether at fit all were whole numbers of 0 or more, and at least half of them 0.
    unit: str = ""  #: A currency or ``%`` before or after the numbers.
    point_groups: bool = False  #: With decimal commas: whether points separate thousands.

    @property
    def form(self) -> Form:
        """How its numbers are written."""
        return Form(self.decimal_comma, self.unit, self.point_groups)

    @property
    def width(self) -> int:
        """One feature, or two if missing numbers are marked."""
        return 2 if self.has_missing else 1

    def _encode(self, array: Any, batch: Batch, counts: ColumnCounts) -> np.ndarray:
        values = self._numbers(array, batch)
        gone, centre = ~np.isfinite(values), 0.0 if self.is_count else self.mean
        scaled = (np.where(gone, centre, values) - centre) / self.scale
        far = np.abs(scaled) > _FARTHEST
        hidden = np.flatnonzero(far if self.has_missing else far | gone)[: _MOST_UNSEEN - len(counts.hidden_rows)]
        counts.hidden_rows |= dict(zip((counts.rows + hidden).tolist(), values[hidden].tolist(), strict=True))
        counts.rows += len(values)
        counts.infinite += int(np.isinf(values).sum())
        counts.missing += int(np.isnan(values).sum())
        # Counts are scaled from 0, but of the fitted ones, too, at most 1 in 25 is that far from the mean.
        far &= np.abs(scaled - (self.mean - centre) / self.scale) > _FARTHEST
        if far.any():
            counts.example = float(values[far.argmax()])
            counts.clipped += int(far.sum())
        features = np.clip(scaled, -_FARTHEST, _FARTHEST).astype(np.float32)[:, None]
        return np.hstack([features, gone[:, None].astype(np.float32)]) if self.has_missing else features

    def _numbers(self, array: Any, batch: Batch) -> np.ndarray:
        check_type(array, batch, self.name)
        values = self.form.numbers(array, self.text_is_missing)
        if values is None:
            row = int(np.argmin(self.form.are_numbers(array)))
            had = f"numbers with {self.form}" if str(self.form) else "numbers"
            raise TableError(
                f"{batch.table}: column {self.name!r} has the text {quoted(array[row].as_py())} in "
                f"{batch.row_name(row)}, but had {had} when the model was fitted"
            )
        return values


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
    """How the columns of a table become features. Saved with the model.

    A row whose counts are partly missing would look poor and unlike its neighbours. So it is filled in as a row of the
    label that is most similar in its other counts, with Poisson-distributed counts: as many of the cells as expected
    become positive, spread over the columns in proportion to their chance, each with its mean positive count.
    """

    columns: Annotated[tuple[Number | Category, ...], Meta(min_length=1)]  #: In the order of their features.
    #: For every label, its mean of each column of counts; empty: missing counts are 0.
    profiles: tuple[tuple[Annotated[float, Meta(gt=0, le=1e9)], ...], ...] = ()
    types: NodeTypes | None = None  #: Which types of nodes have which columns; ``None``: there are no types.

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def width(self) -> int:
        """The number of features."""
        return sum(column.width for column in self.columns)

    @property
    def feature_names(self) -> list[str]:
        """A name for every feature: the column, with the category that it stands for."""
        made: list[str] = []
        for column in self.columns:
            others = [" is missing"][: column.width - 1] if isinstance(column, Number) else ()
            values = ["", *others] if isinstance(column, Number) else [f" = {each}" for each in column.categories]
            made += [f"{column.name}{value}" for value in values]
        return made

    def column_of(self, feature: int) -> tuple[Number | Category, int]:
        """Find the column of a feature, and the first feature of that column.

        Parameters
        ----------
        feature : int
            The feature.
        """
        first = 0
        for column in self.columns:
            if feature < first + column.width:
                return column, first
            first += column.width
        raise IndexError(f"feature {feature} of {self.width}")

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

    def gone(self, x: np.ndarray) -> np.ndarray:
        """Which cells have no value that was known at fit, as far as features tell, by column ``[n, C]``.

        Parameters
        ----------
        x : numpy.ndarray
            Features ``[n, width]``.
        """
        parts = [(column, x[:, own]) for column, own in self.placed]
        found = [own[:, 1:].any(axis=1) if isinstance(column, Number) else ~own.any(axis=1) for column, own in parts]
        return np.stack(list(map(np.asarray, found)), axis=1)

    @property
    def placed(self) -> list[tuple[Number | Category, slice]]:
        """Each column with its features."""
        ends = np.cumsum([column.width for column in self.columns]).tolist()
        return [(column, slice(end - column.width, end)) for column, end in zip(self.columns, ends, strict=True)]

    def with_shared_gaps_filled(self, x: np.ndarray, is_new: np.ndarray) -> np.ndarray:
        """Features in which a column that nearly all new rows lack has the values of other rows, drawn at random.

        What is missing from a whole export says nothing about its rows, but sets them apart from known ones. Numbers
        that no feature marks as missing stay at their mean.

        Parameters
        ----------
        x : numpy.ndarray
            Features ``[n, width]``.
        is_new : numpy.ndarray
            Which rows are new ``[n]``; fewer than 100 are left as they are.
        """
        if is_new.sum() < _MANY_NEW or self.types is not None:
            return x
        gone, made, draw = self.gone(x), x, np.random.default_rng(0)
        for (_, own), is_gone in zip(self.placed, gone.T, strict=True):
            givers, takers = np.flatnonzero(~is_new & ~is_gone), np.flatnonzero(is_new & is_gone)
            if len(takers) >= _MOST_OF_THEM * is_new.sum() and 2 * len(givers) >= (~is_new).sum():
                made = x.copy() if made is x else made
                made[takers, own] = x[draw.choice(givers, len(takers)), own]
        return made

    @property
    def count_columns(self) -> tuple[np.ndarray, list[Number]]:
        """The columns of counts, and where their features start."""
        columns = [column for column in self.columns if isinstance(column, Number) and column.is_count]
        return np.flatnonzero(self.marked(counts_only=True)), columns

    def of_labelled_type(self, x: np.ndarray | None, num_rows: int) -> np.ndarray:
        """Which rows are of a type that has labels ``[N]``; all rows if there are no types.

        Parameters
        ----------
        x : numpy.ndarray or None
            Features ``[N, width]``.
        num_rows : int
            The number of rows N.
        """
        if self.types is None or x is None:
            return np.ones(num_rows, dtype=bool)
        return self.types.are_of(self, self.types.labelled, x)

    def check(self) -> None:
        """Raise an error for a saved recipe in which a category occurs twice, or a profile has another length."""
        if any(len(profile) != len(self.count_columns[1]) for profile in self.profiles):
            raise ModelFileError("table.features.profiles: expected one share for every column of counts")
        for column in self.columns:
            if isinstance(column, Category) and len(set(column.categories)) < len(column.categories):
                raise ModelFileError(f"table.features: the column {column.name[:60]!r} has a category twice")
        if self.types is not None:
            found = {c.name: c.categories for c in self.columns if isinstance(c, Category)}.get(self.types.column)
            named = {kind for kinds in (*self.types.owners.values(), self.types.labelled) for kind in kinds}
            if found is None or not named <= set(found):
                raise ModelFileError(f"table.features: the column of types {self.types.column[:60]!r} lacks a type")

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
        gone = list[np.ndarray]()
        with arrow_errors(f"{batch.table} cannot be read"):
            for (column, own), array, count in zip(self.placed, arrays, counts, strict=True):
                before = count.missing + count.infinite
                out[:, own] = column._encode(array, batch, count)
                if self.profiles and isinstance(column, Number) and column.is_count:
                    is_whole = count.missing + count.infinite == before
                    none = np.zeros(batch.num_rows, dtype=bool)
                    gone.append(none if is_whole else ~np.isfinite(column._numbers(array, batch)))
        if gone and any(map(np.any, gone)):
            self._fill_counts(out, np.stack(gone, axis=1))
        if self.types is not None:
            self.types.clear(self, out, arrays, batch, counts)
        return out

    def _fill_counts(self, x: np.ndarray, gone: np.ndarray) -> None:
        """Fill in the counts ``[n, C]`` that are missing."""
        rows = np.flatnonzero(gone.any(axis=1))
        places, columns = self.count_columns
        scales, means, gone = np.array([column.scale for column in columns]), np.array(self.profiles), gone[rows]
        counts = x[np.ix_(rows, places)] * scales
        likelihood = counts @ np.log(means).T - ~gone @ means.T
        rates = means[likelihood.argmax(axis=1)]
        chance = np.where(gone, -np.expm1(-rates), 0.0)
        # A cell is positive where the sum of the chances up to it passes a half, one and a half, and so on.
        sums = np.cumsum(chance, axis=1) + 0.5
        row, column = np.nonzero(np.floor(sums) > np.floor(sums - chance))
        filled = (rates / -np.expm1(-rates) / scales)[row, column]
        x[rows[row], places[column]] = np.minimum(filled, _FARTHEST)

    def fills(self, counts: Sequence[ColumnCounts]) -> bool:
        """Whether some of the counts in a table that was encoded without profiles would have been filled in.

        Parameters
        ----------
        counts : sequence of ColumnCounts
            The counts from encoding it.
        """
        pairs = zip(self.columns, counts, strict=True)
        missing = [n.missing + n.infinite for column, n in pairs if isinstance(column, Number) and column.is_count]
        return bool(self.profiles) and any(missing)

    def with_profiles(self, encoded: Iterable[tuple[np.ndarray, np.ndarray]], num_labels: int) -> FeatureRecipe:
        """Learn the profiles of labels.

        Parameters
        ----------
        encoded : iterable of tuple
            Features ``[n, width]`` and labels ``[n]`` of some rows at a time; -1 = not labelled.
        num_labels : int
            The number of labels.
        """
        places, columns = self.count_columns
        if not columns or num_labels * len(columns) > _MOST_MEANS:
            return self
        total, seen = np.zeros((num_labels, len(columns))), np.zeros((num_labels, len(columns)))
        marked = np.array([column.has_missing for column in columns])
        for x, y in encoded:
            x, labels = x[y >= 0], np.eye(num_labels, dtype=np.float32)[y[y >= 0]].T
            is_seen = np.ones((len(x), len(columns)), dtype=np.float32)
            is_seen[:, marked] -= x[:, places[marked] + 1]
            total += labels @ x[:, places]
            seen += labels @ is_seen
        scales = np.array([column.scale for column in columns])
        means = (total * scales + _PRIOR_COUNT) / (seen + 1)
        profiles = tuple(tuple(float(f"{mean:.4g}") for mean in row) for row in means)
        return msgspec.structs.replace(self, profiles=profiles)


class WeightColumn(Struct, frozen=True, forbid_unknown_fields=True):
    """A column of edge weights: finite and non-negative, none missing."""

    name: str
    decimal_comma: bool = False  # Whether strings like `"3,5"` are numbers

    def read(self, array: Any, batch: Batch) -> np.ndarray:
        form = Form(self.decimal_comma)
        try:
            values = form.numbers(array)
        except pa.ArrowException:  # dates, lists and the like
            raise self._wrong(array, batch, 0) from None
        if values is None:
            raise self._wrong(array, batch, int(np.argmin(form.are_numbers(array))))
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
            f"{'use it as `time_column`, ' if types.is_temporal(kind) else ''}or leave it out when fitting: "
            f"`drop_columns` {as_argument([column])}"
        )


def notes_on_scored_columns(recipe: FeatureRecipe, counts: Sequence[ColumnCounts]) -> list[str]:
    """Notes on columns that differ from the fitted table."""
    pairs = list(zip(recipe.columns, counts, strict=True))
    notes = []
    infinite = [f"{column.name} ({count.infinite} of {count.rows})" for column, count in pairs if count.infinite]
    for is_count, how in ((False, "missing numbers count as the mean"), (True, how_counts_are_filled(recipe))):
        missing = [
            f"{column.name} ({count.missing} of {count.rows})"
            for column, count in pairs
            if isinstance(column, Number) and count.missing and not column.has_missing and column.is_count == is_count
        ]
        if missing:
            notes.append(f"{how}; none was missing when the model was fitted: {listed(missing)}")
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


def how_counts_are_filled(recipe: FeatureRecipe) -> str:
    """What happens to missing counts, for notes."""
    return (
        "missing counts are filled in from rows of the most similar label"
        if recipe.profiles
        else "missing counts are 0"
    )


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
