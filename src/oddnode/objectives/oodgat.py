"""The terms of OODGAT (Song and Wang, KDD 2022), for its own network `oddnode.nn.OODGAT`.

The last logit of a node is log q, the share by which it is unknown; without it, the logits give the class probabilities
p. Unlabelled nodes of the training graph take part in all terms but the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from oddnode.functional import losses
from oddnode.objectives.base import Term, TrainingPass

# The weight of the unsupervised terms falls by a tenth in a hundred epochs.
_DECAY, _PER_EPOCH = 0.9, 0.01


class _Shares(NamedTuple):
    """What the logits ``[N, C + 1]`` of OODGAT stand for."""

    log_p: Tensor  # Logarithms of class probabilities, `[N, C]`
    q: Tensor  # Shares by which nodes are unknown, `[N]`

    @classmethod
    def of(cls, step: TrainingPass) -> _Shares:
        if step.logits.shape[1] <= step.num_classes:
            raise ValueError("OODGAT needs num_spare_logits of 1 or more: its last logit is not that of a class")
        return cls(step.logits[:, :-1].log_softmax(dim=1), step.logits[:, -1].exp())


def _decay(step: TrainingPass) -> float:
    return _DECAY ** (_PER_EPOCH * step.epoch)


class KnownCrossEntropy(Term):
    """Cross-entropy of the labelled nodes, given that they are known.

    Parameters
    ----------
    start : int
        Number of epochs before the term takes effect.
    """

    needs_all_logits = False
    supports_capture = True

    def __call__(self, step: TrainingPass) -> Tensor:
        return losses.cross_entropy(step.train_logits[:, :-1], step.y)


class EntropyConsistency(Term):
    """Minus the cosine between the nodes' shares q and their entropies, standardised and passed through a sigmoid.

    The entropies are targets, without a gradient: otherwise training can bend them until any q fits.

    Parameters
    ----------
    start : int
        Number of epochs before the term takes effect.
    """

    def __call__(self, step: TrainingPass) -> Tensor:
        log_p, q = _Shares.of(step)
        entropy = -(log_p.exp() * log_p).sum(dim=1).detach()
        standardised = (entropy - entropy.mean()) / entropy.std().clamp_min(1e-6)
        return -_decay(step) * F.cosine_similarity(q, standardised.sigmoid(), dim=0)


@dataclass(frozen=True, repr=False)
class UniformWhereUnknown(Term):
    """Cross-entropy between uniform predictions and those of nodes whose share q reaches a margin; 0 without any.

    Parameters
    ----------
    margin : float
        The smallest share.
    start : int
        Number of epochs before the term takes effect.
    """

    margin: float = 0.6

    def __call__(self, step: TrainingPass) -> Tensor:
        log_p, q = _Shares.of(step)
        chosen = (q.detach() >= self.margin).to(log_p)
        return _decay(step) * -(log_p.mean(dim=1) * chosen).sum() / chosen.sum().clamp_min(1.0)


class LayerAgreement(Term):
    """Minus the cosine between the shares q of the last layer and of the layers before.

    Parameters
    ----------
    start : int
        Number of epochs before the term takes effect.
    """

    needs_hidden = True

    def __call__(self, step: TrainingPass) -> Tensor:
        assert step.hidden is not None
        before = step.hidden[:, -1]
        last = 2 * _Shares.of(step).q - before
        return -_decay(step) * F.cosine_similarity(before, last, dim=0)
