"""Small random graphs and a network that needs no training, for tests of scorers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from oddnode.graph import Graph
from oddnode.scoring import Outputs


class Features(nn.Module):
    """A network that gives a node's first features, and their mean over its neighbours, as its logits."""

    def __init__(self, num_logits: int) -> None:
        super().__init__()
        self.num_logits = num_logits

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        own = x[:, : self.num_logits]
        total = torch.zeros_like(own).index_add_(0, edge_index[1], own[edge_index[0]])
        degree = torch.bincount(edge_index[1], minlength=len(x)).clamp_min(1).to(x.dtype)
        return own + total / degree.unsqueeze(1)


def random_graph(
    num_nodes: int = 40,
    num_features: int = 7,
    num_edges: int = 120,
    seed: int = 0,
    density: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> Graph:
    """Directed edges with repetitions and self-loops; the last two nodes have none. Features of both signs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_nodes, num_features, generator=generator, dtype=torch.float64)
    x = x * (torch.rand(num_nodes, num_features, generator=generator) < density)
    return Graph(x.to(dtype), torch.randint(num_nodes - 2, (2, num_edges), generator=generator))


def outputs_on(graph: Graph, num_classes: int = 3, spare: int = 1, reference: Tensor | None = None) -> Outputs:
    references = () if reference is None else (reference,)
    return Outputs(Features(num_classes + spare), graph, num_classes, references=references)


def labelled(graph: Graph, num_classes: int = 3, count: int = 12) -> tuple[Tensor, Tensor]:
    """Positions and classes of the first nodes."""
    return torch.arange(count, device=graph.device), torch.arange(count, device=graph.device) % num_classes
