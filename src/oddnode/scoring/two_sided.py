"""Scores of which unusually high ones are evidence too."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from oddnode.scoring.findings import Finding
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.wrappers import ScorerWrapper

__all__ = ["TwoSided"]


@dataclass
class TwoSided(ScorerWrapper):
    """Another scorer's scores, of which unusually high ones are evidence too.

    Parameters
    ----------
    scorer : Scorer
        The other scorer.
    """

    def score(self, outputs: Outputs) -> Tensor:
        return outputs.scores_of(self.scorer)

    @property
    def two_sided(self) -> bool:
        """True."""
        return True

    @property
    def kind(self) -> str:
        """That of the other scorer, whose scores these are."""
        return self.scorer.kind

    @property
    def supports_folders(self) -> bool:
        """Whether the other scorer does."""
        return self.scorer.supports_folders

    def reason(self, found: Finding) -> str:
        return self.scorer.reason(found.inside())
