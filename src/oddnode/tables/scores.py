"""The scores of nodes: what they are compared with, the table that is written, and whether the threshold fits."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from oddnode.detector import Calibration, Detector, Drift, ModelFileError, ScoreShift
from oddnode.detector.drift import CHANCE
from oddnode.functional import CalibrationError, share_interval
from oddnode.scoring import BatchDifference, Names, Outputs
from oddnode.tables.columns import FeatureRecipe, Number
from oddnode.tables.decisions import GROUPS, DecidedRows
from oddnode.tables.findings import FlaggedGroup, group_flagged, grouped_rows
from oddnode.tables.formats import ROWS, TableTarget
from oddnode.tables.graphs import TableGraph
from oddnode.tables.known_values import Cells, KnownValues
from oddnode.tables.reasons import RowReason, notable_links, reasons_of
from oddnode.tables.reports import RowsDifference, Rule, ScoreReport, between, percent
from oddnode.tables.schema import TableSchema
from oddnode.tables.used_rows import USES, UsedRows, words_of
from oddnode.tables.values import TableError, listed, pa

#: Which reference scores a threshold fits: ``"fit"``, the stored ones and scores in tables that contain the reference
#: rows, because it was calibrated on these rows; ``"in place"``, only scores in tables that contain them; ``"stored"``,
#: only the stored ones.
ThresholdBasis = Literal["fit", "in place", "stored"]

_WRITTEN = (
    *("predicted", "confidence", "score", "p_value", "is_ood", "split"),
    *("seen", "group", "rank", "expected_precision"),
)
_EXPLAINED = ("threshold", "own_score", "neighbour_contribution", "nearest_class", "finding", "why")
_RECALIBRATE = "recalibrate on rows that `oddnode sample-to-check` draws: `oddnode calibrate`"
_CALIBRATED_WITHOUT = (
    "the reference rows are in these tables, but the threshold was calibrated in tables without them, so nodes were "
    f"compared with the reference rows as they were at fit; to compare with them where they are now, {_RECALIBRATE}"
)
# A note needs a significant and large difference: nodes that a network has seen in training score a
# little higher than others, and unknown nodes, which tables are expected to have, score lower.
_LARGEST_SHIFT = 0.4
_MOST_ABOVE = 0.25
# Of known rows, no more than this share beyond the false-alarm rate should be flagged.
_MORE_THAN_RATE = 0.15
# This many calibration rows in the tables show how known nodes score there.
_ENOUGH = 20
# Columns have changed if more values than a few, and this share more, are missing, or if the mean is this many standard
# deviations away, and this many standard errors.
_FEW_MISSING, _MORE_MISSING = 2, 0.1
_FAR, _FAR_ERRORS = 1.0, 5.0
# New rows have few links if the share of them that has fewer than half of the old rows is this much larger.
_MORE_FEW = 0.2
# Marked rows are no random draw if their distribution is this much lower; this many flagged ones alone are none either.
_CHOSEN = 0.05
_FEWEST = 5


def checked_basis(value: Any) -> ThresholdBasis:
    """Check the section of a model's config that holds the basis of its threshold."""
    if value not in get_args(ThresholdBasis):
        expected = ", ".join(get_args(ThresholdBasis))
        raise ModelFileError(f"table_threshold is {str(value)[:60]!r}, expected one of {expected}")
    return value


def with_references(
    detector: Detector, used_rows: UsedRows | None, graph: TableGraph, features: FeatureRecipe
) -> tuple[TableGraph, str]:
    """Mark the reference rows in tables, if the detector compares nodes with such rows, and fill in shared gaps."""
    if not detector.state_.references or used_rows is None:
        return graph, "the reference rows are not in these tables"
    data = copy.copy(graph.source)
    mask, message = used_rows.reference_rows(
        graph.ids, data.x.numpy(), np.bincount(data.edge_index[1].numpy(), minlength=len(graph.ids))
    )
    if mask is not None:
        data.reference_mask = torch.from_numpy(mask)
        seen = used_rows.seen_rows(graph.ids)
        if seen is not None:
            data.seen_mask = torch.from_numpy(seen)
            data.x = torch.from_numpy(features.with_shared_gaps_filled(data.x.numpy(), ~seen))
    return replace(graph, source=data), message


def compared_outputs(
    detector: Detector,
    used_rows: UsedRows | None,
    graph: TableGraph,
    features: FeatureRecipe,
    basis: ThresholdBasis,
    batch: bool = True,
) -> tuple[Outputs, list[str]]:
    """Run the network on tables, whose nodes are compared with the reference rows that the threshold fits."""
    graph, message = with_references(detector, used_rows, graph, features)
    return fitting_outputs(detector, detector.outputs(graph.source, batch), message, basis)


def fitting_outputs(
    detector: Detector, outputs: Outputs, message: str, basis: ThresholdBasis
) -> tuple[Outputs, list[str]]:
    """Choose the reference scores that the threshold fits: from this graph, or stored at fit."""
    if not detector.state_.references or (basis != "stored" and outputs.references):
        return outputs, []
    if basis == "stored":
        stored = type(outputs)(outputs.module, outputs.graph, outputs.num_classes, outputs.labelled, (), outputs.far)
        return stored, [_CALIBRATED_WITHOUT] if outputs.references else []
    if basis == "in place":
        return outputs, [
            f"{message}, but the threshold was calibrated in tables that had them, so the false-alarm rate does not "
            f"hold here; {_RECALIBRATE}"
        ]
    return outputs, [
        f"{message}, so nodes were compared with the reference rows as they were at fit; if the graph has grown "
        "much or differs, the false-alarm rate may not hold: give old and new nodes together (several `nodes` and "
        f"`edges`), or {_RECALIBRATE}"
    ]


def check_id_column(schema: TableSchema, detector: Detector) -> None:
    """Raise an error if the id column has the name of a column that is written."""
    kinds = detector.scorer_.kinds
    of_kinds = (evidence_column(kind, what) for kind in kinds for what in ("p", "surprise"))
    if schema.id_column in (*_WRITTEN, *_EXPLAINED, *of_kinds):
        raise TableError(f"the id column {schema.id_column!r} has the name of an output column; rename it")


class ScoredNodes:
    """The scores of all nodes of a graph in memory or on disk, as tables of some rows each."""

    def __init__(
        self,
        detector: Detector,
        schema: TableSchema,
        ids: Any,
        use: np.ndarray,
        outputs: Outputs,
        explain: bool = False,
        graph: TableGraph | None = None,
        known: KnownValues | None = None,
        seen: np.ndarray | None = None,
        rule: Rule | None = None,
        evidence: bool = False,
        told: np.ndarray | None = None,
    ):
        self._schema, self._ids, self._use, self._graph = schema, ids, use, outputs.graph
        self._with_reasons, self._with_surprises = explain, evidence
        self._logits, self._detector = outputs.logits, detector
        # With the gaps that `outputs.graph` may have filled.
        cells = None if graph is None else Cells(schema.features, graph.source.x.numpy(), graph.counts)
        self._cells = cells
        self.scores = detector.score_samples(outputs).cpu()
        assert detector.calibration_ is not None
        self.calibration = detector.calibration_
        # The threshold says nothing about types of nodes without labels.
        x = None if schema.features.types is None else outputs.graph.x.cpu().numpy()
        has_labels = schema.features.of_labelled_type(x, len(ids))
        days = None if graph is None else graph.days
        decide = use, seen, rule or Rule(), days, has_labels, not schema.label_column
        self.decided = DecidedRows(self.scores.numpy(), self.calibration, *decide)
        self.is_ood = torch.from_numpy(self.decided.is_ood)
        # The rows whose reasons are told ``[N]``: flagged ones, of those that were asked for.
        self._is_told = self.decided.is_ood if told is None else self.decided.is_ood & told
        self._explained, self._why = None, np.full(len(ids), None, dtype=object)
        self.reasons: list[RowReason] = []
        self.findings: list[FlaggedGroup] = []
        self.batch: list[RowsDifference] = []
        if explain or evidence:
            self._explained = detector.explain(outputs)
        if explain:
            if graph is not None and cells is not None:
                self._describe_flagged(graph, cells, known, seen)
            self._explain_flagged(detector, outputs)
            self.batch = [_in_table(each, schema, cells, seen) for each in detector.batch_differences(outputs)]

    def _describe_flagged(
        self, graph: TableGraph, cells: Cells, known: KnownValues | None, seen: np.ndarray | None
    ) -> None:
        """Reasons in terms of the tables, and the flagged rows that belong together: new ones, if there are any."""
        is_ood, classes = self.is_ood.numpy(), self._schema.classes
        predicted, edge_index = self._logits.argmax(dim=-1).cpu().numpy(), graph.source.edge_index.numpy()
        links = notable_links(edge_index, predicted, is_ood, classes)
        self.reasons = reasons_of(known, cells, np.flatnonzero(self._is_told), predicted, classes, links)
        rows = np.flatnonzero(grouped_rows(is_ood, seen))
        self.findings = group_flagged(known, cells, rows, edge_index, predicted, classes)

    def _explain_flagged(self, detector: Detector, outputs: Outputs) -> None:
        """Put the reasons into words; where the tables have none to tell, the strongest kinds of evidence."""
        for reason in self.reasons:
            self._why[reason.row] = str(reason)
        enough = {reason.row for reason in self.reasons if reason.is_enough}
        others = [row for row in np.flatnonzero(self._is_told).tolist() if row not in enough]
        names = {"node_names": _Names(self._ids), "class_names": self._schema.classes}
        names["feature_names"] = self._schema.features.feature_names
        for row, why in zip(others, detector.reasons(outputs, others, **names), strict=True):
            self._why[row] = f"{why} {self._why[row] or ''}".rstrip()

    def _finding(self, rows: slice) -> Any:
        """The number of the finding that each row belongs to; null for none."""
        numbers = np.zeros(len(self.scores), dtype=np.int32)
        for group in self.findings:
            numbers[list(group.rows)] = group.number
        return pa.array(numbers[rows], mask=numbers[rows] == 0)

    def parts(self) -> Iterator[Any]:
        """Make tables of some rows, in the order of the nodes."""
        for start in range(0, len(self._ids), ROWS):
            part = self._rows(slice(start, start + ROWS))
            keep = pa.array(self.decided.is_new[start : start + ROWS])
            yield part.filter(keep) if self.decided.rule.only_new else part

    def _rows(self, rows: slice) -> Any:
        ids, scores, labels = self._ids[rows], self.scores[rows], pa.array(list(self._schema.classes))
        decided, group = self.decided, self.decided.group[rows]
        confidence, predicted = self._logits[rows].softmax(dim=-1).cpu().max(dim=1)
        columns = {
            self._schema.id_column: ids.cast(pa.string()) if pa.types.is_large_string(ids.type) else ids,
            "predicted": labels.take(pa.array(predicted.numpy())),
            "confidence": confidence.numpy(),
            "score": scores.numpy(),
            "p_value": pa.array(decided.p_values[rows], mask=~decided.has_labels[rows]),
            "is_ood": decided.is_ood[rows],
            "split": words_of(self._use[rows]),
            "seen": pa.nulls(len(ids), pa.bool_()) if decided.seen is None else decided.seen[rows],
            "group": pa.array(GROUPS).take(pa.array(group, mask=group < 0)),
            "rank": pa.array(decided.rank[rows], mask=~decided.is_judged[rows]),
            "expected_precision": pa.array(decided.precision[rows], mask=~decided.is_judged[rows]),
        }
        explained = self._explained
        if explained is not None and self._with_surprises:
            surprises = explained.evidence[rows].cpu().numpy()
            columns |= {evidence_column(kind, "surprise"): surprises[:, k] for k, kind in enumerate(explained.kinds)}
        if explained is not None and self._with_reasons:
            own_score = explained.own_score[rows].cpu().numpy()
            p_values = (-explained.evidence[rows]).exp().cpu().numpy()
            columns |= {
                "threshold": np.full_like(own_score, self.calibration.threshold),  # in the dtype of the scores
                "own_score": own_score,
                "neighbour_contribution": explained.neighbour_contribution[rows].cpu().numpy(),
                "nearest_class": labels.take(pa.array(explained.nearest_class[rows].cpu().numpy())),
                **{evidence_column(kind, "p"): p_values[:, k] for k, kind in enumerate(explained.kinds)},
                "finding": self._finding(rows),
                "why": pa.array(self._why[rows], "string"),
            }
        return pa.table(columns)

    def notes(self, basis: ThresholdBasis) -> list[str]:
        """Notes on whether the threshold fits, and on how new rows differ from those of the fit."""
        # A threshold that was calibrated on other rows says nothing about the calibration rows of the fit.
        is_calibration = (self._use == USES.index("calibration")) & (basis == "fit")
        is_new, num_links = self.decided.is_new & self.decided.has_labels, self._graph.num_others().cpu().numpy()
        is_old = ~self.decided.is_new & self.decided.has_labels
        only_new = self.decided.rule.only_new
        notes = ["no row is new: the model was fitted on all of them"] if only_new and not is_new.any() else []
        rows = self.scores.numpy(), num_links, is_calibration, is_new, is_old
        return notes + notes_on_rows(self._detector, self._schema, *rows, self._cells)

    def report(self, num_edges: int, notes: list[str], num_changed: int, target: Path | TableTarget) -> ScoreReport:
        """Report on the table that was written."""
        if num_changed:
            notes = [
                *notes,
                f"{num_changed} strings in {target} got a leading apostrophe or had control characters escaped, "
                "because a spreadsheet or a terminal would execute them; `raw_text` writes them unchanged",
            ]
        decided = self.decided
        return ScoreReport(
            num_nodes=len(self.scores),
            num_edges=num_edges,
            num_flagged=int(self.is_ood.sum()),
            false_alarm_rate=self.calibration.false_alarm_rate,
            rule=decided.rule,
            num_days=decided.num_days,
            groups=decided.groups(),
            num_judged=int(decided.is_judged.sum()),
            num_judged_flagged=int(decided.is_ood[decided.is_judged].sum()),
            num_by_chance=decided.num_by_chance,
            notes=notes,
            findings=self.findings,
            batch=self.batch,
        )


class _Names(Sequence[object]):
    """The ids of the nodes, converted on access."""

    def __init__(self, ids: Any):
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: Any) -> Any:
        return self._ids[int(index)].as_py()


def _in_table(
    found: BatchDifference, schema: TableSchema, cells: Cells | None, seen: np.ndarray | None
) -> RowsDifference:
    """A difference of new nodes in terms of columns and labels, in the units of the table."""
    features, new, known = schema.features, found.new, found.known
    name = Names(None, schema.classes, features.feature_names).of_difference(found.kind, found.number, new > known)
    column = None
    if found.kind == "feature":
        column, first = features.column_of(found.number)
        if isinstance(column, Number) and found.number == first:
            new, known = (value * column.scale + (0.0 if column.is_count else column.mean) for value in (new, known))
            if cells is None and features.types is not None and column.name in features.types.owners:
                new = known = float("nan")  # a mean over rows of other types, too, is nobody's
            if cells is not None and seen is not None:  # features are clipped, cells are not
                _, own, counts = next(each for each in cells.columns if each[0] is column)
                both = np.flatnonzero(~seen), np.flatnonzero(seen)
                new, known = (float(np.nanmean(cells.numbers(column, own, counts, rows))) for rows in both)
    label = schema.classes[found.number] if found.kind == "class" else None
    return RowsDifference(name, None if column is None else column.name, label, new, known, found.share)


def evidence_column(kind: str, what: Literal["p", "surprise"]) -> str:
    """The name of the column with the p-values, or with the surprises, of a kind of evidence."""
    return f"{what}_{kind.replace(' ', '_')}"


def notes_on_rows(
    detector: Detector,
    schema: TableSchema,
    scores: np.ndarray,
    num_links: np.ndarray,
    is_calibration: np.ndarray,
    is_new: np.ndarray,
    is_old: np.ndarray,
    cells: Cells | None,
) -> list[str]:
    """Notes on how new rows differ from those of the fit, and on whether the threshold fits, by the scores ``[N]``."""

    def drift(rows: np.ndarray) -> Drift | None:
        at_fit = int((num_links[rows] == 0).sum()), detector.graph_profile_.isolated_share
        return Drift.of(scores[rows], detector._calibrated(), *at_fit) if rows.any() else None

    new = drift(is_new)
    notes = [] if new is None or cells is None else notes_on_new_rows(new, schema, cells, np.flatnonzero(is_new))
    if new is not None and not new.has_lost_edges:
        notes += note_on_links(num_links[is_new], num_links[is_old])
    return notes + note_on_threshold(drift(is_calibration), new)


def few_links(new: np.ndarray, old: np.ndarray) -> tuple[float, float, float]:
    """The median of the numbers of links of old rows ``[n]``, and the shares of old and of new rows with fewer."""
    usual = float(np.median(old)) if len(old) else 0.0
    before, now = (float((each < usual).mean()) if usual else 0.0 for each in (old, new))
    return usual, before, now


def note_on_links(new: np.ndarray, old: np.ndarray) -> list[str]:
    """Say that new rows have fewer links than old ones ``[n]``, as rows whose links are still to come do."""
    _, before, now = few_links(new, old)
    if share_interval(round(now * len(new)), len(new), 1 - CHANCE)[0] <= before + _MORE_FEW:
        return []
    return [
        f"the {len(new)} new rows have fewer links than the others ({new.mean():.3g} on average, {old.mean():.3g}), so "
        "more of the known ones among them may be flagged than was asked; are links still to come? Otherwise "
        f"{_RECALIBRATE}"
    ]


def note_on_threshold(known: Drift | None, new: Drift | None) -> list[str]:
    """Say whether nodes score so differently from those that a model was calibrated on that its threshold cannot fit.

    If the calibration rows are in the tables, other rows may score as low as they like, because they may be unknown.
    They should not score much higher.
    """
    has_known = known is not None and known.num_nodes >= _ENOUGH
    if known is not None and has_known:
        flagged = known.share_flagged > known.false_alarm_rate + _MORE_THAN_RATE
        if (flagged or _is_large(known)) and min(known.shift.p_higher, known.shift.p_lower) < CHANCE:
            return [
                f"the threshold does not fit these tables: of the {known.num_nodes} calibration rows in them, "
                f"{percent(known.share_flagged)} score below it, where about {percent(known.false_alarm_rate)} should, "
                f"and {percent(known.share_above)} above all scores at calibration; {_RECALIBRATE}"
            ]
    if new is None:
        return []
    p_value = new.shift.p_higher if has_known else min(new.shift.p_higher, new.shift.p_lower)
    if _is_large(new, higher_only=has_known) and p_value < CHANCE:
        # Unknown nodes explain low scores, never high ones.
        unless = "unless that many are unknown, " if new.share_flagged > new.false_alarm_rate else ""
        return [
            f"the threshold may not fit these tables: of the {new.num_nodes} rows that the model was not fitted on, "
            f"{percent(new.share_flagged)} score below it (of known rows about {percent(new.false_alarm_rate)} do) and "
            f"{percent(new.share_above)} above all calibration rows; {unless}{_RECALIBRATE}"
        ]
    if new.flags_too_many:
        return [
            f"{percent(new.share_flagged)} of the {new.num_nodes} rows that the model was not fitted on are flagged; "
            f"of known rows {between(new.rate_interval)} should be. Unless that many are unknown, tables of edges are "
            f"missing (`edges`), columns have changed, or the threshold does not fit: {_RECALIBRATE}"
        ]
    return []


def _is_large(drift: Drift, higher_only: bool = False) -> bool:
    size = drift.shift.higher if higher_only else max(drift.shift.higher, drift.shift.lower)
    return drift.share_above > _MOST_ABOVE or size > _LARGEST_SHIFT


def check_random(scores: np.ndarray, marked: np.ndarray, comparable: np.ndarray, old: Calibration) -> list[str]:
    """Raise an error if known rows were plainly chosen by their scores; return notes if they may have been.

    Other rows of the tables may be unknown, so known rows that are drawn at random do not score lower than these.
    """
    known, others = Drift.of(scores[marked], old), scores[comparable & ~marked]
    found = f"{known.num_flagged} of the {known.num_nodes} rows marked as known are flagged by the old threshold"
    if len(others) >= _ENOUGH:
        shift = ScoreShift.between(scores[marked & comparable], others)
        chosen = shift.p_lower < CHANCE and shift.lower > _CHOSEN
    else:
        chosen = known.num_nodes >= _FEWEST and known.num_flagged == known.num_nodes
    if chosen:
        share = percent(float((others < old.threshold).mean())) if len(others) else "none"
        raise CalibrationError(
            f"{found}, of the {len(others)} other rows {share}: they are no random draw of known rows, and a threshold "
            "that is calibrated on false alarms finds nothing any more; calibrate on rows that `oddnode "
            "sample-to-check` draws, with `checked`"
        )
    if known.flags_too_many:
        return [f"{found}; if some were marked because they were flagged, the new threshold is too low: {_RECALIBRATE}"]
    if not known.num_flagged and (1 - old.false_alarm_rate) ** known.num_nodes < CHANCE:
        return [f"{found}; if they were marked because they were not flagged, the new threshold is too high"]
    return []


def notes_on_new_rows(new: Drift, schema: TableSchema, cells: Cells, rows: np.ndarray) -> list[str]:
    """Say which new rows ``[n]`` have lost their edges, and which columns have changed."""
    notes, missing, moved = list[str](), list[str](), list[str]()
    if new.has_lost_edges:
        notes.append(
            f"{new.num_isolated} of the {len(rows)} new rows have no edge ({percent(new.isolated_share_at_fit or 0)} "
            "of the rows at fit); is a table of edges missing? All of them are needed (`edges`), also those to old rows"
        )
    all_gone = schema.features.gone(cells.x[rows]).T
    for (column, own, counts), is_gone, share in zip(cells.columns, all_gone, schema.missing_shares, strict=False):
        have = cells.have(column, rows)  # a column of other types of nodes is absent, not missing
        having, gone = rows[have], is_gone[have]
        if isinstance(column, Number) and not column.has_missing:  # no feature marks what is missing for the first time
            gone = np.isin(having, [row for row, value in counts.hidden_rows.items() if not np.isfinite(value)])
        now, of = int(gone.sum()), len(having)
        if now > max(_FEW_MISSING, (share + _MORE_MISSING) * of) and share_interval(now, of, 1 - CHANCE)[0] > share:
            missing.append(f"{column.name} ({percent(now / of)}, {percent(share)} at fit)")
        if isinstance(column, Number) and not gone.all():
            mean_of = float(cells.x[having[~gone], own.start].mean())
            distance = mean_of - (column.mean / column.scale if column.is_count else 0.0)
            if abs(distance) > max(_FAR, _FAR_ERRORS / np.sqrt(of)):
                mean = np.nanmean(cells.numbers(column, own, counts, having))  # features are clipped
                moved.append(f"{column.name} (mean about {mean:.3g}, {column.mean:.3g} at fit)")
    if missing:
        notes.append(
            f"columns of the {len(rows)} new rows without a value that the model knows: {listed(missing, 5)}; are they "
            "filled in later, or spelt differently?"
        )
    if moved:
        notes.append(
            f"columns of the {len(rows)} new rows that lie more than a standard deviation away: {listed(moved, 5)}; "
            "has a unit changed?"
        )
    return notes
