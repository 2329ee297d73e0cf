"""Scores averaged over the graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from oddnode.functional import Isolated, propagate
from oddnode.scoring.base import PropagatingScorer, Scorer
from oddnode.scoring.logits import Energy
from oddnode.scoring.outputs import Outputs

__all__ = ["Propagated"]


@dataclass
class Propagated(PropagatingScorer):
    r"""Another scorer's scores, averaged over the graph (GNNSafe; Wu et al., ICLR 2023).

    An average over three nodes strays further than one over three hundred, so the lowest scores of a graph are those
    of its smallest components, known or not. ``prior_nodes`` counters that: every node is scored as if its average
    held that many more nodes of the mean score :math:`\mu` that known nodes have,
    :math:`(m s + \kappa \mu) / (m + \kappa)`, where :math:`m` is how many nodes the average is over
    (`oddnode.functional.energy.support`) and :math:`\kappa` is ``prior_nodes``. A node on its own then has to look
    very odd to score low. :math:`\mu` is taken on the training graph, over labelled nodes that were not
    trained on where there are any.

    Parameters
    ----------
    scorer : Scorer
        Gives the scores to average.
    num_hops, eta, isolated
        As for `oddnode.functional.energy.propagate`.
    prior_nodes : float
        How many nodes of the mean known score count beside the neighbours; 0 for none.

    Attributes
    ----------
    prior_ : Tensor
        The mean known score, a scalar; learnt where ``prior_nodes`` is above 0.
    """

    scorer: Scorer = field(default_factory=Energy)
    num_hops: int = 2
    eta: float = 0.5
    isolated: Isolated = "keep"
    prior_nodes: float = 0.0
    prior_: Tensor = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        if self.prior_nodes < 0:
            raise ValueError(f"prior_nodes is {self.prior_nodes}, expected 0 or more")
        fitted = super().fit(outputs, train, y)
        if self.prior_nodes:
            fitted.prior_ = fitted._averages(outputs)[_held_out(outputs, train)].mean().detach()
        return fitted

    @property
    def learns_from_training_graph(self) -> bool:
        """True with a prior, which is a mean over known nodes; else whether the scorer inside does."""
        return self.prior_nodes != 0 or self.scorer.learns_from_training_graph

    def score(self, outputs: Outputs) -> Tensor:
        averages = self._averages(outputs)
        if not self.prior_nodes:
            return averages
        prior = self.prior_.to(averages)
        support = outputs.graph.support(self.num_hops, self.eta)
        return prior + (averages - prior) * support / (support + self.prior_nodes)

    def _averages(self, outputs: Outputs) -> Tensor:
        return propagate(self.scorer.score(outputs), outputs.graph.random_walk, self.num_hops, self.eta, self.isolated)


def _held_out(outputs: Outputs, train: Tensor) -> Tensor:
    """Labelled nodes that the network was not trained on; all trained ones where there are no others."""
    if outputs.labelled is None:
        return train
    trained = torch.zeros(outputs.graph.num_nodes, dtype=torch.bool, device=train.device)
    trained[train] = True
    held_out = outputs.labelled[~trained[outputs.labelled]]
    return held_out if len(held_out) else train
