"""Graphs under stacked networks: one that all of them share, or one for each.

Values of S networks with C channels are ``[N, S, C]``, so that a product with a shared matrix is one wide product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor

from oddnode.graph import Graph
from oddnode.ops import BlockMatrix, FeatureProducts, SparseMatrix

__all__ = ["FirstWeight", "GraphPerNetwork", "SharedGraph", "is_same_graph"]

# Below this share of non-zeros, and from this width on, a GPU too multiplies sparse features faster than dense ones.
_SPARSE_BELOW, _WIDE = 0.05, 256


def is_same_graph(a: Graph | None, b: Graph | None) -> bool:
    """Say whether two graphs have the same features, edges and edge weights.

    Parameters
    ----------
    a, b : Graph or None
        The graphs.

    Returns
    -------
    bool
        Whether they are equal, or both missing.
    """
    if a is None or b is None:
        return a is b
    return a is b or (_is_equal(a.edge_index, b.edge_index) and _is_equal(a.x, b.x) and _has_same_weights(a, b))


def _has_same_weights(a: Graph, b: Graph) -> bool:
    if a.edge_weight is None or b.edge_weight is None:
        return a.edge_weight is b.edge_weight
    return _is_equal(a.edge_weight, b.edge_weight)


def _is_equal(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.data_ptr() == b.data_ptr() and a.shape == b.shape) or torch.equal(a, b)


class FirstWeight:
    """The first layer's weights within one step, with the products that graphs share in it.

    Parameters
    ----------
    weight : Tensor
        Shape ``[F, S, H]``.
    """

    def __init__(self, weight: Tensor):
        self.weight = weight
        self.flat = weight.flatten(1).t()  # one object, by which products are found again
        self.products = FeatureProducts()


class SharedGraph:
    """One graph under all networks.

    Parameters
    ----------
    graph : Graph
        The graph.
    width : int
        Channels of the first layer, S times H.
    """

    def __init__(self, graph: Graph, width: int):
        self.graph = graph
        on_gpu = graph.device.type == "cuda"
        pays_off = on_gpu and width >= _WIDE and graph.density < _SPARSE_BELOW
        self.sparse_x = graph.sparse_features if pays_off else graph.sparse_x

    def convolve_features(self, weight: FirstWeight) -> Tensor:
        """Compute the first convolution.

        Parameters
        ----------
        weight : FirstWeight
            The weights of the step.

        Returns
        -------
        Tensor
            Shape ``[N, S, H]``.
        """
        if self.sparse_x is None:
            product = self.graph.smoothed_x @ weight.flat.t()
        else:
            product = self.graph.gcn_matrix @ weight.products.linear(self.sparse_x, weight.flat)
        return product.unflatten(1, weight.weight.shape[1:])

    def convolve(self, values: Tensor, matrix: SparseMatrix | None = None) -> Tensor:
        """Multiply by the adjacency.

        Parameters
        ----------
        values : Tensor
            Shape ``[N, S, C]``.
        matrix : SparseMatrix, optional
            Rows of the adjacency, in place of all.

        Returns
        -------
        Tensor
            Shape ``[N, S, C]``.
        """
        matrix = self.graph.gcn_matrix if matrix is None else matrix
        return (matrix @ values.flatten(1)).unflatten(1, values.shape[1:])

    @property
    def term_view(self) -> Graph:
        """The graph that terms of the objective see."""
        return self.graph


class GraphPerNetwork:
    """A graph for every network, all of one size.

    Parameters
    ----------
    graphs : sequence of Graph
        One for each network.
    id_graph : SharedGraph
        The ID graph, which may have the same features.
    """

    def __init__(self, graphs: Sequence[Graph], id_graph: SharedGraph):
        self._size = len(graphs)
        self._adjacency = BlockMatrix([graph.gcn_matrix for graph in graphs])
        same = id_graph.sparse_x is not None and all(_is_equal(graph.x, id_graph.graph.x) for graph in graphs)
        self._sparse_x = id_graph.sparse_x if same else None
        self._smoothed = None if same else torch.stack([graph.smoothed_x for graph in graphs])
        self.term_view: Graph = _ViewOfMany(graphs)

    def convolve_features(self, weight: FirstWeight) -> Tensor:
        """Compute the first convolution.

        Parameters
        ----------
        weight : FirstWeight
            The weights of the step.

        Returns
        -------
        Tensor
            Shape ``[N, S, H]``.
        """
        if self._sparse_x is not None:
            product = weight.products.linear(self._sparse_x, weight.flat)
            return self.convolve(product.unflatten(1, weight.weight.shape[1:]))
        assert self._smoothed is not None
        return torch.bmm(self._smoothed, weight.weight.transpose(0, 1)).transpose(0, 1)

    def convolve(self, values: Tensor, matrix: SparseMatrix | None = None) -> Tensor:
        """Multiply by every network's adjacency.

        Parameters
        ----------
        values : Tensor
            Shape ``[N, S, C]``.
        matrix : SparseMatrix, optional
            Not supported; logits of an exposure graph are computed for all nodes.

        Returns
        -------
        Tensor
            Shape ``[N, S, C]``.
        """
        assert matrix is None, "logits of an exposure graph are computed for all nodes"
        stacked = self._adjacency.diagonal @ values.transpose(0, 1).flatten(0, 1)
        return stacked.unflatten(0, (self._size, -1)).transpose(0, 1)


class _ViewOfMany(Graph):
    """What terms see of graphs that differ between stacked networks: that in which they do not differ."""

    def __init__(self, graphs: Sequence[Graph]):
        self._first = graphs[0]
        self._walk = BlockMatrix([graph.random_walk for graph in graphs])

    @property
    def num_nodes(self) -> int:
        return self._first.num_nodes

    @property
    def device(self) -> torch.device:
        return self._first.device

    @property
    def random_walk(self) -> SparseMatrix:
        return self._walk

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{name} of the exposure graph differs between stacked networks; terms can read num_nodes, device and "
            "random_walk"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_nodes} nodes, {self.device})"
