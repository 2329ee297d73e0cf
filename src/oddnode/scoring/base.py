"""The base class of scorers, and base classes of scorers that change or propagate the scores of another."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from oddnode.scoring import reasons
from oddnode.scoring.findings import Comparison, Finding
from oddnode.scoring.outputs import Outputs

__all__ = ["PropagatingScorer", "Scorer", "ScorerWrapper"]


class Scorer:
    """Base of all scorers: a dataclass whose fields are its settings, with a method ``score``.

    A scorer describes itself, so that no other code depends on its class: how it uses neighbours (`own_score`,
    `num_hops_used`, `limited_to`), what it needs (`needs_raw_logits`, `needs_labelled_nodes`, `needs_reference`,
    `needs_exposure`, `learns_from_training_graph`), whether high scores are unusual too (`two_sided`), and what it has
    found (`kind`, `reason`). The defaults suit a scorer that neither propagates nor learns.

    A scorer that learns overrides `fit`. It stores tensors, numbers or texts in attributes whose names end in ``_``;
    they are saved with a detector. To declare them, exclude them from the settings:
    ``mean_: Tensor = field(init=False, repr=False, compare=False)``.
    """

    def __repr__(self) -> str:
        settings = (f"{name}={value!r}" for name, value in vars(self).items() if not name.endswith("_"))
        return f"{type(self).__name__}({', '.join(settings)})"

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Scorer:
        """Learn from the training graph.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on the training graph of N nodes.
        train : Tensor
            Positions of the labelled training nodes ``[n]``.
        y : Tensor
            Their classes ``[n]``.

        Returns
        -------
        Scorer
            A fitted copy; the scorer itself is unchanged.
        """
        return copy.copy(self)

    def score(self, outputs: Outputs) -> Tensor:
        """Score every node of a graph.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.

        Returns
        -------
        Tensor
            Scores ``[N]``, higher = more in-distribution.
        """
        raise TypeError(f"{type(self).__name__} does not define a score")

    def own_score(self, outputs: Outputs) -> Tensor:
        """Score every node without the scores of its neighbours.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.

        Returns
        -------
        Tensor
            Scores ``[N]``; the same as `score` unless the scorer propagates.
        """
        return self.score(outputs)

    def propagated_score(self, outputs: Outputs) -> Tensor:
        """Score every node ``[N]`` as `score` does, but without a prior, which is no word of the network.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.
        """
        return self.score(outputs)

    @property
    def num_hops_used(self) -> int:
        """Number of hops over which scores are propagated; 0 for a scorer that does not propagate."""
        return 0

    def limited_to(self, num_hops: int) -> Scorer:
        """Limit the propagation.

        Parameters
        ----------
        num_hops : int
            The maximum number of hops, 0 or more.

        Returns
        -------
        Scorer
            A copy whose `num_hops_used` is at most ``num_hops``.
        """
        return copy.copy(self)

    @property
    def supports_export(self) -> bool:
        """Whether `torch.export` can trace `score`: no operation and no shape depends on numbers."""
        return False

    @property
    def needs_raw_logits(self) -> bool:
        """Whether log-probabilities instead of logits would give every node the same score, as with energies."""
        return False

    @property
    def needs_labelled_nodes(self) -> bool:
        """Whether the scored graph should have labelled nodes (``train_mask``, ``val_mask``) as anchors."""
        return False

    def fit_reference(self, outputs: Outputs) -> Scorer:
        """Learn from the reference nodes, after `fit`.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on the training graph with the reference nodes in it; ``outputs.reference`` has their
            positions.

        Returns
        -------
        Scorer
            A fitted copy; the same scorer unless it `needs_reference`.
        """
        return self

    def fit_exposure(self, known: Outputs, nodes: Tensor, exposure: Outputs, exposed: Tensor) -> Scorer:
        """Learn from nodes that are known to be OOD, after `fit_reference`.

        Only scorers that `needs_reference` are fitted so.

        Parameters
        ----------
        known : Outputs
            The network's outputs on the training graph without the reference nodes.
        nodes : Tensor
            Positions ``[n]`` of known nodes in it that the network was not trained on.
        exposure : Outputs
            The network's outputs on the exposure graph.
        exposed : Tensor
            Positions ``[m]`` of the nodes in it that are known to be OOD.

        Returns
        -------
        Scorer
            A fitted copy; the same scorer unless it `needs_exposure`.
        """
        return self

    @property
    def needs_exposure(self) -> bool:
        """Whether it learns from nodes that are known to be OOD."""
        return False

    def informativeness(self, outputs: Outputs) -> float:
        """Measure how much the scores carry on the training graph, so that a combination can weigh them.

        Parameters
        ----------
        outputs : Outputs
            As for `fit_reference`.

        Returns
        -------
        float
            From 0 (nothing: the scores are noise on this graph) to 1, the default.
        """
        return 1.0

    @property
    def needs_reference(self) -> bool:
        """Whether it compares nodes with reference nodes: labelled nodes that nothing was learnt from."""
        return False

    @property
    def two_sided(self) -> bool:
        """Whether unusually high scores are evidence against a node, too."""
        return False

    @property
    def kind(self) -> str:
        """A short name for what its scores tell; by default the name of the class in words."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(self).__name__).lower()

    def reason(self, found: Finding) -> str:
        """Say in a sentence why a node's score is unusual.

        Parameters
        ----------
        found : Finding
            The node's score, those of known nodes, and the graph.
        """
        return reasons.general(found)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of evidence that it combines, with different names; none by default."""
        return ()

    def comparisons(self, outputs: Outputs) -> list[Comparison]:
        """Compare every node with reference nodes by each of `kinds`.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.

        Returns
        -------
        list of Comparison
            One for each network; empty if there are no `kinds`.
        """
        return []

    @property
    def learns_from_training_graph(self) -> bool:
        """Whether `fit` reads the training graph; by default, whether the class overrides `fit`."""
        return type(self).fit is not Scorer.fit


@dataclass
class ScorerWrapper(Scorer):
    """Base of scorers that change the scores of another; its properties are those of the other scorer.

    Its `kind` and `reason` are its own, because the other scorer's words may not fit the changed scores.

    Parameters
    ----------
    scorer : Scorer
        The other scorer.
    """

    scorer: Scorer

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        fitted = copy.copy(self)
        fitted.scorer = self.scorer.fit(outputs, train, y)
        return fitted

    def own_score(self, outputs: Outputs) -> Tensor:
        return self.scorer.own_score(outputs)

    @property
    def num_hops_used(self) -> int:
        """The number of hops of the inner scorer."""
        return self.scorer.num_hops_used

    def limited_to(self, num_hops: int) -> Self:
        limited = copy.copy(self)
        limited.scorer = self.scorer.limited_to(num_hops)
        return limited

    @property
    def needs_raw_logits(self) -> bool:
        """Whether the inner scorer does."""
        return self.scorer.needs_raw_logits

    @property
    def needs_labelled_nodes(self) -> bool:
        """Whether the inner scorer does."""
        return self.scorer.needs_labelled_nodes

    def fit_reference(self, outputs: Outputs) -> Self:
        fitted = copy.copy(self)
        fitted.scorer = self.scorer.fit_reference(outputs)
        return fitted

    def fit_exposure(self, known: Outputs, nodes: Tensor, exposure: Outputs, exposed: Tensor) -> Self:
        fitted = copy.copy(self)
        fitted.scorer = self.scorer.fit_exposure(known, nodes, exposure, exposed)
        return fitted

    @property
    def needs_exposure(self) -> bool:
        """Whether the inner scorer does."""
        return self.scorer.needs_exposure

    def informativeness(self, outputs: Outputs) -> float:
        return self.scorer.informativeness(outputs)

    @property
    def needs_reference(self) -> bool:
        """Whether the inner scorer does."""
        return self.scorer.needs_reference

    @property
    def two_sided(self) -> bool:
        """Whether high scores of the inner scorer are unusual."""
        return self.scorer.two_sided

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of evidence of the inner scorer."""
        return self.scorer.kinds

    def comparisons(self, outputs: Outputs) -> list[Comparison]:
        return self.scorer.comparisons(outputs)

    @property
    def learns_from_training_graph(self) -> bool:
        """Whether the inner scorer does, or the class overrides `fit`."""
        return type(self).fit is not ScorerWrapper.fit or self.scorer.learns_from_training_graph


@dataclass
class PropagatingScorer(ScorerWrapper):
    """Base of scorers that propagate the scores of another over the edges, ``num_hops`` times.

    Parameters
    ----------
    scorer : Scorer
        The other scorer.
    num_hops : int
        Number of hops.
    """

    num_hops: int

    @property
    def num_hops_used(self) -> int:
        """The number of hops, including those of the inner scorer."""
        return self.num_hops + self.scorer.num_hops_used

    def limited_to(self, num_hops: int) -> Self:
        limited = super().limited_to(num_hops)
        limited.num_hops = min(self.num_hops, num_hops - limited.scorer.num_hops_used)
        return limited
