r"""Where nodes are in the known graph, by its edges alone, and what a node's neighbours say about it.

Positions are an orthonormal basis of the slowest directions of a lazy random walk on the *anchors*: the known nodes
that no network holds out. Reference nodes and new nodes have none, so both are judged by the same nodes, and nothing
that is said about a node was learnt from its own edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.graph import Graph
from oddnode.scoring.base import Scorer
from oddnode.scoring.findings import Finding
from oddnode.scoring.links import EdgeScorer
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.reasons import share_of_known

# Number of directions; steps of the walk, and after how many of them the directions are made orthogonal again.
_DIRECTIONS, _STEPS, _EVERY = 32, 12, 3


def positions(graph: Graph, anchors: Tensor) -> Tensor:
    """Find the positions of a graph's anchors, rows of unit length ``[N, D]``; 0 for all other nodes.

    Parameters
    ----------
    graph : Graph
        A graph of N nodes.
    anchors : Tensor
        Whether a node is an anchor ``[N]``.
    """
    own, degree = anchors.to(graph.x), graph.in_degree.to(graph.x)
    scale = own * graph.neighbour_sums(own).clamp_min(1).rsqrt()
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(graph.num_nodes, _DIRECTIONS, generator=generator).to(graph.x) * own.unsqueeze(1)
    for step in range(1, _STEPS + 1):
        near = graph.random_walk @ (values * scale.unsqueeze(1))
        values = (values + near * (scale * degree).unsqueeze(1)) / 2
        if step % _EVERY == 0:
            values = values @ _whitening(values)
    return F.normalize(values, dim=1)


def _whitening(values: Tensor) -> Tensor:
    """What makes columns orthonormal ``[D, D]``; directions that hardly exist, as in small graphs, are dropped."""
    size, vectors = torch.linalg.eigh((values.t() @ values).double())
    scale = torch.where(size > 1e-9 * size[-1], size, torch.inf).rsqrt()
    return (vectors * scale).to(values)


@dataclass
class NeighbourCloseness(Scorer):
    uses_network = False
    is_shared = True
    supports_folders = True
    tells_members = True
    kind = "closeness of neighbours"

    def score(self, outputs: Outputs) -> Tensor:
        graph = outputs.graph
        if outputs.anchors is None:
            return graph.x.new_zeros(graph.num_nodes)
        total, pairs = self._pairs(outputs)
        usual = self._usual(outputs)
        return ((total - usual / 2 * pairs) / (pairs + 1).sqrt()).to(graph.x.dtype)

    def _pairs(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        graph, place = outputs.graph, outputs.positions
        near = (graph.random_walk @ torch.cat([place, outputs.anchors.to(place).unsqueeze(1)], dim=1)).double()
        degree = graph.effective_degree.double()
        count = degree * near[:, -1]
        pairs = (count * (count - 1)).clamp_min(0.0)
        total = degree.square() * near[:, :-1].square().sum(dim=1) - count
        return torch.where(pairs > 0.5, total, 0.0), pairs

    def _usual(self, outputs: Outputs) -> Tensor:
        total, pairs = self._pairs(outputs)
        held = outputs.held_out
        return total[held].sum() / pairs[held].sum().clamp_min(1)

    def informativeness(self, outputs: Outputs) -> float:
        if outputs.anchors is None:
            return 0.0
        by_chance = outputs.positions[outputs.anchors].mean(dim=0).square().sum()
        return float((self._usual(outputs) - by_chance).clamp(0.0, 1.0))

    def reason(self, found: Finding) -> str:
        return f"Its neighbours are farther apart in the known graph than those of {share_of_known(found.share)}."


@dataclass
class NeighbourDegree(EdgeScorer):
    kind = "degrees of neighbours"

    def fit(self, outputs, train, y):
        import copy
        fitted = copy.copy(self)
        return fitted._with_mean(outputs)

    def score(self, outputs: Outputs) -> Tensor:
        graph = outputs.graph
        degree = graph.effective_degree.to(graph.x.dtype)
        return degree * (self._mean_scores(outputs) - self.mean_.to(graph.x)) / (degree + 1).sqrt()

    def _edge_scores(self, outputs: Outputs, edges: Tensor, are_joined: bool = True) -> Tensor:
        return outputs.graph.effective_degree[edges[0]].to(outputs.graph.x.dtype).log1p()

    def _mean_scores(self, outputs: Outputs) -> Tensor:
        graph = outputs.graph
        means = graph.empty(None)
        sizes = graph.effective_degree.to(graph.x.dtype).log1p().unsqueeze(1)
        for rows, near in graph.neighbour_means(sizes, means):
            means[rows] = near.squeeze(1)
        return means

    def _reason(self, found: Finding, against: Tensor) -> str:
        return f"Its neighbours have fewer links than those of {share_of_known(found.share)}."
