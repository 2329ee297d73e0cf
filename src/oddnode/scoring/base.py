"""The contract of a scorer."""

from __future__ import annotations

import copy

from torch import Tensor

from oddnode.scoring.outputs import Outputs

__all__ = ["Scorer"]


class Scorer:
    """Base of all scorers. One that learns from the training graph overrides ``fit``; what it learns ends in ``_``."""

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Scorer:
        """A fitted copy, from the outputs on the training graph and its labelled nodes."""
        return copy.copy(self)

    def score(self, outputs: Outputs) -> Tensor:
        """One score per node, higher = more in-distribution."""
        raise TypeError(f"{type(self).__name__} does not define a score")
