"""Scorers turn what a trained network says of a graph into one number per node, higher = more in-distribution."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from oddnode.backbones import embed_with, run_backbone
from oddnode.energy import Isolated, negative_energy, propagate
from oddnode.ensemble import Ensemble, mean_log_probabilities
from oddnode.graph import Graph

__all__ = ["ODIN", "Energy", "MaxLogit", "MaxSoftmax", "MemberMean", "Outputs", "Propagated", "Scorer"]


class Outputs:
    """What a trained network says of one graph, computed when first asked for and shared by all scorers.

    The first ``num_classes`` logits belong to the ID classes; any after them are spare. ``labelled`` are the positions
    of the nodes of this graph whose ID label is known (training and validation nodes); ``None`` where there are none.
    """

    def __init__(self, module: nn.Module, graph: Graph, num_classes: int, labelled: Tensor | None = None):
        self.module = module
        self.graph = graph
        self.num_classes = num_classes
        self.labelled = labelled

    @cached_property
    def members(self) -> list[Outputs]:
        """What each network of an ensemble says; nothing for a single network."""
        networks: Iterable[nn.Module] = self.module.members if isinstance(self.module, Ensemble) else ()
        return [Outputs(network, self.graph, self.num_classes, self.labelled) for network in networks]

    @cached_property
    def all_logits(self) -> Tensor:
        """Logits of every node, spare ones included."""
        if self.members:
            return mean_log_probabilities([member.all_logits for member in self.members])
        with torch.no_grad():
            return run_backbone(self.module, self.graph)

    @property
    def logits(self) -> Tensor:
        """Logits of the ID classes. Of an ensemble, the logarithms of its members' mean probabilities among these."""
        if self.members:
            return mean_log_probabilities([member.logits for member in self.members])
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
        return _confidence(outputs.all_logits, outputs.num_classes).exp()


@dataclass
class MaxLogit(Scorer):
    """The highest logit of an ID class (Hendrycks et al., ICML 2022)."""

    def score(self, outputs: Outputs) -> Tensor:
        return outputs.logits.amax(dim=-1)


@dataclass
class ODIN(Scorer):
    r"""Temperature and a small step on the input (Liang et al., ICLR 2018).

    :math:`\max_c \mathrm{softmax}_c(z(\tilde x) / T)` with
    :math:`\tilde x = x - \varepsilon\, \mathrm{sign}(-\nabla_x \sum_v \log \max_c \mathrm{softmax}_c(z_v(x) / T))`:
    every feature takes a step that makes the predictions surer, which moves ID nodes more than OOD nodes.

    In a graph the features of a node bear on its neighbours' predictions too, so one step is taken for all nodes
    together. Spare logits take part as in `MaxSoftmax`.

    Parameters
    ----------
    temperature : float
        T, above 0. High temperatures weigh all logits, not only the two highest.
    epsilon : float
        Length of the step on every feature; 0 for none.
    """

    temperature: float = 5.0
    epsilon: float = 0.0001

    def score(self, outputs: Outputs) -> Tensor:
        if self.temperature <= 0:
            raise ValueError(f"temperature is {self.temperature}, expected a number above 0")
        if self.epsilon == 0:
            return _confidence(outputs.all_logits / self.temperature, outputs.num_classes).exp()
        graph = outputs.graph
        moved = graph.with_features(graph.x + self.epsilon * self._gradient(outputs).sign())
        with torch.no_grad():
            logits = run_backbone(outputs.module, moved)
        return _confidence(logits / self.temperature, outputs.num_classes).exp()

    def _gradient(self, outputs: Outputs) -> Tensor:
        """How the summed log confidence of all nodes changes with every feature."""
        x = outputs.graph.x.detach().clone().requires_grad_()
        with torch.enable_grad():
            logits = run_backbone(outputs.module, outputs.graph.with_features(x))
            confidence = _confidence(logits / self.temperature, outputs.num_classes)
            [gradient] = torch.autograd.grad(confidence.sum(), x)
        return gradient


@dataclass
class MemberMean(Scorer):
    """The mean of the scores that scorers fitted to each network of an ensemble give."""

    scorers: tuple[Scorer, ...]

    @classmethod
    def of(cls, scorer: Scorer, outputs: list[Outputs], train: Tensor, y: Tensor) -> MemberMean:
        """One scorer, fitted to every network."""
        return cls(tuple(scorer.fit(member, train, y) for member in outputs))

    def score(self, outputs: Outputs) -> Tensor:
        pairs = zip(self.scorers, outputs.members, strict=True)
        return torch.stack([scorer.score(member) for scorer, member in pairs]).mean(dim=0)


def _confidence(logits: Tensor, num_classes: int) -> Tensor:
    """The log of the highest probability of an ID class; spare logits take part in the softmax."""
    return logits.log_softmax(dim=-1)[:, :num_classes].amax(dim=-1)


@dataclass
class Energy(Scorer):
    r"""The negative energy over the ID classes (Liu et al., NeurIPS 2020).

    With ``centred`` a node's mean logit is taken out first, :math:`\log \sum_{c \in ID} e^{z_c - \bar z}`. A shift of
    all logits, to which no classification loss reacts, then cannot move the score: what NODESAFE's uniform term asks
    of the training nodes holds for every node that is scored.
    """

    centred: bool = False

    def score(self, outputs: Outputs) -> Tensor:
        score = negative_energy(outputs.logits)
        return score - outputs.all_logits.mean(dim=-1) if self.centred else score


class _MeanKnownScore(Scorer):
    """What propagation with a prior learns: not a setting, hence not in the dataclass."""

    prior_: Tensor


@dataclass
class Propagated(_MeanKnownScore):
    r"""Another scorer's scores, averaged over the graph (GNNSafe; Wu et al., ICLR 2023).

    An average over three nodes strays further than one over three hundred, so the lowest scores of a graph are those
    of its smallest components, known or not. ``prior_nodes`` counters that: every node is scored as if its average
    held that many more nodes of the mean score :math:`\mu` that known nodes have,
    :math:`(m s + \kappa \mu) / (m + \kappa)`, where :math:`m` is how many nodes the average is over
    (`oddnode.energy.support`) and :math:`\kappa` is ``prior_nodes``. A node on its own then has to look very odd to
    score low. :math:`\mu` is taken on the training graph, over labelled nodes that were not trained on where there
    are any.

    Parameters
    ----------
    scorer : Scorer
        Gives the scores to average.
    num_hops, eta, isolated
        As for `oddnode.energy.propagate`.
    prior_nodes : float
        How many nodes of the mean known score count beside the neighbours; 0 for none.
    """

    scorer: Scorer = field(default_factory=Energy)
    num_hops: int = 2
    eta: float = 0.5
    isolated: Isolated = "keep"
    prior_nodes: float = 0.0

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Propagated:
        if self.prior_nodes < 0:
            raise ValueError(f"prior_nodes is {self.prior_nodes}, expected 0 or more")
        fitted = copy.copy(self)
        fitted.scorer = self.scorer.fit(outputs, train, y)
        if self.prior_nodes:
            fitted.prior_ = fitted._averages(outputs)[_held_out(outputs, train)].mean().detach()
        return fitted

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
