"""Whether arrivals still score as known nodes: a bet that runs while the service does.

`oddnode watch` keeps such a bet over months, by windows, and says what moved; this one is for the page, in memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from oddnode.detector import Calibration
from oddnode.online import Judgement
from oddnode.watch.martingale import Martingale, levels_of, weight_of_linked

#: The probability that an alarm is ever raised if arrivals score as known nodes.
CHANCE = 0.01


class DriftFacts(Struct, frozen=True):
    """How the bet stands."""

    since: float  #: When it began, in seconds since 1970: at the start of the service.
    count: int  #: The number of arrivals since then.
    log10_evidence: float  #: The highest capital so far, as a power of ten; it began at 1.
    chance: float  #: `CHANCE`.
    alarm: float | None  #: When the capital reached ``1 / chance``.


class DriftBet:
    """A bet that arrivals do not score as calibration nodes (`oddnode.watch.Martingale`).

    Parameters
    ----------
    calibration : Calibration
        Of the model, without weights.
    """

    def __init__(self, calibration: Calibration):
        self._known = calibration.scores.double().numpy()
        self._bet = Martingale([0] * (len(self._known) + 1))
        self._rng = np.random.default_rng(0)
        self._ids: set[Any] = set()
        self._count = self._num_links = 0
        self._highest = 0.0
        self._since = time.time()
        self._alarm: float | None = None

    def observe(self, arrivals: Sequence[Judgement], edges: Sequence[Sequence[Any]], at: float) -> None:
        """Bet on the arrivals of one change.

        Parameters
        ----------
        arrivals : sequence of Judgement
            What was answered about them; those without a p-value do not count.
        edges : sequence
            The edges that were added.
        at : float
            When, in seconds since 1970.
        """
        judged = [each for each in arrivals if each.p_value is not None]
        self._ids.update(each.id for each in judged)
        self._count += len(judged)  # a node that was removed and comes again arrives again
        pairs = {frozenset(edge[:2]) for edge in edges}
        self._num_links += sum(len(pair) == 2 and pair <= self._ids for pair in pairs)
        if not judged:
            return
        weight = weight_of_linked(self._num_links, self._count)
        levels = levels_of(np.array([each.score for each in judged]), self._known, self._rng)
        for level, chance in zip(levels.tolist(), self._rng.random(len(judged)).tolist(), strict=True):
            self._highest = max(self._highest, self._bet.update(level, chance, weight))
        if self._alarm is None and self._highest >= -math.log(CHANCE):
            self._alarm = at

    @property
    def facts(self) -> DriftFacts:
        """How the bet stands."""
        return DriftFacts(self._since, self._count, self._highest / math.log(10), CHANCE, self._alarm)
