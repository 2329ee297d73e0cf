"""Scorers that judge which nodes a node is linked to, by the edges of the known graph alone."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import Self

import torch
from torch import Tensor

from oddnode.scoring.base import Scorer
from oddnode.scoring.findings import Finding
from oddnode.scoring.links import EdgeScorer
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.reasons import share_of_known

# Many nodes have neighbours of the same degrees; they are equal in whatever order these are added up.
_DECIMALS = 4


@dataclass
class NeighbourCloseness(Scorer):
    r"""How close a node's neighbours are to each other in the known graph.

    Let :math:`e_u` be the position of a neighbour (`oddnode.graph.positions`) among the *anchors*: the nodes of the
    training graph that no network holds out. With the sum :math:`t_v = \sum_{u \ne w} e_u \cdot e_w` over the
    :math:`n_v` ordered pairs of a node's neighbours that are anchors, and the mean closeness :math:`m` of such pairs
    at held-out nodes, the score is

    .. math:: \frac{t_v - \tfrac{m}{2} n_v}{\sqrt{n_v + 1}}

    Neither a held-out node nor a new one takes part in the positions, so both are judged by what other nodes' edges
    say. Where it is unknown which nodes are new, every node scores 0. With edge weights, sums are weighted, and
    :math:`n_v` counts the effective number of neighbours.
    """

    uses_network = False
    supports_folders = True
    is_shared = True
    tells_members = True
    kind = "closeness of neighbours"

    def score(self, outputs: Outputs) -> Tensor:
        graph, place = outputs.graph, outputs.positions
        if place is None:
            return graph.x.new_zeros(graph.num_nodes)
        total, pairs = self._pairs(outputs, place)
        usual = outputs.cached(self, "known", partial(self._usual, outputs, total, pairs))
        return ((total - usual / 2 * pairs) / (pairs + 1).sqrt()).to(graph.x.dtype)

    def informativeness(self, outputs: Outputs) -> float:
        """Measure how much closer neighbours of held-out nodes are than random anchors, from 0 to 1.

        Parameters
        ----------
        outputs : Outputs
            The network's outputs on the training graph.
        """
        place = outputs.positions
        if place is None:
            return 0.0
        total, pairs = self._pairs(outputs, place)
        by_chance = place[place.any(dim=1)].mean(dim=0).square().sum()
        return float((self._usual(outputs, total, pairs) - by_chance).clamp(0.0, 1.0).nan_to_num())

    @staticmethod
    def _pairs(outputs: Outputs, place: Tensor) -> tuple[Tensor, Tensor]:
        """The closeness summed over the pairs of every node's neighbours, and the number of pairs ``[N]``."""
        graph = outputs.graph
        total, pairs = graph.empty(None, torch.float64), graph.empty(None, torch.float64)
        values = torch.cat([place, place.any(dim=1, keepdim=True).to(place)], dim=1)
        for rows, means in graph.neighbour_means(values, total):
            degree, near = graph.effective_degree[rows].double(), means.double()
            count = degree * near[:, -1]
            # Of the products of all neighbours with all, those with themselves are left out.
            pairs[rows] = count * (count - 1).clamp_min(0.0)
            total[rows] = torch.where(count > 1.5, degree.square() * near[:, :-1].square().sum(dim=1) - count, 0.0)
        return total, pairs

    @staticmethod
    def _usual(outputs: Outputs, total: Tensor, pairs: Tensor) -> Tensor:
        """The mean closeness of the neighbours of held-out nodes."""
        assert outputs.anchors is not None
        held_out = outputs.anchors.held_out
        return total[held_out].sum() / pairs[held_out].sum().clamp_min(1)

    def reason(self, found: Finding) -> str:
        if found.around:
            return super().reason(found)
        closer = f"those of {share_of_known(found.share)} are closer"
        return f"Its neighbours are far from each other in the known graph: {closer}."


@dataclass
class NeighbourDegree(EdgeScorer):
    r"""How many links a node's neighbours have.

    An edge leads to nodes with many links more often than to others. The score is :math:`\sum_{u \in N(v)}
    (\log(1 + d_u) - m) / \sqrt{d_v + 1}`, with the mean :math:`m` over the edges of the training graph. With edge
    weights, the sum is the weighted mean times :math:`d_v`, the effective number of edges.

    Attributes
    ----------
    mean_, limit_ : Tensor
        The mean logarithm over the edges of the training graph, and the 5 % quantile, scalars.
    """

    kind = "degrees of neighbours"
    supports_folders = True
    is_shared = True

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        return copy.copy(self)._with_mean(outputs)

    def score(self, outputs: Outputs) -> Tensor:
        degree = outputs.graph.effective_degree.to(outputs.graph.x.dtype)
        scores = degree * (self._mean_scores(outputs) - self.mean_.to(degree)) / (degree + 1).sqrt()
        return scores.round(decimals=_DECIMALS)

    def _edge_scores(self, outputs: Outputs, edges: Tensor, are_joined: bool = True) -> Tensor:
        return outputs.graph.effective_degree[edges[0]].to(outputs.graph.x.dtype).log1p()

    def _mean_scores(self, outputs: Outputs) -> Tensor:
        graph = outputs.graph
        sizes = graph.effective_degree.to(graph.x.dtype).log1p().unsqueeze(1)
        means = graph.empty(None)
        for rows, near in graph.neighbour_means(sizes, means):
            means[rows] = near.squeeze(1)
        return means

    def _reason(self, found: Finding, against: Tensor) -> str:
        if found.around:
            return Scorer.reason(self, found)
        return f"Its neighbours have few links: those of {share_of_known(found.share)} have more."
