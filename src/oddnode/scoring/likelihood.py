"""Scorers that ask whether a node's features are typical of any class."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.scoring.base import Scorer
from oddnode.scoring.findings import Finding
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.reasons import share_of_known

# A class's features are mixed with so many rows of average features, so that none of them is impossible.
_AVERAGE_ROWS = 10.0


@dataclass
class FeatureLikelihood(Scorer):
    r"""How well a node's features fit the class that they fit best.

    Features are taken as counts of words: :math:`\max_c \sum_j x_{vj} \log \pi_{cj} / \sum_j x_{vj}`, where
    :math:`\pi_{cj}` is the share of feature :math:`j` in the features of class :math:`c` in the training graph, mixed
    with a little of its share in all of them. The classes of nodes without a label are those that the network predicts.
    A negative value counts as another word.

    Attributes
    ----------
    log_shares_ : Tensor
        The logarithms of the shares :math:`\pi`, ``[C, 2F]``: of positive values, then of negative ones.
    """

    is_row_wise = True

    log_shares_: Tensor = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        fitted = copy.copy(self)
        graph, classes = outputs.graph, outputs.logits.argmax(dim=1)
        classes[train] = y
        counts = torch.zeros(outputs.num_classes, 2 * graph.x.shape[1], dtype=torch.float64, device=graph.device)
        for rows in graph.row_slices():
            members = F.one_hot(classes[rows], outputs.num_classes).to(graph.x.dtype).t()
            x = graph.x[rows]
            counts += torch.cat([members @ part for part in (x.clamp_min(0), (-x).clamp_min(0))], dim=1).double()
        average = counts.sum(dim=0) / graph.num_nodes
        smallest = average.sum().clamp_min(1e-12) / (1e3 * counts.shape[1])
        mixed = counts + _AVERAGE_ROWS * (average + smallest)
        fitted.log_shares_ = (mixed / mixed.sum(dim=1, keepdim=True)).log().to(graph.x.dtype)
        return fitted

    def score(self, outputs: Outputs) -> Tensor:
        graph = outputs.graph
        positive, negative = self.log_shares_.to(graph.x).chunk(2, dim=1)
        if not graph.has_negative:
            return _best_mean(graph.times_features(positive), graph.x.sum(dim=1))
        below = (-graph.x).clamp_min(0)
        fit = graph.x.clamp_min(0) @ positive.t() + below @ negative.t()
        return _best_mean(fit, graph.x.abs().sum(dim=1))

    def reason(self, found: Finding) -> str:
        whose, of = ("The features around it", "those around") if found.around else ("Its features", "those of")
        return f"{whose} fit no class well: {of} {share_of_known(found.share)} fit one better."


def _best_mean(fit: Tensor, size: Tensor) -> Tensor:
    """The best mean over a node's words; a node without any gets 0, the best of all."""
    return fit.amax(dim=1) / size.clamp_min(torch.finfo(size.dtype).tiny).where(size > 0, torch.ones_like(size))
