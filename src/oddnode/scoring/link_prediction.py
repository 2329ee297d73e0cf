"""A scorer that asks a trained link predictor whether a node's edges are plausible."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from oddnode.graph import Graph
from oddnode.scoring import reasons
from oddnode.scoring.feature_space import FeatureSpace
from oddnode.scoring.findings import Finding
from oddnode.scoring.link_predictor import train_link_predictor
from oddnode.scoring.links import EdgeScorer
from oddnode.scoring.outputs import Outputs

__all__ = ["LinkPrediction"]


@dataclass
class LinkPrediction(EdgeScorer):
    r"""The log-odds of a node's edges, by a link predictor that was trained on the training graph.

    The score is :math:`(m + \sum_{u \in N(v)} o_{uv}) / \sqrt{d_v + 1}`, with the log-odds :math:`o_{uv}` of an edge
    and their mean :math:`m` over the edges of the training graph: several implausible edges count more than one, by as
    much as their sum is less likely to be chance. With edge weights, the sum is the weighted mean times :math:`d_v`,
    which is how many equal edges a node's edges are worth.

    An edge between :math:`u` and :math:`v` has the log-odds :math:`\tfrac12 (P z_u \cdot Q z_v + Q z_u \cdot P z_v) +
    b`, where :math:`z` are the features in a space of ``dimensions`` (`oddnode.scoring.feature_space`) and :math:`P, Q`
    have ``rank`` rows. They are trained to tell the edges of the training graph from random pairs; no labels are used.
    Edge weights do not count in this training: any edge is an edge.

    Parameters
    ----------
    dimensions : int
        Number of dimensions of the space.
    rank : int
        Rank of the predictor.
    steps : int
        Number of steps of Adam.

    Attributes
    ----------
    centre_, basis_ : Tensor
        The feature space, ``[F]`` and ``[F, D]``.
    left_, right_, bias_ : Tensor
        The predictor: P and Q, ``[D, rank]``, and b.
    mean_, limit_ : Tensor
        The mean log-odds of the edges of the training graph, and the 5 % quantile, scalars.
    """

    dimensions: int = 64
    rank: int = 16
    steps: int = 300
    centre_: Tensor = field(init=False, repr=False, compare=False)
    basis_: Tensor = field(init=False, repr=False, compare=False)
    left_: Tensor = field(init=False, repr=False, compare=False)
    right_: Tensor = field(init=False, repr=False, compare=False)
    bias_: Tensor = field(init=False, repr=False, compare=False)
    mean_: Tensor = field(init=False, repr=False, compare=False)
    limit_: Tensor = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        graph = outputs.graph
        fitted = copy.copy(self)
        fitted.centre_, fitted.basis_ = FeatureSpace.of(graph, self.dimensions)
        # Scorers of one network, and later ones, share the training graph; training is the same each time.
        fitted.left_, fitted.right_, fitted.bias_ = graph.cached(
            ("link_prediction", self.dimensions, self.rank, self.steps),
            lambda: train_link_predictor(fitted._coordinates(graph), graph, self.rank, self.steps),
        )
        return fitted._with_mean(outputs)

    def score(self, outputs: Outputs) -> Tensor:
        return super().score(outputs) * (outputs.graph.effective_degree.to(outputs.graph.x.dtype) + 1).sqrt()

    @property
    def kind(self) -> str:
        """How plausible links are."""
        return "links"

    def reason(self, found: Finding) -> str:
        return reasons.links(found, found.by_most(lambda view: view.scorer.implausible(view.outputs, found.links)))

    @property
    def supports_folders(self) -> bool:
        """True."""
        return True

    def _space(self) -> FeatureSpace:
        return FeatureSpace(self.centre_, self.basis_)

    def _coordinates(self, graph: Graph) -> Tensor:
        space = self._space()
        return graph.by_rows(space.basis.shape[1], lambda rows: space.coordinates(graph, rows))

    def _edge_scores(self, outputs: Outputs, edges: Tensor, are_joined: bool = True) -> Tensor:
        source, target = (self._sides(outputs.graph, nodes).chunk(2, dim=1) for nodes in edges)
        both = (source[0] * target[1]).sum(dim=1) + (source[1] * target[0]).sum(dim=1)
        return both / 2 + self.bias_.to(both)

    def _mean_scores(self, outputs: Outputs) -> Tensor:
        graph, rank = outputs.graph, self.left_.shape[1]
        sides = graph.by_rows(2 * rank, lambda rows: self._sides(graph, rows), is_factor=True)

        # The sum over a node's edges is a product with the sum of its neighbours' sides.
        def sums(rows: slice, near: Tensor) -> Tensor:
            left, right = sides[rows].chunk(2, dim=1)
            return (torch.cat([right, left], dim=1) * near).sum(dim=1)

        both = graph.by_neighbours(sides, None, sums)
        return both / 2 + self.bias_.to(both) * (graph.in_degree > 0)

    def _sides(self, graph: Graph, rows: slice | Tensor) -> Tensor:
        """``P z`` and ``Q z`` of nodes ``[n, 2 rank]``."""
        coordinates = self._space().coordinates(graph, rows)
        return coordinates @ torch.cat([self.left_, self.right_], dim=1).to(coordinates)
