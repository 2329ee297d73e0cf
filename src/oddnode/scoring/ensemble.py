"""One score from the scores of an ensemble's members."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oddnode.scoring.base import Scorer
from oddnode.scoring.outputs import Outputs

__all__ = ["MemberMean"]


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
