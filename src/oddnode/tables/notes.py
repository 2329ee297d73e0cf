"""Notes for the user about columns: what was read in a way that may not be meant, and what settles it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oddnode.tables.columns import MOST_CATEGORIES, Category, ColumnCounts, FeatureRecipe
from oddnode.tables.learning import ColumnStatistics
from oddnode.tables.splits import SPLIT_WORDS
from oddnode.tables.values import as_argument, listed, quoted

__all__ = ["notes_on_fitted_columns", "notes_on_scored_columns"]

_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./]\d\d?[./](\d\d|\d{4})")
# By Chebyshev's inequality no more than this share of the fitted table lies beyond five standard deviations.
_MOST_CLIPPED = 1 / 25
# A column with fewer rows per value holds amounts rather than codes.
_ROWS_PER_CODE = 10


def notes_on_fitted_columns(columns: Sequence[ColumnStatistics], recipe: FeatureRecipe) -> list[str]:
    """Say which feature columns of the fitted table may have been read in another way than meant.

    Parameters
    ----------
    columns : sequence of ColumnStatistics
        The statistics of the feature columns.
    recipe : FeatureRecipe
        What was learnt from them.
    """
    used = set(recipe.names)
    constant = [column.name for column in columns if column.name not in used]
    numbers = [column for column in columns if column.name in used and not column.is_text]
    missing = [f"{column.name} ({column.missing} of {column.rows})" for column in numbers if column.missing]
    infinite = [f"{column.name} ({column.infinite} of {column.rows})" for column in numbers if column.infinite]
    codes = [column for column in numbers if _may_be_codes(column)]
    notes = []
    if constant:
        notes.append(f"constant columns are left out: {listed(constant)}")
    if missing:
        notes.append(f"missing numbers count as the mean of their column, and a feature marks them: {listed(missing)}")
    if infinite:
        notes.append(f"infinite numbers count as missing: {listed(infinite)}")
    if codes:
        found = listed([f"{column.name} ({len(column.whole or ())} values)" for column in codes])
        names = as_argument([column.name for column in codes[:10]])
        notes.append(
            f"whole numbers with few values are read as amounts: {found}; if they are codes: `category_columns` {names}"
        )
    texts = (_note_on_text(column) for column in columns if column.name in used and column.is_text)
    return notes + [note for note in texts if note is not None]


def _may_be_codes(column: ColumnStatistics) -> bool:
    num_values = len(column.whole or ())
    return num_values > 2 and num_values * _ROWS_PER_CODE <= column.count and not column.is_number


def _note_on_text(column: ColumnStatistics) -> str | None:
    name, count, argument = column.name, len(column.texts), as_argument([column.name])
    if column.is_category:
        return None
    if {text.lower() for text in column.texts} <= set(SPLIT_WORDS):
        words = listed(sorted(column.texts))
        return (
            f"column {name!r} looks like a split ({words}), but is used as a feature; "
            f"use it with `split_column` {argument}, or leave it out with `drop_columns` {argument}"
        )
    if column.has_decimal_commas:
        example = next(text for text in sorted(column.texts) if "," in text)
        return f"column {name!r} is read as {count} categories; if {example} is a number: `decimal_comma`"
    if column.numeric > column.others and column.first_text is not None:
        text, place = column.first_text
        return (
            f"column {name!r} is read as {count} categories, because {column.others} of "
            f"{column.numeric + column.others} values are no numbers (first {quoted(text)} in {place}); correct them, "
            f"or let them count as missing with `number_columns` {argument}"
        )
    if all(_DATE.fullmatch(text) for text in column.texts):
        return f"column {name!r} holds dates, read as {count} categories; leave it out with `drop_columns` {argument}"
    return None


def notes_on_scored_columns(recipe: FeatureRecipe, counts: Sequence[ColumnCounts]) -> list[str]:
    """Say which columns of a table differ from those of the fitted table.

    Parameters
    ----------
    recipe : FeatureRecipe
        What was learnt from the fitted table.
    counts : sequence of ColumnCounts
        What encoding has met, one for each column of the recipe.
    """
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
        note += f". The model knows {listed([quoted(text) for text in column.categories], 5)}; are they spelt alike?"
    return [note]
