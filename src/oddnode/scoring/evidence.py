"""Several kinds of evidence as one score: each becomes a p-value against reference nodes, then they are combined."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.functional import surprise
from oddnode.ops import Adam
from oddnode.scoring.base import Scorer
from oddnode.scoring.batch import (
    DIMENSIONS,
    FEWEST_KNOWN,
    FEWEST_KNOWN_OVER_TIME,
    Batch,
    feature_columns,
    kind_columns,
    looks_like_drift,
    seen_in_batch,
)
from oddnode.scoring.batch_differences import FeatureBatchEvidence, KindBatchEvidence
from oddnode.scoring.combinations import CombinedScorer, ScorerWrapper, all_of, sharing
from oddnode.scoring.feature_space import FeatureSpace
from oddnode.scoring.findings import Comparison, Finding
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.propagated import Propagated, average_together
from oddnode.scoring.reasons import share_of_known
from oddnode.scoring.rehearsal import (
    FEWEST_REHEARSED,
    RehearsalEvidence,
    Rehearsed,
    alterations_for,
    altered_graphs,
    fold_of,
    learn,
    odds,
)

# Scorers more informative than this have full weight: beyond it, informativeness says little about what they detect.
_ENOUGH_LEFT = 0.1
# The weights of rehearsal, of each kind of the batch, and of the evidence around a node beside that at the node; see
# docs/measurements/carry-over.md.
_REHEARSAL, _BATCH, _AROUND = 4.0, 2.0, 2.0
# The share of its own evidence that a node keeps in every hop.
_ETA = 0.5
# The dimensions of the feature space that the batch takes the first of: the same as for link prediction.
_SPACE = 64
# The rate of the forecast.
_RATE = 0.05
_DRIFT = (
    "the new nodes as a whole differ from the known ones, as after a drift: too few of them look like reference "
    "nodes. What they have in common is therefore not held against them, and each is judged alone"
)
_DEPENDS = (
    "what the new nodes have in common is evidence, too, so their scores depend on each other (--no-batch, or "
    "outputs(data, batch=False) in Python, judges each alone)"
)
# The L2 penalty on the logarithms of learnt weights.
_DRAWN = 0.05
_STEPS = 300
# Rows whose scores are compared with reference nodes at a time, which takes several values for each.
_ROWS_AT_ONCE = 2**16


class _Against(NamedTuple):
    """The weights of all kinds of evidence ``[K']``, and minus the evidence against reference nodes ``[r]``, sorted."""

    weights: Tensor
    known: Tensor


class _KnownAround(NamedTuple):
    """What is around the reference nodes, to compare what is around other nodes with."""

    ranked: Tensor  # Minus the mean evidence around each, ascending `[r]`
    surprises: Tensor  # How unusual what is around each is among the others `[r]`
    known: Tensor  # Minus the evidence at and around each, ascending `[r]`


class _Around(NamedTuple):
    """The evidence at every node by itself, without the batch, and minus the mean evidence around it ``[N]``."""

    known: _KnownAround
    own: Tensor
    scores: Tensor

    def surprises(self, rows: slice | Tensor) -> Tensor:
        return surprise(self.scores[rows], self.known.ranked, is_sorted=True)


class _Compared(NamedTuple):
    """The scores of all nodes by all kinds, and those of the reference nodes to compare with.

    The kinds are the K scorers, then rehearsal, then those of the batch. ``scores`` ``[N, K]`` and ``batch``
    ``[N, B]`` have no column for rehearsal, which follows from the surprises. ``reference`` ``[r, K']`` has all of
    them, ``ranked`` has its columns in ascending order, and ``surprises`` ``[r, K']`` is how unusual each reference
    node is among the others. ``is_seen`` ``[N]``: whether a node was in the training graph, so that ``seen`` applies
    and not ``new``; reference nodes count as new. ``knows_new``: whether it is known which nodes are new.
    """

    scores: Tensor
    batch: Tensor
    reference: Tensor
    ranked: Tensor
    surprises: Tensor
    is_seen: Tensor
    new: _Against
    seen: _Against
    knows_new: bool = False
    is_drift: bool = False


@dataclass
class Evidence(CombinedScorer):
    r"""Any scorers combined: a node is unknown if some of them find it unusual among *reference nodes*.

    Reference nodes are labelled nodes that nothing was learnt from. Let :math:`p_k(v)` be the share of them that kind
    :math:`k` finds as unusual as node :math:`v` (`oddnode.functional.surprise`; for a two-sided scorer, twice the
    smaller of the shares below and above). The evidence against a node is

    .. math:: T(v) = \sum_k w_k \, (-\log p_k(v))^{q}

    and its score is the logarithm of the share of reference nodes with as much evidence against them, :math:`-u(v)`. A
    power :math:`q = 1` is Fisher's combination; with a higher one, a single strong piece of evidence counts more than
    several weak ones. The weight :math:`w_k` is the given one, reduced, down to 0, for a scorer that is hardly
    informative on the training graph (`oddnode.Scorer.informativeness` below 0.1), times a learnt factor with
    ``learns_weights``.

    If the scored graph contains the reference nodes (``outputs.reference``), nodes are compared with their scores
    there, so that a graph may grow; otherwise with their scores in the training graph. Nodes of the training graph
    (``outputs.seen``) have separate weights: what was learnt from a node cannot find it unusual. New nodes in a graph
    that contains the reference nodes have all kinds; if it is unknown which nodes are new, kinds that do not count
    elsewhere are left out. New nodes can have further kinds of evidence:

    - *Rehearsal*: at fit, the reference nodes are altered in parts (`oddnode.graph.alterations`), and a logistic
      regression learns which surprises tell them from unaltered ones. Each reference node is ranked by what was learnt
      from the others.
    - *The batch*: with at least 100 new nodes, classifiers tell nodes of the training graph from reference nodes and
      new nodes together, by features and by the scores of all kinds; and kinds that see something in the batch, more
      small p-values than expected, weigh more. If hardly any new node looks known, the whole batch has drifted, and it
      is not used.

    Parameters
    ----------
    scorers : tuple of Scorer
        The scorers.
    power : float
        The exponent q, 1 or more.
    weights : tuple of float, optional
        A weight for every scorer, 0 or more, before informativeness is measured; by default 1.
    elsewhere_weights : tuple of float, optional
        The same for graphs without the reference nodes, where a whole region can be unknown; by default ``weights``.
        Scorers with a weight only here keep it even if they hardly vary within the training graph, from which another
        graph can differ.
    seen_weights : tuple of float, optional
        The same for nodes of the training graph that are not reference nodes; by default ``weights``.
    learns_weights : bool
        Whether the weights are learnt from exposed nodes, so that the kinds of evidence that separate them from known
        nodes weigh more.
    rehearses : bool
        Whether there is rehearsal.
    uses_batch : bool
        Whether new nodes are judged by what they have in common; a score then depends on the other new nodes.
    not_rehearsed : tuple of str
        Alterations to leave out of the rehearsal.
    around_hops : int
        The number of hops of evidence around a node; 0 for none.
    fewest_known : float
        The batch is not used if less than this share of the new nodes is more usual than half of the reference nodes.

    Attributes
    ----------
    reference_ : Tensor
        Scores of the r reference nodes in the training graph by all scorers ``[r, K]``.
    weights_, elsewhere_weights_, seen_weights_ : Tensor
        The weights :math:`w_k` ``[K]`` for new nodes, in graphs without the reference nodes, and for nodes of the
        training graph.
    rehearsed_ : Tensor
        The coefficients of rehearsal, one row for each half of the reference nodes ``[2, 2K + 1]``; no row without it.
    caught_ : Tensor
        The share of altered reference nodes that would be flagged at 5 %, for each of ``alterations_``.
    alterations_ : str
        The names of the rehearsed alterations, separated by commas.
    centre_, basis_ : Tensor
        The feature space of the batch, ``[F]`` and ``[F, D]``; empty without it.
    around_ : Tensor
        What is around the reference nodes in the training graph ``[r]``.
    """

    needs_reference = True
    supports_folders = all_of("supports_folders")
    needs_raw_logits = all_of("needs_raw_logits")  # of log-probabilities, energies say nothing, but others do

    scorers: tuple[Scorer, ...]
    power: float = 2.0
    weights: tuple[float, ...] | None = None
    elsewhere_weights: tuple[float, ...] | None = None
    seen_weights: tuple[float, ...] | None = None
    learns_weights: bool = False
    rehearses: bool = False
    uses_batch: bool = False
    not_rehearsed: tuple[str, ...] = ()
    around_hops: int = 0
    fewest_known: float = FEWEST_KNOWN
    reference_: Tensor = field(init=False, repr=False, compare=False)
    weights_: Tensor = field(init=False, repr=False, compare=False)
    elsewhere_weights_: Tensor = field(init=False, repr=False, compare=False)
    seen_weights_: Tensor = field(init=False, repr=False, compare=False)
    rehearsed_: Tensor = field(init=False, repr=False, compare=False)
    caught_: Tensor = field(init=False, repr=False, compare=False)
    alterations_: str = field(init=False, repr=False, compare=False)
    centre_: Tensor = field(init=False, repr=False, compare=False)
    basis_: Tensor = field(init=False, repr=False, compare=False)
    around_: Tensor = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        if not self.scorers or not 1.0 <= self.power < math.inf:
            raise ValueError(
                f"there are {len(self.scorers)} scorers and power is {self.power}, expected 1 or more of both"
            )
        for given in self._given_weights:
            if len(given) != len(self.scorers) or not all(0 <= weight < math.inf for weight in given):
                raise ValueError(
                    f"{len(self.scorers)} scorers have the weights {given}, expected a finite weight of 0 or more each"
                )
        fitted = copy.copy(self)
        fitted.scorers = tuple(outputs.fitted(scorer, train, y) for scorer in sharing(self.scorers))
        fitted.centre_, fitted.basis_ = outputs.graph.x.new_zeros(0), outputs.graph.x.new_zeros(0, 0)
        if self.uses_batch:
            shared = outputs if outputs.learns_shared is None else outputs.learns_shared[0]
            fitted.centre_, basis = FeatureSpace.of(shared.graph, _SPACE)
            fitted.basis_ = basis[:, :DIMENSIONS].contiguous()
        return fitted

    def fit_reference(self, outputs: Outputs) -> Self:
        if outputs.reference is None or len(outputs.reference) < 2:
            raise ValueError("evidence needs at least two reference nodes to compare with")
        fitted = copy.copy(self)
        fitted.scorers = tuple(sharing([scorer.fit_reference(outputs) for scorer in self.scorers]))
        scores = outputs.cached(fitted.scorers, "scores", partial(fitted.scores, outputs))
        fitted.reference_ = scores[outputs.reference]
        new, elsewhere, seen = self._given_weights
        carried = [
            min(1.0, scorer.informativeness(outputs) / _ENOUGH_LEFT) if weight or not beyond else 1.0
            for scorer, weight, beyond in zip(fitted.scorers, new, elsewhere, strict=True)
        ]
        shares = torch.tensor(carried, dtype=torch.float64, device=fitted.reference_.device)
        fitted.weights_, fitted.elsewhere_weights_, fitted.seen_weights_ = (
            shares * shares.new_tensor(given) for given in (new, elsewhere, seen)
        )
        fitted.rehearsed_, fitted.caught_ = shares.new_zeros(0, 2 * len(shares) + 1), shares.new_zeros(0)
        fitted.alterations_ = ""
        return fitted

    def fit_together(self, scorers: Sequence[Self], outputs: Sequence[Outputs]) -> list[Self]:
        if not self.rehearses or min(len(scorer.reference_) for scorer in scorers) < FEWEST_REHEARSED:
            return list(scorers)
        num_classes = min(len(own.logits.argmax(dim=1).unique()) for own in outputs)
        names = alterations_for(outputs[0].graph, num_classes, self.not_rehearsed)
        if not names:
            return list(scorers)
        known: list[Rehearsed] = []
        altered: list[Rehearsed] = []
        for changed in altered_graphs(outputs, names):
            own_changed = Outputs.together(outputs, changed.graph)
            for scorer, own, here in zip(scorers, outputs, own_changed, strict=True):
                assert own.reference is not None
                is_own = torch.isin(changed.nodes, own.reference)
                unaltered = own.reference[~torch.isin(own.reference, changed.nodes)]
                scores = scorer.scores(here)
                # Compared within the altered graph, as new nodes are: alterations can move the averages of all nodes.
                ranked, counted = scores[unaltered].sort(dim=0).values, scorer.weights_ > 0
                for found, nodes, kinds in (
                    (known, unaltered, torch.full_like(unaltered, -1)),
                    (altered, changed.nodes[is_own], changed.kinds[is_own]),
                ):
                    surprises = scorer._surprises(scores[nodes], ranked, leave_one_out=found is known) * counted
                    found.append(Rehearsed(surprises, kinds, fold_of(own.graph.x[nodes])))
        together = Rehearsed(*(torch.cat(each) for each in zip(*known, *altered, strict=True)))
        coefficients = learn(together)
        if coefficients is None:
            return list(scorers)
        fitted = [copy.copy(scorer) for scorer in scorers]
        for learnt in fitted:
            learnt.rehearsed_ = coefficients
        caught = [
            fitted[place % len(fitted)]._caught(before, after)
            for place, (before, after) in enumerate(zip(known, altered, strict=True))
        ]
        kinds, flags = torch.cat([each.kinds for each in altered]), torch.cat(caught).double()
        present = kinds.unique().tolist()
        for learnt in fitted:
            learnt.caught_ = torch.stack([flags[kinds == k].mean() for k in present])
            learnt.alterations_ = ",".join(names[k] for k in present)
        return fitted

    def _caught(self, known: Rehearsed, altered: Rehearsed) -> Tensor:
        """Whether altered reference nodes would be flagged at 5 %, by what was learnt from others ``[n]``."""
        weights = torch.cat([self.weights_, self.weights_.new_tensor([_REHEARSAL])])
        scores = [-odds(self.rehearsed_, each.surprises, each.folds) for each in (known, altered)]
        against = [surprise(scores[0], scores[0], leave_one_out=True), surprise(scores[1], scores[0])]
        totals = [
            torch.cat([each.surprises, extra.unsqueeze(1)], dim=1).pow(self.power) @ weights
            for each, extra in zip((known, altered), against, strict=True)
        ]
        return surprise(-totals[1], -totals[0]) >= -math.log(_RATE)

    def fit_exposure(self, known: Outputs, nodes: Tensor, exposure: Outputs, exposed: Tensor) -> Self:
        if not self.learns_weights or not len(nodes) or not len(exposed):
            return self
        inside = len(self.scorers)
        against = [
            (self.surprises(outputs)[chosen][:, :inside].pow(self.power) * self.elsewhere_weights_)
            for outputs, chosen in ((known, nodes), (exposure, exposed))
        ]
        fitted = copy.copy(self)
        factors = separating_weights(*against)
        for name in ("weights_", "elsewhere_weights_", "seen_weights_"):
            setattr(fitted, name, getattr(self, name) * factors)
        return fitted

    def fit_scores(self, outputs: Outputs) -> Self:
        if not self.around_hops:
            return self
        fitted = copy.copy(self)
        assert outputs.reference is not None
        fitted.around_ = self.scores_around(outputs)[outputs.reference].double()
        return fitted

    @property
    def needs_exposure(self) -> bool:  # type: ignore[override]
        """Whether the weights are learnt."""
        return self.learns_weights

    def expecting_drift(self) -> Self:
        return replace(self, fewest_known=FEWEST_KNOWN_OVER_TIME)

    def rehearsing_without(self, names: Sequence[str]) -> Self:
        return replace(self, not_rehearsed=tuple(names)) if self.rehearses else self

    @property
    def forecast(self) -> dict[str, float]:
        """The share of altered reference nodes that would be flagged at 5 %, by alteration."""
        names = getattr(self, "alterations_", "")
        return dict(zip(names.split(","), self.caught_.tolist(), strict=True)) if names else {}

    def notes(self, outputs: Outputs) -> list[str]:
        compared = self._compared(outputs)
        if compared.is_drift:
            return [_DRIFT]
        return [_DEPENDS] if len(compared.batch) else []

    def score(self, outputs: Outputs) -> Tensor:
        compared, result = self._compared(outputs), outputs.graph.empty(None, torch.float64)
        around = self._around(outputs, compared)
        for rows in outputs.shards(result):
            result[rows] = -self._found_at(compared, around, rows)
        return self._with_references(result, compared, outputs)

    def score_at(self, outputs: Outputs, nodes: Tensor) -> Tensor:
        compared = self._compared(outputs)
        result = outputs.graph.x.new_zeros(outputs.graph.num_nodes, dtype=torch.float64)
        around = self._around(outputs, compared) if bool(self._is_regional(compared, nodes).any()) else None
        result[nodes] = -self._found_at(compared, around, nodes)
        return self._with_references(result, compared, outputs)[nodes]

    def own_evidence(self, outputs: Outputs) -> Tensor:
        """Compute the evidence against every node ``[N]``, without what is around it and without the batch.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.
        """
        return outputs.cached(self, "own", partial(self._own_evidence, outputs))

    def _own_evidence(self, outputs: Outputs) -> Tensor:
        alone, _ = outputs.cached(self, "compared", partial(self._compare, outputs))
        result = outputs.graph.empty(None, torch.float64)
        for rows in outputs.shards(result):
            result[rows] = self._own_at(alone, rows)
        if outputs.reference is not None:
            result = outputs.graph.own_copy(result)
            result[outputs.reference] = self._of_references(alone)
        return result

    def _found_at(self, compared: _Compared, around: _Around | None, rows: slice | Tensor) -> Tensor:
        """The evidence against some nodes ``[n]``; reference nodes are treated like any others."""
        if around is None:
            return self._own_at(compared, rows)
        own = self._own_at(compared, rows) if len(compared.batch) else around.own[rows]
        both = surprise(-_both(own, around.surprises(rows)), around.known.known, is_sorted=True)
        return torch.where(self._is_regional(compared, rows), both, own)

    def _own_at(self, compared: _Compared, rows: slice | Tensor) -> Tensor:
        """The evidence against some nodes without what is around them ``[n]``."""
        if isinstance(rows, slice):
            rows = torch.arange(*rows.indices(len(compared.scores)), device=compared.scores.device)
        result, is_seen = compared.scores.new_empty(len(rows)), compared.is_seen[rows]
        for chosen, against in ((is_seen, compared.seen), (~is_seen, compared.new)):
            for some in chosen.nonzero().squeeze(1).split(_ROWS_AT_ONCE):
                total = self._total(compared, rows[some], against.weights)
                result[some] = surprise(-total, against.known, is_sorted=True)
        return result

    def _total(self, compared: _Compared, nodes: Tensor, weights: Tensor) -> Tensor:
        """The weighted sum of all kinds of evidence against some nodes ``[n]``."""
        inside = len(self.scorers)
        if bool((weights[inside:] > 0).any()):
            return self._all_surprises(compared, nodes).pow(self.power) @ weights
        used = (weights > 0).nonzero().squeeze(1)
        scores, ranked = compared.scores[nodes][:, used], compared.ranked[:, used]
        sides = [self.scorers[kind].two_sided for kind in used.tolist()]
        return surprise(scores, ranked, two_sided=sides, is_sorted=True).pow(self.power) @ weights[used]

    def _of_references(self, compared: _Compared, around: _KnownAround | None = None) -> Tensor:
        """The evidence against each reference node, by the others ``[r]``, perhaps with what is around it."""
        known = compared.surprises.pow(self.power) @ compared.new.weights
        own = surprise(-known, -known, leave_one_out=True)
        if around is None:
            return own
        both = -_both(own, around.surprises)
        return surprise(both, both, leave_one_out=True)

    def _with_references(self, result: Tensor, compared: _Compared, outputs: Outputs) -> Tensor:
        if outputs.reference is not None:
            result[outputs.reference] = -self._of_references(compared, self._around_references(outputs, compared))
        return result.to(outputs.graph.x.dtype)

    def _around_references(self, outputs: Outputs, compared: _Compared) -> _KnownAround | None:
        """What is around reference nodes, if that counts for these."""
        around = None if compared.knows_new else self._around(outputs, compared)
        return None if around is None else around.known

    @staticmethod
    def _is_regional(compared: _Compared, rows: slice | Tensor) -> Tensor:
        """Whether what is around some nodes counts, too ``[n]``: those that may be in a region that is unknown."""
        is_seen = compared.is_seen[rows]
        return is_seen if compared.knows_new else torch.ones_like(is_seen)

    def _around(self, outputs: Outputs, compared: _Compared) -> _Around | None:
        """What is around nodes, if that counts for any; of a graph on disk, all ranks need to ask."""
        if not self.around_hops or (compared.knows_new and not bool(compared.is_seen.any())):
            return None
        if outputs.reference is None and not hasattr(self, "around_"):
            return None
        scores, own, region = self.scores_around(outputs), self.own_evidence(outputs), self._region(outputs)
        known = outputs.cached(region, "known", partial(self._known_around, outputs, scores))
        return _Around(known, own, scores)

    def _known_around(self, outputs: Outputs, scores: Tensor) -> _KnownAround:
        alone, _ = outputs.cached(self, "compared", partial(self._compare, outputs))
        known = self.around_ if outputs.reference is None else scores[outputs.reference]
        known = known.to(alone.scores)
        found = surprise(known, known, leave_one_out=True)
        both = -_both(self._of_references(alone), found)
        return _KnownAround(known.sort().values, found, both.sort().values)

    def scores_around(self, outputs: Outputs) -> Tensor:
        """Compute minus the mean evidence around every node ``[N]``.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.
        """
        return self._region(outputs).propagated_score(outputs)

    def _region(self, outputs: Outputs) -> Propagated:
        """Averages the evidence over ``around_hops`` hops."""
        return outputs.cached(self, "region", lambda: Propagated(OwnEvidence(self), self.around_hops, _ETA))

    def scores(self, outputs: Outputs) -> Tensor:
        """Score every node by every scorer, ``[N, K]`` in double precision.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.
        """
        shared = sharing(self.scorers)
        outputs.begin_with_hidden()
        average_together(shared, outputs)
        keep = outputs.graph.keep
        found = [
            keep(scorer.score(outputs)) if isinstance(scorer, ScorerWrapper) else outputs.scores_of(scorer)
            for scorer in shared
        ]
        scores = outputs.graph.empty(len(found), torch.float64)
        for rows in outputs.shards(scores):
            scores[rows] = torch.stack([each[rows].detach().double() for each in found], dim=1)
        return scores

    def surprises(self, outputs: Outputs) -> Tensor:
        r"""Compute how unusual every node is by every kind, :math:`-\log p_k(v)`, ``[N, K']`` in double precision.

        It is 0 for a kind of weight 0.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on a graph of N nodes.
        """
        compared, found = self._compared(outputs), outputs.graph.empty(len(self.kinds), torch.float64)
        around = self._around(outputs, compared)
        for rows in outputs.shards(found):
            own = self._all_surprises(compared, rows) * (self._weights_of_nodes(compared, rows) > 0)
            found[rows] = torch.cat([own, self._surprises_around(compared, around, rows)], dim=1)
        if outputs.reference is not None:
            inside = compared.surprises.shape[1]
            found[outputs.reference, :inside] = compared.surprises * (compared.new.weights > 0)
            if around is not None and not compared.knows_new:
                found[outputs.reference, inside] = around.known.surprises
        return found

    def _surprises_around(self, compared: _Compared, around: _Around | None, rows: slice | Tensor) -> Tensor:
        """How unusual what is around some nodes is, 0 where that does not count ``[n, 1]``, or ``[n, 0]``."""
        is_regional = self._is_regional(compared, rows)
        if around is None:
            return compared.scores.new_zeros(len(is_regional), 1 if self.around_hops else 0)
        return (around.surprises(rows) * is_regional).unsqueeze(1)

    @property
    def kinds(self) -> tuple[str, ...]:  # type: ignore[override]
        """The kinds of the scorers, of rehearsal and of the batch; repeated kinds are numbered."""
        kinds = [scorer.kind for scorer in self._all_scorers]
        before = [kinds[:place].count(kind) for place, kind in enumerate(kinds)]
        return tuple(f"{kind} {count + 1}" if count else kind for kind, count in zip(kinds, before, strict=True))

    @property
    def _all_scorers(self) -> tuple[Scorer, ...]:
        rehearsal = (RehearsalEvidence(),) if self.rehearses else ()
        space = FeatureSpace(self.centre_, self.basis_) if hasattr(self, "basis_") else None
        batch = (FeatureBatchEvidence(space), KindBatchEvidence()) if self.uses_batch else ()
        return (*self.scorers, *rehearsal, *batch, *((EvidenceAround(),) if self.around_hops else ()))

    def comparisons(self, outputs: Outputs) -> list[Comparison]:
        compared, surprises = self._compared(outputs), self.surprises(outputs)
        contributions, scores = (outputs.graph.empty(len(self.kinds), torch.float64) for _ in range(2))
        for rows in outputs.shards(contributions):
            weights = self._weights_of_nodes(compared, rows)
            weights = F.pad(weights, (0, len(self.kinds) - weights.shape[1]), value=_AROUND)
            contributions[rows] = surprises[rows].pow(self.power) * weights
            if self.rehearses:  # it sums up the other kinds, which say more
                contributions[rows, len(self.scorers)] = 0.0
        around, reference = self._around(outputs, compared), compared.reference
        for rows in outputs.shards(scores):
            own = self._all_scores(compared, rows)
            near = own.new_zeros(len(own), 1 if self.around_hops else 0)
            if around is not None:
                near[:, 0] = around.scores[rows]
            scores[rows] = torch.cat([own, near], dim=1)
        if self.around_hops:
            known = reference.new_zeros(len(reference)) if around is None else around.known.ranked
            reference = torch.cat([reference, known.unsqueeze(1)], dim=1)
        return [Comparison(self._all_scorers, outputs, scores, reference, surprises, contributions)]

    @property
    def _in_batch(self) -> Tensor:
        """Which scorers the classifier of the batch may learn from ``[K]``."""
        tells = torch.tensor([scorer.tells_members for scorer in self.scorers], device=self.weights_.device)
        return (self.weights_ > 0) & ~tells

    @property
    def _given_weights(self) -> tuple[tuple[float, ...], ...]:
        """The weights for new nodes, in graphs without the reference nodes, and for nodes of the training graph."""
        new = (1.0,) * len(self.scorers) if self.weights is None else self.weights
        return tuple(new if given is None else given for given in (new, self.elsewhere_weights, self.seen_weights))

    def sees_drift(self, outputs: Outputs) -> bool:
        _, together = outputs.cached(self, "compared", partial(self._compare, outputs))
        return together is not None and together.is_drift

    def _compared(self, outputs: Outputs) -> _Compared:
        alone, together = outputs.cached(self, "compared", partial(self._compare, outputs))
        if together is None:
            return alone
        has_drifted = together.is_drift if outputs.has_drifted is None else outputs.has_drifted
        return (alone if has_drifted else together)._replace(is_drift=has_drifted)

    def _compare(self, outputs: Outputs) -> tuple[_Compared, _Compared | None]:
        """Compare every node alone, and, if there is a batch, with it."""
        scores = outputs.cached(self.scorers, "scores", partial(self.scores, outputs))
        nodes, is_seen = outputs.reference, torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
        known = outputs.cached(self, "known", partial(self._compared_with, outputs, scores))
        if nodes is None:
            return known._replace(scores=scores, is_seen=is_seen), None
        if outputs.seen is not None:
            is_seen = outputs.seen.clone()
            is_seen[nodes] = False
        alone = known._replace(scores=scores, is_seen=is_seen)
        batch = Batch.of(outputs) if self.uses_batch else None
        return alone, None if batch is None else self._with_batch(alone, batch, outputs)

    def _compared_with(self, outputs: Outputs, scores: Tensor) -> _Compared:
        """Find what nodes are compared with, without the batch; the result has no node yet."""
        nodes, in_place = outputs.reference, outputs.reference is not None
        reference = self.reference_.to(scores) if nodes is None else scores[nodes]
        folds = torch.zeros_like(reference[:, 0], dtype=torch.long)
        folds = folds if nodes is None else fold_of(outputs.graph.x[nodes])
        ranked = reference.sort(dim=0).values
        surprises = self._surprises(reference, ranked, leave_one_out=True)
        knows_new = in_place and outputs.seen is not None
        learnt = bool(len(self.rehearsed_)) and knows_new
        if self.rehearses:
            counted = surprises * (self.weights_.to(surprises) > 0)
            own = -odds(self.rehearsed_, counted, folds) if learnt else torch.zeros_like(surprises[:, 0])
            reference = torch.cat([reference, own.unsqueeze(1)], dim=1)
            surprises = torch.cat([surprises, surprise(own, own, leave_one_out=True).unsqueeze(1)], dim=1)
        empty = 2 if self.uses_batch else 0
        reference, surprises = F.pad(reference, (0, empty)), F.pad(surprises, (0, empty))
        given = self.weights_ if in_place else self.elsewhere_weights_
        if in_place and not knows_new:  # without what is for new nodes only, since any node may be one of training
            given = given * (self.elsewhere_weights_ > 0)
        weights = torch.zeros_like(surprises[0])
        weights[: len(given)] = given.to(weights)
        if learnt:
            weights[len(given)] = _REHEARSAL
        seen = torch.zeros_like(weights)
        seen[: len(given)] = self.seen_weights_.to(seen)
        new, old = (_Against(each, (-surprises.pow(self.power) @ each).sort().values) for each in (weights, seen))
        none, ranked = scores.new_zeros(0, empty), reference.sort(dim=0).values
        is_seen = torch.zeros(0, dtype=torch.bool, device=scores.device)
        return _Compared(scores[:0], none, reference, ranked, surprises, is_seen, new, old, knows_new)

    def _with_batch(self, alone: _Compared, batch: Batch, outputs: Outputs) -> _Compared:
        """Add the evidence of the batch, and say whether the whole batch seems to have drifted."""
        space = FeatureSpace(self.centre_, self.basis_)
        columns = (
            outputs.cached(self.basis_, "columns", partial(feature_columns, outputs.graph, space)),
            kind_columns(alone.scores[:, self._in_batch.to(alone.scores.device)], batch),
        )
        values = outputs.graph.empty(len(columns), torch.float64)
        for number, each in enumerate(columns):
            batch.scores(each, values[:, number])
        reference = torch.cat([alone.reference[:, : -len(columns)], values[outputs.reference]], dim=1)
        own = [surprise(column, column, leave_one_out=True) for column in values[outputs.reference].t()]
        surprises = torch.cat([alone.surprises[:, : -len(columns)], torch.stack(own, dim=1)], dim=1)
        found = alone._replace(
            batch=values, reference=reference, ranked=reference.sort(dim=0).values, surprises=surprises
        )
        weights = alone.new.weights.clone()
        weights[-len(columns) :] = _BATCH
        new = self._all_surprises(found, batch.new[batch.learnt_from])
        weights = weights * seen_in_batch(new, surprises)
        known = (-surprises.pow(self.power) @ weights).sort().values
        unusual = surprise(-new.pow(self.power) @ weights, known, is_sorted=True)
        is_drift = looks_like_drift(unusual, self.fewest_known)
        return found._replace(new=_Against(weights, known), is_drift=is_drift)

    def _surprises(self, scores: Tensor, reference: Tensor, leave_one_out: bool = False) -> Tensor:
        """How unusual scores are by every scorer ``[n, K]``."""
        sides = [scorer.two_sided for scorer in self.scorers]
        parts = scores.split(_ROWS_AT_ONCE)
        return torch.cat([surprise(part, reference, leave_one_out, sides, is_sorted=True) for part in parts])

    def _all_scores(self, compared: _Compared, rows: slice | Tensor, surprises: Tensor | None = None) -> Tensor:
        """The scores of some nodes by every kind ``[n, K']``; 0 for a kind that does not apply."""
        parts = [compared.scores[rows]]
        if self.rehearses:
            if surprises is None:
                surprises = self._surprises(parts[0], compared.ranked[:, : len(self.scorers)])
            counted = surprises * (self.weights_.to(surprises) > 0)
            own = odds(self.rehearsed_, counted) if len(self.rehearsed_) else torch.zeros_like(counted[:, 0])
            parts.append(-own.unsqueeze(1))
        if self.uses_batch:
            parts.append(compared.batch[rows] if len(compared.batch) else parts[0].new_zeros(len(parts[0]), 2))
        return torch.cat(parts, dim=1)

    def _all_surprises(self, compared: _Compared, rows: slice | Tensor) -> Tensor:
        """How unusual some nodes are by every kind ``[n, K']``."""
        inside = len(self.scorers)
        found = [self._surprises(compared.scores[rows], compared.ranked[:, :inside])]
        scores = self._all_scores(compared, rows, found[0])
        for own, known in zip(scores[:, inside:].unbind(dim=1), compared.ranked[:, inside:].unbind(dim=1), strict=True):
            found.append(surprise(own, known, is_sorted=True).unsqueeze(1))
        return torch.cat(found, dim=1)

    def _weights_of_nodes(self, compared: _Compared, rows: slice) -> Tensor:
        """The weights of every kind for some nodes ``[n, K']``."""
        return torch.where(compared.is_seen[rows].unsqueeze(1), compared.seen.weights, compared.new.weights)


@dataclass
class OwnEvidence(Scorer):
    """Minus the evidence against each node by itself, whose averages are the evidence around nodes.

    Parameters
    ----------
    evidence : Evidence
        The fitted evidence.
    """

    needs_reference = True
    supports_folders = True

    evidence: Evidence

    def score(self, outputs: Outputs) -> Tensor:
        return -self.evidence.own_evidence(outputs).to(outputs.graph.x.dtype)


class EvidenceAround(Scorer):
    """The kind of evidence that is around a node."""

    kind = "evidence around"

    def reason(self, found: Finding) -> str:
        return f"The nodes around it are unusual: those around {share_of_known(found.share)} are less so."


class Judged(NamedTuple):
    """What M networks find of the first n nodes of a graph."""

    scores: Tensor  # `[n, M]`
    surprises: Tensor  # By every kind `[n, M, K']`; 0 for a kind of weight 0
    contributions: Tensor  # `[n, M, K']`


def judge_together(scorers: Sequence[Evidence], outputs: Sequence[Outputs], count: int) -> Judged:
    """Compute `Evidence.score`, `surprises` and contributions of a few nodes for all networks in one pass.

    For a single node, most of the time goes into starting operations, of which this has a tenth. There is no batch.
    """
    compared = [scorer._compared(each) for scorer, each in zip(scorers, outputs, strict=True)]
    if len({len(each.ranked) for each in compared}) > 1:  # networks with different numbers of reference nodes
        parts = [judge_together([scorer], [each], count) for scorer, each in zip(scorers, outputs, strict=True)]
        return Judged(*(torch.cat(part, dim=1) for part in zip(*parts, strict=True)))
    first, members = scorers[0], len(scorers)
    inside, sides, power = len(first.scorers), [scorer.two_sided for scorer in first.scorers], first.power
    ranked = torch.stack([each.ranked for each in compared], dim=1)  # [r, M, K']
    scores = torch.stack([each.scores[:count] for each in compared], dim=1)
    found = surprise(scores.flatten(1), ranked[:, :, :inside].flatten(1), False, sides * members, is_sorted=True)
    surprises = scores.new_zeros(count, members, ranked.shape[2])
    surprises[:, :, :inside] = found.reshape(count, members, inside)
    if first.rehearses:
        own = scores.new_zeros(count, members)
        for number, scorer in enumerate(scorers):
            if len(scorer.rehearsed_):
                counted = surprises[:, number, :inside] * (scorer.weights_.to(scores) > 0)
                own[:, number] = -odds(scorer.rehearsed_, counted)
        surprises[:, :, inside] = surprise(own, ranked[:, :, inside], is_sorted=True)
    is_seen = torch.stack([each.is_seen[:count] for each in compared], dim=1)
    total, weights = scores.new_zeros(count, members), torch.zeros_like(surprises)
    for chosen, name in ((is_seen, "seen"), (~is_seen, "new")):
        if bool(chosen.any()):
            against: list[_Against] = [getattr(each, name) for each in compared]
            own_weights = torch.stack([each.weights for each in against])
            sums = (surprises.pow(power) * own_weights).sum(dim=2)
            known = torch.stack([each.known for each in against], dim=1)
            total = torch.where(chosen, -surprise(-sums, known, is_sorted=True), total)
            weights = torch.where(chosen.unsqueeze(2), own_weights, weights)
    near, rows = scores.new_zeros(count, members, 1), slice(count)
    for number, (scorer, each, own_outputs) in enumerate(zip(scorers, compared, outputs, strict=True)):
        around = scorer._around(own_outputs, each)
        if around is not None:
            near[:, number] = scorer._surprises_around(each, around, rows)
            found_at = -scorer._found_at(each, around, rows)
            total[:, number] = torch.where(scorer._is_regional(each, rows), found_at, total[:, number])
        here = own_outputs.reference
        is_here = None if here is None else here < count
        if here is not None and is_here is not None and bool(is_here.any()):  # compared with the other reference nodes
            own_around = None if around is None or each.knows_new else around.known
            total[here[is_here], number] = -scorer._of_references(each, own_around)[is_here]
            if own_around is not None:
                near[here[is_here], number, 0] = own_around.surprises[is_here]
            surprises[here[is_here], number] = each.surprises[is_here]
            weights[here[is_here], number] = each.new.weights
    surprises = surprises * (weights > 0)
    contributions = surprises.pow(power) * weights
    if first.rehearses:
        contributions[:, :, inside] = 0.0
    if first.around_hops:
        surprises = torch.cat([surprises, near], dim=2)
        contributions = torch.cat([contributions, _AROUND * near.pow(power)], dim=2)
    return Judged(total.to(outputs[0].graph.x.dtype), surprises, contributions)


def _both(own: Tensor, around: Tensor) -> Tensor:
    """The evidence at nodes and around them together."""
    return own.square() + _AROUND * around.square()


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
