"""What moved: in what the rows of a window differ from known rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from oddnode.detector import Calibration, ScoreShift
from oddnode.detector.drift import CHANCE
from oddnode.tables.webpage.model import is_a_change
from oddnode.watch.answers import Change
from oddnode.watch.rows import Rows

# Two distributions differ if chance would hardly ever make it, and if they are this far apart (Kolmogorov and Smirnov).
_FAR = 0.1
# Evidence is told by the share of rows whose p-value is as low.
_LOW = 0.05
_MOST = 12


def what_moved(rows: Rows, known: Rows | None, calibration: Calibration, labels: list[str]) -> list[Change]:
    """Compare the rows of a window with known rows, and keep what differs, the largest difference first."""
    found = [(abs(c.now - c.before), c) for c in rows.changes]
    found += [*_of_labels(rows, known, calibration, labels), *_of_links(rows, known), *_of_evidence(rows, known)]
    return [change for _, change in sorted(found, key=lambda each: -each[0])][:_MOST]


def _of_labels(
    rows: Rows, known: Rows | None, calibration: Calibration, labels: list[str]
) -> Iterator[tuple[float, Change]]:
    before = known.predicted if known is not None else []
    if not before and calibration.classes is not None and labels:
        before = [labels[int(each)] for each in calibration.classes]
    for label in labels if before and len(labels) > 1 else ():
        shares = before.count(label) / len(before), rows.predicted.count(label) / len(rows.ids)
        if is_a_change(*shares, len(rows.ids)):
            yield abs(shares[1] - shares[0]), Change("label", f"predicted as {label}", *shares, is_share=True)


def _of_links(rows: Rows, known: Rows | None) -> Iterator[tuple[float, Change]]:
    if known is None or rows.num_links is None or known.num_links is None:
        return
    yield from _shifted("links of a row", rows.num_links, known.num_links, is_share=False)
    if rows.same_label is not None and known.same_label is not None:
        what = "of its links, those to rows with the same predicted label"
        yield from _shifted(what, rows.same_label, known.same_label, is_share=True)


def _shifted(what: str, now: np.ndarray, before: np.ndarray, is_share: bool) -> Iterator[tuple[float, Change]]:
    now, before = now[~np.isnan(now)], before[~np.isnan(before)]
    size = distance(now, before)
    if size:
        yield size, Change("links", what, float(before.mean()), float(now.mean()), is_share)


def distance(now: np.ndarray, before: np.ndarray) -> float:
    """How far two samples are apart, from 0 to 1; 0 if it is little, or if chance might make it."""
    if not len(now) or not len(before):
        return 0.0
    shift = ScoreShift.between(now, before)
    size = max(shift.higher, shift.lower)
    return size if size >= _FAR and min(shift.p_higher, shift.p_lower) < CHANCE else 0.0


def _of_evidence(rows: Rows, known: Rows | None) -> Iterator[tuple[float, Change]]:
    for kind, now in rows.evidence.items():
        # Among known rows, p-values are uniform.
        even = (np.arange(len(now)) + 0.5) / len(now)
        before = even if known is None else known.evidence.get(kind, even)
        size = distance(now, before)
        if size:
            what = f"{kind}: rows as odd as the oddest {100 * _LOW:.0f} % of known ones"
            yield size, Change("evidence", what, float((before <= _LOW).mean()), float((now <= _LOW).mean()), True)
