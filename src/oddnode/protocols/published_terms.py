"""The terms and scorers of the published protocol: one class for each quirk that needs one.

The quirks are numbered in `oddnode.protocols.published`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.functional import losses, negative_energy, propagate
from oddnode.graph import TrainingSet
from oddnode.objectives import KernelPrior, Objective, Sum, Term, TrainingPass
from oddnode.scoring import Outputs, Scorer, ScorerWrapper
from oddnode.tasks import Task

#: A node's own share in every hop of propagation.
ETA = 0.5


@dataclass(frozen=True, repr=False)
class ForwardedExposure(Term):
    """Quirk 1: no loss, but the exposure graph passes through the network's batch norm."""

    needs_exposure = True
    needs_all_logits = False
    supports_capture = True

    def __call__(self, step: TrainingPass) -> Tensor:
        return step.logits.new_zeros(())


@dataclass(frozen=True, repr=False)
class Bound(Term):
    """The bound over the training nodes."""

    needs_all_logits = False
    supports_capture = True

    def __call__(self, step: TrainingPass) -> Tensor:
        return losses.bound_loss(step.train_logits)


@dataclass(frozen=True, repr=False)
class SignedUniform(Term):
    """Quirk 3: variance of the logit sums over their signed mean."""

    needs_all_logits = False
    supports_capture = True

    def __call__(self, step: TrainingPass) -> Tensor:
        sums = step.train_logits.sum(dim=-1)
        return sums.var() / sums.detach().mean()


@dataclass(frozen=True, repr=False)
class JointBound(Term):
    """Quirk 4: one bound over training nodes and all nodes of the exposure graph."""

    needs_exposure = True
    supports_capture = True

    def __call__(self, step: TrainingPass) -> Tensor:
        assert step.exposure_logits is not None
        return losses.bound_loss(torch.cat([step.train_logits, step.exposure_logits]))


@dataclass(frozen=True, repr=False)
class ExposedUniform(SignedUniform):
    """Quirks 3 and 4: the signed term, plus the same with the absolute mean over all nodes of the exposure graph."""

    needs_exposure = True
    supports_capture = True

    def __call__(self, step: TrainingPass) -> Tensor:
        assert step.exposure_logits is not None
        return super().__call__(step) + losses.uniform_loss(step.exposure_logits)


@dataclass(frozen=True, repr=False)
class TruncatedHinge(Term):
    """Quirk 6: margins on energies over all logits (quirk 7), with the longer list truncated."""

    needs_exposure = True
    supports_capture = True
    m_in: float = -5.0  # Energies of ID nodes above it are penalised,
    m_out: float = -1.0  # and energies of OOD nodes below this one
    num_hops: int = 0  # Number of hops over which energies are propagated first

    def __call__(self, step: TrainingPass) -> Tensor:
        assert step.exposure_graph is not None
        assert step.exposure_logits is not None
        inside, outside = negative_energy(step.logits), negative_energy(step.exposure_logits)
        inside = propagate(inside, step.graph.random_walk, self.num_hops, ETA, "shrink")
        outside = propagate(outside, step.exposure_graph.random_walk, self.num_hops, ETA, "shrink")
        energy_in, energy_out = -inside[step.train], -outside[step.exposed]
        n = min(len(energy_in), len(energy_out))
        return (F.relu(energy_in[:n] - self.m_in).square() + F.relu(self.m_out - energy_out[:n]).square()).mean()


@dataclass(frozen=True, repr=False)
class MisplacedPrior(KernelPrior):
    """Quirk 13: the kernel prior with the first nodes of the graph in place of the training nodes."""

    labels: tuple[int, ...] = ()  # The classes of those nodes

    @classmethod
    def of(cls, task: Task) -> MisplacedPrior:
        """Make the prior of a task, with the labels of these nodes, left-out classes included."""
        return cls(tuple(task.train.y[: int(task.train.train_mask.sum())].tolist()))

    def labelled(self, data: TrainingSet) -> tuple[Tensor, Tensor]:
        labels = torch.tensor(self.labels, device=data.graph.device)
        return torch.arange(len(labels), device=labels.device), labels


@dataclass
class AllLogitsEnergy(Scorer):
    """Quirk 7: the negative energy over all logits, those of left-out classes included."""

    needs_raw_logits = True

    def score(self, outputs: Outputs) -> Tensor:
        return negative_energy(outputs.all_logits)


@dataclass
class Negated(ScorerWrapper):
    """Quirk 15: another scorer's scores with the wrong sign, lower = more in-distribution."""

    def score(self, outputs: Outputs) -> Tensor:
        return -self.scorer.score(outputs)

    def own_score(self, outputs: Outputs) -> Tensor:
        return -self.scorer.own_score(outputs)


_UNIFORM = (SignedUniform, ExposedUniform)
_BOUND = (Bound, JointBound)


def reweighted(
    objective: Objective, lambda1: float | None = None, lambda2: float | None = None, start: int | None = None
) -> Objective:
    """Change the weights or the first epoch of the bound and uniform terms of a published objective."""
    assert isinstance(objective, Sum)
    old_uniform = sum(w for w, term in objective.parts if isinstance(term, _UNIFORM))
    old_sum = old_uniform + sum(w for w, term in objective.parts if isinstance(term, _BOUND))
    lambda2 = old_sum if lambda2 is None else lambda2
    lambda1 = old_uniform / old_sum if lambda1 is None else lambda1
    parts = []
    for weight, term in objective.parts:
        if isinstance(term, (*_UNIFORM, *_BOUND)):
            weight = lambda2 * (lambda1 if isinstance(term, _UNIFORM) else 1 - lambda1)
            # The published terms take effect in the epoch after the given one.
            term = term if start is None else type(term)(start=start + 1 if start else 0)
        if weight:
            parts.append((weight, term))
    return Sum(tuple(parts))
