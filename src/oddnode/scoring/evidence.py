"""Several kinds of evidence as one score: each becomes a p-value against reference nodes, then they are combined."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.functional import surprise
from oddnode.ops import Adam
from oddnode.scoring.base import Scorer
from oddnode.scoring.combinations import CombinedScorer, ScorerWrapper, all_of, sharing
from oddnode.scoring.findings import Comparison
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.propagated import average_together

# Scorers more informative than this have full weight: beyond it, informativeness says little about what they detect.
_ENOUGH_LEFT = 0.1
# The L2 penalty on the logarithms of learnt weights.
_DRAWN = 0.05
_STEPS = 300


class _Against(NamedTuple):
    """The weights of scorers ``[K]``, and minus the resulting evidence against reference nodes ``[r]``, ascending."""

    weights: Tensor
    known: Tensor


class _Compared(NamedTuple):
    """The scores of all nodes by all scorers ``[N, K]``, and those of the reference nodes to compare with.

    ``ranked`` ``[r, K]`` has every column of ``reference`` in ascending order. ``is_seen`` ``[N]``: whether a
    node was in the training graph, so that ``seen`` applies and not ``new``; reference nodes count as new.
    """

    scores: Tensor
    reference: Tensor
    ranked: Tensor
    is_seen: Tensor
    new: _Against
    seen: _Against


@dataclass
class Evidence(CombinedScorer):
    r"""Any scorers combined: a node is unknown if some of them find it unusual among *reference nodes*.

    Reference nodes are labelled nodes that nothing was learnt from. Let :math:`p_k(v)` be the share of them that scorer
    :math:`k` finds as unusual as node :math:`v` (`oddnode.functional.surprise`; for a two-sided scorer, twice the
    smaller of the shares below and above). The evidence against a node is

    .. math:: T(v) = \sum_k w_k \, (-\log p_k(v))^{q}

    and its score is the logarithm of the share of reference nodes with as much evidence against them. A power :math:`q
    = 1` is Fisher's combination; with a higher one, a single strong piece of evidence counts more than several weak
    ones. The weight :math:`w_k` is the given one, reduced, down to 0, for a scorer that is hardly informative on the
    training graph (`oddnode.Scorer.informativeness` below 0.1), times a learnt factor with ``learns_weights``.

    If the scored graph contains the reference nodes (``outputs.reference``), nodes are compared with their scores
    there, so that a graph may grow; otherwise with their scores in the training graph. Nodes of the training graph
    (``outputs.seen``) have separate weights: what was learnt from a node cannot find it unusual.

    Parameters
    ----------
    scorers : tuple of Scorer
        The scorers.
    power : float
        The exponent q, 1 or more.
    weights : tuple of float, optional
        A weight for every scorer, 0 or more, before informativeness is measured; by default 1.
    num_elsewhere : int
        The number of scorers, at the end, that are used only in graphs without the reference nodes. There, a whole
        region can be unknown; in a graph that has grown, averages over a region say little about a single node. They
        have full weight even if they hardly vary within the training graph, from which another graph can differ.
    seen_weights : tuple of float, optional
        A weight for every scorer, 0 or more, for nodes of the training graph that are not reference nodes; by default
        the weights of new nodes. The last ``num_elsewhere`` scorers apply to them with these weights.
    learns_weights : bool
        Whether the weights are learnt from exposed nodes, so that the kinds of evidence that separate them from known
        nodes weigh more.

    Attributes
    ----------
    reference_ : Tensor
        Scores of the r reference nodes in the training graph by all scorers ``[r, K]``.
    weights_ : Tensor
        The weights :math:`w_k` ``[K]``; the last ``num_elsewhere`` are 0 if the scored graph contains the reference
        nodes.
    seen_weights_ : Tensor
        The weights for nodes of the training graph ``[K]``.
    """

    needs_reference = True
    supports_folders = all_of("supports_folders")

    scorers: tuple[Scorer, ...]
    power: float = 2.0
    weights: tuple[float, ...] | None = None
    num_elsewhere: int = 0
    seen_weights: tuple[float, ...] | None = None
    learns_weights: bool = False
    reference_: Tensor = field(init=False, repr=False, compare=False)
    weights_: Tensor = field(init=False, repr=False, compare=False)
    seen_weights_: Tensor = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        if not self.scorers or not 1.0 <= self.power < math.inf:
            raise ValueError(
                f"there are {len(self.scorers)} scorers and power is {self.power}, expected 1 or more of both"
            )
        count = len(self.scorers)
        for given in self._given_weights:
            sound = len(given) == count and all(0 <= weight < math.inf for weight in given)
            if not sound or not 0 <= self.num_elsewhere < count:
                raise ValueError(
                    f"{count} scorers have the weights {given} and num_elsewhere is {self.num_elsewhere}; expected a "
                    f"finite weight of 0 or more for each, and num_elsewhere in 0..{count - 1}"
                )
        fitted = copy.copy(self)
        fitted.scorers = tuple(outputs.fitted(scorer, train, y) for scorer in sharing(self.scorers))
        return fitted

    def fit_reference(self, outputs: Outputs) -> Self:
        if outputs.reference is None or len(outputs.reference) < 2:
            raise ValueError("evidence needs at least two reference nodes to compare with")
        fitted = copy.copy(self)
        fitted.scorers = tuple(sharing([scorer.fit_reference(outputs) for scorer in self.scorers]))
        scores = outputs.cached(fitted.scorers, "scores", partial(fitted.scores, outputs))
        fitted.reference_ = scores[outputs.reference]
        inside = len(self.scorers) - self.num_elsewhere
        carried = [min(1.0, scorer.informativeness(outputs) / _ENOUGH_LEFT) for scorer in fitted.scorers[:inside]]
        carried += [1.0] * self.num_elsewhere
        shares = torch.tensor(carried, dtype=torch.float64, device=fitted.reference_.device)
        fitted.weights_, fitted.seen_weights_ = (shares * shares.new_tensor(given) for given in self._given_weights)
        return fitted

    def fit_exposure(self, known: Outputs, nodes: Tensor, exposure: Outputs, exposed: Tensor) -> Self:
        if not self.learns_weights or not len(nodes) or not len(exposed):
            return self
        against = [
            (self.surprises(outputs)[chosen].pow(self.power) * self.weights_)
            for outputs, chosen in ((known, nodes), (exposure, exposed))
        ]
        fitted = copy.copy(self)
        factors = separating_weights(*against)
        fitted.weights_, fitted.seen_weights_ = self.weights_ * factors, self.seen_weights_ * factors
        return fitted

    @property
    def needs_exposure(self) -> bool:  # type: ignore[override]
        """Whether the weights are learnt."""
        return self.learns_weights

    def score(self, outputs: Outputs) -> Tensor:
        compared, result = self._compared(outputs), outputs.graph.empty(None, torch.float64)
        for rows in outputs.graph.shards(result):
            result[rows] = self._combined_at(compared, rows)
        return self._with_references(result, compared, outputs)

    def score_at(self, outputs: Outputs, nodes: Tensor) -> Tensor:
        compared = self._compared(outputs)
        result = outputs.graph.x.new_zeros(outputs.graph.num_nodes, dtype=torch.float64)
        result[nodes] = self._combined_at(compared, nodes)
        return self._with_references(result, compared, outputs)[nodes]

    def _combined_at(self, compared: _Compared, rows: slice | Tensor) -> Tensor:
        """The scores of some nodes ``[n]``; reference nodes are treated like any others."""
        own, is_seen = compared.scores[rows], compared.is_seen[rows]
        result = torch.empty_like(own[:, 0])
        for chosen, against in ((is_seen, compared.seen), (~is_seen, compared.new)):
            if chosen.any():
                total = self._total(own[chosen], compared.ranked, against.weights)
                result[chosen] = -surprise(-total, against.known, is_sorted=True)
        return result

    def _with_references(self, result: Tensor, compared: _Compared, outputs: Outputs) -> Tensor:
        if outputs.reference is not None:
            known = self._total(compared.reference, compared.ranked, compared.new.weights, leave_one_out=True)
            result[outputs.reference] = -surprise(-known, -known, leave_one_out=True)
        return result.to(outputs.graph.x.dtype)

    def scores(self, outputs: Outputs) -> Tensor:
        """Score every node by every scorer, ``[N, K]`` in double precision.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.
        """
        shared = sharing(self.scorers)
        average_together(shared, outputs)
        keep = outputs.graph.keep
        found = [
            keep(scorer.score(outputs)) if isinstance(scorer, ScorerWrapper) else outputs.scores_of(scorer)
            for scorer in shared
        ]
        scores = outputs.graph.empty(len(found), torch.float64)
        for rows in outputs.graph.shards(scores):
            scores[rows] = torch.stack([each[rows].detach().double() for each in found], dim=1)
        return scores

    def combined(self, scores: Tensor, reference: Tensor | None = None) -> Tensor:
        """Combine the scores of nodes that were not in the training graph, ``[N]`` in double precision.

        Parameters
        ----------
        scores : Tensor
            From `scores`, ``[N, K]``.
        reference : Tensor, optional
            Scores of the reference nodes in the same graph ``[r, K]``; by default those in the training graph.
        """
        weights = self._weights(reference is not None)
        known = self.reference_.to(scores) if reference is None else reference
        ranked = known.sort(dim=0).values
        against = self._against(known, ranked, weights)
        return -surprise(-self._total(scores, ranked, weights), against.known, is_sorted=True)

    def _against(self, reference: Tensor, ranked: Tensor, weights: Tensor) -> _Against:
        known = self._total(reference, ranked, weights, leave_one_out=True)
        return _Against(weights, (-known).sort().values)

    def surprises(self, outputs: Outputs) -> Tensor:
        r"""Compute how unusual every node is by every scorer, :math:`-\log p_k(v)`, ``[N, K]`` in double precision.

        It is 0 for a scorer of weight 0.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.
        """
        compared, found = self._compared(outputs), outputs.graph.empty(len(self.scorers), torch.float64)
        for rows in outputs.graph.shards(found):
            own = self._surprises(compared.scores[rows], compared.ranked)
            found[rows] = own * (self._weights_of_nodes(compared, rows) > 0)
        if outputs.reference is not None:
            own = self._surprises(compared.reference, compared.ranked, leave_one_out=True)
            found[outputs.reference] = own * (compared.new.weights.to(own) > 0)
        return found

    @property
    def kinds(self) -> tuple[str, ...]:  # type: ignore[override]
        """The kinds of the scorers; repeated kinds are numbered."""
        kinds = [scorer.kind for scorer in self.scorers]
        before = [kinds[:place].count(kind) for place, kind in enumerate(kinds)]
        return tuple(f"{kind} {count + 1}" if count else kind for kind, count in zip(kinds, before, strict=True))

    def comparisons(self, outputs: Outputs) -> list[Comparison]:
        compared, surprises = self._compared(outputs), self.surprises(outputs)
        contributions = outputs.graph.empty(len(self.scorers), torch.float64)
        for rows in outputs.graph.shards(contributions):
            contributions[rows] = surprises[rows].pow(self.power) * self._weights_of_nodes(compared, rows)
        return [Comparison(self.scorers, outputs, compared.scores, compared.reference, surprises, contributions)]

    @property
    def _given_weights(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The weights for new nodes, and for nodes of the training graph."""
        new = (1.0,) * len(self.scorers) if self.weights is None else self.weights
        inside = len(self.scorers) - self.num_elsewhere
        return new, (*new[:inside], *[0.0] * self.num_elsewhere) if self.seen_weights is None else self.seen_weights

    def _compared(self, outputs: Outputs) -> _Compared:
        scores = outputs.cached(self.scorers, "scores", partial(self.scores, outputs))
        in_place = outputs.reference is not None
        reference = scores[outputs.reference] if in_place else self.reference_.to(scores)
        ranked = reference.sort(dim=0).values
        is_seen = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
        if in_place and outputs.seen is not None:
            is_seen = outputs.seen.clone()
            is_seen[outputs.reference] = False
        new, seen = (self._against(reference, ranked, each) for each in (self._weights(in_place), self.seen_weights_))
        return _Compared(scores, reference, ranked, is_seen, new, seen)

    def _surprises(self, scores: Tensor, reference: Tensor, leave_one_out: bool = False) -> Tensor:
        columns = []
        for scorer, own, known in zip(self.scorers, scores.unbind(dim=1), reference.unbind(dim=1), strict=True):
            columns.append(surprise(own, known, leave_one_out, scorer.two_sided, is_sorted=True))
        return torch.stack(columns, dim=1)

    def _total(self, scores: Tensor, reference: Tensor, weights: Tensor, leave_one_out: bool = False) -> Tensor:
        """The evidence against nodes with these scores ``[n]``."""
        surprises = self._surprises(scores, reference, leave_one_out)
        return surprises.pow(self.power) @ weights.to(surprises)

    def _weights_of_nodes(self, compared: _Compared, rows: slice) -> Tensor:
        """The weights of every scorer for some nodes ``[n, K]``."""
        is_seen = compared.is_seen[rows].unsqueeze(1)
        seen, new = (each.weights.to(is_seen.device) for each in (compared.seen, compared.new))
        return torch.where(is_seen, seen, new)

    def _weights(self, in_place: bool) -> Tensor:
        """The weights for new nodes in a graph that contains the reference nodes, or in another one."""
        counted = len(self.scorers) - self.num_elsewhere if in_place else len(self.scorers)
        return self.weights_ * (torch.arange(len(self.scorers), device=self.weights_.device) < counted)


@torch.enable_grad()
def separating_weights(known: Tensor, exposed: Tensor) -> Tensor:
    """Find positive weights that give more evidence against exposed nodes than against known nodes.

    They come from a logistic regression. Logarithms of the weights are penalised, so that by default all kinds keep
    their weight.
    """
    scale = torch.cat([known, exposed]).mean().clamp_min(1e-9)
    logs = torch.zeros(known.shape[1], dtype=torch.float64, device=known.device, requires_grad=True)
    line = torch.tensor([0.0, 0.0], dtype=torch.float64, device=known.device, requires_grad=True)
    optimiser = Adam([logs, line], lr=0.05, fused=False)
    for _ in range(_STEPS):
        odds = [line[0].exp() * (each / scale) @ logs.exp() / len(logs) + line[1] for each in (known, exposed)]
        loss = F.softplus(odds[0]).mean() + F.softplus(-odds[1]).mean() + _DRAWN * logs.square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return logs.detach().exp()
