"""Training against outliers that are made up in the network's hidden space, where no OOD data is at hand."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oddnode.functional import losses, negative_energy
from oddnode.objectives.base import Term, TrainingPass

__all__ = ["SyntheticExposure"]


@dataclass(frozen=True, repr=False)
class SyntheticExposure(Term):
    r"""Margins against outliers made up in latent space, in the spirit of GOLD (Wang et al., ICLR 2025).

    GOLD trains a generator of latent features that pass for OOD ones. Here the generator is a coin: an outlier takes
    every channel of its hidden features from one of two labelled nodes, at random. Each channel has a value that ID
    nodes have, in company that they do not have. The outliers carry no gradient to the hidden features, only to the
    last layer. Their energies are pushed above ``m_out`` and those of the labelled nodes below ``m_in``; margins of
    ``None`` set themselves as in `EnergyHinge`.

    Needs a `Backbone`, whose last layer can be called on its own, but no OOD data.

    Parameters
    ----------
    m_in, m_out : float, optional
        The margins; see `EnergyHinge`.
    start : int
        How many epochs pass before it counts.
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
        """One made-up outlier per labelled node: the node itself, crossed with another."""
        assert step.hidden is not None
        hidden = step.hidden[step.train].detach()
        partner = hidden[torch.randint(len(hidden), (len(hidden),), device=hidden.device)]
        return torch.where(torch.rand_like(hidden) < 0.5, hidden, partner)
