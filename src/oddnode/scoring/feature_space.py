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

    def coordinates(self, graph: Graph) -> Tensor:
        """Compute the coordinates of every node.

        Parameters
        ----------
        graph : Graph
            A graph of N nodes.

        Returns
        -------
        Tensor
            Shape ``[N, D]``. A node with the mean features is at the origin.
        """
        mean, basis = self.mean.to(graph.x), self.basis.to(graph.x)
        return (graph.times_features(basis.t()) - mean @ basis) / _lengths(graph, mean).unsqueeze(1)


def _found(graph: Graph, dimensions: int) -> FeatureSpace:
    """Subspace iteration: exact if the space has as many dimensions as there are features."""
    x = graph.x
    mean = x.mean(dim=0)
    lengths = _lengths(graph, mean).unsqueeze(1)
    width = min(dimensions + _OVERSAMPLING, x.shape[1])
    # An own generator on the CPU, so that the space depends neither on the caller's random numbers nor on the device.
    start = torch.randn(x.shape[1], width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    basis = torch.linalg.qr(start.to(x)).Q
    for _ in range(_ITERATIONS):
        centred = (graph.times_features(basis.t()) - mean @ basis) / lengths
        basis = torch.linalg.qr(_transposed_product(graph, mean, centred / lengths)).Q
    centred = (graph.times_features(basis.t()) - mean @ basis) / lengths
    _, vectors = torch.linalg.eigh(centred.t() @ centred)
    return FeatureSpace(mean, basis @ vectors.flip(1)[:, :dimensions])


def _transposed_product(graph: Graph, mean: Tensor, values: Tensor) -> Tensor:
    """``(X - 1 mean^T)^T values``."""
    if graph.sparse_x is None:
        product = graph.x.t() @ values
    else:
        row, col, value = graph.sparse_features.coordinates()
        product = SparseMatrix(col, row, value, (graph.x.shape[1], graph.num_nodes)) @ values
    return product - torch.outer(mean, values.sum(dim=0))


def _lengths(graph: Graph, mean: Tensor) -> Tensor:
    """The length of every centred row; 1 for a row of length zero."""
    squared = graph.cached("squared_lengths", lambda: graph.x.double().square().sum(dim=1), "features")
    shifted = squared - 2 * (graph.times_features(mean.unsqueeze(0)).squeeze(1)).double() + mean.double().square().sum()
    lengths = shifted.clamp_min(0.0).sqrt().to(graph.x.dtype)
    return torch.where(lengths > 1e-6, lengths, torch.ones_like(lengths))
