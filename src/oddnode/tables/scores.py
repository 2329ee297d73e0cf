"""The scores of nodes: what they are compared with, the table that is written, and whether the threshold fits."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from oddnode.detector import Calibration, Detector, ModelFileError
from oddnode.scoring import Outputs
from oddnode.tables.findings import FlaggedGroup, group_flagged, grouped_rows
from oddnode.tables.formats import ROWS, TableTarget
from oddnode.tables.graphs import TableGraph
from oddnode.tables.known_values import Cells, KnownValues
from oddnode.tables.reasons import RowReason, notable_links, reasons_of
from oddnode.tables.reports import ScoreReport
from oddnode.tables.schema import TableSchema
from oddnode.tables.used_rows import USES, UsedRows, words_of
from oddnode.tables.values import TableError, pa

#: Which reference scores a threshold fits: ``"fit"``, the stored ones and scores in tables that contain the reference
#: rows, because it was calibrated on these rows; ``"in place"``, only scores in tables that contain them; ``"stored"``,
#: only the stored ones.
ThresholdBasis = Literal["fit", "in place", "stored"]
Alternative = Literal["two-sided", "less"]

_WRITTEN = ("predicted", "confidence", "score", "p_value", "is_ood", "split")
_EXPLAINED = ("threshold", "own_score", "neighbour_contribution", "nearest_class", "finding", "why")
_RECALIBRATE = "recalibrate on known rows of these tables: `oddnode calibrate`"
_CALIBRATED_WITHOUT = (
    "the reference rows are in these tables, but the threshold was calibrated in tables without them, so nodes were "
    f"compared with the reference rows as they were at fit; to compare with them where they are now, {_RECALIBRATE}"
)
# A note needs a significant and large difference: nodes that a network has seen in training score a
# little higher than others, and unknown nodes, which tables are expected to have, score lower.
_CHANCE = 1e-3
_LARGEST_SHIFT = 0.4
_MOST_ABOVE = 0.25
# Of known rows, no more than this share beyond the false-alarm rate should be flagged.
_MORE_THAN_RATE = 0.15
# This many calibration rows in the tables show how known nodes score there.
_ENOUGH = 20


def checked_basis(value: Any) -> ThresholdBasis:
    """Check the section of a model's config that holds the basis of its threshold."""
    if value not in get_args(ThresholdBasis):
        expected = ", ".join(get_args(ThresholdBasis))
        raise ModelFileError(f"table_threshold is {str(value)[:60]!r}, expected one of {expected}")
    return value


def with_references(detector: Detector, used_rows: UsedRows | None, graph: TableGraph) -> tuple[TableGraph, str]:
    """Mark the reference rows in tables, if the detector compares nodes with such rows."""
    if not detector.state_.references or used_rows is None:
        return graph, "the reference rows are not in these tables"
    data = copy.copy(graph.source)
    mask, message = used_rows.reference_rows(graph.ids, data.x.numpy(), data.edge_index.numpy())
    if mask is not None:
        data.reference_mask = torch.from_numpy(mask)
        seen = used_rows.seen_rows(graph.ids)
        data.seen_mask = None if seen is None else torch.from_numpy(seen)
    return replace(graph, source=data), message


def compared_outputs(
    detector: Detector, used_rows: UsedRows | None, graph: TableGraph, basis: ThresholdBasis
) -> tuple[Outputs, list[str]]:
    """Run the network on tables, whose nodes are compared with the reference rows that the threshold fits."""
    graph, message = with_references(detector, used_rows, graph)
    return fitting_outputs(detector, detector.outputs(graph.source), message, basis)


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
    if schema.id_column in (*_WRITTEN, *_EXPLAINED, *map(_evidence_column, detector.scorer_.kinds)):
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
    ):
        self._schema, self._ids, self._use = schema, ids, use
        self._logits = outputs.logits
        self.scores = detector.score_samples(outputs).cpu()
        assert detector.calibration_ is not None
        self.calibration = detector.calibration_
        # The threshold says nothing about types of nodes without labels.
        self._is_judged = schema.features.of_labelled_type(None if graph is None else graph.source.x.numpy(), len(ids))
        self.is_ood = self.calibration.detect(self.scores) & torch.from_numpy(self._is_judged)
        self._explained, self._why = None, np.full(len(ids), None, dtype=object)
        self.reasons: list[RowReason] = []
        self.findings: list[FlaggedGroup] = []
        if explain:
            self._explained = detector.explain(outputs)
            if graph is not None:
                self._describe_flagged(graph, known, seen)
            self._explain_flagged(detector, outputs)

    def _describe_flagged(self, graph: TableGraph, known: KnownValues | None, seen: np.ndarray | None) -> None:
        """Reasons in terms of the tables, and the flagged rows that belong together: new ones, if there are any."""
        is_ood, classes = self.is_ood.numpy(), self._schema.classes
        predicted, edge_index = self._logits.argmax(dim=-1).cpu().numpy(), graph.source.edge_index.numpy()
        cells = Cells(self._schema.features, graph.source.x.numpy(), graph.counts)
        links = notable_links(edge_index, predicted, is_ood, classes)
        self.reasons = reasons_of(known, cells, np.flatnonzero(is_ood), predicted, classes, links)
        rows = np.flatnonzero(grouped_rows(is_ood, seen))
        self.findings = group_flagged(known, cells, rows, edge_index, predicted, classes)

    def _explain_flagged(self, detector: Detector, outputs: Outputs) -> None:
        """Put the reasons into words; where the tables have none to tell, the strongest kinds of evidence."""
        for reason in self.reasons:
            self._why[reason.row] = str(reason)
        enough = {reason.row for reason in self.reasons if reason.is_enough}
        others = [row for row in np.flatnonzero(self.is_ood.numpy()).tolist() if row not in enough]
        names = {"node_names": _Names(self._ids), "class_names": self._schema.classes}
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
        yield from (self._rows(slice(start, start + ROWS)) for start in range(0, len(self._ids), ROWS))

    def _rows(self, rows: slice) -> Any:
        ids, scores, labels = self._ids[rows], self.scores[rows], pa.array(list(self._schema.classes))
        confidence, predicted = self._logits[rows].softmax(dim=-1).cpu().max(dim=1)
        columns = {
            self._schema.id_column: ids.cast(pa.string()) if pa.types.is_large_string(ids.type) else ids,
            "predicted": labels.take(pa.array(predicted.numpy())),
            "confidence": confidence.numpy(),
            "score": scores.numpy(),
            "p_value": pa.array(self.calibration.p_values(scores).numpy(), mask=~self._is_judged[rows]),
            "is_ood": self.is_ood[rows].numpy(),
            "split": words_of(self._use[rows]),
        }
        explained = self._explained
        if explained is not None:
            own_score = explained.own_score[rows].cpu().numpy()
            p_values = (-explained.evidence[rows]).exp().cpu().numpy()
            columns |= {
                "threshold": np.full_like(own_score, self.calibration.threshold),  # in the dtype of the scores
                "own_score": own_score,
                "neighbour_contribution": explained.neighbour_contribution[rows].cpu().numpy(),
                "nearest_class": labels.take(pa.array(explained.nearest_class[rows].cpu().numpy())),
                **{_evidence_column(kind): p_values[:, k] for k, kind in enumerate(explained.kinds)},
                "finding": self._finding(rows),
                "why": pa.array(self._why[rows], "string"),
            }
        return pa.table(columns)

    def notes_on_threshold(self, basis: ThresholdBasis, is_new: np.ndarray) -> list[str]:
        """Notes on whether the threshold fits; ``is_new`` marks the rows that the model was not fitted on."""
        # A threshold that was calibrated on other rows says nothing about the calibration rows of the fit.
        is_calibration = (self._use == USES.index("calibration")) & (basis == "fit")
        return note_on_threshold(self.scores.numpy(), is_calibration, is_new & self._is_judged, self.calibration)

    def report(self, num_edges: int, notes: list[str], num_changed: int, target: Path | TableTarget) -> ScoreReport:
        """Report on the table that was written."""
        if num_changed:
            notes = [
                *notes,
                f"{num_changed} strings in {target} got a leading apostrophe or had control characters escaped, "
                "because a spreadsheet or a terminal would execute them; `raw_text` writes them unchanged",
            ]
        rate = self.calibration.false_alarm_rate
        return ScoreReport(len(self.scores), num_edges, int(self.is_ood.sum()), rate, notes, self.findings)


class _Names(Sequence[object]):
    """The ids of the nodes, converted on access."""

    def __init__(self, ids: Any):
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: Any) -> Any:
        return self._ids[int(index)].as_py()


def _evidence_column(kind: str) -> str:
    """The name of the column with the p-values of a kind of evidence."""
    return f"p_{kind.replace(' ', '_')}"


def note_on_threshold(
    scores: np.ndarray, is_calibration: np.ndarray, is_new: np.ndarray, calibration: Calibration
) -> list[str]:
    """Say whether nodes score so differently from those that a model was calibrated on that its threshold cannot fit.

    If the calibration rows are in the tables, other rows may score as low as they like, because they may be unknown.
    They should not score much higher.
    """
    known, new = scores[is_calibration], scores[is_new]
    rate = _percent(calibration.false_alarm_rate)
    has_known = len(known) >= _ENOUGH
    if has_known:
        below, above, is_large = _difference(known, calibration, "two-sided")
        flagged = below > calibration.false_alarm_rate + _MORE_THAN_RATE
        if (flagged or is_large) and not _is_chance(known, calibration, "two-sided"):
            return [
                f"the threshold does not fit these tables: of the {len(known)} calibration rows in them, "
                f"{_percent(below)} score below it, where about {rate} should, and {_percent(above)} above "
                f"all scores at calibration; {_RECALIBRATE}"
            ]
    if not len(new):
        return []
    alternative: Alternative = "less" if has_known else "two-sided"
    below, above, is_large = _difference(new, calibration, alternative)
    if not is_large or _is_chance(new, calibration, alternative):
        return []
    # Unknown nodes explain low scores, never high ones.
    unless = "unless that many are unknown, " if below > calibration.false_alarm_rate else ""
    return [
        f"the threshold may not fit these tables: of the {len(new)} rows that the model was not fitted on, "
        f"{_percent(below)} score below it (of known rows about {rate} do) and {_percent(above)} above all "
        f"{len(calibration.scores)} calibration rows; {unless}{_RECALIBRATE}"
    ]


def _difference(scores: np.ndarray, calibration: Calibration, alternative: Alternative) -> tuple[float, float, bool]:
    """The shares of scores below the threshold and above all scores at calibration, and whether they differ much.

    The alternative "less" is about the distribution function: the scores are higher.
    """
    values, known = scores.astype(np.float64), calibration.scores.numpy().astype(np.float64)
    below, above = float((values < calibration.threshold).mean()), float((values > known.max()).mean())
    both = np.concatenate([values, known])
    shares = [np.searchsorted(np.sort(each), both, side="right") / len(each) for each in (values, known)]
    less = shares[1] - shares[0]
    size = np.abs(less).max() if alternative == "two-sided" else less.max()
    return below, above, above > _MOST_ABOVE or float(size) > _LARGEST_SHIFT


def _is_chance(scores: np.ndarray, calibration: Calibration, alternative: Alternative) -> bool:
    """Whether the Kolmogorov-Smirnov test finds no difference from the scores at calibration."""
    from scipy.stats import ks_2samp  # slow to import (a third of torch), and rarely needed

    values, known = scores.astype(np.float64), calibration.scores.numpy().astype(np.float64)
    return bool(ks_2samp(values, known, alternative=alternative, method="asymp").pvalue >= _CHANCE)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"
