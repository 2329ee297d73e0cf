"""The terms of objectives.

``CrossEntropy() + 5 * BoundUniform(0.001)`` is an objective. A term turns a `TrainingPass` (the logits of one forward
pass, with the graphs they belong to) into a scalar.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oddnode._utils.random import current_generator
from oddnode.functional import Isolated, dirichlet, losses, negative_energy
from oddnode.objectives.base import Term, TrainingPass


class CrossEntropy(Term):
    """Cross-entropy of the labelled nodes.

    Parameters
    ----------
    start : int
        Number of epochs before the term takes effect.
    """

    needs_all_logits = False
    supports_capture = True

    def __call__(self, step: TrainingPass) -> Tensor:
        return losses.cross_entropy(step.train_logits, step.y)


@dataclass(frozen=True, repr=False)
class LogitNorm(Term):
    """Cross-entropy of logits that are scaled to constant norm.

    Parameters
    ----------
    tau : float
        The temperature; the norm is its inverse.
    start : int
        Number of epochs before the term takes effect.
    """

    needs_all_logits = False
    supports_capture = True
    tau: float = 0.04

    def __call__(self, step: TrainingPass) -> Tensor:
        return losses.logit_norm_loss(step.train_logits, step.y, self.tau)


class OutlierExposure(Term):
    """Uniform predictions on the exposed nodes.

    Parameters
    ----------
    start : int
        Number of epochs before the term takes effect.
    """

    needs_exposure = True
    needs_all_logits = False
    supports_capture = True

    def __call__(self, step: TrainingPass) -> Tensor:
        return losses.outlier_exposure_loss(step.exposed_logits)


@dataclass(frozen=True, repr=False)
class EnergyHinge(Term):
    """Margins between the energies of labelled and exposed nodes, optionally after propagation.

    A margin of ``None`` is set automatically: ``m_in`` to the current mean energy of the labelled nodes, so that only
    nodes above it are pulled down, and ``m_out`` to ``-log C``, the energy of a node whose logits are all zero.

    Parameters
    ----------
    m_in, m_out : float, optional
        The margins: energies of labelled nodes above ``m_in`` and of exposed nodes below ``m_out`` are penalised.
    num_hops : int
        Number of hops over which energies are propagated first.
    eta : float
        Share of its own energy that a node keeps in every hop.
    isolated : {"keep", "shrink"}
        How a node without incoming edges is treated; see `oddnode.functional.energy.propagate`.
    start : int
        Number of epochs before the term takes effect.
    """

    needs_exposure = True
    supports_capture = True
    m_in: float | None = None
    m_out: float | None = None
    num_hops: int = 0
    eta: float = 0.5
    isolated: Isolated = "keep"

    @property
    def needs_all_logits(self) -> bool:  # type: ignore[override]
        """True with propagation, which uses the logits of other nodes."""
        return self.num_hops > 0

    def __call__(self, step: TrainingPass) -> Tensor:
        energy_in, energy_out = step.energies(self.num_hops, self.eta, self.isolated)
        m_in = energy_in.detach().mean() if self.m_in is None else self.m_in
        m_out = -math.log(step.num_classes) if self.m_out is None else self.m_out
        return losses.energy_hinge_loss(energy_in, energy_out, m_in, m_out)


@dataclass(frozen=True, repr=False)
class BoundUniform(Term):
    r"""The paper's UB term, :math:`\lambda_1 L_{uniform} + (1 - \lambda_1) L_{bound}`.

    With exposure, both parts are computed *separately* for the labelled and the exposed nodes, and added. A joint
    bound, as in the published code, demands equal norms in both groups, while the energy hinge demands different
    energies.

    Parameters
    ----------
    lambda1 : float
        The share of the uniform part.
    start : int
        Number of epochs before the term takes effect.
    """

    needs_all_logits = False
    supports_capture = True
    lambda1: float = 0.001

    def __call__(self, step: TrainingPass) -> Tensor:
        loss = self._dispersions(step.train_logits)
        return loss + self._dispersions(step.exposed_logits) if step.has_exposure else loss

    def _dispersions(self, logits: Tensor) -> Tensor:
        return self.lambda1 * losses.uniform_loss(logits) + (1 - self.lambda1) * losses.bound_loss(logits)


@dataclass(frozen=True, repr=False)
class SyntheticExposure(Term):
    r"""Margins against synthetic outliers in latent space, in the spirit of GOLD (Wang et al., ICLR 2025).

    GOLD trains a generator of latent features that resemble those of OOD nodes. Here an outlier takes each channel of
    its hidden features from one of two labelled nodes, at random: the values occur in ID nodes, but not in this
    combination. Outliers have a gradient with respect to the last layer only, not to the hidden features. Their
    energies are pushed above ``m_out`` and those of the labelled nodes below ``m_in``; margins of ``None`` are set as
    in `EnergyHinge`.

    The term needs a `Backbone`, whose last layer can be called separately, but no OOD data.

    Parameters
    ----------
    m_in, m_out : float, optional
        The margins; see `EnergyHinge`.
    start : int
        Number of epochs before the term takes effect.
    """

    needs_hidden = True
    m_in: float | None = None
    m_out: float | None = None

    def __call__(self, step: TrainingPass) -> Tensor:
        assert step.head is not None
        energy_in = -negative_energy(step.train_logits[:, : step.num_classes])
        energy_out = -negative_energy(step.head(self._outliers(step))[:, : step.num_classes])
        m_in = energy_in.detach().mean() if self.m_in is None else self.m_in
        m_out = -math.log(step.num_classes) if self.m_out is None else self.m_out
        return losses.energy_hinge_loss(energy_in, energy_out, m_in, m_out)

    def _outliers(self, step: TrainingPass) -> Tensor:
        """One synthetic outlier per labelled node: the node itself, crossed with another."""
        assert step.hidden is not None
        hidden = step.hidden[step.train].detach()
        generator = current_generator(hidden.device)
        partner = hidden[torch.randint(len(hidden), (len(hidden),), device=hidden.device, generator=generator)]
        return torch.where(torch.empty_like(hidden).uniform_(generator=generator) < 0.5, hidden, partner)


# Evidential learning: the network predicts a Dirichlet distribution over the class probabilities of a node. Its logits
# are log(alpha), so that the rest of the library needs no special case: their softmax is the Dirichlet's mean, and
# their negative energy is the logarithm of the total evidence. `Energy` is then the epistemic score and `MaxSoftmax`
# the aleatoric one.


class ExpectedSquaredError(Term):
    """Classification of the labelled nodes by the expected squared error, summed.

    Parameters
    ----------
    start : int
        Number of epochs before the term takes effect.
    """

    def __call__(self, step: TrainingPass) -> Tensor:
        return dirichlet.expected_squared_error(step.train_logits, step.y).sum()


class ExpectedCrossEntropy(Term):
    """Classification of the labelled nodes by the expected cross-entropy, summed.

    Parameters
    ----------
    start : int
        Number of epochs before the term takes effect.
    """

    def __call__(self, step: TrainingPass) -> Tensor:
        return dirichlet.expected_cross_entropy(step.train_logits, step.y).sum()


class NegativeEntropy(Term):
    """Minus the entropy of the labelled nodes' Dirichlet distributions, summed; keeps them wide.

    Parameters
    ----------
    start : int
        Number of epochs before the term takes effect.
    """

    def __call__(self, step: TrainingPass) -> Tensor:
        return -dirichlet.dirichlet_entropy(step.train_logits).sum()
