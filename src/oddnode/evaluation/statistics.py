"""Paired comparison of two methods over cells and seeds, with a significance test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

_LEVEL = 0.05
# The number of cells at which the smallest p-value, 2 of 2**n ways, is below that level.
_FEWEST = 6


@dataclass(frozen=True)
class Comparison:
    """The comparison of method A with method B.

    Wins and losses are counted over cells (by their means over seeds) and over pairs of a cell and a seed. All others
    are ties.
    """

    difference: float  #: The mean advantage of A over the cells, positive if A is better.
    cells: int  #: `cells`, `cell_wins`, `cell_losses`: number of cells, and of those in which A is better and worse.
    cell_wins: int
    cell_losses: int
    pairs: int  #: `pairs`, `pair_wins`, `pair_losses`: the same for pairs of a cell and a seed.
    pair_wins: int
    pair_losses: int
    p_value: float  #: The p-value of `signed_rank_p` over the cells.

    @property
    def smallest_p(self) -> float:
        """The p-value if one method won all cells that differ: the smallest p-value for this number of cells."""
        return min(1.0, 2.0 ** (1 - self.cell_wins - self.cell_losses))

    @property
    def note(self) -> str:
        """Why the p-value says nothing, if it could not be 0.05 or less; otherwise empty."""
        if self.smallest_p <= _LEVEL:
            return ""
        differing = self.cell_wins + self.cell_losses
        return (
            f"the test counts tasks, not seeds: with {differing} that differ{'s' if differing == 1 else ''}, p is "
            f"{self.smallest_p:g} at best; {_FEWEST} or more are needed for p <= {_LEVEL}"
        )


def compare(
    a: Mapping[str, Sequence[float]], b: Mapping[str, Sequence[float]], higher_is_better: bool = True
) -> Comparison:
    """Compare two methods by their numbers per cell, one number per seed.

    The test is Wilcoxon's two-sided signed-rank test on the mean differences of the cells. Seeds of one cell share its
    data, so they are not independent: they reduce the variance of the cell's mean, but count once. The cells of one
    data set share its graph too, so the true p-value may be larger than this one. With fewer than six cells that differ
    no p-value is below 0.05, whatever the seeds say; with a single cell it is always 1.

    Parameters
    ----------
    a, b : mapping of str to sequence of float
        The numbers of each method: for every cell one number per seed, in the same order of seeds.
    higher_is_better : bool
        Whether higher numbers are better.

    Examples
    --------
    >>> result = compare({"x": [90, 92], "y": [80, 81]}, {"x": [85, 86], "y": [79, 82]})
    >>> result.difference, result.cell_wins, result.pair_wins, result.pair_losses
    (2.75, 1, 3, 1)
    >>> compare({"x": [90, 92, 91]}, {"x": [80, 82, 81]}).note
    'the test counts tasks, not seeds: with 1 that differs, p is 1 at best; 6 or more are needed for p <= 0.05'
    """
    if a.keys() != b.keys() or not a:
        raise ValueError(f"expected the same cells on both sides, got {sorted(a)} and {sorted(b)}")
    sign = 1.0 if higher_is_better else -1.0
    gains = {cell: [sign * (x - y) for x, y in zip(a[cell], b[cell], strict=True)] for cell in a}
    means = [fmean(gain) for gain in gains.values()]
    single = [gain for cell in gains.values() for gain in cell]
    return Comparison(
        difference=fmean(means),
        cells=len(means),
        cell_wins=sum(m > 0 for m in means),
        cell_losses=sum(m < 0 for m in means),
        pairs=len(single),
        pair_wins=sum(s > 0 for s in single),
        pair_losses=sum(s < 0 for s in single),
        p_value=signed_rank_p(means),
    )


def signed_rank_p(differences: Sequence[float]) -> float:
    """Compute the two-sided p-value of Wilcoxon's signed-rank test, exact if there are no ties.

    Differences of zero are left out; if none remain, the p-value is 1.

    Parameters
    ----------
    differences : sequence of float
        One per cell.

    Examples
    --------
    >>> signed_rank_p([1.0, 2.0, 3.0, 4.0, 5.0])  # all of one sign: 2 of 2**5 ways
    0.0625
    """
    from scipy.stats import wilcoxon

    values = np.asarray([d for d in differences if d != 0], dtype=float)
    return float(wilcoxon(values).pvalue) if len(values) else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple comparisons by Holm's method.

    Parameters
    ----------
    p_values : sequence of float
        From 0 to 1.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted
