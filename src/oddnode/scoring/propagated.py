"""Scores averaged over the graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import torch
from torch import Tensor

from oddnode.functional import Isolated, propagate
from oddnode.scoring.base import Scorer
from oddnode.scoring.combinations import PropagatingScorer, ScorerWrapper, all_of
from oddnode.scoring.findings import Finding
from oddnode.scoring.logits import Energy
from oddnode.scoring.outputs import Outputs


@dataclass
class Propagated(PropagatingScorer):
    r"""Another scorer's scores, averaged over the graph (GNNSafe; Wu et al., ICLR 2023).

    An average over three nodes has a higher variance than one over three hundred, so the lowest scores of a graph are
    those of its smallest components, known or not. ``prior_nodes`` counters that: every node is scored as if its
    average included that many additional nodes with the mean score :math:`\mu` of known nodes,
    :math:`(m s + \kappa \mu) / (m + \kappa)`, where :math:`m` is the effective number of nodes in the average
    (`oddnode.functional.energy.support`) and :math:`\kappa` is ``prior_nodes``. An isolated node then needs a very low
    score of its own to be flagged. :math:`\mu` is the mean on the training graph over labelled nodes that were not
    trained on, or over the training nodes if there are no others.

    Parameters
    ----------
    scorer : Scorer
        The scorer whose scores are averaged.
    num_hops, eta, isolated
        As for `oddnode.functional.energy.propagate`.
    prior_nodes : float
        Number of additional nodes with the mean score of known nodes; 0 for none.

    Attributes
    ----------
    prior_ : Tensor
        The mean score of known nodes, a scalar; learnt if ``prior_nodes`` is positive.
    """

    scorer: Scorer = field(default_factory=Energy)
    num_hops: int = 2
    eta: float = 0.5
    isolated: Isolated = "keep"
    prior_nodes: float = 0.0
    prior_: Tensor = field(init=False, repr=False, compare=False)
    supports_folders = all_of("supports_folders")
    is_shared = all_of("is_shared")

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        if self.prior_nodes < 0:
            raise ValueError(f"prior_nodes is {self.prior_nodes}, expected 0 or more")
        fitted = super().fit(outputs, train, y)
        if self.prior_nodes:
            fitted.prior_ = fitted.propagated_score(outputs)[_held_out(outputs, train)].mean().detach()
        return fitted

    def informativeness(self, outputs: Outputs) -> float:
        # The share of the inner scores' spread over the reference nodes that is left, up to 1.
        assert outputs.reference is not None
        own, averages = (each[outputs.reference].double() for each in (self.own_score(outputs), self.score(outputs)))
        left = float(averages.std() / own.std()) if float(own.std()) > 0 else 1.0
        return min(1.0, left, self.scorer.informativeness(outputs))

    @property
    def learns_from_training_graph(self) -> bool:
        """True with a prior, which is a mean over known nodes; otherwise whether the inner scorer does."""
        return self.prior_nodes != 0 or self.scorer.learns_from_training_graph

    @property
    def supports_export(self) -> bool:  # type: ignore[override]
        """Whether the inner scorer does and there is no prior, which needs random numbers for every graph."""
        return self.scorer.supports_export and self.prior_nodes == 0

    def score(self, outputs: Outputs) -> Tensor:
        averages = self.propagated_score(outputs)
        if not self.prior_nodes:
            return averages
        prior = self.prior_.to(averages)
        support = outputs.graph.support(self.num_hops, self.eta)
        return prior + (averages - prior) * support / (support + self.prior_nodes)

    @property
    def kind(self) -> str:
        """The kind of the inner scorer, followed by ``around``."""
        return f"{self.scorer.kind} around"

    def reason(self, found: Finding) -> str:
        # With a prior the score is not an average, so the inner scorer's words would not fit.
        return super().reason(found) if self.prior_nodes else self.scorer.reason(found.inside(self.num_hops > 0))

    def propagated_score(self, outputs: Outputs) -> Tensor:
        def averages() -> Tensor:
            scores = outputs.scores_of(self.scorer)
            return propagate(scores, outputs.graph.random_walk, self.num_hops, self.eta, self.isolated)

        return outputs.cached(self, "averages", averages)


def average_together(scorers: Iterable[Scorer], outputs: Outputs) -> None:
    """Average the scores of several scorers with the same range in one pass, and cache the averages for them.

    Every hop reads all edges, which dominates the time.
    """
    groups: dict[tuple[int, float, Isolated], list[Propagated]] = {}
    for scorer in scorers:
        while isinstance(scorer, ScorerWrapper) and not isinstance(scorer, Propagated):
            scorer = scorer.scorer
        if isinstance(scorer, Propagated) and not outputs.has_cached(scorer, "averages"):
            groups.setdefault((scorer.num_hops, scorer.eta, scorer.isolated), []).append(scorer)
    for scope, group in groups.items():
        if len(group) > 1 and outputs.averages_together:
            columns = torch.stack([outputs.scores_of(each.scorer) for each in group], dim=1)
            columns = propagate(columns, outputs.graph.random_walk, *scope)
            for each, averages in zip(group, columns.unbind(dim=1), strict=True):
                outputs.cached(each, "averages", partial(outputs.graph.keep, averages))


def _held_out(outputs: Outputs, train: Tensor) -> Tensor:
    """Labelled nodes that the network was not trained on; the training nodes if there are no others."""
    if outputs.labelled is None:
        return train
    trained = torch.zeros(outputs.graph.num_nodes, dtype=torch.bool, device=train.device)
    trained[train] = True
    held_out = outputs.labelled[~trained[outputs.labelled]]
    return held_out if len(held_out) else train
