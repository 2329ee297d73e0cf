"""Flagged rows that belong together are one finding: they are linked, or the same values of them are unusual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oddnode.tables.columns import Category
from oddnode.tables.known_values import Cells, KnownValues, rows_in_parts
from oddnode.tables.labels import NO_CLASSES
from oddnode.tables.reasons import shown

# Fewer rows are no finding.
_FEWEST = 3
# Links between flagged rows count if both have more than would be there by chance, with this probability.
_CHANCE = 0.05
# Two rows can be alike if each is among so many that are most like the other.
_NEIGHBOURS = 10
# Neighbours are searched for in so many dimensions: a tree finds them in little more than linear time.
_DIMENSIONS = 12
# A value is rare if at most this share of known rows has one as rare.
_RARE = 0.05
# Values are told that at least half of the rows have, and so many times the share of known rows.
_CONTRAST = 5.0
_MOST_SHARED = 4


@dataclass(frozen=True)
class SharedValue:
    """A value that most rows of a finding have and few known rows."""

    column: str  #: The column.
    value: str | None  #: The category; ``None`` for words and numbers.
    #: How many rows of the finding have the word, the category, or a number outside the range of known rows.
    num_rows: int
    #: `num_alike`, `num_known`: how many of the known rows of all labels have the word or the category; for numbers 5 %
    #: lie outside the range.
    num_alike: int
    num_known: int
    #: `low`, `high`: the range of 95 % of the known numbers; ``None`` for words and categories.
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class FlaggedGroup:
    """A finding: flagged rows that belong together."""

    number: int  #: 1 for the largest finding.
    rows: tuple[int, ...]  #: Rows of the table of nodes.
    num_flagged: int  #: The number of flagged rows among which findings were looked for.
    num_linked: int  #: How many rows of the finding are linked to another of its rows.
    #: How many of them have each predicted label, the most frequent, which is the nearest known one, first.
    labels: dict[str | int | bool, int]
    shared: tuple[SharedValue, ...]  #: What they share.

    def __str__(self) -> str:
        total, (label, count) = len(self.rows), next(iter(self.labels.items()))
        linked = f", {'all' if self.num_linked == total else self.num_linked} of them linked" if self.num_linked else ""
        shared = f": {', '.join(_shared_value(each) for each in self.shared)}" if self.shared else ""
        nearest = "" if tuple(self.labels) == NO_CLASSES else f" Nearest known label: {label} (predicted for {count})."
        return f"{total} of the {self.num_flagged} flagged rows belong together{linked}{shared}.{nearest}"


def grouped_rows(is_flagged: np.ndarray, seen: np.ndarray | None) -> np.ndarray:
    """The flagged rows to look for findings in: those new to the model, or all if none is new or nobody knows."""
    return is_flagged if seen is None or seen.all() else is_flagged & ~seen


def group_flagged(
    known: KnownValues | None,
    cells: Cells,
    rows: np.ndarray,
    edge_index: np.ndarray,
    predicted: np.ndarray,
    classes: Sequence[Any],
) -> list[FlaggedGroup]:
    """Group flagged rows ``[n]``; ``predicted`` has the classes of all rows. Rows that stand alone are in no group."""
    from scipy.sparse.csgraph import connected_components

    links, is_many = _links_between(rows, edge_index, len(predicted))
    joined = _pairs(links, is_many[links.row] & is_many[links.col])
    if known is not None:
        surprises = _surprises(known, cells, rows)
        # By chance, no more than a quarter of the links of a row join rows that share so much.
        alike = _shared_surprise(surprises, links.row, links.col) >= np.log(
            4.0 * max(links.nnz / max(len(rows), 1), 1.0)
        )
        joined = joined + _pairs(links, alike) + _alike(surprises, int(known.num_rows[-1]))
    _, label = connected_components(joined, directed=False)
    sizes = np.bincount(label, minlength=1)
    is_linked = np.bincount(links.row, label[links.row] == label[links.col], len(rows)) > 0
    order = [number for number in np.argsort(-sizes, kind="stable").tolist() if sizes[number] >= _FEWEST]
    members = np.split(np.argsort(label, kind="stable"), np.cumsum(sizes)[:-1])
    made = []
    for number, group in enumerate((members[each] for each in order), 1):
        counts = np.bincount(predicted[rows[group]], minlength=len(classes))
        ranked = [each for each in np.argsort(-counts, kind="stable").tolist() if counts[each]]
        made.append(
            FlaggedGroup(
                number,
                tuple(np.sort(rows[group]).tolist()),
                len(rows),
                int(is_linked[group].sum()),
                {classes[each]: int(counts[each]) for each in ranked},
                () if known is None else _shared(known, cells, rows[group]),
            )
        )
    return made


def _links_between(rows: np.ndarray, edge_index: np.ndarray, num_nodes: int) -> tuple[Any, np.ndarray]:
    """The links between some rows ``[n, n]``, and which rows have more of them than by chance ``[n]``."""
    from scipy.sparse import coo_array
    from scipy.special import bdtrc

    place = np.full(num_nodes, -1)
    place[rows] = np.arange(len(rows))
    ends = place[edge_index[:, edge_index[0] != edge_index[1]]]
    degree = np.bincount(ends[1][ends[1] >= 0], minlength=len(rows))
    from_flagged = ends[0] >= 0
    share = float(from_flagged.mean()) if ends.shape[1] else 0.0
    ends = ends[:, from_flagged & (ends[1] >= 0)]
    inside = np.bincount(ends[1], minlength=len(rows))
    links = coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), (len(rows), len(rows)))
    return links, (inside > 0) & (bdtrc(np.maximum(inside - 1.0, 0.0), degree, share) <= _CHANCE)


def _pairs(links: Any, keep: np.ndarray) -> Any:
    from scipy.sparse import coo_array

    return coo_array((links.data[keep], (links.row[keep], links.col[keep])), links.shape).tocsr()


def _shared_surprise(surprises: Any, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The surprise of the values that two rows share, for pairs of rows ``[pairs]``."""
    return np.asarray(surprises[first].minimum(surprises[second]).sum(axis=1)).ravel()


def _surprises(known: KnownValues, cells: Cells, rows: np.ndarray) -> Any:
    """The surprises of rare values among the known rows of all labels ``[n, 2 F + unseen categories]``.

    Each feature has two columns: one for values above the median, such as words and categories, and one for others.
    """
    from scipy.sparse import coo_array

    group, width, entries = len(known.num_rows) - 1, cells.x.shape[1], []
    for part, at in rows_in_parts(rows):
        found = known.surprises(cells, part, np.full(len(part), group))
        for place, (column, features, counts) in enumerate(cells.columns):
            here = np.flatnonzero(found[:, place] >= -np.log(_RARE))
            feature = np.full(len(here), features.start)
            if isinstance(column, Category):
                feature += cells.x[part[here], features].argmax(axis=1)
            else:
                is_low = cells.numbers(column, features, counts, part[here]) < known.features[group, features.start, 2]
                feature[is_low] += width
            entries.append(np.stack([here + at.start, feature, found[here, place]]))
    number: dict[tuple[str, str], int] = {}
    place_of = {row: place for place, row in enumerate(rows.tolist())}
    for column, _, counts in cells.columns:
        for row in filter(place_of.__contains__, counts.unseen_rows):
            own = number.setdefault((column.name, counts.unseen_rows[row]), 2 * width + len(number))
            entries.append(np.array([[place_of[row]], [own], [np.log(known.num_rows[group] + 1.0)]]))
    row, feature, value = np.concatenate([np.zeros((3, 0)), *entries], axis=1)
    shape = (len(rows), 2 * width + len(number))
    return coo_array((value, (row.astype(np.int64), feature.astype(np.int64))), shape).tocsr()


def _alike(surprises: Any, num_known: int) -> Any:
    """Pairs of rows in which the same values are unusual ``[n, n]``: mutual nearest neighbours that share enough.

    Any two rows share some surprise by chance. So much is needed that a row shares it with less than one other by
    chance, but no more than a value that no known row has.
    """
    from scipy.sparse import coo_array
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import normalize
    from sklearn.utils.extmath import randomized_svd

    count = surprises.shape[0]
    some = np.flatnonzero(np.diff(surprises.indptr))
    if len(some) < 2:
        return coo_array((count, count)).tocsr()
    chosen = surprises[some]
    dimensions = min(_DIMENSIONS, len(some), chosen.shape[1])
    left, scale, _ = randomized_svd(normalize(chosen), dimensions, random_state=0)
    flat = left * scale
    search = NearestNeighbors(n_neighbors=min(_NEIGHBOURS, len(some) - 1), algorithm="kd_tree").fit(flat)
    near = search.kneighbors_graph().tocoo()
    enough = min(np.log(2.0 * count), np.log(num_known + 1.0)) - 1e-9
    keep = _shared_surprise(chosen, near.row, near.col) >= enough
    pairs = coo_array((np.ones(int(keep.sum())), (some[near.row[keep]], some[near.col[keep]])), (count, count)).tocsr()
    return pairs.multiply(pairs.T).tocsr()


def _shared(known: KnownValues, cells: Cells, rows: np.ndarray) -> tuple[SharedValue, ...]:
    """The values that at least half of the rows have, those first that are rarest among known rows in comparison."""
    group = len(known.num_rows) - 1
    total, found = int(known.num_rows[group]), []
    for column, features, counts in cells.columns:
        statistics = known.features[group, features]
        if isinstance(column, Category):
            having = np.count_nonzero(cells.x[rows, features], axis=0)
            number = int(having.argmax())
            value = SharedValue(
                column.name, column.categories[number], int(having[number]), int(statistics[number, 5]), total
            )
        elif column.is_count and statistics[0, 2] == 0:
            having = np.count_nonzero(cells.x[rows, features.start])
            value = SharedValue(column.name, None, int(having), int(statistics[0, 5]), total)
        else:
            _, low, _, high, _, present = statistics[0].tolist()
            numbers = cells.numbers(column, features, counts, rows)
            outside = int(((numbers < low) | (numbers > high)).sum())
            value = SharedValue(column.name, None, outside, int(_RARE * present), total, low, high)
        found.append(value)
    found += _shared_unseen(cells, rows, total)
    contrast = [np.log((each.num_rows + 1) / (len(rows) + 1) * (total + 1) / (each.num_alike + 1)) for each in found]
    order = np.argsort(-np.array(contrast), kind="stable").tolist()
    chosen = [
        found[each] for each in order if 2 * found[each].num_rows >= len(rows) and contrast[each] >= np.log(_CONTRAST)
    ]
    return tuple(chosen[:_MOST_SHARED])


def _shared_unseen(cells: Cells, rows: np.ndarray, total: int) -> list[SharedValue]:
    found = []
    for column, _, counts in cells.columns:
        texts = [counts.unseen_rows[row] for row in rows.tolist() if row in counts.unseen_rows]
        found += [SharedValue(column.name, text, texts.count(text), 0, total) for text in dict.fromkeys(texts)]
    return found


def _shared_value(shared: SharedValue) -> str:
    """Such as "31 have `lens` (9 of 490 known rows)"."""
    if shared.low is not None:
        low, high = shown(shared.low, shared.high), shown(shared.high, shared.low)
        return f"{shared.num_rows} have `{shared.column}` outside {low} to {high}, where 95 % of known rows are"
    value = "" if shared.value is None else f" {shared.value!r}"
    return f"{shared.num_rows} have `{shared.column}`{value} ({shared.num_alike} of {shared.num_known} known rows)"
