"""The training of a bilinear link predictor."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.graph import Graph

__all__ = ["train_link_predictor"]

_BATCH = 2048
_RATE, _DECAY = 0.01, 1e-4


@torch.enable_grad()
def train_link_predictor(coordinates: Tensor, graph: Graph, rank: int, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Train a bilinear predictor to tell edges from random pairs.

    Parameters
    ----------
    coordinates : Tensor
        Features of the nodes ``[N, D]``.
    graph : Graph
        The graph of these nodes.
    rank : int
        Rank of the predictor.
    steps : int
        Number of steps of Adam.

    Returns
    -------
    left, right, bias : Tensor
        The predictor, ``[D, rank]``, ``[D, rank]`` and a scalar; ``left`` is zero if the graph has no edges.
    """
    generator = torch.Generator().manual_seed(0)
    num_nodes, width = coordinates.shape
    device, dtype = coordinates.device, coordinates.dtype
    left = (torch.randn(width, rank, generator=generator, dtype=torch.float64) / width**0.5).to(device, dtype)
    right, bias = left.clone(), torch.zeros((), device=device, dtype=dtype)
    if not graph.num_edges:
        return torch.zeros_like(left), right, bias
    parameters = [value.requires_grad_() for value in (left, right, bias)]
    optimiser = torch.optim.Adam(parameters, lr=_RATE, weight_decay=_DECAY)
    for _ in range(steps):
        chosen = torch.randint(graph.num_edges, (_BATCH,), generator=generator).to(device)
        other = torch.randint(num_nodes, (_BATCH,), generator=generator).to(device)
        source, target = graph.edges_at(chosen)
        side = coordinates[source] @ left
        linked = (side * (coordinates[target] @ right)).sum(dim=1) + bias
        random = (side * (coordinates[other] @ right)).sum(dim=1) + bias
        loss = F.softplus(-linked).mean() + F.softplus(random).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return left.detach(), right.detach(), bias.detach()
