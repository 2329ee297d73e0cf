"""The directions in which the features of a training graph vary most; every row is centred and has unit length."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oddnode.graph import Graph
from oddnode.ops import SparseMatrix

__all__ = ["FeatureSpace"]

_ITERATIONS = 6
_OVERSAMPLING = 10


class FeatureSpace(NamedTuple):
    r"""Features as coordinates :math:`z_v = V^\top (x_v - \mu) / \lVert x_v - \mu \rVert`.

    Parameters
    ----------
    mean : Tensor
        The mean features of the training graph, :math:`\mu`, ``[F]``.
    basis : Tensor
        The first right singular vectors of its centred rows of unit length, :math:`V`, ``[F, D]``.
    """

    mean: Tensor
    basis: Tensor

    @classmethod
    def of(cls, graph: Graph, dimensions: int) -> FeatureSpace:
        """Find the space of a training graph; it is computed once for each graph.

        Parameters
        ----------
        graph : Graph
            The training graph.
        dimensions : int
            The number of dimensions, D; fewer if there are not as many features.
        """
        return graph.cached(("feature_space", dimensions), lambda: _found(graph, dimensions), "features")

    def coordinates(self, graph: Graph, rows: slice | Tensor = slice(None)) -> Tensor:
        """Compute the coordinates of nodes.

        Parameters
        ----------
        graph : Graph
            A graph.
        rows : slice or Tensor
            The nodes; all by default.

        Returns
        -------
        Tensor
            Shape ``[n, D]``. A node with the mean features is at the origin.
        """
        mean, basis = self.mean.to(graph.x), self.basis.to(graph.x)
        return _projected(graph, mean, basis, rows)


def _found(graph: Graph, dimensions: int) -> FeatureSpace:
    """Subspace iteration, which is exact from the start if there are no more features than directions."""
    x = graph.x
    mean = x.mean(dim=0)
    width = min(dimensions + _OVERSAMPLING, x.shape[1])
    # An own generator on the CPU, so that the space depends neither on the caller's random numbers nor on the device.
    start = torch.randn(x.shape[1], width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    basis = torch.linalg.qr(start.to(x)).Q
    for _ in range(_ITERATIONS if width < x.shape[1] else 0):
        basis = torch.linalg.qr(_transposed_product(graph, mean, basis)).Q
    gram = torch.zeros_like(basis[:width])
    for rows in graph.row_slices():
        centred = _projected(graph, mean, basis, rows)
        gram += centred.t() @ centred
    _, vectors = torch.linalg.eigh(gram)
    return FeatureSpace(mean, basis @ vectors.flip(1)[:, :dimensions])


def _transposed_product(graph: Graph, mean: Tensor, basis: Tensor) -> Tensor:
    """``U^T U basis``, where the rows of ``U`` are centred and have unit length."""
    product, total = torch.zeros_like(basis), torch.zeros_like(basis[0])
    for rows in graph.row_slices():
        values = _projected(graph, mean, basis, rows) / _lengths(graph, mean, rows).unsqueeze(1)
        product += _transposed_features(graph, rows, values)
        total += values.sum(dim=0)
    return product - torch.outer(mean, total)


def _transposed_features(graph: Graph, rows: slice, values: Tensor) -> Tensor:
    """``X^T values``."""
    if graph.sparse_x is None:
        return graph.x[rows].t() @ values
    row, col, value = graph.sparse_features.coordinates()
    return SparseMatrix(col, row, value, (graph.x.shape[1], graph.num_nodes)) @ values


def _projected(graph: Graph, mean: Tensor, basis: Tensor, rows: slice | Tensor) -> Tensor:
    """Centred rows of unit length times the basis."""
    lengths = _lengths(graph, mean, rows)
    return (graph.times_features(basis.t(), rows) - mean @ basis) / lengths.unsqueeze(1)


def _lengths(graph: Graph, mean: Tensor, rows: slice | Tensor) -> Tensor:
    """The length of centred rows; 1 for a row of length zero."""
    squared = graph.cached("squared_lengths", lambda: _squared_lengths(graph), "features")[rows]
    inner = graph.times_features(mean.unsqueeze(0), rows).squeeze(1)
    shifted = squared - 2 * inner.double() + mean.double().square().sum()
    lengths = shifted.clamp_min(0.0).sqrt().to(graph.x.dtype)
    return torch.where(lengths > 1e-6, lengths, torch.ones_like(lengths))


def _squared_lengths(graph: Graph) -> Tensor:
    return graph.by_rows(None, lambda rows: graph.x[rows].double().square().sum(dim=1), torch.float64)
