"""Several trained networks that answer as one: a deep ensemble (Lakshminarayanan et al., NeurIPS 2017)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from oddnode._utils.random import mixed_bits

__all__ = ["Ensemble", "mean_log_probabilities", "member_seeds"]


class Ensemble(nn.Module):
    """Networks side by side. Their probabilities are averaged; the logits are the logarithms of the averages."""

    def __init__(self, members: Iterable[nn.Module]):
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Log probabilities of every node."""
        return mean_log_probabilities([member(x, edge_index) for member in self.members])


def mean_log_probabilities(logits: list[Tensor]) -> Tensor:
    """The logarithm of the mean of several networks' probabilities."""
    logs = torch.stack([z.log_softmax(dim=-1) for z in logits])
    return logs.double().exp().mean(dim=0).log().clamp_min(-1e4).to(logs.dtype)


def member_seeds(seed: int, count: int) -> list[int]:
    """A seed for every member; the first is the ensemble's own, so that an ensemble of one is nothing new.

    Examples
    --------
    >>> member_seeds(7, 1)
    [7]
    """
    return [seed, *(mixed_bits(seed, member) >> 1 for member in range(1, count))]
