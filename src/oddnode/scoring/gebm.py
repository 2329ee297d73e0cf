"""GEBM: energies of single nodes, of their neighbourhoods and around them, from a network that sees no edges."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from oddnode.functional import negative_energy
from oddnode.nn import personalised_page_rank
from oddnode.scoring.base import Scorer
from oddnode.scoring.outputs import Outputs

# Quantiles between which nineteen in twenty values lie.
_INTERVAL = (0.025, 0.975)
# Share of a class's variances that is replaced by their mean over all classes: a channel may not vary in a class.
_SHRINKAGE = 0.01


@dataclass
class GEBM(Scorer):
    r"""A graph energy-based model on top of a classifier (Fuchsgruber et al., NeurIPS 2024).

    The evidence of a class is :math:`e_{vc} = z_{vc} - \lambda\, m_{vc}`, with logits :math:`z` and the squared
    distance :math:`m_{vc} = \sum_j (h_{vj} - \mu_{cj})^2 / \sigma^2_{cj}` of the hidden features to the training nodes
    of class :math:`c`, both computed without edges. :math:`m` is scaled so that 95 % of its values on the training
    graph span as much as 95 % of the logits. With :math:`-E(e) = \log \sum_c e^{e_c}`, the score is the sum of
    :math:`-E(e)` (the node alone), :math:`-E(P e)` (its neighbourhood as a whole) and :math:`P(-E(e))` (the nodes
    around it), where :math:`P` spreads values over the graph: :math:`x \leftarrow \alpha D^{-1} A x + (1-\alpha)
    x^{(0)}`, ``num_hops`` times. A node without edges keeps its values.

    Parameters
    ----------
    weight : float
        Weight :math:`\lambda` of the distances, 0 or more.
    num_hops : int
        Number of hops.
    alpha : float
        Share of its neighbours in a node's value, from 0 to 1.

    Attributes
    ----------
    means_, variances_ : Tensor
        Mean and variance of the hidden features of each class ``[C, H]``, in double precision.
    scale_ : float
        The factor of the distances.
    """

    weight: float = 1.0
    num_hops: int = 10
    alpha: float = 0.5
    means_: Tensor = field(init=False, repr=False, compare=False)
    variances_: Tensor = field(init=False, repr=False, compare=False)
    scale_: float = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        if self.weight < 0 or self.num_hops < 0 or not 0.0 <= self.alpha <= 1.0:
            found = f"weight {self.weight}, num_hops {self.num_hops}, alpha {self.alpha}"
            raise ValueError(f"{found}: expected a weight and hops of 0 or more, and an alpha from 0 to 1")
        fitted, alone = copy.copy(self), outputs.without_edges
        by_class = [alone.hidden_of(train[y == c]).double() for c in range(outputs.num_classes)]
        fitted.means_ = torch.stack([hidden.mean(dim=0) for hidden in by_class])
        variances = torch.stack([hidden.var(dim=0, correction=0) for hidden in by_class])
        # A class of equal nodes, or of one, has no variance at all.
        mean = variances.mean().clamp_min(torch.finfo(torch.float32).tiny)
        fitted.variances_ = (1 - _SHRINKAGE) * variances + _SHRINKAGE * mean
        fitted.scale_ = _width(alone.logits) / max(_width(fitted._distances(alone)), torch.finfo(torch.float32).tiny)
        return fitted

    def score(self, outputs: Outputs) -> Tensor:
        evidence = self._evidence(outputs)
        own = negative_energy(evidence)
        values = torch.cat([evidence, own.unsqueeze(1)], dim=1)
        walk = outputs.graph.random_walk.with_self_loops_where_empty
        spread = personalised_page_rank(values, walk, self.num_hops, teleport=1.0 - self.alpha)
        return own + negative_energy(spread[:, :-1]) + spread[:, -1]

    def own_score(self, outputs: Outputs) -> Tensor:
        # All three parts are the same without neighbours.
        return 3 * negative_energy(self._evidence(outputs))

    @property
    def num_hops_used(self) -> int:  # type: ignore[override]
        """Number of hops over which energies are spread."""
        return self.num_hops

    def limited_to(self, num_hops: int) -> Self:
        limited = copy.copy(self)
        limited.num_hops = min(self.num_hops, num_hops)
        return limited

    def _evidence(self, outputs: Outputs) -> Tensor:
        alone = outputs.without_edges
        return outputs.cached(
            self, "evidence", lambda: alone.logits - self.weight * self.scale_ * self._distances(alone).to(alone.logits)
        )

    def _distances(self, alone: Outputs) -> Tensor:
        """Squared distances to every class ``[N, C]``."""
        hidden, columns = alone.hidden, []
        for mean, variance in zip(self.means_.to(hidden.device), self.variances_.to(hidden.device), strict=True):
            columns.append(((hidden - mean).square() / variance).sum(dim=1))
        return torch.stack(columns, dim=1)


def _width(values: Tensor) -> float:
    """The length of the interval that has 95 % of the values."""
    low, high = values.double().flatten().quantile(values.new_tensor(_INTERVAL, dtype=torch.float64)).tolist()
    return high - low
