"""Whether the threshold fits the tables that are scored."""

from __future__ import annotations

import numpy as np

from oddnode.detector import Calibration

__all__ = ["note_on_threshold"]

# A note needs a difference that is no chance and that is large: the unknown nodes that a table should have make a
# difference, too, and the nodes that a network has seen in training score a little higher than those it has not.
_CHANCE = 1e-3
_MOST_BELOW = 0.4
_MOST_ABOVE = 0.25
_LARGEST_SHIFT = 0.4


def note_on_threshold(scores: np.ndarray, is_new: np.ndarray, calibration: Calibration) -> list[str]:
    """Say whether nodes that a model was not fitted on score so differently that its threshold cannot fit them.

    Parameters
    ----------
    scores : numpy.ndarray
        Scores ``[N]``.
    is_new : numpy.ndarray
        One boolean per node ``[N]``, True for those that were used neither for training nor for calibration.
    calibration : Calibration
        The calibration of the model.

    Returns
    -------
    list of str
        A note, or nothing.
    """
    from scipy.stats import ks_2samp

    new, known = scores[is_new].astype(np.float64), calibration.scores.numpy().astype(np.float64)
    if not len(new):
        return []
    test = ks_2samp(new, known, method="asymp")
    below, above = float((new < calibration.threshold).mean()), float((new > known.max()).mean())
    differs = below > _MOST_BELOW or above > _MOST_ABOVE or test.statistic > _LARGEST_SHIFT
    if test.pvalue > _CHANCE or not differs:
        return []
    below, above, rate = (f"{100 * share:.2g} %" for share in (below, above, calibration.false_alarm_rate))
    return [
        f"the threshold may not fit these tables: of the {len(new)} rows that the model was not fitted on, {below} score "
        f"below it (of known rows about {rate} do) and {above} above all {len(known)} calibration rows; if not that many "
        "are unknown, recalibrate on known rows of these tables: `oddnode calibrate`"
    ]
