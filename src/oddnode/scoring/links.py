"""Scorers that judge whether a node's edges are plausible, by the features of their endpoints."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.functional import auroc
from oddnode.graph import Graph
from oddnode.graph.graph import ranges
from oddnode.ops import Adam, SparseMatrix
from oddnode.scoring.base import Scorer
from oddnode.scoring.feature_space import FeatureSpace
from oddnode.scoring.findings import Finding
from oddnode.scoring.outputs import Outputs
from oddnode.scoring.reasons import be, listed, of_neighbours, out_of, share_of_known

# An edge is implausible if it scores below all but this share of the edges of the training graph.
_IMPLAUSIBLE = 0.05
# Approximate maximum number of edges compared; a quantile needs no more.
_MOST_EDGES = 20_000
# Matrices of more than this many bytes are processed on a GPU this many columns at a time.
_LARGE_ON_GPU, _COLUMNS_ON_GPU = 2**32, 16
# Training of a link predictor: edges in a batch, batches of a graph on disk that are read together, and Adam's
# settings.
_BATCH, _BATCHES_ON_DISK = 2048, 64
_RATE, _DECAY = 0.01, 1e-4


@dataclass
class EdgeScorer(Scorer):
    """Base of scorers that average the scores of a node's edges and one additional edge with the mean score.

    With edge weights, the average is weighted, and the additional edge counts against the effective number of edges
    (`oddnode.graph.Graph.effective_degree`). Whether a single edge is plausible does not depend on its weight.
    """

    uses_network = False
    supports_folders = True
    is_shared = True

    mean_: Tensor = field(init=False, repr=False, compare=False)
    limit_: Tensor = field(init=False, repr=False, compare=False)

    def _edge_scores(self, outputs: Outputs, edges: Tensor, are_joined: bool = True) -> Tensor:
        """Score pairs of nodes ``[2, e]``, which are edges of the graph or, if not ``are_joined``, random pairs."""
        raise NotImplementedError

    def _mean_scores(self, outputs: Outputs) -> Tensor:
        """The mean score of every node's incoming edges ``[N]``; 0 for a node without any."""
        raise NotImplementedError

    def score(self, outputs: Outputs) -> Tensor:
        graph = outputs.graph
        degree = graph.effective_degree.to(graph.x.dtype)
        return (degree * self._mean_scores(outputs) + self.mean_.to(graph.x)) / (degree + 1)

    def informativeness(self, outputs: Outputs) -> float:
        """Measure how well edges of reference nodes are told from random pairs, from 0 (by chance) to 1 (always)."""
        graph, nodes = outputs.graph, outputs.reference
        assert nodes is not None
        edges = graph.edges_to(nodes)
        if not edges.shape[1]:
            return 0.0
        generator = torch.Generator().manual_seed(0)
        others = torch.randint(graph.num_nodes, (edges.shape[1],), generator=generator).to(graph.device)
        pairs = torch.stack([others, edges[1]])
        area = auroc(self._edge_scores(outputs, edges), self._edge_scores(outputs, pairs, are_joined=False))
        return float(min(1.0, max(0.0, 2.0 * area - 1.0)))

    def implausible(self, outputs: Outputs, edges: Tensor) -> Tensor:
        """Find edges that score lower than 95 % of the edges of the training graph."""
        scores = self._edge_scores(outputs, edges).double()
        return scores < self.limit_.to(scores)

    def reason(self, found: Finding) -> str:
        against = found.by_most(lambda view: view.scorer.implausible(view.outputs, found.links))
        return self._reason(found, against) if len(against) else super().reason(found)

    def _reason(self, found: Finding, against: Tensor) -> str:
        """Say which of a node's links are implausible."""
        raise NotImplementedError

    def _with_mean(self, outputs: Outputs) -> Self:
        """Learn the mean score of the training graph's edges and the limit of implausible ones; 0 if it has none."""
        graph = outputs.graph
        degree = graph.effective_degree.double()
        total = (degree * self._mean_scores(outputs).double()).sum()
        self.mean_ = total / degree.sum().clamp_min(1)
        places = torch.arange(0, graph.num_edges, 1 + graph.num_edges // _MOST_EDGES, device=graph.device)
        scores = self._edge_scores(outputs, graph.edges_at(places)).double()
        rank = int(_IMPLAUSIBLE * len(scores)) + 1
        self.limit_ = scores.kthvalue(rank).values if len(scores) else scores.sum()
        return self


@dataclass
class CentredCosine(EdgeScorer):
    r"""The mean cosine of a node's centred features to those of its neighbours.

    :math:`\frac{1}{d_v + 1} \left(m + \sum_{u \in N(v)} \cos(x_v - \mu, x_u - \mu)\right)`, with the mean features
    :math:`\mu` and the mean cosine :math:`m` over the edges of the training graph. With edge weights, the mean over a
    node's edges is weighted, and :math:`d_v` is the effective number of edges.

    Attributes
    ----------
    centre_ : Tensor
        The mean features ``[F]``.
    mean_, limit_ : Tensor
        The mean cosine over the edges of the training graph, and the 5 % quantile, scalars.
    """

    kind = "link similarity"

    centre_: Tensor = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Self:
        fitted = copy.copy(self)
        fitted.centre_ = outputs.graph.x.mean(dim=0)
        return fitted._with_mean(outputs)

    def _reason(self, found: Finding, against: Tensor) -> str:
        if found.around:
            return Scorer.reason(self, found)
        unlike = "Its features are unlike those of its neighbours:"
        if not against.any():
            return f"{unlike} {share_of_known(found.share)} are more similar to theirs."
        return (
            f"{unlike} {of_neighbours(found, against)} less similar to it than the nodes at 95 % of the links seen in "
            "training are to each other."
        )

    def _edge_scores(self, outputs: Outputs, edges: Tensor, are_joined: bool = True) -> Tensor:
        source, target = (self._unit_rows(outputs.graph, nodes) for nodes in edges)
        return (source * target).sum(dim=1)

    def _mean_scores(self, outputs: Outputs) -> Tensor:
        graph = outputs.graph
        unit, scores = self._all_unit_rows(graph, slice(0, graph.x.shape[1])), graph.empty(None)
        for rows, near in graph.neighbour_means(unit, scores):
            scores[rows] = (unit[rows] * near).sum(dim=1)
        return scores

    def _all_unit_rows(self, graph: Graph, columns: slice) -> Tensor:
        unit = graph.empty(columns.stop - columns.start, is_factor=True)
        for rows in graph.shards(unit):
            unit[rows] = self._unit_rows(graph, rows)[:, columns]
        return unit

    def _unit_rows(self, graph: Graph, rows: slice | Tensor) -> Tensor:
        return F.normalize(graph.x[rows] - self.centre_.to(graph.x), dim=1)


@dataclass
class NeighbourhoodCosine(CentredCosine):
    r"""The mean cosine of a node's centred features to those around its neighbours.

    A neighbour's features alone may say little, so those of its neighbours are added. With the centred features of unit
    length :math:`c_v` and :math:`S_u = c_u + \sum_{w \in N(u)} c_w`, the edge from :math:`u` to :math:`v` scores

    .. math:: \frac{c_v \cdot (S_u - c_v)}{d_u} \Big/ \frac{\max(\lVert S_u \rVert, \sqrt{d_u + 1})}{d_u + 1}

    so that a node is never compared with itself, and features that cancel have no direction. The score of a node is the
    mean over its edges and one with the mean score, as for `CentredCosine`. In a graph with one-way edges, in which
    a node is rarely among the neighbours of its neighbours, nothing is subtracted from :math:`S_u`, which then has
    :math:`d_u + 1` terms.

    With edge weights :math:`a`, the sum over neighbours is :math:`\sum_w b_{uw} c_w` with :math:`b_{uw} = d_u a_{uw} /
    \sum_z a_{uz}`, where :math:`d_u` is their effective number, and the node itself is taken out with its weight:
    :math:`b_{uv} c_v` from the sum, and :math:`b_{uv}` from :math:`d_u + 1`.

    Attributes
    ----------
    centre_ : Tensor
        The mean features ``[F]``.
    mean_, limit_ : Tensor
        The mean score of the edges of the training graph, and the 5 % quantile, scalars.
    """

    def _reason(self, found: Finding, against: Tensor) -> str:
        if found.around:
            return Scorer.reason(self, found)
        count, unlike = int(against.sum()), "Its features are unlike those around"
        if not count:
            return f"{unlike} its neighbours: {share_of_known(found.share)} are more similar to theirs."
        return (
            f"{unlike} {out_of(count, len(against), 'neighbour')} ({listed(found, against)}): they are less similar "
            "than at 95 % of the links seen in training."
        )

    def _edge_scores(self, outputs: Outputs, edges: Tensor, are_joined: bool = True) -> Tensor:
        graph, (source, target) = outputs.graph, edges
        around, length = outputs.kept(self, "surroundings", partial(self._surroundings, graph))
        if isinstance(around, _SparseSums):
            total, own = around.products(source, target), around.squared_lengths[target]
        else:
            unit = self._unit_rows(graph, target)
            total, own = (around[source] * unit).sum(dim=1), unit.square().sum(dim=1)
        count = graph.effective_degree.to(total)[source] + 1
        if are_joined and graph.is_symmetric:
            back = graph.weight_back(edges).to(total)
            total, count = total - back * own, count - back
        return (total / (count * length[source])).to(graph.x.dtype)

    def _mean_scores(self, outputs: Outputs) -> Tensor:
        graph = outputs.graph
        around, length = outputs.kept(self, "surroundings", partial(self._surroundings, graph))
        degree = graph.effective_degree.to(length)
        # In a symmetric graph, a node without edges is not a neighbour of any other: its count does not matter.
        count = degree.clamp_min(1) if graph.is_symmetric else degree + 1
        scale = 1.0 / (count * length).unsqueeze(1)
        walk, returned = graph.random_walk, None
        if graph.is_symmetric:  # neighbours of a source include the target, which is left out
            back = walk
            if graph.edge_weight is not None:  # the share to leave out differs from edge to edge
                walk, back = (graph.walk_without_return(count, counts_return) for counts_return in (False, True))
            returned = (back @ scale).squeeze(1)
        if isinstance(around, _SparseSums):
            target, source, share = walk.coordinates()
            near = around.products(source, target) * share * scale[source, 0]
            mean = torch.zeros_like(around.squared_lengths).index_add_(0, target, near)
            return (mean if returned is None else mean - around.squared_lengths * returned).to(graph.x.dtype)
        sums = []
        for columns in _column_groups(graph):
            scaled, total = graph.empty(columns.stop - columns.start, is_factor=True), graph.empty(None)
            for rows in graph.shards(scaled):
                scaled[rows] = around[rows, columns] * scale[rows]
            for rows, near in graph.neighbour_means(scaled, total, walk):
                unit = self._unit_rows(graph, rows)[:, columns]
                own = (unit * near).sum(dim=1)
                total[rows] = own if returned is None else own - unit.square().sum(dim=1) * returned[rows]
            sums.append(total)
        return sums[0] if len(sums) == 1 else torch.stack(sums).sum(dim=0)

    def _surroundings(self, graph: Graph) -> tuple[Tensor | _SparseSums, Tensor]:
        """The sum over every node and its neighbours ``[N, F]``, and the length of their mean ``[N]``.

        The length is at least that expected of as many random directions: shorter sums have no meaningful direction.
        """
        degree = graph.effective_degree.to(graph.x)
        if _SparseSums.pays(graph):
            sums = _SparseSums(graph, self.centre_)
            return sums, torch.maximum(sums.norms.to(graph.x), (degree + 1).sqrt()) / (degree + 1)
        around, norms = graph.empty(graph.x.shape[1]), graph.empty(None)
        for columns in _column_groups(graph):
            unit, out = self._all_unit_rows(graph, columns), around[:, columns]
            for rows, near in graph.neighbour_means(unit, out):
                out[rows] = unit[rows] + near * degree[rows].unsqueeze(1)
        for rows in graph.shards(norms):
            norms[rows] = around[rows].norm(dim=1)
        return around, torch.maximum(norms, (degree + 1).sqrt()) / (degree + 1)


class _SparseSums:
    r"""What `NeighbourhoodCosine` sums up around every node, for features of which few differ from zero.

    The sum around :math:`u` is :math:`S_u = y_u - a_u \mu`, with the sums :math:`y_u` of sparse rows :math:`x_w /
    \lVert x_w - \mu \rVert` and :math:`a_u` of :math:`1 / \lVert x_w - \mu \rVert`.
    """

    def __init__(self, graph: Graph, centre: Tensor):
        features = graph.sparse_features.to(torch.float64)
        mean, row = centre.to(graph.x).double(), torch.arange(graph.num_nodes)
        self._mean_square = mean.square().sum()
        self._inner = (features @ mean.unsqueeze(1)).squeeze(1)
        node, self._columns, self._values = features.coordinates()
        squares = torch.zeros_like(self._inner).index_add_(0, node, self._values.square())
        squared = squares - 2 * self._inner + self._mean_square
        scale = squared.clamp_min(1e-24).rsqrt()
        scale[squared <= 1e-12 * (squares + self._mean_square)] = 0.0  # such as a row that equals the mean
        self._scale, self.squared_lengths = scale, squared * scale.square()
        self._offsets = torch.cat([node.new_zeros(1), features.row_counts().long().cumsum(0)])
        target, source, share = graph.random_walk.coordinates()
        weight = torch.cat([share.double() * graph.effective_degree[target], scale.new_ones(len(row))])
        around = SparseMatrix(torch.cat([target, row]), torch.cat([source, row]), weight, (len(row), len(row)))
        sums = around.times_sparse(features.with_values(self._values * scale[node]))
        node, column, value = sums.coordinates()
        self._width = features.shape[1]
        self._keys, order = (node * self._width + column).sort()
        self._sums, self._share = value[order], (around @ scale.unsqueeze(1)).squeeze(1)
        self._sum_inner = (sums @ mean.unsqueeze(1)).squeeze(1)
        squares = torch.zeros_like(scale).index_add_(0, node, value.square())
        squared = squares - 2 * self._share * self._sum_inner + self._share.square() * self._mean_square
        self.norms = squared.clamp_min(0.0).sqrt()

    @staticmethod
    def pays(graph: Graph) -> bool:
        """Whether the sums are much sparser than a dense matrix."""
        x = graph.sparse_x
        if x is None or not x.is_plain or not graph.random_walk.is_plain:
            return False
        return 8 * (graph.num_edges / graph.num_nodes + 1) * x.nnz <= graph.x.numel()

    def products(self, source: Tensor, target: Tensor) -> Tensor:
        """The inner products of the sums around some nodes with the centred features of others ``[n]``."""
        order = source.argsort(stable=True)  # sums that are read one after another are beside each other
        first = self._offsets[target[order]]
        entry, pair = ranges(first, self._offsets[target[order] + 1])
        keys = source[order][pair] * self._width + self._columns[entry]
        # NumPy's search begins where the last one ended: half the time of torch's for keys that are nearly in order.
        place = torch.from_numpy(np.searchsorted(self._keys.numpy(), keys.numpy()))
        place = place.clamp_max(max(len(self._keys) - 1, 0))
        found = torch.where(self._keys[place] == keys, self._sums[place] * self._values[entry], 0.0)
        inner = torch.zeros_like(self._scale[:1]).expand(len(source)).clone()
        inner[order] = torch.zeros_like(inner).index_add_(0, pair, found)
        share = self._share[source]
        rest = share * (self._mean_square - self._inner[target]) - self._sum_inner[source]
        return self._scale[target] * (inner + rest)


def _column_groups(graph: Graph) -> list[slice]:
    """All columns of the features together; of a large matrix on a GPU, few at a time."""
    width = graph.x.shape[1]
    step = width if graph.device.type == "cpu" or graph.x.nbytes <= _LARGE_ON_GPU else _COLUMNS_ON_GPU
    return [slice(first, min(first + step, width)) for first in range(0, width, step)]


@dataclass
class LinkPrediction(EdgeScorer):
    r"""The log-odds of a node's edges, by a link predictor that was trained on the training graph.

    The score is :math:`(m + \sum_{u \in N(v)} o_{uv}) / \sqrt{d_v + 1}`, with the log-odds :math:`o_{uv}` of an edge
    and their mean :math:`m` over the edges of the training graph: several implausible edges count more than one, by as
    much as their sum is less likely to be chance. With edge weights, the sum is the weighted mean times :math:`d_v`,
    the effective number of edges.

    An edge between :math:`u` and :math:`v` has the log-odds :math:`\tfrac12 (P z_u \cdot Q z_v + Q z_u \cdot P z_v) +
    b`, where :math:`z` are the features in a space of ``dimensions`` (`oddnode.scoring.feature_space`) and :math:`P, Q`
    have ``rank`` rows. They are trained to tell the edges of the training graph from random pairs; neither labels nor
    edge weights are used.

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
    is_shared = True

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
        fitted.centre_, fitted.basis_ = space = FeatureSpace.of(graph, self.dimensions)
        # Scorers of one network, and later ones, share the training graph; training is the same each time.
        known, key = graph.caches["graph"], ("link_prediction", self.dimensions, self.rank, self.steps)
        if key not in known:
            known[key] = _train(space, graph, self.rank, self.steps)
        fitted.left_, fitted.right_, fitted.bias_ = known[key]
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

    def _edge_scores(self, outputs: Outputs, edges: Tensor, are_joined: bool = True) -> Tensor:
        source, target = (self._sides(outputs.graph, nodes).chunk(2, dim=1) for nodes in edges)
        both = (source[0] * target[1]).sum(dim=1) + (source[1] * target[0]).sum(dim=1)
        return both / 2 + self.bias_.to(both)

    def _mean_scores(self, outputs: Outputs) -> Tensor:
        graph = outputs.graph
        sides, both = graph.empty(2 * self.left_.shape[1], is_factor=True), graph.empty(None)
        for rows in graph.shards(sides):
            sides[rows] = self._sides(graph, rows)
        # The sum over a node's edges is a product with the sum of its neighbours' sides.
        for rows, near in graph.neighbour_means(sides, both):
            left, right = sides[rows].chunk(2, dim=1)
            both[rows] = (torch.cat([right, left], dim=1) * near).sum(dim=1)
        return both / 2 + self.bias_.to(both) * (graph.in_degree > 0)

    def _sides(self, graph: Graph, rows: slice | Tensor) -> Tensor:
        """``P z`` and ``Q z`` of nodes ``[n, 2 rank]``."""
        coordinates = FeatureSpace(self.centre_, self.basis_).coordinates(graph, rows)
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
    """Features, and indices into them: the sources and targets of some edges, and random other nodes ``[b]``.

    For a graph on disk, the edges and features of several batches are read together and in order: random access to a
    file that does not fit into memory is slow.
    """
    together = _BATCHES_ON_DISK if graph.is_on_disk else 1
    for first in range(0, steps, together):
        drawn = [
            torch.randint(most, (_BATCH,), generator=generator)
            for _ in range(min(together, steps - first))
            for most in (graph.num_edges, graph.num_nodes)
        ]
        chosen, other = (torch.cat(each).to(coordinates.device) for each in (drawn[::2], drawn[1::2]))
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
