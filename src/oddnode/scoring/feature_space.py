"""The directions in which the features of a training graph vary most; every row is centred and has unit length."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oddnode.graph import Graph
from oddnode.ops import SparseMatrix

_ITERATIONS = 6
_OVERSAMPLING = 10


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
        lengths = _lengths(graph, mean, rows)
        return (graph.times_features(basis.t(), rows) - mean @ basis) / lengths.unsqueeze(1)

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
        values = space.coordinates(graph, rows) / _lengths(graph, space.mean, rows).unsqueeze(1)
        product += _transposed_features(graph, rows, values)
        total += values.sum(dim=0)
    return product - torch.outer(space.mean, total)


def _transposed_features(graph: Graph, rows: slice, values: Tensor) -> Tensor:
    """``X^T values``."""
    if graph.sparse_x is None:
        return graph.x[rows].t() @ values
    row, col, value = graph.sparse_features.coordinates()
    return SparseMatrix(col, row, value, (graph.x.shape[1], graph.num_nodes)) @ values


def _lengths(graph: Graph, mean: Tensor, rows: slice | Tensor) -> Tensor:
    """The length of centred rows; 1 for a row of length zero."""
    known = graph.caches["features"]
    if "squared_lengths" not in known:
        squared = graph.empty(None, torch.float64)
        for some in graph.shards(squared):
            squared[some] = graph.x[some].double().square().sum(dim=1)
        known["squared_lengths"] = squared
    inner = graph.times_features(mean.unsqueeze(0), rows).squeeze(1)
    shifted = known["squared_lengths"][rows] - 2 * inner.double() + mean.double().square().sum()
    lengths = shifted.clamp_min(0.0).sqrt().to(graph.x.dtype)
    return torch.where(lengths > 1e-6, lengths, torch.ones_like(lengths))
