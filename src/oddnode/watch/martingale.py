"""A bet against "new nodes score as known ones": a conformal test martingale.

Each new node is ranked among the calibration nodes and the new nodes before it. If only chance decided the order of all
of them, these ranks are independent and uniform, whatever the scores (Vovk et al., 2005), and no bet on them makes
money: the capital is a martingale that begins at 1. By Ville's inequality it ever reaches 1/chance with probability at
most ``chance``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# What the bettors expect of the ranks of new nodes, between 0 (odd) and 1: each is a density on [0, 1].
# The exponents of those that expect odd nodes, a few very odd ones or many that are somewhat odd.
_POWERS = (0.25, 0.5, 0.75)
# The slopes of those that expect a shift of all nodes, to either side.
_SLOPES = (-1.5, 1.5)
_BETTORS = 2 + len(_POWERS) + len(_SLOPES)
# Each group moves this share of its capital from bettor to bettor after every node: a change may come late.
_JUMPS = (0.0, 1e-3, 1e-2)
_SMALLEST = 1e-12


def bets(rank: Any) -> np.ndarray:
    """What each bettor makes of 1 ``[bettors, ...]``; each is a density of the rank, so the expectation is 1.

    Examples
    --------
    >>> bets(0.25).round(3).tolist()
    [1.0, 0.707, 1.0, 1.061, 1.375, 0.625, 0.577]
    """
    p = np.clip(np.asarray(rank, dtype=np.float64), _SMALLEST, 1 - _SMALLEST)
    low = [power * p ** (power - 1) for power in _POWERS]
    shifted = [1 + slope * (p - 0.5) for slope in _SLOPES]
    return np.stack([np.ones_like(p), *low, *shifted, 0.5 * (1 - p) ** -0.5])


class Martingale:
    """The capital of a bet that new nodes do not score as calibration nodes.

    Parameters
    ----------
    counts : sequence of int
        Of the nodes so far, how many lie below all n calibration scores, between the first and the second, and so on
        ``[n + 1]``; all 0 at first.
    weights : sequence of sequences of float, optional
        The shares of the bettors in the capital.
    log_capital : float
        The logarithm of the capital.
    among_calibration : bool
        Whether nodes are ranked among the calibration nodes, too, rather than among earlier nodes only.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bet = Martingale([0] * 200)
    >>> for _ in range(40):
    ...     _ = bet.update(0, rng.random())  # forty nodes below all of the 199 calibration scores
    >>> bool(bet.log_capital > np.log(1e6))
    True
    """

    def __init__(
        self,
        counts: Sequence[int],
        weights: Sequence[Sequence[float]] | None = None,
        log_capital: float = 0.0,
        among_calibration: bool = True,
    ):
        self.counts = np.asarray(counts, dtype=np.int64).copy()
        equal = np.full((len(_JUMPS), _BETTORS), 1.0 / (len(_JUMPS) * _BETTORS))
        self.weights = equal if weights is None else np.asarray(weights, dtype=np.float64).copy()
        if self.weights.shape != equal.shape:
            raise ValueError(f"there are weights of shape {self.weights.shape}, expected {equal.shape}")
        self.log_capital, self._past = float(log_capital), int(self.counts.sum())
        self._num_known = len(self.counts) - 1 if among_calibration else 0

    def rank(self, level: int, chance: float) -> float:
        """The rank of a node among calibration nodes and earlier ones, between 0 and 1; the node is added to these.

        Parameters
        ----------
        level : int
            How many calibration scores are below the node's score.
        chance : float
            A random number between 0 and 1, which decides between nodes of one level.
        """
        below = min(level, self._num_known) + int(self.counts[:level].sum())
        rank = (below + chance * (self.counts[level] + 1)) / (self._num_known + 1 + self._past)
        self.counts[level] += 1
        self._past += 1
        return rank

    def update(self, level: int, chance: float, weight: float = 1.0) -> float:
        """Bet on the next node, and return the logarithm of the capital.

        Parameters
        ----------
        level, chance
            As for `rank`.
        weight : float
            Which power of the bets counts, at most 1: linked nodes score alike, so that each says less than a whole
            node. If m nodes of a group depend on each other in whatever way, 1/m keeps the capital from growing by
            chance (by Hölder's inequality).
        """
        self.weights *= bets(self.rank(level, chance)) ** weight
        jump, own = np.array(_JUMPS)[:, None], self.weights.sum(axis=1, keepdims=True)
        self.weights = (1 - jump) * self.weights + jump * own / _BETTORS
        total = float(self.weights.sum())
        self.log_capital += float(np.log(total))
        self.weights /= total
        return self.log_capital


def levels_of(scores: np.ndarray, calibration: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How many calibration scores are below each score ``[N]``; chance decides between equal ones."""
    low, high = (np.searchsorted(calibration, scores, side) for side in ("left", "right"))
    return rng.integers(low, high, endpoint=True)


def weight_of_linked(num_links: int, num_rows: int) -> float:
    """What a row counts if rows have links to each other: as if one end of a link said what the other says."""
    return 1.0 / (1.0 + 2.0 * num_links / num_rows)
