"""Whether the threshold fits the tables that are scored."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from oddnode.detector import Calibration

__all__ = ["note_on_threshold"]

# A note needs a difference that is no chance and that is large: nodes that a network has seen in training score a
# little higher than those it has not, and the unknown nodes that a table should have score lower.
_CHANCE = 1e-3
_LARGEST_SHIFT = 0.4
_MOST_ABOVE = 0.25
# Of known rows, no more than this share beyond the false-alarm rate should be flagged.
_MORE_THAN_ASKED = 0.15
# With so many calibration rows in the tables, they tell how known nodes score there.
_ENOUGH = 20
_ADVICE = "recalibrate on known rows of these tables: `oddnode calibrate`"


def note_on_threshold(
    scores: np.ndarray, is_calibration: np.ndarray, is_new: np.ndarray, calibration: Calibration
) -> list[str]:
    """Say whether nodes score so differently from those that a model was calibrated on that its threshold cannot fit.

    If the calibration rows are in the tables, other rows may score as low as they like, because they may be unknown.
    They should not score much higher.

    Parameters
    ----------
    scores : numpy.ndarray
        Scores ``[N]``.
    is_calibration, is_new : numpy.ndarray
        One boolean per node ``[N]``: whether the model was calibrated on it, and whether it was used for nothing.
    calibration : Calibration
        The calibration of the model.

    Returns
    -------
    list of str
        A note, or nothing.
    """
    known, new = scores[is_calibration], scores[is_new]
    rate = _percent(calibration.false_alarm_rate)
    has_known = len(known) >= _ENOUGH
    if has_known:
        found = _shift(known, calibration, "two-sided")
        flagged = found.below > calibration.false_alarm_rate + _MORE_THAN_ASKED
        if found.chance < _CHANCE and (flagged or found.is_large):
            return [
                f"the threshold does not fit these tables: of the {len(known)} calibration rows in them, "
                f"{_percent(found.below)} score below it, where about {rate} should, and {_percent(found.above)} above "
                f"all scores at calibration; {_ADVICE}"
            ]
    if not len(new):
        return []
    found = _shift(new, calibration, "less" if has_known else "two-sided")
    if found.chance > _CHANCE or not found.is_large:
        return []
    # Unknown nodes explain low scores, never high ones.
    unless = "unless that many are unknown, " if found.below > calibration.false_alarm_rate else ""
    return [
        f"the threshold may not fit these tables: of the {len(new)} rows that the model was not fitted on, "
        f"{_percent(found.below)} score below it (of known rows about {rate} do) and {_percent(found.above)} above all "
        f"{len(calibration.scores)} calibration rows; {unless}{_ADVICE}"
    ]


class _Shift(NamedTuple):
    below: float
    above: float
    size: float
    chance: float

    @property
    def is_large(self) -> bool:
        return self.size > _LARGEST_SHIFT or self.above > _MOST_ABOVE


def _shift(scores: np.ndarray, calibration: Calibration, alternative: Literal["two-sided", "less"]) -> _Shift:
    """Shares of scores below the threshold and above all calibration scores, and the test of Kolmogorov and Smirnov.

    With the alternative "less", the distribution function of the scores is less: they are higher.
    """
    from scipy.stats import ks_2samp

    known = calibration.scores.numpy().astype(np.float64)
    values = scores.astype(np.float64)
    test = ks_2samp(values, known, alternative=alternative, method="asymp")
    below, above = (values < calibration.threshold).mean(), (values > known.max()).mean()
    return _Shift(float(below), float(above), float(test.statistic), float(test.pvalue))


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"
