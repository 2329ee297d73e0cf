"""How unusual a score is among the scores of reference nodes, on a scale that is the same for all scores."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# The share of the reference whose spread gives the scale of scores that are lower than all of it.
_TAIL_SHARE = 0.1
_FEWEST_IN_TAIL = 3


def surprise(
    scores: Tensor,
    reference: Tensor,
    leave_one_out: bool = False,
    two_sided: bool = False,
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
        Scores ``[N]``.
    reference : Tensor
        Reference values ``[n]``, at least two.
    leave_one_out : bool
        Whether the scores are the reference values themselves; each is then compared with the others.
    two_sided : bool
        Whether to take the smaller of the shares that are as low and as high, twice; at least 0.
    is_sorted : bool
        Whether the reference values are in ascending order already, if many scores are compared with them in parts.

    Examples
    --------
    >>> reference = torch.arange(9.0)
    >>> surprise(torch.tensor([4.0, 0.0, -1.0]), reference).exp().reciprocal()
    tensor([0.5000, 0.1000, 0.0333], dtype=torch.float64)
    """
    reference, scores = reference.double(), scores.double().contiguous()
    reference = reference.contiguous() if is_sorted else reference.sort().values
    count = len(reference)
    if count < 2:
        raise ValueError(f"there are {count} reference values, expected at least two")
    up_to = torch.searchsorted(reference, scores, right=True)
    below = up_to.clone()
    tied = reference[(up_to - 1).clamp_min(0)] == scores
    below[tied] = torch.searchsorted(reference, scores[tied])
    low = _ranked(below + up_to, count, leave_one_out)
    _add_tail(low, scores, reference, leave_one_out & (up_to == 1))
    if not two_sided:
        return low
    high = _ranked(2 * count - below - up_to, count, leave_one_out)
    _add_tail(high, -scores, -reference.flip(0), leave_one_out & (below == count - 1))
    return (torch.maximum(low, high) - math.log(2)).clamp_min(0.0)


def _ranked(twice_rank: Tensor, count: int, leave_one_out: bool) -> Tensor:
    """Minus the logarithms of shares, by twice the number of reference values that are as low (ties count half)."""
    others = count - 1 if leave_one_out else count
    ranks = (torch.arange(2 * count + 1, device=twice_rank.device, dtype=torch.float64) - int(leave_one_out)) / 2
    return (-torch.log((ranks.clamp_min(0.0) + 0.5) / (others + 1)))[twice_rank]


def _add_tail(surprises: Tensor, scores: Tensor, reference: Tensor, is_lowest: Tensor) -> None:
    """Add how far scores lie below the reference; the lowest reference value itself is compared with the second."""
    beyond = (scores < reference[0]) | is_lowest
    lowest = torch.where(is_lowest[beyond], reference[1], reference[0])
    # The mean distance of the lowest values from the upper end of the tail; 1 if they are all equal.
    end = min(max(_FEWEST_IN_TAIL, int(_TAIL_SHARE * len(reference))), len(reference) - 1)
    scale = (reference[end] - reference[:end]).mean()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    surprises[beyond] += torch.log1p((lowest - scores[beyond]) / scale)
