"""The terms of objectives.

``CrossEntropy() + 5 * BoundUniform(0.001)`` is an objective. A term turns a `TrainingPass` (the logits of one forward
pass, with the graphs they belong to) into a scalar.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from oddnode.functional import Isolated, losses
from oddnode.objectives.base import Term, TrainingPass

__all__ = ["BoundUniform", "CrossEntropy", "EnergyHinge", "LogitNorm", "OutlierExposure"]


@dataclass(frozen=True, repr=False)
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


@dataclass(frozen=True, repr=False)
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
    def needs_all_logits(self) -> bool:
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
