"""A scorer that asks a trained link predictor whether a node's edges are plausible."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.graph import Graph
from oddnode.ops import Adam
from oddnode.scoring.feature_space import FeatureSpace
from oddnode.scoring.findings import Finding
from oddnode.scoring.links import EdgeScorer
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.reasons import be, listed, out_of, share_of_known

_BATCH = 2048
_BATCHES_ON_DISK = 64
_RATE, _DECAY = 0.01, 1e-4


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

    kind = "links"
    supports_folders = True

    dimensions: int = 64
    rank: int = 16
    steps: int = 300
    centre_: Tensor = field(init=False, repr=False, compare=False)
    basis_: Tensor = field(init=False, repr=False, compare=False)
    left_: Tensor = field(init=False, repr=False, compare=False)
    right_: Tensor = field(init=False, repr=False, compare=False)
    bias_: Tensor = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        graph = outputs.graph
        fitted = copy.copy(self)
        fitted.centre_, fitted.basis_ = FeatureSpace.of(graph, self.dimensions)
        # Scorers of one network, and later ones, share the training graph; training is the same each time.
        key = ("link_prediction", self.dimensions, self.rank, self.steps)
        make = partial(_train, fitted._space(), graph, self.rank, self.steps)
        fitted.left_, fitted.right_, fitted.bias_ = graph.cached(key, make)
        return fitted._with_mean(outputs)

    def score(self, outputs: Outputs) -> Tensor:
        return super().score(outputs) * (outputs.graph.effective_degree.to(outputs.graph.x.dtype) + 1).sqrt()

    def _reason(self, found: Finding, against: Tensor) -> str:
        count, whose = int(against.sum()), "The links around it" if found.around else "Its links"
        if not count:
            return f"{whose} are, taken together, less plausible than those of {share_of_known(found.share)}."
        to = " of its neighbours" if found.around else f" (to {listed(found, against)})"
        return (
            f"{whose} are unlike those seen in training: {out_of(count, len(against), 'link')}{to} {be(count)} less "
            "plausible than 95 % of the links there."
        )

    def _space(self) -> FeatureSpace:
        return FeatureSpace(self.centre_, self.basis_)

    def _edge_scores(self, outputs: Outputs, edges: Tensor, are_joined: bool = True) -> Tensor:
        source, target = (self._sides(outputs.graph, nodes).chunk(2, dim=1) for nodes in edges)
        both = (source[0] * target[1]).sum(dim=1) + (source[1] * target[0]).sum(dim=1)
        return both / 2 + self.bias_.to(both)

    def _mean_scores(self, outputs: Outputs) -> Tensor:
        graph, rank = outputs.graph, self.left_.shape[1]
        sides = graph.by_rows(2 * rank, lambda rows: self._sides(graph, rows), factor=True)
        both = graph.empty(None)
        # The sum over a node's edges is a product with the sum of its neighbours' sides.
        for rows, near in graph.neighbour_means(sides, both):
            left, right = sides[rows].chunk(2, dim=1)
            both[rows] = (torch.cat([right, left], dim=1) * near).sum(dim=1)
        return both / 2 + self.bias_.to(both) * (graph.in_degree > 0)

    def _sides(self, graph: Graph, rows: slice | Tensor) -> Tensor:
        """``P z`` and ``Q z`` of nodes ``[n, 2 rank]``."""
        coordinates = self._space().coordinates(graph, rows)
        return coordinates @ torch.cat([self.left_, self.right_], dim=1).to(coordinates)


@torch.enable_grad()
def _train(space: FeatureSpace, graph: Graph, rank: int, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Train a bilinear predictor to tell edges from random pairs."""
    coordinates = space.all_coordinates(graph)
    generator = torch.Generator().manual_seed(0)
    width = coordinates.shape[1]
    device, dtype = coordinates.device, coordinates.dtype
    left = (torch.randn(width, rank, generator=generator, dtype=torch.float64) / width**0.5).to(device, dtype)
    right, bias = left.clone(), torch.zeros((), device=device, dtype=dtype)
    if not graph.num_edges:
        return torch.zeros_like(left), right, bias
    parameters = [value.requires_grad_() for value in (left, right, bias)]
    optimiser = Adam(parameters, lr=_RATE, weight_decay=_DECAY, fused=False)
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
