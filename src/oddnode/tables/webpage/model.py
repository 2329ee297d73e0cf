"""The data of the page, from a model, a table of scores and the tables that were scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oddnode.detector import Calibration
from oddnode.detector.drift import CHANCE
from oddnode.functional import share_interval
from oddnode.graph.alterations import forecast_in_words
from oddnode.tables.columns import Category
from oddnode.tables.decisions import expected_false_alarms
from oddnode.tables.findings import FlaggedGroup, group_flagged, grouped_rows
from oddnode.tables.graphs import TableGraph
from oddnode.tables.known_values import Cells, KnownValues
from oddnode.tables.labels import read_marks
from oddnode.tables.model import TableModel
from oddnode.tables.reader import TableSource, open_table
from oddnode.tables.reasons import reasons_of, shown
from oddnode.tables.scores import few_links, notes_on_rows
from oddnode.tables.used_rows import USES, uses_of
from oddnode.tables.values import TableError, arrow_errors, as_text, concatenated, listed, pa, pc, quoted

# A column has changed if the shares of new and of known rows with some value are this many points apart.
_CHANGED = 0.05


@dataclass(frozen=True)
class ColumnChange:
    """How the new rows differ from the known rows in a column."""

    column: str  #: The column.
    what: str  #: Which values are counted, in words.
    known: float  #: `known`, `new`: the share of the known and of the new rows that have such a value.
    new: float


@dataclass(frozen=True)
class ScorePage:
    """Everything on the page."""

    ids: list[str]  #: The ids of the N nodes of the tables.
    scores: np.ndarray  #: Their scores ``[N]``; NaN for nodes that the table of scores does not have.
    #: `is_flagged`, `is_new`: which are flagged ``[N]``, and which the model was not fitted on ``[N]``; none is new if
    #: nobody knows.
    is_flagged: np.ndarray
    is_new: np.ndarray
    predicted: list[str | None]  #: Their predicted labels.
    why: dict[int, str]  #: The reasons for flagging a node, by row.
    edges: np.ndarray  #: The links ``[2, E]``.
    calibration: Calibration  #: The known nodes that the model was calibrated on.
    #: The calibrated threshold, or one that flags the same nodes as a budget or a rate of false discoveries.
    threshold: float
    findings: list[FlaggedGroup]  #: Flagged nodes that belong together.
    changes: list[ColumnChange]  #: Columns in which new rows differ, the largest difference first.
    notes: list[str]  #: What was not seen, or may not be right.
    facts: dict[str, Any]  #: The model and the tables, by name.
    #: Ways to alter rows, by name and in words, and the share of altered known rows that would be flagged at 5 %.
    forecast: list[tuple[str, str, float]]

    @property
    def judged(self) -> np.ndarray:
        """The rows that the page is about ``[n]``: new ones with a score, or all with a score if none is new."""
        has_score = ~np.isnan(self.scores)
        return np.flatnonzero(has_score & self.is_new if self.is_new.any() else has_score)

    @property
    def num_flagged(self) -> int:
        """How many of these are flagged."""
        return int(self.is_flagged[self.judged].sum())

    @property
    def is_by_rate(self) -> bool:
        """Whether the false-alarm rate decided what is flagged, rather than a budget or a rate of false discoveries."""
        scores = self.scores[self.judged]
        return np.array_equal(self.is_flagged[self.judged], self.calibration.detect(scores).numpy())

    @property
    def by_chance(self) -> float:
        """How many of these chance would flag at the rate, if all were known; or how many flagged ones may be known."""
        if self.is_by_rate:
            return self.calibration.false_alarm_rate * len(self.judged)
        p_values = self.calibration.p_values(self.scores[self.judged]).numpy()
        return expected_false_alarms(p_values, self.is_flagged[self.judged])

    @property
    def false_alarm_rate(self) -> float:
        """The share of known nodes that score below the threshold."""
        below = float(np.nextafter(self.threshold, -np.inf))
        calibrated = self.threshold == self.calibration.threshold
        return self.calibration.false_alarm_rate if calibrated else float(self.calibration.p_values([below])[0])

    @property
    def rows(self) -> str:
        """What the rows are called."""
        return "new rows" if self.is_new.any() else "rows"

    @property
    def headline(self) -> str:
        """What was found, and what chance would give."""
        chance = f"about {round(self.by_chance):,}" if self.by_chance >= 1 else "less than one"
        found = f"{self.num_flagged:,} of {len(self.judged):,} {self.rows}"
        if self.is_by_rate:
            verb = "does" if self.num_flagged == 1 else "do"
            return f"{found} {verb} not fit. If all were like known ones, chance would flag {chance}."
        if not self.num_flagged:
            return f"{found} are odd enough to be flagged."
        alarms = "a false alarm" if self.by_chance < 1 else "false alarms"
        return f"{found} {'is' if self.num_flagged == 1 else 'are'} flagged. Of these, {chance} may be {alarms}."


def make_page(model: TableModel, scores: Any, nodes: Any, edges: Any, ignore_unknown_edges: bool = False) -> ScorePage:
    """Collect the data of the page.

    Parameters
    ----------
    model : TableModel
        The model that made the scores.
    scores : path or table in memory
        The table of scores, of all nodes or of some.
    nodes, edges, ignore_unknown_edges
        The tables that were scored, as for `oddnode.tables.TableModel.read`.
    """
    graph, table = model.read(nodes, edges, ignore_unknown_edges=ignore_unknown_edges), open_table(scores, "scores")
    columns = _read_scores(table, model.schema.id_column)
    place = _places(graph, columns, table, model.schema.id_column)
    count, classes = len(graph.ids), list(model.schema.classes)
    calibration = model.detector._calibrated()
    values, is_flagged, label = np.full(count, np.nan), np.zeros(count, dtype=bool), np.full(count, -1)
    with arrow_errors(f"{table.name} cannot be read"):
        numbers = columns["score"].cast(pa.float64()).to_numpy(zero_copy_only=False)
        values[place] = numbers.astype(calibration.scores.numpy().dtype)  # a file has the shortest digits of these
        _check_model(columns, values[place], calibration, table)
    of_type = model.schema.features.of_labelled_type(graph.source.x.numpy(), count)
    values[~of_type] = np.nan
    is_flagged[place] = read_marks(columns["is_ood"], table.name, "is_ood")
    names = pa.array([str(each) for each in classes])
    label[place] = pc.index_in(as_text(columns["predicted"], table.name, "predicted"), names).fill_null(-1).to_numpy()
    seen = None if model.used_rows is None else model.used_rows.seen_rows(graph.ids)
    cells = Cells(model.schema.features, graph.source.x.numpy(), graph.counts)
    rows = np.flatnonzero(grouped_rows(is_flagged, seen) & (label >= 0))
    edge_index = graph.source.edge_index.numpy()
    num_links = np.bincount(edge_index[1, edge_index[0] != edge_index[1]], minlength=count)
    is_new = np.zeros(count, dtype=bool) if seen is None else ~seen
    judged = grouped_rows(~np.isnan(values), seen)
    return ScorePage(
        ids=[str(each) for each in graph.ids.to_pylist()],
        scores=values,
        is_flagged=is_flagged,
        is_new=is_new,
        predicted=[None if each < 0 else str(classes[each]) for each in label],
        why=_reasons(model, cells, np.flatnonzero(is_flagged), label, columns, place),
        edges=edge_index,
        calibration=calibration,
        threshold=_threshold(values[judged], is_flagged[judged], calibration.threshold),
        findings=group_flagged(model.known, cells, rows, edge_index, label, classes),
        changes=[] if model.known is None else changes_of(model.known, cells, of_type, is_new, num_links),
        notes=_notes(model, graph, values, is_new, seen, cells, num_links),
        facts=_facts(model, graph, table, calibration.scores),
        forecast=forecast_in_words(model.detector.forecast_),
    )


def _read_scores(table: TableSource, id_column: str) -> dict[str, Any]:
    names = [id_column, "predicted", "score", "is_ood"]
    table.require(names, "score")
    names += [name for name in ("why", "p_value", "threshold") if name in table.columns]
    parts: list[list[Any]] = [[] for _ in names]
    for batch in table.batches(names):
        for part, array in zip(parts, batch.arrays, strict=True):
            part.append(array)
    if not sum(map(len, parts[0])):
        raise TableError(f"{table.name} has a header, but no rows")
    return {name: concatenated(part) for name, part in zip(names, parts, strict=True)}


def _check_model(columns: dict[str, Any], scores: np.ndarray, calibration: Calibration, table: TableSource) -> None:
    """Raise an error if the table says something else about its scores than the calibration does."""
    p_values, threshold = calibration.p_values(scores).numpy(), np.array(calibration.threshold)
    expected = {"p_value": p_values, "threshold": threshold}
    for name in expected.keys() & columns.keys():
        written = columns[name].cast(pa.float64()).to_numpy(zero_copy_only=False)
        if np.nanmedian(np.abs(written - expected[name])) > 1e-5 * np.abs(expected[name]).max():
            raise TableError(
                f"the column {name!r} of {table.name} does not fit this model, which was calibrated in another way "
                "than the one that made the scores; score the tables with this model, or name the other one"
            )


def _places(graph: TableGraph, columns: dict[str, Any], table: TableSource, id_column: str) -> np.ndarray:
    """The row of the table of nodes that each row of the table of scores is about."""
    ids, wanted = graph.ids.cast(pa.string()), as_text(columns[id_column], table.name, id_column)
    found = pc.index_in(wanted, ids)
    if found.null_count:  # ids that a spreadsheet would execute are written with an apostrophe
        found = pc.coalesce(found, pc.index_in(pc.replace_substring_regex(wanted, "^'", ""), ids))
    if found.null_count:
        first = wanted.filter(found.is_null())[0].as_py()
        raise TableError(
            f"{found.null_count} of {len(found)} rows of {table.name} are not in {graph.name}, first {quoted(first)}; "
            "give the tables that were scored"
        )
    return found.to_numpy()


def _threshold(scores: np.ndarray, is_flagged: np.ndarray, calibrated: float) -> float:
    """The calibrated threshold, or the one that a budget or a rate of false discoveries amounts to."""
    flagged, others = scores[is_flagged], scores[~is_flagged]
    if np.array_equal(is_flagged, scores < calibrated) or not len(flagged) or not len(others):
        return calibrated
    low, high = float(flagged.max()), float(others.min())
    return (low + high) / 2 if low < high else calibrated


def _reasons(
    model: TableModel, cells: Cells, rows: np.ndarray, label: np.ndarray, columns: dict[str, Any], place: np.ndarray
) -> dict[int, str]:
    """The reasons in the table of scores, or else those in terms of columns."""
    if "why" in columns:
        texts = columns["why"].to_pylist()
        return {int(row): text for row, text in zip(place, texts, strict=True) if text}
    made = reasons_of(model.known, cells, rows[label[rows] >= 0], label, model.schema.classes, {})
    return {reason.row: str(reason) for reason in made if str(reason)}


def changes_of(
    known: KnownValues, cells: Cells, of_type: np.ndarray, is_new: np.ndarray, num_links: np.ndarray
) -> list[ColumnChange]:
    """Compare new rows of the types with labels with known rows by columns, and with all old rows by links."""
    new, old = is_new & of_type, ~is_new & of_type
    if not new.any():
        return []
    found = column_changes(known, cells, np.flatnonzero(new))
    usual, before, now = few_links(num_links[new], num_links[old])
    if is_a_change(before, now, int(new.sum())):
        found.append(ColumnChange("links", f"fewer than {usual:g}", before, now))
    return sorted(found, key=lambda each: -abs(each.new - each.known))


def column_changes(known: KnownValues, cells: Cells, new: np.ndarray) -> list[ColumnChange]:
    """Compare new rows with known rows in every column, and keep the columns that differ much.

    Only rows of types that have the column are compared, and only rows with a number for its range.
    """
    found: list[tuple[ColumnChange, int]] = []
    types = cells.recipe.types
    for column, features, counts in cells.columns:
        rows, statistics, total = new[cells.have(column, new)], known.features[-1, features], float(known.num_rows[-1])
        if types is not None and column.name in types.owners:
            total = float(known.features[-1, types.features_of(cells.recipe, types.owners[column.name]), 5].sum())
        if not len(rows) or not total:
            continue

        def note(what: str, before: float, now: float, num_rows: int = len(rows), name: str = column.name) -> None:
            found.append((ColumnChange(name, what, before, now), num_rows))

        if isinstance(column, Category):
            shares = cells.x[rows, features].mean(axis=0)
            note("not seen in training", 0.0, sum(row in counts.unseen_rows for row in rows.tolist()) / len(rows))
            before = statistics[:, 5] / total
            largest = int(np.abs(shares - before).argmax())
            note(f"is {quoted(column.categories[largest])}", float(before[largest]), float(shares[largest]))
            continue
        numbers = cells.numbers(column, features, counts, rows)
        given = numbers[~np.isnan(numbers)]
        note("is missing", float(statistics[1, 5]) / total if column.has_missing else 0.0, 1 - len(given) / len(rows))
        if column.is_count and statistics[0, 2] == 0:
            note("is not 0", float(statistics[0, 5]) / total, np.count_nonzero(given) / len(rows))
        elif len(given):
            least, low, _, high, most, _ = statistics[0].tolist()
            outside = float(((given < low) | (given > high)).mean())
            before = 0.025 * ((low > least) + (high < most))  # nothing is left out where many rows have the last value
            note(f"is outside {shown(low, high)} to {shown(high, low)}", before, outside, len(given))
    changed = [each for each, num_rows in found if is_a_change(each.known, each.new, num_rows)]
    return sorted(changed, key=lambda each: -abs(each.new - each.known))


def is_a_change(known: float, new: float, num_rows: int) -> bool:
    """Whether the share of new rows differs much from that of known ones, and more than chance would make it."""
    low, high = share_interval(round(new * num_rows), num_rows, 1 - CHANCE)
    return abs(new - known) >= _CHANGED and not low <= known <= high


def _notes(
    model: TableModel,
    graph: TableGraph,
    scores: np.ndarray,
    is_new: np.ndarray,
    seen: np.ndarray | None,
    cells: Cells,
    num_links: np.ndarray,
) -> list[str]:
    has_score = ~np.isnan(scores)
    is_calibration = (uses_of(model.used_rows, graph.ids) == USES.index("calibration")) & (model.basis == "fit")
    rows = is_calibration & has_score, is_new & has_score, ~is_new & has_score
    notes = notes_on_rows(model.detector, model.schema, scores, num_links, *rows, cells)
    unscored = int((~has_score).sum())
    if unscored:
        notes.append(f"{unscored:,} of {len(scores):,} rows of the tables are not in the table of scores")
    if seen is None:
        notes.append("the model does not remember all rows that it was fitted on, so the page is about all rows")
    if model.known is None:
        notes.append("the model has no statistics of columns, so reasons and findings name none; fit it again")
    own = (model.schema.id_column, model.schema.label_column)
    unread = [name for name in model.schema.other_columns if name not in own]
    if unread:
        notes.append(f"these columns are not features, so nothing in them was judged: {listed(unread)}")
    return notes + graph.notes  # the page opens with the first ones


def _facts(model: TableModel, graph: TableGraph, table: TableSource, calibration: Any) -> dict[str, Any]:
    return {
        "Scores": table.name,
        "Tables": f"{graph.name}: {len(graph.ids):,} rows, {graph.num_edges:,} links",
        "Labels that the model knows": listed(model.schema.classes, 20),
        "Columns that it reads": listed(model.schema.features.names, 20),
        "Threshold": f"calibrated on {len(calibration):,} known rows",
    }
