"""Scorers made of other scorers: wrappers of one, and the mean over the networks of an ensemble."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from oddnode.scoring.base import Scorer
from oddnode.scoring.findings import Comparison, Finding
from oddnode.scoring.outputs import Outputs


def any_of(flag: str) -> Any:
    """A property: whether a flag holds for any of the inner scorers."""
    return property(lambda self: any(getattr(scorer, flag) for scorer in self.scorers))


def all_of(flag: str) -> Any:
    """A property: whether a flag holds for all inner scorers."""
    return property(lambda self: all(getattr(scorer, flag) for scorer in self.scorers))


class CombinedScorer(Scorer):
    """Base of scorers that are made of others, their ``scorers``: they need what any of these needs."""

    scorers: tuple[Scorer, ...]

    needs_raw_logits = any_of("needs_raw_logits")
    needs_labelled_nodes = any_of("needs_labelled_nodes")
    uses_network = any_of("uses_network")
    needs_reference = any_of("needs_reference")
    needs_exposure = any_of("needs_exposure")
    tells_members = any_of("tells_members")
    is_local = all_of("is_local")
    is_shared = all_of("is_shared")
    num_hops_used = property(lambda self: max(scorer.num_hops_used for scorer in self.scorers))

    def limited_to(self, num_hops: int) -> Self:
        limited = copy.copy(self)
        limited.scorers = tuple(scorer.limited_to(num_hops) for scorer in self.scorers)
        return limited

    def reading(self, counts: tuple[bool, ...], numbers: tuple[bool, ...]) -> Self:
        changed = copy.copy(self)
        changed.scorers = tuple(scorer.reading(counts, numbers) for scorer in self.scorers)
        return changed


@dataclass
class ScorerWrapper(CombinedScorer):
    """Base of scorers that change the scores of another; what it needs is what the other scorer needs.

    `kind` and `reason` are not those of the other scorer, whose words may not fit the changed scores.

    Parameters
    ----------
    scorer : Scorer
        The other scorer.
    """

    scorer: Scorer
    two_sided = any_of("two_sided")

    @property
    def scorers(self) -> tuple[Scorer, ...]:  # type: ignore[override]
        return (self.scorer,)

    def _around(self, scorer: Scorer) -> Self:
        """A copy that wraps another scorer."""
        changed = copy.copy(self)
        changed.scorer = scorer
        return changed

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        return self._around(outputs.fitted(self.scorer, train, y))

    def own_score(self, outputs: Outputs) -> Tensor:
        return self.scorer.own_score(outputs)

    def fit_reference(self, outputs: Outputs) -> Self:
        inner = self.scorer.fit_reference(outputs)
        return self if inner is self.scorer else self._around(inner)

    def fit_exposure(self, known: Outputs, nodes: Tensor, exposure: Outputs, exposed: Tensor) -> Self:
        return self._around(self.scorer.fit_exposure(known, nodes, exposure, exposed))

    def limited_to(self, num_hops: int) -> Self:
        return self._around(self.scorer.limited_to(num_hops))

    def reading(self, counts: tuple[bool, ...], numbers: tuple[bool, ...]) -> Self:
        return self._around(self.scorer.reading(counts, numbers))

    def rehearsing_without(self, names: Sequence[str]) -> Self:
        return self._around(self.scorer.rehearsing_without(names))

    def fit_together(self, scorers: Sequence[Self], outputs: Sequence[Outputs]) -> list[Self]:
        inner = self.scorer.fit_together([each.scorer for each in scorers], outputs)
        return [each._around(scorer) for each, scorer in zip(scorers, inner, strict=True)]

    def fit_scores(self, outputs: Outputs) -> Self:
        inner = self.scorer.fit_scores(outputs)
        return self if inner is self.scorer else self._around(inner)

    @property
    def forecast(self) -> dict[str, float]:
        """What the inner scorer has found out in rehearsal."""
        return self.scorer.forecast

    def notes(self, outputs: Outputs) -> list[str]:
        return self.scorer.notes(outputs)

    def informativeness(self, outputs: Outputs) -> float:
        return self.scorer.informativeness(outputs)

    @property
    def kinds(self) -> tuple[str, ...]:  # type: ignore[override]
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
    def num_hops_used(self) -> int:  # type: ignore[override]
        """The number of hops, including those of the inner scorer."""
        return self.num_hops + self.scorer.num_hops_used

    def limited_to(self, num_hops: int) -> Self:
        limited = super().limited_to(num_hops)
        limited.num_hops = max(min(self.num_hops, num_hops - limited.scorer.num_hops_used), 0)
        return limited


@dataclass
class TwoSided(ScorerWrapper):
    """Another scorer's scores; unusually high ones are evidence too.

    Parameters
    ----------
    scorer : Scorer
        The other scorer.
    """

    two_sided = True
    supports_folders = all_of("supports_folders")
    is_shared = all_of("is_shared")
    kind = property(lambda self: self.scorer.kind)

    def score(self, outputs: Outputs) -> Tensor:
        return outputs.scores_of(self.scorer)

    def reason(self, found: Finding) -> str:
        return self.scorer.reason(found.inside())


@dataclass
class EnsembleMean(CombinedScorer):
    """The mean over the networks of an ensemble, with one scorer for each.

    Scorers that need reference nodes are fitted one by one, each to the part that its network was trained on.

    Parameters
    ----------
    scorers : tuple of Scorer
        One scorer per network, all with the same settings.
    """

    scorers: tuple[Scorer, ...]
    supports_export = all_of("supports_export")
    supports_folders = all_of("supports_folders")
    learns_from_training_graph = any_of("learns_from_training_graph")

    @classmethod
    def of(cls, scorer: Scorer, num_members: int) -> EnsembleMean:
        """Use copies of the same scorer for all networks.

        Parameters
        ----------
        scorer : Scorer
            An unfitted scorer.
        num_members : int
            Number of networks.
        """
        return cls(tuple(copy.deepcopy(scorer) for _ in range(num_members)))

    def _members(self, outputs: Outputs) -> zip[tuple[Scorer, Outputs]]:
        return zip(self.scorers, outputs.members, strict=True)

    def _agreed(self, outputs: Outputs) -> zip[tuple[Scorer, Outputs]]:
        """The scorers and the outputs of the networks, which have decided together whether the new nodes drifted."""
        members = outputs.members
        if members and members[0].has_drifted is None:
            votes = [scorer.sees_drift(member) for scorer, member in self._members(outputs)]
            for member in members:
                member.has_drifted = 2 * sum(votes) >= len(votes)
        return self._members(outputs)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        return type(self)(tuple(member._fit(scorer, train, y) for scorer, member in self._members(outputs)))

    def score(self, outputs: Outputs) -> Tensor:
        return torch.stack([member.scores_of(scorer) for scorer, member in self._agreed(outputs)]).mean(dim=0)

    def own_score(self, outputs: Outputs) -> Tensor:
        return torch.stack([scorer.own_score(member) for scorer, member in self._agreed(outputs)]).mean(dim=0)

    @property
    def kinds(self) -> tuple[str, ...]:  # type: ignore[override]
        """The kinds of evidence, which are the same for all networks."""
        return self.scorers[0].kinds

    @property
    def forecast(self) -> dict[str, float]:
        """What the networks have found out in rehearsal together."""
        return self.scorers[0].forecast

    def notes(self, outputs: Outputs) -> list[str]:
        return list(dict.fromkeys(note for scorer, member in self._agreed(outputs) for note in scorer.notes(member)))

    def comparisons(self, outputs: Outputs) -> list[Comparison]:
        members = self._agreed(outputs)
        return [comparison for scorer, member in members for comparison in scorer.comparisons(member)]


def share_equal(scorers: Sequence[Any]) -> None:
    """Let combined scorers of several networks refer to one object where they have learnt the same."""
    for each in scorers:
        if "scorers" in vars(each):
            each.scorers = tuple(sharing(each.scorers))
    for each in scorers[1:]:
        for name, value in vars(each).items():
            vars(each)[name] = _one_of(vars(scorers[0]).get(name), value)


def _one_of(mine: Any, theirs: Any) -> Any:
    if isinstance(mine, tuple) and isinstance(theirs, tuple):
        return tuple(_one_of(*pair) for pair in zip(mine, theirs, strict=True))
    is_shared = mine.is_shared if isinstance(mine, Scorer) else isinstance(mine, Tensor)
    return mine if is_shared and _is_equal(mine, theirs) else theirs


def _is_equal(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if not isinstance(a, Scorer):
        return bool(a == b)
    return vars(a).keys() == vars(b).keys() and all(_is_equal(value, vars(b)[name]) for name, value in vars(a).items())


def sharing(scorers: Sequence[Scorer]) -> list[Scorer]:
    """Make scorers that wrap another one in the list refer to it, so that it is computed once."""
    before = _shared.get(id(scorers))
    if before is not None and before[0] is scorers:
        return before[1]
    if len(_shared) >= _MOST_SHARED:
        _shared.clear()
    known: dict[str, Scorer] = {}
    for scorer in scorers:
        known.setdefault(repr(scorer), scorer)
    shared: list[Scorer] = []
    for scorer in scorers:
        if isinstance(scorer, ScorerWrapper):
            inner = known.get(repr(scorer.scorer), scorer.scorer)
            scorer = scorer if inner is scorer.scorer else scorer._around(inner)
        shared.append(scorer)
    _shared[id(scorers)] = scorers, shared
    return shared


# Lists of scorers that were asked for lately, with the answer: names of all their settings take a while to write.
_shared: dict[int, tuple[Sequence[Scorer], list[Scorer]]] = {}
_MOST_SHARED = 64
