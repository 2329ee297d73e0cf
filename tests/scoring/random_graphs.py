"""Small random graphs and a network that needs no training, for tests of scorers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from oddnode.graph import Graph
from oddnode.scoring import Outputs

Scores = list[float] | np.ndarray


class Features(nn.Module):
    """A network that gives a node's first features, and their mean over its neighbours, as its logits.

    It takes weights of edges and has no use for them.
    """

    def __init__(self, num_logits: int) -> None:
        super().__init__()
        self.num_logits = num_logits

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
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
    weighted: bool = False,
) -> Graph:
    """Directed edges with repetitions and self-loops; the last two nodes have none. Features of both signs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_nodes, num_features, generator=generator, dtype=torch.float64)
    x = x * (torch.rand(num_nodes, num_features, generator=generator) < density)
    edges = torch.randint(num_nodes - 2, (2, num_edges), generator=generator)
    return Graph(x, edges, 0.05 + torch.rand(num_edges, generator=generator, dtype=torch.float64) if weighted else None)


def outputs_on(graph: Graph, num_classes: int = 3, spare: int = 1, reference: Tensor | None = None) -> Outputs:
    references = () if reference is None else (reference,)
    return Outputs(Features(num_classes + spare), graph, num_classes, references=references)


def means_over_edges(graph: Graph, edge_scores: Scores) -> tuple[np.ndarray, np.ndarray]:
    """The mean, by weight, of the scores of every node's incoming edges, and how many equal edges these are worth."""
    weight = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight.numpy()
    columns = weight, weight**2, weight * np.array(edge_scores)
    total, squares, sums = (np.bincount(graph.edge_index[1], each, graph.num_nodes) for each in columns)
    return sums / np.maximum(total, 1e-300), total**2 / np.maximum(squares, 1e-300)


def shrunk(graph: Graph, edge_scores: Scores, train: Graph, known_scores: Scores) -> np.ndarray:
    """The mean over every node's edges and one more edge of the mean score of the training graph's edges."""
    (mean, worth), (known, often) = means_over_edges(graph, edge_scores), means_over_edges(train, known_scores)
    return (mean * worth + (known * often).sum() / often.sum()) / (worth + 1)


def labelled(graph: Graph, num_classes: int = 3, count: int = 12) -> tuple[Tensor, Tensor]:
    """Positions and classes of the first nodes."""
    return torch.arange(count, device=graph.device), torch.arange(count, device=graph.device) % num_classes
