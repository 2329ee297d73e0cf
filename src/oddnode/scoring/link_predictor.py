"""The training of a bilinear link predictor."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.graph import Graph

__all__ = ["train_link_predictor"]

_BATCH = 2048
_BATCHES_ON_DISK = 64
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
    width = coordinates.shape[1]
    device, dtype = coordinates.device, coordinates.dtype
    left = (torch.randn(width, rank, generator=generator, dtype=torch.float64) / width**0.5).to(device, dtype)
    right, bias = left.clone(), torch.zeros((), device=device, dtype=dtype)
    if not graph.num_edges:
        return torch.zeros_like(left), right, bias
    parameters = [value.requires_grad_() for value in (left, right, bias)]
    optimiser = torch.optim.Adam(parameters, lr=_RATE, weight_decay=_DECAY)
    for rows, source, target, other in _batches(coordinates, graph, steps, generator):
        side = rows[source] @ left
        linked = (side * (rows[target] @ right)).sum(dim=1) + bias
        random = (side * (rows[other] @ right)).sum(dim=1) + bias
        loss = F.softplus(-linked).mean() + F.softplus(random).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return left.detach(), right.detach(), bias.detach()


def _batches(
    coordinates: Tensor, graph: Graph, steps: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Features, and positions in them: the sources and targets of some edges, and random other nodes ``[b]``.

    Of a graph on disk, the edges and features of several batches are read together and in order: to read a file at
    random takes long if it does not fit into memory.
    """
    together = _BATCHES_ON_DISK if graph.is_on_disk else 1
    for first in range(0, steps, together):
        drawn = [
            (torch.randint(graph.num_edges, (_BATCH,), generator=generator), _drawn_nodes(coordinates, generator))
            for _ in range(min(together, steps - first))
        ]
        chosen, other = (torch.cat(each).to(coordinates.device) for each in zip(*drawn, strict=True))
        if not graph.is_on_disk:
            yield coordinates, *graph.edges_at(chosen), other
            continue
        order = chosen.argsort()
        edges = torch.empty((2, len(chosen)), dtype=torch.long, device=chosen.device)
        edges[:, order] = graph.edges_at(chosen[order])
        nodes, place = torch.stack([*edges, other]).unique(return_inverse=True)
        rows = coordinates[nodes]
        for source, target, another in zip(*(each.split(_BATCH) for each in place), strict=True):
            yield rows, source, target, another


def _drawn_nodes(coordinates: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randint(len(coordinates), (_BATCH,), generator=generator)
