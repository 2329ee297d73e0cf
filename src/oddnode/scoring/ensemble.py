"""The mean score of an ensemble."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from oddnode.scoring.base import Scorer
from oddnode.scoring.findings import Comparison
from oddnode.scoring.outputs import Outputs

__all__ = ["EnsembleMean"]


@dataclass
class EnsembleMean(Scorer):
    """The mean over the networks of an ensemble, each of which has its own scorer.

    Scorers that need reference nodes are fitted one by one, each to the part that its network has learnt from.

    Parameters
    ----------
    scorers : tuple of Scorer
        One scorer per network, all with the same settings.
    """

    scorers: tuple[Scorer, ...]

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

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        pairs = zip(self.scorers, outputs.members, strict=True)
        return type(self)(tuple(scorer.fit(member, train, y) for scorer, member in pairs))

    def score(self, outputs: Outputs) -> Tensor:
        pairs = zip(self.scorers, outputs.members, strict=True)
        return torch.stack([member.scores_of(scorer) for scorer, member in pairs]).mean(dim=0)

    def own_score(self, outputs: Outputs) -> Tensor:
        pairs = zip(self.scorers, outputs.members, strict=True)
        return torch.stack([scorer.own_score(member) for scorer, member in pairs]).mean(dim=0)

    @property
    def num_hops_used(self) -> int:
        """The largest number of hops of the scorers."""
        return max(scorer.num_hops_used for scorer in self.scorers)

    def limited_to(self, num_hops: int) -> Self:
        return type(self)(tuple(scorer.limited_to(num_hops) for scorer in self.scorers))

    @property
    def supports_export(self) -> bool:
        """Whether all of the scorers do."""
        return all(scorer.supports_export for scorer in self.scorers)

    @property
    def needs_raw_logits(self) -> bool:
        """Whether any of the scorers does."""
        return any(scorer.needs_raw_logits for scorer in self.scorers)

    @property
    def needs_labelled_nodes(self) -> bool:
        """Whether any of the scorers does."""
        return any(scorer.needs_labelled_nodes for scorer in self.scorers)

    @property
    def supports_folders(self) -> bool:
        """Whether all scorers do."""
        return all(scorer.supports_folders for scorer in self.scorers)

    @property
    def needs_exposure(self) -> bool:
        """Whether any of the scorers does."""
        return any(scorer.needs_exposure for scorer in self.scorers)

    @property
    def needs_reference(self) -> bool:
        """Whether any of the scorers does."""
        return any(scorer.needs_reference for scorer in self.scorers)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of evidence, which are the same for all networks."""
        return self.scorers[0].kinds

    def comparisons(self, outputs: Outputs) -> list[Comparison]:
        pairs = zip(self.scorers, outputs.members, strict=True)
        return [comparison for scorer, member in pairs for comparison in scorer.comparisons(member)]

    @property
    def learns_from_training_graph(self) -> bool:
        """Whether any of the scorers does."""
        return any(scorer.learns_from_training_graph for scorer in self.scorers)
