"""Why rows are flagged, in terms of the tables: columns, values and linked rows, as data and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from oddnode.tables.columns import Category
from oddnode.tables.known_values import MOST_COLUMNS, Cells, KnownValues, is_word, rows_in_parts
from oddnode.tables.labels import NO_CLASSES
from oddnode.tables.values import quoted

# A value is told if so few known rows have one as rare.
_RARE = 0.05
# Links are told of a row if fewer of them lead to its predicted label than for most rows that are not flagged.
_NOTABLE = 0.1


@dataclass(frozen=True)
class ColumnReason:
    """An unusual value of a row, beside those of known rows: the labelled rows that the model was fitted on."""

    column: str  #: The column.
    #: How it is compared: as a number, as a count that most rows do not have, as a category, or as a category that was
    #: not seen at fit.
    kind: Literal["number", "word", "category", "unseen"]
    value: float | str  #: The value of the row.
    #: The predicted label, with whose known rows the value is compared; ``None`` for those of all labels.
    label: str | int | bool | None
    num_known: int  #: The number of these rows.
    num_alike: int | None  #: How many of them have the word or the category; ``None`` for numbers.
    low: float | None  #: `low`, `high`: the range of 95 % of their numbers; ``None`` for words and categories.
    high: float | None
    #: Minus the log of the share of known rows with a value as rare; larger for numbers beyond all known ones.
    surprise: float


@dataclass(frozen=True)
class LinkReason:
    """The rows that a flagged row is linked to."""

    label: str | int | bool  #: The predicted label of the row itself.
    num_links: int  #: Their number; each counts once.
    labels: dict[str | int | bool, int]  #: How many of them have each predicted label, the most frequent first.
    num_flagged: int  #: How many of them are flagged.


@dataclass(frozen=True)
class RowReason:
    """Why a row is flagged."""

    row: int  #: The row of the table of nodes.
    #: Its most unusual values, the most unusual first; empty if nine in ten known rows have values as unusual.
    columns: tuple[ColumnReason, ...]
    #: The rows that it is linked to, if fewer of them have its predicted label than for nine in ten unflagged rows.
    links: LinkReason | None

    @property
    def is_enough(self) -> bool:
        """Whether it names more than categories that were not seen, which alone are a small thing."""
        return self.links is not None or any(each.kind != "unseen" for each in self.columns)

    def __str__(self) -> str:
        return " ".join(
            [*_column_sentences(self.columns), *([] if self.links is None else [_link_sentence(self.links)])]
        )


def reasons_of(
    known: KnownValues | None,
    cells: Cells,
    rows: np.ndarray,
    predicted: np.ndarray,
    classes: Sequence[Any],
    links: dict[int, LinkReason],
) -> list[RowReason]:
    """Find the reasons for flagging some rows; ``predicted`` has the classes of all rows."""
    made, unseen = [], _unseen(cells)
    for part, _ in rows_in_parts(rows):
        surprises = None if known is None else known.surprises(cells, part, predicted[part])
        for place, row in enumerate(part.tolist()):
            named = list(unseen.get(row, ()))
            if known is not None and surprises is not None:
                group = int(known.group_of(predicted[row]))
                order = np.argsort(-surprises[place], kind="stable")[:MOST_COLUMNS]
                is_notable = surprises[place, order].sum() > known.notable[group]
                for column in order[is_notable & (surprises[place, order] >= -np.log(_RARE))].tolist():
                    named.append(_reason(known, cells, row, column, group, classes, float(surprises[place, column])))
            made.append(RowReason(row, tuple(named), links.get(row)))
    return made


def _unseen(cells: Cells) -> dict[int, list[ColumnReason]]:
    found: dict[int, list[ColumnReason]] = {}
    for column, _, counts in cells.columns:
        for row, value in counts.unseen_rows.items():
            found.setdefault(row, []).append(ColumnReason(column.name, "unseen", value, None, 0, 0, None, None, np.inf))
    return found


def _reason(
    known: KnownValues, cells: Cells, row: int, place: int, group: int, classes: Sequence[Any], surprise: float
) -> ColumnReason:
    column, features, counts = cells.columns[place]
    label = classes[group] if group < len(classes) and tuple(classes) != NO_CLASSES else None
    total = int(known.num_rows[group])
    if isinstance(column, Category):
        number = int(cells.x[row, features].argmax())
        alike = int(known.features[group, features.start + number, 5])
        return ColumnReason(
            column.name, "category", column.categories[number], label, total, alike, None, None, surprise
        )
    value = float(cells.numbers(column, features, counts, np.array([row]))[0])
    _, low, median, high, most, alike = known.features[group, features.start].tolist()
    if is_word(column, value, median, most):
        return ColumnReason(column.name, "word", value, label, total, int(alike), None, None, surprise)
    return ColumnReason(column.name, "number", value, label, total, None, low, high, surprise)


def notable_links(
    edge_index: np.ndarray, predicted: np.ndarray, is_flagged: np.ndarray, classes: Sequence[Any]
) -> dict[int, LinkReason]:
    """Find the flagged rows whose links lead to other predicted labels more than those of most unflagged rows."""
    from scipy.sparse import coo_array

    apart = edge_index[0] != edge_index[1]
    ends = edge_index[:, apart]
    shape = (len(predicted), len(predicted))
    to = coo_array((np.ones(ends.shape[1], dtype=np.int32), (ends[1], ends[0])), shape).tocsr()  # merges repeated edges
    degree = np.diff(to.indptr)
    target = np.repeat(np.arange(len(predicted)), degree)
    same = np.bincount(target, predicted[to.indices] == predicted[target], len(predicted)) / np.maximum(degree, 1)
    usual = same[~is_flagged & (degree > 0)]
    least = float(np.quantile(usual, _NOTABLE)) if len(usual) else 0.0
    found = {}
    for row in np.flatnonzero(is_flagged & (degree > 0) & (same < least)).tolist():
        linked = to.indices[to.indptr[row] : to.indptr[row + 1]]
        labels, counts = np.unique(predicted[linked], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        by_label = {classes[label]: int(count) for label, count in zip(labels[order], counts[order], strict=True)}
        found[row] = LinkReason(classes[predicted[row]], len(linked), by_label, int(is_flagged[linked].sum()))
    return found


# In words


def shown(value: Any, *beside: Any) -> str:
    """Format a number with five digits; beside much larger ones, what rounding leaves of 0 is 0.

    Examples
    --------
    >>> shown(412.0), shown(1234567.0), shown(0.123456), shown(-4.5e-8, 3.0)
    ('412', '1,234,600', '0.12346', '0')
    """
    is_rest = abs(value) < 2e-7 * max(map(abs, beside), default=0.0)  # features have the precision of 32-bit floats
    return f"{0.0 if is_rest else float(f'{value:.5g}'):,.12g}"


def known_rows(reason: ColumnReason) -> str:
    """Such as "the 240 known rows labelled kitchen"."""
    label = "" if reason.label is None else f" labelled {reason.label}"
    return f"the {reason.num_known:,} known rows{label}"


def _column_sentences(columns: Sequence[ColumnReason]) -> list[str]:
    sentences = []
    unseen = [f"{each.column} {quoted(each.value)}" for each in columns if each.kind == "unseen"]
    numbers = [each for each in columns if each.kind == "number"]
    rare = [each for each in columns if each.kind in ("word", "category")]
    for place, each in enumerate(numbers):
        of = f"95 % of {known_rows(each)} have" if not place else "theirs"
        near = each.low, each.high
        ends = shown(each.low, *near) + ("" if each.low == each.high else f" to {shown(each.high, *near)}")
        sentences.append(f"`{each.column}` is {shown(each.value, *near)}, {of} {ends}.")
    if rare:
        among = "them" if numbers else known_rows(rare[0])
        sentences.append(f"Rare among {among}: {', '.join(map(_rare_value, rare))}.")
    if unseen:
        sentences.append(f"{' and '.join(unseen)} {'was' if len(unseen) == 1 else 'were'} not seen in training.")
    return sentences


def _rare_value(reason: ColumnReason) -> str:
    value = f" {quoted(reason.value)}" if reason.kind == "category" else ""
    count = reason.num_alike or 0
    return f"`{reason.column}`{value} ({count} {'row' if count == 1 else 'rows'})"


def _link_sentence(links: LinkReason) -> str:
    """Such as "7 of 9 linked rows are predicted as cameras, 1 as kitchen, like this row, 3 are flagged."."""
    own, total = links.labels.get(links.label, 0), links.num_links
    others = [(label, count) for label, count in links.labels.items() if label != links.label]
    label, count = others[0]
    flagged = f"; {links.num_flagged} of them {'is' if links.num_flagged == 1 else 'are'} flagged"
    tail = flagged if links.num_flagged and total > 1 else ""
    if total == 1:
        return f"The only linked row is predicted as {label}, this row as {links.label}."
    if count <= own:
        verb = "is" if own == 1 else "are"
        return f"Only {own} of {total} linked rows {verb} predicted as {links.label}, like this row{tail}."
    verb = "is" if count == 1 else "are"
    return f"{count} of {total} linked rows {verb} predicted as {label}, {own} as {links.label}, like this row{tail}."
