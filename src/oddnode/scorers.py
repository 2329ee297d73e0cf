"""Scorers turn what a trained network says of a graph into one number per node, higher = more in-distribution."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from oddnode.backbones import embed_with, run_backbone
from oddnode.energy import Isolated, negative_energy, propagate
from oddnode.graph import Graph

__all__ = ["Energy", "MaxSoftmax", "Outputs", "Propagated", "Scorer"]


class Outputs:
    """What a trained network says of one graph, computed when first asked for and shared by all scorers.

    The first ``num_classes`` logits belong to the ID classes; any after them are spare.
    """

    def __init__(self, module: nn.Module, graph: Graph, num_classes: int):
        self.module = module
        self.graph = graph
        self.num_classes = num_classes

    @cached_property
    def all_logits(self) -> Tensor:
        """Logits of every node, spare ones included."""
        with torch.no_grad():
            return run_backbone(self.module, self.graph)

    @property
    def logits(self) -> Tensor:
        """Logits of the ID classes."""
        return self.all_logits[:, : self.num_classes]

    @cached_property
    def hidden(self) -> Tensor:
        """Features before the last layer, ``[N, H]``."""
        with torch.no_grad():
            return embed_with(self.module, self.graph)


class Scorer:
    """Base of all scorers. One that learns from the training graph overrides ``fit``; what it learns ends in ``_``."""

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Scorer:
        """A fitted copy, from the outputs on the training graph and its labelled nodes."""
        return copy.copy(self)

    def score(self, outputs: Outputs) -> Tensor:
        """One score per node, higher = more in-distribution."""
        raise TypeError(f"{type(self).__name__} does not define a score")


@dataclass
class MaxSoftmax(Scorer):
    """The highest class probability (MSP; Hendrycks and Gimpel, ICLR 2017).

    Spare logits take part in the softmax, but are never the class meant. Without them a single ID class would
    have probability one everywhere.
    """

    def score(self, outputs: Outputs) -> Tensor:
        return outputs.all_logits.softmax(dim=-1)[:, : outputs.num_classes].amax(dim=-1)


@dataclass
class Energy(Scorer):
    r"""The negative energy over the ID classes (Liu et al., NeurIPS 2020).

    With ``relative`` it is measured against the negative energy of the spare logits,
    :math:`\log \sum_{c \in ID} e^{z_c} - \log \sum_{c \in spare} e^{z_c}`: the log-odds of "one of the known classes"
    against "none of them", which a shift of all logits leaves alone. A network without spare logits has nothing to
    measure against, and the score is the plain one.
    """

    relative: bool = False

    def score(self, outputs: Outputs) -> Tensor:
        score = negative_energy(outputs.logits)
        spare = outputs.all_logits[:, outputs.num_classes :]
        return score - negative_energy(spare) if self.relative and spare.shape[1] else score


@dataclass
class Propagated(Scorer):
    """Another scorer's scores, averaged over the graph (GNNSafe; Wu et al., ICLR 2023)."""

    scorer: Scorer = field(default_factory=Energy)
    num_hops: int = 2
    eta: float = 0.5
    isolated: Isolated = "keep"

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Propagated:
        fitted = copy.copy(self)
        fitted.scorer = self.scorer.fit(outputs, train, y)
        return fitted

    def score(self, outputs: Outputs) -> Tensor:
        return propagate(self.scorer.score(outputs), outputs.graph.random_walk, self.num_hops, self.eta, self.isolated)
