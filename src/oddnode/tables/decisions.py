"""Which rows of scored tables are flagged: by the false-alarm rate, by false discoveries, or by a budget."""

from __future__ import annotations

import numpy as np

from oddnode.detector import Calibration
from oddnode.functional import expected_precision, known_share
from oddnode.tables.labels import SPLIT_PARTS
from oddnode.tables.reports import RowGroup, Rule
from oddnode.tables.values import TableError

#: What the model knows of a row: it was fitted with its label, or without one, or not at all.
GROUPS = ("labelled", "unlabelled", "new")


def expected_false_alarms(p_values: np.ndarray, is_flagged: np.ndarray) -> float:
    """Estimate how many flagged rows are known, by the p-values of all judged rows ``[n]``.

    Up to a p-value of p there are about ``known_share * n * p`` known rows. What each row adds to this is its own
    probability of being known, so that it does not matter whether flagged rows are the oddest of all or of each day.
    """
    distinct, place, counts = np.unique(p_values, return_inverse=True, return_counts=True)
    each = known_share(p_values) * len(p_values) * np.diff(distinct, prepend=0.0) / counts
    return min(float(each[place][is_flagged].sum()), float(is_flagged.sum()))


class DecidedRows:
    """The decisions on N rows, by their scores, what they were used for (`USES`) and whether they were seen at fit.

    Rows are ranked, and judged by `fdr` and `budget`, among the new rows; if there are none, among all rows that the
    model was not trained on. If it does not remember all rows (``seen`` is ``None``), unlabelled rows count as new.
    Rows of a type without labels (``has_labels``) are neither ranked nor flagged. If the model was fitted without
    labels (``is_unlabelled``), none was trained on.
    """

    def __init__(
        self,
        scores: np.ndarray,
        calibration: Calibration,
        use: np.ndarray,
        seen: np.ndarray | None,
        rule: Rule,
        days: np.ndarray | None = None,
        has_labels: np.ndarray | None = None,
        is_unlabelled: bool = False,
    ):
        if rule.only_new and seen is None:
            raise TableError("the model does not remember all rows that it was fitted on; leave out `only_new`")
        self.rule, self.seen = rule, seen
        self.has_labels = np.ones(len(use), dtype=bool) if has_labels is None else has_labels
        is_used = (use >= 0) & (use < len(SPLIT_PARTS))
        self.is_labelled = is_used & (not is_unlabelled)
        self.is_new = ~(is_used if seen is None else seen)
        among = self.is_new, ~np.isin(use, (0, 1)) | is_unlabelled, np.ones(len(use), dtype=bool)
        self.is_judged = next(filter(np.any, (each & self.has_labels for each in among)), self.has_labels)
        self.p_values = calibration.p_values(scores).numpy()
        judged = np.flatnonzero(self.is_judged)
        order = judged[np.argsort(scores[judged], kind="stable")]
        self.rank, self.precision = np.zeros(len(use), dtype=np.int64), np.zeros(len(use))
        self.rank[order] = np.arange(1, len(order) + 1)
        self.precision[judged] = expected_precision(self.p_values[judged])
        self.is_ood, self.num_days = np.zeros(len(use), dtype=bool), None
        if rule.fdr is not None:
            self.is_ood[judged] = calibration.flag(scores[judged], rule.fdr).numpy()
            self.num_by_chance = rule.fdr * int(self.is_ood.sum())
        elif rule.budget is not None:
            self.num_days = None if days is None else len(np.unique(days[judged]))
            self._spend(order, rule.budget, days)
            self.num_by_chance = expected_false_alarms(self.p_values[judged], self.is_ood[judged])
        else:
            self.is_ood = calibration.detect(scores).numpy() & self.has_labels
            self.num_by_chance = calibration.false_alarm_rate * len(judged)

    def _spend(self, order: np.ndarray, budget: int, days: np.ndarray | None) -> None:
        """Flag the first rows of each day."""
        of_day = np.zeros(len(order), dtype=np.int64) if days is None else days[order]
        for day in np.unique(of_day):
            self.is_ood[order[of_day == day][:budget]] = True

    @property
    def group(self) -> np.ndarray:
        """The group of each row ``[N]``: an index into `GROUPS`, or -1 if it is not known whether a row is new."""
        group = np.where(self.is_new, 2 if self.seen is not None else -1, 1)
        return np.where(self.is_labelled, 0, group).astype(np.int8)

    def groups(self) -> list[RowGroup]:
        """Count the rows of each group that occurs."""
        group = self.group
        names = {number: GROUPS[number] if number >= 0 else "other" for number in np.unique(group)[::-1]}
        rows = {name: group == number for number, name in names.items()}
        return [RowGroup(name, int(own.sum()), int(self.is_ood[own].sum())) for name, own in rows.items()]
