r"""Evidential learning: the network predicts a Dirichlet distribution over the class probabilities of a node.

Its logits are interpreted as :math:`z = \log \alpha`, so that the rest of the library needs no special case: the
softmax of the logits is the Dirichlet's mean :math:`\alpha_c / \alpha_0`, and their negative energy is
:math:`\log \alpha_0`, the logarithm of the total evidence :math:`\alpha_0 = \sum_c \alpha_c`. `Energy` is then the
epistemic score and `MaxSoftmax` the aleatoric one.
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
        Number of epochs before the term takes effect.
    """

    def __call__(self, step: TrainingPass) -> Tensor:
        return expected_squared_error(step.train_logits, step.y).sum()


@dataclass(frozen=True, repr=False)
class ExpectedCrossEntropy(Term):
    """Classification of the labelled nodes by the expected cross-entropy, summed.

    Parameters
    ----------
    start : int
        Number of epochs before the term takes effect.
    """

    def __call__(self, step: TrainingPass) -> Tensor:
        return expected_cross_entropy(step.train_logits, step.y).sum()


@dataclass(frozen=True, repr=False)
class NegativeEntropy(Term):
    """Minus the entropy of the labelled nodes' Dirichlet distributions, summed; keeps them wide.

    Parameters
    ----------
    start : int
        Number of epochs before the term takes effect.
    """

    def __call__(self, step: TrainingPass) -> Tensor:
        return -dirichlet_entropy(step.train_logits).sum()
