"""Metrics of how well scores separate in-distribution (ID) from out-of-distribution (OOD) nodes.

Every function takes the scores of ID nodes and of OOD nodes, higher = more ID, and returns a share from 0 to 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def auroc(id_scores: Any, ood_scores: Any) -> float:
    """Area under the ROC curve: the probability that an ID node scores higher than an OOD node, ties counting half.

    Parameters
    ----------
    id_scores, ood_scores : array_like or Tensor
        Scores of the ID nodes ``[N]`` and of the OOD nodes ``[M]``, neither of them empty.

    Examples
    --------
    >>> auroc([3.0, 2.0], [1.0, 2.0])
    0.875
    """
    inside, outside = _checked(id_scores, "id_scores"), np.sort(_checked(ood_scores, "ood_scores"))
    below, not_above = np.searchsorted(outside, inside, "left"), np.searchsorted(outside, inside, "right")
    return float((below + not_above).mean(dtype=np.float64) / (2 * outside.size))


def aupr(id_scores: Any, ood_scores: Any) -> float:
    """Average precision with ID as the positive class, as in the paper.

    Parameters
    ----------
    id_scores, ood_scores : array_like or Tensor
        Scores of the ID nodes ``[N]`` and of the OOD nodes ``[M]``, neither of them empty.
    """
    return _average_precision(_checked(id_scores, "id_scores"), _checked(ood_scores, "ood_scores"))


def aupr_ood(id_scores: Any, ood_scores: Any) -> float:
    """Average precision with OOD as the positive class, which is more informative if OOD nodes are rare.

    Parameters
    ----------
    id_scores, ood_scores : array_like or Tensor
        Scores of the ID nodes ``[N]`` and of the OOD nodes ``[M]``, neither of them empty.
    """
    return _average_precision(-_checked(ood_scores, "ood_scores"), -_checked(id_scores, "id_scores"))


def fpr_at_tpr(id_scores: Any, ood_scores: Any, tpr: float = 0.95) -> float:
    """False positive rate at a true positive rate: the share of OOD nodes that are accepted along with the ID nodes.

    The threshold is the highest one that accepts at least ``tpr`` of the ID nodes. A node is accepted if its score is
    at or above the threshold, so ties count against the detector.

    Parameters
    ----------
    id_scores, ood_scores : array_like or Tensor
        Scores of the ID nodes ``[N]`` and of the OOD nodes ``[M]``, neither of them empty.
    tpr : float
        The share of ID nodes to accept, above 0 and at most 1.

    Examples
    --------
    >>> fpr_at_tpr([1.0, 2.0, 3.0, 4.0], [0.0, 2.0, 5.0], tpr=0.75)  # the threshold is 2
    0.6666666666666666
    """
    if not 0.0 < tpr <= 1.0:
        raise ValueError(f"tpr is {tpr}, expected a share above 0 and at most 1")
    inside, outside = _checked(id_scores, "id_scores"), _checked(ood_scores, "ood_scores")
    # Rounded first, because some products such as 0.95 * 20 may exceed the integer by a rounding error.
    needed = int(np.ceil(np.round(tpr * inside.size, 9)))
    threshold = np.sort(inside)[inside.size - max(needed, 1)]
    return float(np.mean(outside >= threshold))


def _average_precision(positive: np.ndarray, negative: np.ndarray) -> float:
    """The mean over positive nodes of the precision at the node's score; equal scores are one threshold."""
    scores = np.concatenate([positive, negative])
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(order < positive.size)
    last = np.append(np.diff(scores[order]) != 0, True)  # the last node of each group of equal scores
    hits, taken = hits[last], np.flatnonzero(last) + 1
    return float(np.sum(np.diff(hits, prepend=0) * (hits / taken)) / positive.size)


def _checked(scores: Any, name: str) -> np.ndarray:
    array = scores.detach().cpu().numpy() if isinstance(scores, torch.Tensor) else np.asarray(scores)
    array = array.astype(np.float64, copy=False)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} has shape {array.shape}, expected a non-empty list of numbers")
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise ValueError(f"{name} has {bad} NaN or infinite values of {array.size}")
    return array
