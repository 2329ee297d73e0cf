"""The directions in which the features of a training graph vary most; every row is centred and has unit length."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oddnode.graph import Graph
from oddnode.ops.csr import multiply

_ITERATIONS = 6
_OVERSAMPLING = 10
_ROWS = 256


class FeatureSpace(NamedTuple):
    r"""Features as coordinates :math:`z_v = V^\top (x_v - \mu) / \lVert x_v - \mu \rVert`."""

    mean: Tensor  # The mean features of the training graph, :math:`\mu`, `[F]`
    basis: Tensor  # The first right singular vectors of its centred rows of unit length, :math:`V`, `[F, D]`

    @classmethod
    def of(cls, graph: Graph, dimensions: int) -> FeatureSpace:
        """Find the space of a training graph, once for each graph.

        By subspace iteration, which is exact at once if there are no more features than directions.
        """
        known, key, x = graph.caches["features"], ("feature_space", dimensions), graph.x
        if key in known:
            return known[key]
        mean = x.mean(dim=0)
        width = min(dimensions + _OVERSAMPLING, x.shape[1])
        # A separate CPU generator, so that the space depends neither on the global random state nor on the device.
        start = torch.randn(x.shape[1], width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        basis = torch.linalg.qr(start.to(x)).Q
        for _ in range(_ITERATIONS if width < x.shape[1] else 0):
            basis = torch.linalg.qr(_transposed_product(graph, cls(mean, basis))).Q
        gram = torch.zeros_like(basis[:width])
        for rows in graph.row_slices():
            centred = cls(mean, basis).coordinates(graph, rows)
            gram += centred.t() @ centred
        _, vectors = torch.linalg.eigh(gram)
        known[key] = cls(mean, basis @ vectors.flip(1)[:, :dimensions])
        return known[key]

    def coordinates(self, graph: Graph, rows: slice | Tensor = slice(None)) -> Tensor:
        mean, basis = self.mean.to(graph.x), self.basis.to(graph.x)
        product = graph.times_features(torch.cat([basis, mean.unsqueeze(1)], dim=1).t(), rows)
        lengths = _lengths(graph, mean, rows, product[:, -1])
        return (product[:, :-1] - mean @ basis) / lengths.unsqueeze(1)

    def centred(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Compute the rows that the basis is multiplied with, for some nodes ``[n, F]``, in double precision."""
        mean = self.mean.to(graph.x)
        inner = graph.times_features(mean.unsqueeze(0), nodes).squeeze(1)
        return (graph.x[nodes] - mean).double() / _lengths(graph, mean, nodes, inner).unsqueeze(1)

    def all_coordinates(self, graph: Graph, is_factor: bool = False) -> Tensor:
        """Compute the coordinates of all nodes; ``is_factor`` as for `oddnode.graph.Graph.empty`."""
        out = graph.empty(self.basis.shape[1], is_factor=is_factor)
        for rows in graph.shards(out):
            out[rows] = self.coordinates(graph, rows)
        return out


def _transposed_product(graph: Graph, space: FeatureSpace) -> Tensor:
    """``U^T U basis``, where the rows of ``U`` are centred and have unit length."""
    product, total = torch.zeros_like(space.basis), torch.zeros_like(space.basis[0])
    for rows in graph.row_slices():
        inner = graph.times_features(space.mean.unsqueeze(0), rows).squeeze(1)
        values = space.coordinates(graph, rows) / _lengths(graph, space.mean, rows, inner).unsqueeze(1)
        product += transposed_features(graph, rows, values)
        total += values.sum(dim=0)
    return product - torch.outer(space.mean, total)


def transposed_features(graph: Graph, rows: slice, values: Tensor) -> Tensor:
    """``X^T values``."""
    if graph.sparse_x is None:
        return graph.x[rows].t() @ values
    return multiply(graph.sparse_features.oriented(transpose=True), values)


def row_sizes(graph: Graph) -> Tensor:
    """The squared length of every row of features, and its number of non-zero features ``[N, 2]``."""
    known = graph.caches["features"]
    if "row_sizes" not in known:
        sizes = graph.empty(2, torch.float64)
        for some in graph.shards(sizes):
            if graph.sparse_x is not None:
                row, _, value = graph.sparse_x.coordinates()
                sizes[:, 0] = torch.zeros_like(sizes[:, 0]).index_add_(0, row, value.double().square())
                sizes[:, 1] = graph.sparse_x.row_counts()
                continue
            # In parts that fit into the cache.
            squares = [part.double().square().sum(dim=1) for part in graph.x[some].split(_ROWS)]
            sizes[some, 0] = torch.cat(squares) if squares else 0.0
            sizes[some, 1] = torch.linalg.vector_norm(graph.x[some], ord=0, dim=1).double()
        known["row_sizes"] = sizes
    return known["row_sizes"]


def _lengths(graph: Graph, mean: Tensor, rows: slice | Tensor, inner: Tensor) -> Tensor:
    """The length of centred rows, whose inner products with the mean are given; 1 for a row of length zero."""
    shifted = row_sizes(graph)[rows, 0] - 2 * inner.double() + mean.double().square().sum()
    lengths = shifted.clamp_min(0.0).sqrt().to(graph.x.dtype)
    return torch.where(lengths > 1e-6, lengths, torch.ones_like(lengths))
