"""Whether nodes that a detector has not seen score as the nodes that it was calibrated on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from msgspec import Struct

from oddnode.functional import share_interval

if TYPE_CHECKING:
    from oddnode.detector.fitted import Calibration

#: A difference is reported only if chance would hardly ever make it, and if it is large: unknown nodes are expected.
CHANCE = 1e-3
_MANY_FLAGGED = 0.2
_MANY_ISOLATED = 0.1
_FEWEST = 20


class ScoreShift(NamedTuple):
    """The distance between two samples of scores (Kolmogorov and Smirnov), and upper bounds of its p-values."""

    higher: float  #: 1 = all scores are higher than the reference.
    lower: float  #: 1 = all scores are lower.
    p_higher: float  #: The probability of so large a ``higher`` for two samples of one distribution.
    p_lower: float

    @classmethod
    def between(cls, scores: Any, reference: Any) -> ScoreShift:
        """Compare two samples.

        Parameters
        ----------
        scores, reference : array_like or Tensor
            Scores ``[n]`` and ``[m]``, at least one of each.
        """
        own, other = (np.sort(np.asarray(each, dtype=np.float64)) for each in (scores, reference))
        both = np.concatenate([own, other])
        less = np.searchsorted(other, both, "right") / len(other) - np.searchsorted(own, both, "right") / len(own)
        higher, lower = max(0.0, float(less.max())), max(0.0, float(-less.min()))
        size = len(own) * len(other) / (len(own) + len(other))
        return cls(higher, lower, math.exp(-2 * size * higher**2), math.exp(-2 * size * lower**2))


class Drift(Struct, frozen=True):
    """How nodes that a detector has not seen compare with those it was calibrated on.

    Examples
    --------
    >>> from oddnode.detector import Calibration
    >>> calibration = Calibration.from_scores(torch.arange(200.0))
    >>> drift = Drift.of(torch.arange(-60.0, 40.0), calibration)
    >>> drift.num_flagged, drift.flags_too_many
    (69, True)
    """

    num_nodes: int
    num_flagged: int  #: Number of nodes below the threshold.
    share_interval: tuple[float, float]  #: The 95 % interval of the share that is flagged among nodes like these.
    false_alarm_rate: float  #: The share of known nodes that should be flagged.
    rate_interval: tuple[float, float]  #: Where it lies with 95 % probability, by the number of calibration nodes.
    share_above: float  #: The share of nodes that score above all calibration nodes.
    shift: ScoreShift  #: The distance of the scores from the calibration scores.
    num_isolated: int | None = None  #: Number of nodes without a neighbour; ``None`` if only scores were compared.
    isolated_share_at_fit: float | None = None  #: The share of such nodes in the training graph.

    @classmethod
    def of(
        cls,
        scores: Any,
        calibration: Calibration,
        num_isolated: int | None = None,
        isolated_share_at_fit: float | None = None,
    ) -> Drift:
        """Compare scores with those of a calibration.

        Parameters
        ----------
        scores : Tensor or array
            Scores of at least one node ``[n]``, from `Detector.score_samples` or `oddnode.LiveGraph.score`.
        calibration : Calibration
            That of the detector, ``detector.calibration_``.
        num_isolated, isolated_share_at_fit
            As for `Drift`.
        """
        values = torch.as_tensor(scores).detach().cpu().double()
        if not len(values):
            raise ValueError("there are no scores to compare with those at calibration")
        num_flagged = int(calibration.detect(values).sum())
        return cls(
            len(values),
            num_flagged,
            share_interval(num_flagged, len(values)),
            calibration.false_alarm_rate,
            calibration.rate_interval,
            float((values > calibration.scores.max()).double().mean()),
            ScoreShift.between(values, calibration.scores),
            num_isolated,
            isolated_share_at_fit,
        )

    @property
    def share_flagged(self) -> float:
        """The share of nodes that are flagged."""
        return self.num_flagged / self.num_nodes

    @property
    def flags_too_many(self) -> bool:
        """Whether so many are flagged that either many are unknown, or the graph has changed."""
        if self.num_nodes < _FEWEST or self.share_flagged <= self.false_alarm_rate + _MANY_FLAGGED:
            return False
        return share_interval(self.num_flagged, self.num_nodes, 1 - 2 * CHANCE)[0] > self.rate_interval[1]

    @property
    def has_lost_edges(self) -> bool:
        """Whether so many more nodes than at fit have no neighbour that edges may be missing."""
        if self.num_isolated is None or self.isolated_share_at_fit is None:
            return False
        limit = max(self.isolated_share_at_fit + _MANY_ISOLATED, 2 * self.isolated_share_at_fit)
        return share_interval(self.num_isolated, self.num_nodes, 1 - 2 * CHANCE)[0] > limit
