"""Scorers that judge which nodes a node is linked to, by the edges of the known graph alone."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import Self

import torch
from torch import Tensor

from oddnode.graph import Graph
from oddnode.graph.positions import edges_of
from oddnode.scoring.base import Scorer
from oddnode.scoring.findings import Finding
from oddnode.scoring.links import EdgeScorer
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.reasons import share_of_known

# Many nodes have neighbours of the same degrees; they are equal in whatever order these are added up.
_DECIMALS = 4
# With fewer effective neighbours that have a position, there is no pair of them.
_FEWEST = 1.001


@dataclass
class NeighbourCloseness(Scorer):
    r"""How close a node's neighbours are to each other in the known graph.

    Let :math:`e_u` be the position of a neighbour (`oddnode.graph.positions`) among the *anchors*: the nodes of the
    training graph that no network holds out. With the sum :math:`t_v = \sum_{u \ne w} e_u \cdot e_w` over the
    :math:`n_v` ordered pairs of a node's neighbours that are anchors, and the mean closeness :math:`m` of such pairs
    at held-out nodes, the score is

    .. math:: \frac{t_v - \tfrac{m}{2} n_v}{\sqrt{n_v + 1}}

    Neither a held-out node nor a new one takes part in the positions, so both are judged by what other nodes' edges
    say. Where it is unknown which nodes are new, every node scores 0. With edge weights :math:`a`, the mean over pairs
    is weighted by :math:`a_u a_w`, and there are :math:`n_v = k (k - 1)` of them for :math:`k` effective neighbours.
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
        total, pairs = self._pairs(graph, place)
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
        by_chance = place[place.any(dim=1)].mean(dim=0).square().sum()
        usual = self._usual(outputs, *self._pairs(outputs.graph, place))
        return float((usual - by_chance).clamp(0.0, 1.0).nan_to_num())

    @staticmethod
    def _pairs(graph: Graph, place: Tensor) -> tuple[Tensor, Tensor]:
        """The closeness summed over the pairs of every node's neighbours, and the number of pairs ``[N]``."""
        graph, has_place = edges_of(graph), place.any(dim=1)
        means = (graph.random_walk @ torch.cat([place, has_place.to(place).unsqueeze(1)], dim=1)).double()
        near, share = means[:, :-1], means[:, -1]
        if graph.edge_weight is None:
            squares = share / graph.in_degree.clamp_min(1)
        else:
            (source, target), weight = graph.edge_index, graph.edge_weight.double()
            total, squares = torch.zeros_like(share), torch.zeros_like(share)
            total.index_add_(0, target, weight)
            squares.index_add_(0, target, weight.square() * has_place[source])
            squares = squares / total.clamp_min(1e-300).square()
        count = share.square() / squares.clamp_min(1e-300)
        has_pairs = count > _FEWEST
        # Of the products of all neighbours with all, those with themselves are left out.
        found = count * (near.square().sum(dim=1) / squares.clamp_min(1e-300) - 1.0)
        return torch.where(has_pairs, found, 0.0), torch.where(has_pairs, count * (count - 1.0), 0.0)

    @staticmethod
    def _usual(outputs: Outputs, total: Tensor, pairs: Tensor) -> Tensor:
        """The mean closeness of the neighbours of held-out nodes ``[1]``."""
        assert outputs.anchors is not None
        held_out = outputs.anchors.held_out
        return (total[held_out].sum() / pairs[held_out].sum().clamp_min(1)).reshape(1)

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
