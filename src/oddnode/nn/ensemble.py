"""Several trained networks that answer as one: a deep ensemble (Lakshminarayanan et al., NeurIPS 2017)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from oddnode._utils.random import mixed_bits
from oddnode.nn.base import checked_graph
from oddnode.nn.forward import run_backbone


class Ensemble(nn.Module):
    """Networks whose probabilities are averaged; its logits are the logarithms of the averages.

    Parameters
    ----------
    members : iterable of torch.nn.Module
        The networks.
    """

    def __init__(self, members: Iterable[nn.Module]):
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Compute the logarithms of the members' mean probabilities, ``[N, C]``.

        Parameters
        ----------
        x : Tensor
            Features ``[N, F]``.
        edge_index : Tensor
            Edges ``[2, E]``, from source to target.
        edge_weight : Tensor, optional
            Their weights ``[E]``, for members that take weights.
        """
        graph = checked_graph(x, edge_index, edge_weight)
        return mean_log_probabilities([run_backbone(member, graph) for member in self.members])


def mean_log_probabilities(logits: list[Tensor]) -> Tensor:
    """Compute the logarithm of the mean of several networks' probabilities, ``[N, C]``.

    Parameters
    ----------
    logits : list of Tensor
        Logits ``[N, C]`` of every network.
    """
    logs = torch.stack([z.log_softmax(dim=-1) for z in logits])
    return logs.double().exp().mean(dim=0).log().clamp_min(-1e4).to(logs.dtype)


def member_seeds(seed: int, count: int) -> list[int]:
    """Derive a seed for every member; the first is the ensemble's own, so that an ensemble of one is nothing new.

    Parameters
    ----------
    seed : int
        The seed of the ensemble.
    count : int
        How many members there are.

    Examples
    --------
    >>> member_seeds(7, 1)
    [7]
    """
    return [seed, *(mixed_bits(seed, member) >> 1 for member in range(1, count))]
