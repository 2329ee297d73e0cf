"""Several kinds of evidence as one score: each becomes a p-value against reference nodes, then they are combined."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from oddnode.functional import surprise
from oddnode.scoring.base import Scorer, ScorerWrapper
from oddnode.scoring.findings import Comparison, Finding
from oddnode.scoring.outputs import Outputs

__all__ = ["Evidence", "TwoSided"]

# Scorers that carry more than this share count in full: how much they carry says little about what they will find.
_ENOUGH_LEFT = 0.1


@dataclass
class TwoSided(ScorerWrapper):
    """Another scorer's scores, of which unusually high ones are evidence too.

    Parameters
    ----------
    scorer : Scorer
        The other scorer.
    """

    def score(self, outputs: Outputs) -> Tensor:
        return self.scorer.score(outputs)

    @property
    def two_sided(self) -> bool:
        """True."""
        return True

    @property
    def kind(self) -> str:
        """That of the other scorer, whose scores these are."""
        return self.scorer.kind

    def reason(self, found: Finding) -> str:
        return self.scorer.reason(found.inside())


@dataclass
class Evidence(Scorer):
    r"""Any scorers combined: a node is unknown if some of them find it unusual among *reference nodes*.

    Reference nodes are labelled nodes that nothing was learnt from. Let :math:`p_k(v)` be the share of them that scorer
    :math:`k` finds as unusual as node :math:`v` (`oddnode.functional.surprise`; for a two-sided scorer, twice the
    smaller of the shares below and above). The evidence against a node is

    .. math:: T(v) = \sum_k w_k \, (-\log p_k(v))^{q}

    and its score is the logarithm of the share of reference nodes with as much evidence against them. A power
    :math:`q = 1` is Fisher's combination; with a higher one, a single strong piece of evidence counts more than several
    weak ones. The weight :math:`w_k` is 1, less only for a scorer that carries next to nothing on the training graph
    (`oddnode.Scorer.informativeness` below 0.1), down to 0.

    Where the scored graph contains the reference nodes (``outputs.reference``), nodes are compared with them there, so
    that a graph may grow; otherwise with their scores in the training graph.

    Parameters
    ----------
    scorers : tuple of Scorer
        The scorers.
    power : float
        The exponent q, 1 or more.

    Attributes
    ----------
    reference_ : Tensor
        Scores of the r reference nodes in the training graph by all scorers ``[r, K]``.
    weights_ : Tensor
        The weights of the scorers ``[K]``.
    """

    scorers: tuple[Scorer, ...]
    power: float = 2.0
    reference_: Tensor = field(init=False, repr=False, compare=False)
    weights_: Tensor = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        if not self.scorers or not 1.0 <= self.power < math.inf:
            raise ValueError(
                f"evidence of {len(self.scorers)} scorers with power {self.power}, expected some, and 1 or more"
            )
        fitted = copy.copy(self)
        fitted.scorers = tuple(scorer.fit(outputs, train, y) for scorer in self.scorers)
        return fitted

    def fit_reference(self, outputs: Outputs) -> Self:
        if outputs.reference is None or len(outputs.reference) < 2:
            raise ValueError("evidence is compared with reference nodes, but there are fewer than two")
        fitted = copy.copy(self)
        fitted.scorers = tuple(scorer.fit_reference(outputs) for scorer in self.scorers)
        fitted.reference_ = fitted._all_scores(outputs)[outputs.reference]
        weights = [min(1.0, scorer.informativeness(outputs) / _ENOUGH_LEFT) for scorer in fitted.scorers]
        fitted.weights_ = torch.tensor(weights, dtype=torch.float64, device=fitted.reference_.device)
        return fitted

    def score(self, outputs: Outputs) -> Tensor:
        scores, reference = self._compared(outputs)
        against = self._total(self._surprises(scores, reference))
        known = self._total(self._surprises(reference, reference, leave_one_out=True))
        result = -surprise(-against, -known)
        if outputs.reference is not None:
            result[outputs.reference] = -surprise(-known, -known, leave_one_out=True)
        return result.to(outputs.graph.x.dtype)

    def surprises(self, outputs: Outputs) -> Tensor:
        r"""Compute how unusual every node is by every scorer, :math:`-\log p_k(v)`.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.

        Returns
        -------
        Tensor
            Shape ``[N, K]``, in double precision; 0 for a scorer without weight.
        """
        scores, reference = self._compared(outputs)
        found = self._surprises(scores, reference)
        if outputs.reference is not None:
            found[outputs.reference] = self._surprises(reference, reference, leave_one_out=True)
        return found * (self.weights_ > 0).to(found.device)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the scorers; those of the same kind are numbered."""
        kinds = [scorer.kind for scorer in self.scorers]
        before = [kinds[:place].count(kind) for place, kind in enumerate(kinds)]
        return tuple(f"{kind} {count + 1}" if count else kind for kind, count in zip(kinds, before, strict=True))

    def comparisons(self, outputs: Outputs) -> list[Comparison]:
        scores, reference = self._compared(outputs)
        surprises = self.surprises(outputs)
        contributions = surprises.pow(self.power) * self.weights_.to(surprises)
        return [Comparison(self.scorers, outputs, scores, reference, surprises, contributions)]

    @property
    def needs_reference(self) -> bool:
        """True."""
        return True

    @property
    def num_hops_used(self) -> int:
        """The largest number of hops of the scorers."""
        return max(scorer.num_hops_used for scorer in self.scorers)

    def limited_to(self, num_hops: int) -> Self:
        limited = copy.copy(self)
        limited.scorers = tuple(scorer.limited_to(num_hops) for scorer in self.scorers)
        return limited

    @property
    def needs_raw_logits(self) -> bool:
        """Whether any of the scorers does."""
        return any(scorer.needs_raw_logits for scorer in self.scorers)

    @property
    def needs_labelled_nodes(self) -> bool:
        """Whether any of the scorers does."""
        return any(scorer.needs_labelled_nodes for scorer in self.scorers)

    def _all_scores(self, outputs: Outputs) -> Tensor:
        return torch.stack([scorer.score(outputs).detach().double() for scorer in self.scorers], dim=1)

    def _compared(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """The scores of all nodes ``[N, K]`` and of the reference nodes ``[r, K]``."""
        scores = outputs.cached(self, lambda: self._all_scores(outputs))
        return scores, self.reference_.to(scores) if outputs.reference is None else scores[outputs.reference]

    def _surprises(self, scores: Tensor, reference: Tensor, leave_one_out: bool = False) -> Tensor:
        columns = []
        for scorer, own, known in zip(self.scorers, scores.unbind(dim=1), reference.unbind(dim=1), strict=True):
            found = surprise(own, known, leave_one_out)
            if scorer.two_sided:
                found = (torch.maximum(found, surprise(-own, -known, leave_one_out)) - math.log(2)).clamp_min(0.0)
            columns.append(found)
        return torch.stack(columns, dim=1)

    def _total(self, surprises: Tensor) -> Tensor:
        return surprises.pow(self.power) @ self.weights_.to(surprises)
