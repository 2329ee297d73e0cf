"""How unusual a score is among the scores of reference nodes, on a scale that is the same for all scores."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["surprise"]

# The share of the reference whose spread gives the scale of scores that are lower than all of it.
_TAIL_SHARE = 0.1
_FEWEST_IN_TAIL = 3


def surprise(scores: Tensor, reference: Tensor, leave_one_out: bool = False) -> Tensor:
    r"""Compute minus the logarithm of the share of the reference that is as low as each score.

    With :math:`n` reference values :math:`r_1 \le r_2 \le \dots`, of which :math:`a` are below :math:`s` and :math:`b`
    equal it, it is :math:`-\log \frac{a + b/2 + 1/2}{n + 1}`. Below all of them, ranks say no more, and :math:`\log(1 +
    (r_1 - s) / \tau)` is added, where :math:`\tau` is the mean distance of the lowest tenth of the reference from its
    upper end: a tail as heavy as that of :math:`1/s`, so that no single score can outvote all others.

    Parameters
    ----------
    scores : Tensor
        Scores ``[N]``.
    reference : Tensor
        Reference values ``[n]``, at least two.
    leave_one_out : bool
        Whether the scores are the reference values themselves; each is then compared with the others.

    Returns
    -------
    Tensor
        Shape ``[N]``, in double precision; the higher, the more unusually low.

    Examples
    --------
    >>> reference = torch.arange(9.0)
    >>> surprise(torch.tensor([4.0, 0.0, -1.0]), reference).exp().reciprocal()
    tensor([0.5000, 0.1000, 0.0333], dtype=torch.float64)
    """
    reference, scores = reference.double().sort().values, scores.double().contiguous()
    count = len(reference)
    if count < 2:
        raise ValueError(f"there are {count} reference values, expected at least two")
    below = torch.searchsorted(reference, scores)
    up_to = torch.searchsorted(reference, scores, right=True)
    others = count - 1 if leave_one_out else count
    rank = (below + up_to - int(leave_one_out)).double() / 2
    lowest = reference[0].expand_as(scores)
    if leave_one_out:
        lowest = torch.where(up_to == 1, reference[1], lowest)
    surprises = -torch.log((rank + 0.5) / (others + 1))
    return surprises + torch.log1p((lowest - scores).clamp_min(0.0) / _tail_scale(reference))


def _tail_scale(reference: Tensor) -> Tensor:
    """The mean distance of the lowest values from the upper end of the tail; 1 if they are all equal."""
    end = min(max(_FEWEST_IN_TAIL, int(_TAIL_SHARE * len(reference))), len(reference) - 1)
    scale = (reference[end] - reference[:end]).mean()
    return torch.where(scale > 0, scale, torch.ones_like(scale))
