"""Training with synthetic outliers in the network's hidden space, for graphs without known OOD nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oddnode._utils.random import current_generator
from oddnode.functional import losses, negative_energy
from oddnode.objectives.base import Term, TrainingPass

__all__ = ["SyntheticExposure"]


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
