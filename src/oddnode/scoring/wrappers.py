"""Base classes of scorers that change or propagate the scores of another."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from oddnode.scoring.base import Scorer
from oddnode.scoring.findings import Comparison
from oddnode.scoring.outputs import Outputs

__all__ = ["PropagatingScorer", "ScorerWrapper", "sharing"]


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
        fitted.scorer = outputs.fitted(self.scorer, train, y)
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


def sharing(scorers: Sequence[Scorer]) -> list[Scorer]:
    """Let scorers that change the scores of another one of them refer to it, so that it scores once.

    Parameters
    ----------
    scorers : sequence of Scorer
        The scorers.

    Returns
    -------
    list of Scorer
        The same; those that did not refer to it before are copies.
    """
    known: dict[str, Scorer] = {}
    for scorer in scorers:
        known.setdefault(repr(scorer), scorer)
    shared: list[Scorer] = []
    for scorer in scorers:
        inner = known.get(repr(scorer.scorer)) if isinstance(scorer, ScorerWrapper) else None
        if isinstance(scorer, ScorerWrapper) and inner is not None and inner is not scorer.scorer:
            shared.append(_around(scorer, inner))
        else:
            shared.append(scorer)
    return shared


def _around(wrapper: ScorerWrapper, inner: Scorer) -> ScorerWrapper:
    changed = copy.copy(wrapper)
    changed.scorer = inner
    return changed
