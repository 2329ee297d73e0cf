r"""Evidential learning: a network that gives a node a Dirichlet distribution over its class probabilities.

Its logits are read as :math:`z = \log \alpha`. The rest of the library then means the right thing without knowing it:
the softmax of the logits is the Dirichlet's mean :math:`\alpha_c / \alpha_0`, and their negative energy is
:math:`\log \alpha_0`, the total evidence :math:`\alpha_0 = \sum_c \alpha_c` (high = seen before), so that `Energy` is
the epistemic score and `MaxSoftmax` the aleatoric one.

The losses are pure functions of the logits and give one number per node. Evidence spans many orders of magnitude, and
log-gamma functions of large numbers cancel, so they are computed in double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from oddnode.functional import dirichlet_entropy, expected_cross_entropy, expected_squared_error
from oddnode.objectives.base import Term, TrainingPass

__all__ = ["ExpectedCrossEntropy", "ExpectedSquaredError", "NegativeEntropy"]


@dataclass(frozen=True, repr=False)
class ExpectedSquaredError(Term):
    """Classification of the labelled nodes by the expected squared error, summed.

    Parameters
    ----------
    start : int
        How many epochs pass before it counts.
    """

    def __call__(self, step: TrainingPass) -> Tensor:
        return expected_squared_error(step.train_logits, step.y).sum()


@dataclass(frozen=True, repr=False)
class ExpectedCrossEntropy(Term):
    """Classification of the labelled nodes by the expected cross-entropy, summed.

    Parameters
    ----------
    start : int
        How many epochs pass before it counts.
    """

    def __call__(self, step: TrainingPass) -> Tensor:
        return expected_cross_entropy(step.train_logits, step.y).sum()


@dataclass(frozen=True, repr=False)
class NegativeEntropy(Term):
    """Minus the entropy of the labelled nodes' Dirichlet distributions, summed; keeps them wide.

    Parameters
    ----------
    start : int
        How many epochs pass before it counts.
    """

    def __call__(self, step: TrainingPass) -> Tensor:
        return -dirichlet_entropy(step.train_logits).sum()
