"""How unusual a score is among others: conformal p-values, decisions with a guaranteed error rate, and surprises.

Pure functions of scores, higher = more in-distribution. The calibration scores are those of in-distribution nodes
that were used neither for training nor for choosing the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

# The share of the reference whose spread gives the scale of scores that are lower than all of it.
_TAIL_SHARE = 0.1
_FEWEST_IN_TAIL = 3
_ROUNDING = 1e-12


class CalibrationError(ValueError):
    """There are not enough calibration nodes for a decision; the message says how many are needed."""


def conformal_p_values(scores: Any, calibration: Any, weights: Any = None) -> np.ndarray:
    r"""Compute the conformal p-value of each score: :math:`p = (1 + \#\{c_i \le s\}) / (n + 1)`.

    For a node exchangeable with the calibration nodes, :math:`P(p \le \alpha) \le \alpha` for every
    :math:`\alpha` (Vovk et al., 2005). A small value means that few known nodes have so low a score.

    If calibration nodes were drawn with different probabilities, each stands for :math:`w_i` nodes. A node then has the
    weight of the next higher calibration node, :math:`w`, as if it had been drawn with it (Tibshirani et al., 2019):
    :math:`p = (w + \sum_{c_i \le s} w_i) / (w + \sum_i w_i)`, and 1 above all of them.

    Parameters
    ----------
    scores : array_like or Tensor
        One score per node ``[N]``, higher = more in-distribution.
    calibration : array_like or Tensor
        Scores ``[n]`` of in-distribution nodes that were used neither for training nor for choosing the epoch.
    weights : array_like or Tensor, optional
        The weight of each calibration node ``[n]``: 1 over the probability that it was drawn.

    Examples
    --------
    >>> conformal_p_values([0.5, 2.5, 9.0], calibration=[1.0, 2.0, 3.0])
    array([0.25, 0.75, 1.  ])
    """
    values, (known, shares) = _finite(scores, "scores"), _shares(calibration, weights)
    return np.append(shares, 1.0)[np.searchsorted(known, values, side="right")]


def _shares(calibration: Any, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """The calibration scores in ascending order, and the p-value of a score just below each."""
    known = _finite(calibration, "calibration scores")
    weight = np.ones(known.size) if weights is None else _finite(weights, "weights")
    if weight.shape != known.shape or not (weight > 0).all():
        raise ValueError(f"{known.size} calibration scores have {weight.size} weights, expected one above 0 for each")
    order = np.argsort(known, kind="stable")
    weight = weight[order]
    return known[order], np.cumsum(weight) / (weight.sum() + weight)


def conformal_p_values_per_class(
    scores: Any, classes: Any, calibration: Any, calibration_classes: Any, weights: Any = None
) -> np.ndarray:
    """Compute p-values among the calibration nodes that have the same predicted class as the node.

    The rate then holds within each predicted class, not only over all of them. Nodes of a class that was predicted for
    no calibration node have p = 1 and are never flagged.

    Parameters
    ----------
    scores : array_like or Tensor
        One score per node ``[N]``, higher = more in-distribution.
    classes : array_like or Tensor
        The predicted class of each node ``[N]``.
    calibration : array_like or Tensor
        Scores ``[n]`` of in-distribution nodes that were used neither for training nor for choosing the epoch.
    calibration_classes : array_like or Tensor
        The predicted class of each calibration node ``[n]``.
    weights : array_like or Tensor, optional
        As for `conformal_p_values`.

    Examples
    --------
    >>> conformal_p_values_per_class([1.5, 1.5], [0, 1], [1.0, 2.0, 3.0], [0, 0, 1])
    array([0.66666667, 0.5       ])
    """
    values, known = _finite(scores, "scores"), _finite(calibration, "calibration scores")
    own, theirs = _array(classes), _array(calibration_classes)
    if own.shape != values.shape or theirs.shape != known.shape:
        raise ValueError(
            f"{values.size} scores have {own.size} classes and {known.size} calibration scores {theirs.size}; "
            "expected one class per score"
        )
    result = np.ones(values.size)
    for label in np.unique(own):
        here, there = own == label, theirs == label
        weight = None if weights is None else _array(weights)[there]
        result[here] = conformal_p_values(values[here], known[there], weight)
    return result


def threshold_at(calibration: Any, false_alarm_rate: float, weights: Any = None) -> float:
    """Compute the threshold below which nodes are flagged, for a given rate of false alarms.

    It is the k-th lowest calibration score with k = floor(rate (n + 1)), so ``score < threshold`` is equivalent to
    ``p_value <= rate``; with weights it is chosen by the same equivalence. With fewer calibration nodes than the rate
    needs, a `CalibrationError` is raised.

    Parameters
    ----------
    calibration : array_like or Tensor
        Scores ``[n]`` of in-distribution nodes that were used neither for training nor for choosing the epoch.
    false_alarm_rate : float
        The probability, between 0 and 1, that a known node is flagged.
    weights : array_like or Tensor, optional
        As for `conformal_p_values`.

    Examples
    --------
    >>> threshold_at(list(range(100, 119)), 0.05)  # 19 nodes: the lowest is the threshold
    100.0
    >>> threshold_at([1.0, 2.0, 3.0], 0.05)
    Traceback (most recent call last):
        ...
    oddnode.functional.conformal.CalibrationError: a false-alarm rate of 5 % needs at least 19 calibration nodes, ...
    """
    known, shares = _shares(calibration, weights)
    rate = check_rate(false_alarm_rate)
    # A rate or a sum of weights that was computed may be off in its last digits.
    count = int((shares <= rate * (1 + _ROUNDING)).sum())
    if count:
        return float(known[count - 1])
    if weights is None or not known.size:
        found = f"at least {nodes_needed(rate)} calibration nodes, but there are {known.size}"
    else:
        found = f"more calibration nodes: by its weight, the lowest of {known.size} stands for {100 * shares[0]:.3g} %"
    least = shares[0] if known.size else 1.0
    raise CalibrationError(
        f"a false-alarm rate of {100 * rate:g} % needs {found}; hold out more known nodes, or choose a rate of "
        f"{100 * least:.3g} % or more"
    )


def rate_interval(num_calibration: int, false_alarm_rate: float, level: float = 0.95) -> tuple[float, float]:
    r"""Compute where the true false-alarm rate of a calibrated threshold lies.

    The threshold is the k-th lowest of n calibration scores, :math:`k = \lfloor r (n + 1) \rfloor`, so the share of
    known nodes below it is a random draw from :math:`\mathrm{Beta}(k, n + 1 - k)`, whatever the distribution of
    independent scores (Vovk, 2012).

    Parameters
    ----------
    num_calibration : int
        Number of calibration nodes n.
    false_alarm_rate : float
        The rate r that was asked for.
    level : float
        The probability that the interval contains the true rate.

    Examples
    --------
    >>> low, high = rate_interval(100, 0.05)
    >>> print(f"{low:.3f} {high:.3f}")
    0.016 0.099
    """
    from scipy.special import betaincinv

    k = math.floor(round(check_rate(false_alarm_rate) * (num_calibration + 1), 9))
    if k < 1:
        raise CalibrationError(f"{num_calibration} calibration nodes are too few for a rate of {false_alarm_rate:g}")
    tail = (1 - check_rate(level, "level")) / 2
    low, high = betaincinv(k, num_calibration + 1 - k, [tail, 1 - tail])
    return float(low), float(high)


def share_interval(count: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """Compute the interval of a share of which ``count`` of ``total`` draws were seen (Clopper and Pearson, 1934).

    Parameters
    ----------
    count, total : int
        Number of successes, and of independent draws.
    level : float
        The least probability that the interval contains the true share.
    """
    from scipy.special import betaincinv

    tail = (1 - check_rate(level, "level")) / 2
    low = betaincinv(count, total - count + 1, tail) if count > 0 else 0.0
    high = betaincinv(count + 1, total - count, 1 - tail) if count < total else 1.0
    return float(low), float(high)


def nodes_needed(false_alarm_rate: float) -> int:
    """Compute how many calibration nodes a rate needs: with n nodes, no p-value is below 1 / (n + 1).

    Parameters
    ----------
    false_alarm_rate : float
        A share between 0 and 1.

    Examples
    --------
    >>> nodes_needed(0.05), nodes_needed(0.01)
    (19, 99)
    """
    return math.ceil(round(1.0 / check_rate(false_alarm_rate), 9)) - 1


def benjamini_hochberg(p_values: Any, fdr: float = 0.1) -> np.ndarray:
    """Flag nodes so that the expected share of false alarms among the flagged nodes is at most ``fdr``.

    Benjamini and Hochberg, 1995; valid for conformal p-values of independent scores (Bates et al., 2023).

    Parameters
    ----------
    p_values : array_like or Tensor
        One p-value per node ``[N]``.
    fdr : float
        The false discovery rate, a share between 0 and 1.

    Examples
    --------
    >>> benjamini_hochberg([0.01, 0.04, 0.5, 0.03], fdr=0.1)
    array([ True,  True, False,  True])
    """
    from scipy.stats import false_discovery_control  # a slow import that most programs do not need

    check_rate(fdr, "fdr")
    values = _finite(p_values, "p-values")
    if values.size == 0:
        return np.zeros(0, dtype=bool)
    if values.min() < 0 or values.max() > 1:
        raise ValueError(f"p-values lie between {values.min():g} and {values.max():g}, expected 0..1")
    # Conformal p-values are fractions that often equal the limit exactly; the tolerance absorbs rounding.
    return false_discovery_control(values, method="bh") <= fdr * (1 + _ROUNDING)


def known_share(p_values: Any) -> float:
    r"""Estimate the share of known nodes, :math:`\hat\pi_0 = \min(1, (1 + \#\{p > 1/2\}) / (n / 2))` (Storey, 2004).

    Parameters
    ----------
    p_values : array_like or Tensor
        One p-value per node ``[n]``; half of those of known nodes are above one half, and few others.
    """
    values = _finite(p_values, "p-values")
    return min(1.0, (1.0 + float((values > 0.5).sum())) / (0.5 * values.size)) if values.size else 1.0


def expected_precision(p_values: Any) -> np.ndarray:
    r"""Estimate, for each node, which share of the nodes that are at least as unusual is unknown: 1 minus its q-value.

    :math:`1 - \min(1, \hat\pi_0 n p / \#\{p_j \le p\})` with `known_share`, made monotone in p (Storey, 2002). It
    is an estimate, and only as good as the calibration that the p-values come from.

    Parameters
    ----------
    p_values : array_like or Tensor
        One p-value per node ``[n]``.

    Examples
    --------
    >>> expected_precision([0.01, 0.02, 0.5, 0.9]).round(2)
    array([0.96, 0.96, 0.33, 0.1 ])
    """
    values = _finite(p_values, "p-values")
    distinct, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    share = known_share(values) * values.size * distinct / np.cumsum(counts)
    return 1.0 - np.minimum.accumulate(np.minimum(share, 1.0)[::-1])[::-1][place]


def check_rate(rate: float, name: str = "false_alarm_rate") -> float:
    """Check that a rate is strictly between 0 and 1, and return it.

    Parameters
    ----------
    rate : float
        The share.
    name : str
        Its name in the message.
    """
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0.0 < rate < 1.0:
        raise ValueError(f"`{name}` is {rate!r}, expected a share between 0 and 1, for example 0.05 for 5 %")
    return float(rate)


def _array(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _finite(values: Any, name: str) -> np.ndarray:
    array = _array(values).astype(np.float64, copy=False)
    if array.ndim != 1:
        raise ValueError(f"{name} have shape {array.shape}, expected one number per node")
    if np.isnan(array).any():
        # A NaN is below no threshold, so the node would pass as known.
        raise ValueError(f"{int(np.isnan(array).sum())} of {array.size} {name} are NaN; no decision is possible")
    return array


def surprise(
    scores: Tensor,
    reference: Tensor,
    leave_one_out: bool = False,
    two_sided: bool | Sequence[bool] = False,
    is_sorted: bool = False,
) -> Tensor:
    r"""Compute minus the logarithm of the share of the reference that is as low as each score, in double precision.

    With :math:`n` reference values :math:`r_1 \le r_2 \le \dots`, of which :math:`a` are below :math:`s` and :math:`b`
    equal it, it is :math:`-\log \frac{a + b/2 + 1/2}{n + 1}`. Below all of them, ranks say no more, and
    :math:`\log(1 + (r_1 - s) / \tau)` is added, where :math:`\tau` is the mean distance of the lowest tenth of the
    reference from its upper end: a tail as heavy as that of :math:`1/s`, so that no single score can outvote all
    others.

    Parameters
    ----------
    scores : Tensor
        Scores ``[N]``, or several as columns ``[N, K]``.
    reference : Tensor
        Reference values ``[n]`` or ``[n, K]``, at least two.
    leave_one_out : bool
        Whether the scores are the reference values themselves; each is then compared with the others.
    two_sided : bool or sequence of bool
        Whether to take twice the smaller of the shares that are as low and as high; the result is at least 0. It may
        differ from column to column.
    is_sorted : bool
        Whether the reference values are already in ascending order, for many scores that are compared in parts.

    Examples
    --------
    >>> reference = torch.arange(9.0)
    >>> surprise(torch.tensor([4.0, 0.0, -1.0]), reference).exp().reciprocal()
    tensor([0.5000, 0.1000, 0.0333], dtype=torch.float64)
    """
    if scores.dim() == 1:
        return surprise(scores[:, None], reference[:, None], leave_one_out, two_sided, is_sorted).squeeze(1)
    reference, scores = reference.double().t().contiguous(), scores.double().t().contiguous()
    reference = reference if is_sorted else reference.sort(dim=1).values
    count = reference.shape[1]
    if count < 2:
        raise ValueError(f"there are {count} reference values, expected at least two")
    # Of the two searches only one is made for all scores: they differ where a score equals a reference value.
    up_to = torch.searchsorted(reference, scores, right=True)
    nearest = (up_to - 1).clamp_min(0)
    first = torch.searchsorted(reference, reference).gather(1, nearest)
    below = torch.where(reference.gather(1, nearest) == scores, first, up_to)
    low = _ranked(below + up_to, count, leave_one_out)
    _add_tail(low, scores, reference, leave_one_out & (up_to == 1))
    sides = [two_sided] * len(low) if isinstance(two_sided, bool) else list(two_sided)
    both = torch.tensor(sides, device=low.device).nonzero().squeeze(1)
    if len(both):
        scores, reference, up_to, below = (each[both] for each in (scores, reference, up_to, below))
        high = _ranked(2 * count - below - up_to, count, leave_one_out)
        _add_tail(high, -scores, -reference.flip(1), leave_one_out & (below == count - 1))
        low[both] = (torch.maximum(low[both], high) - math.log(2)).clamp_min(0.0)
    return low.t()


def _ranked(twice_rank: Tensor, count: int, leave_one_out: bool) -> Tensor:
    """Minus the logarithms of shares, by twice the number of reference values that are as low (ties count half)."""
    others = count - 1 if leave_one_out else count
    ranks = (torch.arange(2 * count + 1, device=twice_rank.device, dtype=torch.float64) - int(leave_one_out)) / 2
    return (-torch.log((ranks.clamp_min(0.0) + 0.5) / (others + 1)))[twice_rank]


def _add_tail(surprises: Tensor, scores: Tensor, reference: Tensor, is_lowest: Tensor) -> None:
    """Add how far scores lie below the reference; the lowest reference value itself is compared with the second."""
    first, second = reference[:, :1], reference[:, 1:2]
    lowest = torch.where(is_lowest, second, first)
    # The mean distance of the lowest values from the upper end of the tail; 1 if they are all equal.
    end = min(max(_FEWEST_IN_TAIL, int(_TAIL_SHARE * reference.shape[1])), reference.shape[1] - 1)
    scale = (reference[:, end : end + 1] - reference[:, :end]).mean(dim=1, keepdim=True)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    beyond = ((lowest - scores) / scale).masked_fill_(~((scores < first) | is_lowest), 0.0)
    surprises += torch.log1p(beyond)
