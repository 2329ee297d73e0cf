"""A checked graph with the matrices that are computed once per graph.

The rest of the library works on `Graph`. `Graph.from_data` makes one from a user's `torch_geometric.data.Data`, and is
the only place where its tensors are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops, remove_self_loops

from oddnode.functional import support
from oddnode.graph.cache import active_cache
from oddnode.graph.conversion import as_source
from oddnode.graph.source import GraphSource
from oddnode.graph.validation import _checked_edges, _checked_features
from oddnode.ops import FeatureProducts, SparseMatrix, SparsePattern, neighbour_mean_matrix

__all__ = ["Graph"]

# Features with a smaller share of non-zeros (bags of words) are multiplied as a sparse matrix on a CPU.
_SPARSE_BELOW = 0.15

T = TypeVar("T")


class Graph:
    """Node features and edges, with the matrices that models and scorers multiply by.

    Each matrix is built on first use and cached, since it is used hundreds of times.

    Parameters
    ----------
    x : Tensor
        Features ``[N, F]``, floating point.
    edge_index : Tensor
        Edges ``[2, E]``, from source to target.
    """

    def __init__(self, x: Tensor, edge_index: Tensor):
        self.x = x
        self.edge_index = edge_index
        self._caches: dict[str, dict[Hashable, Any]] = {"graph": {}, "edges": {}, "features": {}}
        self._products: FeatureProducts | None = None

    @classmethod
    def from_data(cls, data: GraphSource, device: torch.device | str = "cpu") -> Graph:
        """Make a graph from a PyG ``Data`` after checking it.

        Parameters
        ----------
        data : GraphSource
            An object with ``x`` and ``edge_index``, or another graph that `oddnode.graph.as_source` takes.
        device : torch.device or str
            The device of the graph.

        Returns
        -------
        Graph
            The checked graph; within `graph_cache` the same one for the same tensors.
        """
        data = as_source(data)
        device = torch.device(device)
        cache = active_cache()

        def make() -> Graph:
            x = cache.get(lambda: _checked_features(data).to(device), device, data.x)
            return cls(x, _checked_edges(data).to(device))

        return cache.get(make, device, data.x, data.edge_index)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.x.shape[0]

    @property
    def device(self) -> torch.device:
        """The device that holds the graph."""
        return self.x.device

    def cached(
        self, key: Hashable, make: Callable[[], T], derived_from: Literal["graph", "edges", "features"] = "graph"
    ) -> T:
        """Compute a value once and cache it in the graph.

        Parameters
        ----------
        key : hashable
            The key of the value.
        make : callable
            Computes the value; called without arguments if the key is new.
        derived_from : {"graph", "edges", "features"}
            What the value depends on. Graphs with the same edges and precision (`with_features`) share values that
            depend on the edges, and graphs with the same features (`share_features`) those that depend on features.

        Returns
        -------
        object
            The value.
        """
        cache = self._caches[derived_from]
        if key not in cache:
            cache[key] = make()
        return cache[key]

    def with_features(self, x: Tensor) -> Graph:
        """Put other features on the same edges.

        Parameters
        ----------
        x : Tensor
            Features ``[N, F']``, floating point.

        Returns
        -------
        Graph
            A graph that shares the matrices of the edges with this one, including those that either builds later.
        """
        other = Graph(x, self.edge_index)
        if x.dtype == self.x.dtype:
            other._caches["edges"] = self._caches["edges"]
        return other

    def share_features(self, other: Graph) -> None:
        """Share the values derived from the features with another graph that has the same features.

        Parameters
        ----------
        other : Graph
            The other graph; the call has no effect unless its ``x`` is the same tensor.
        """
        if self.x is other.x:
            self._caches["features"] = other._caches["features"]

    def sharing_products(self, products: FeatureProducts) -> Graph:
        """View this graph for one training step, in which graphs share products with common features.

        Parameters
        ----------
        products : FeatureProducts
            The products of the step; the view must not outlive it.

        Returns
        -------
        Graph
            A view that shares all cached values with this graph.
        """
        view = Graph(self.x, self.edge_index)
        view._caches, view._products = self._caches, products
        return view

    @property
    def gcn_matrix(self) -> SparseMatrix:
        """``D^-1/2 (A + I) D^-1/2``, with missing self-loops added."""
        return self.cached("gcn_matrix", self._make_gcn_matrix, "edges")

    def _make_gcn_matrix(self) -> SparseMatrix:
        walk = self.random_walk
        target, source, _ = walk.coordinates()
        if walk.nnz == self.edge_index.shape[1] and not bool((source == target).any()):
            # Without repeated edges and self-loops, the edges need not be sorted again.
            scale = (walk.row_counts() + 1).to(self.x.dtype).pow(-0.5)
            everywhere = torch.ones(self.num_nodes, dtype=torch.bool, device=self.device)
            return walk.with_values(scale[source] * scale[target]).with_diagonal(everywhere, scale * scale)
        (source, target), weight = gcn_norm(self.edge_index, None, self.num_nodes, dtype=self.x.dtype)
        return SparseMatrix(target, source, weight, (self.num_nodes, self.num_nodes))

    @property
    def attention(self) -> SparsePattern:
        """The nodes that a node attends to: the source of each incoming edge, and itself once."""
        return self.cached("attention", self._make_attention, "edges")

    def _make_attention(self) -> SparsePattern:
        edges, _ = remove_self_loops(self.edge_index)
        (source, target), _ = add_self_loops(edges, num_nodes=self.num_nodes)
        return SparsePattern.of_unsorted(target, source, (self.num_nodes, self.num_nodes))

    @property
    def random_walk(self) -> SparseMatrix:
        """``D^-1 A`` without added self-loops: the mean over a node's neighbours."""
        return self.cached(
            "random_walk", lambda: neighbour_mean_matrix(self.edge_index, self.num_nodes, self.x.dtype), "edges"
        )

    @property
    def in_degree(self) -> Tensor:
        """Number of edges that lead to each node ``[N]``; a repeated edge counts as often as it is repeated."""
        return self.cached("in_degree", lambda: torch.bincount(self.edge_index[1], minlength=self.num_nodes), "edges")

    @property
    def is_symmetric(self) -> bool:
        """Whether every edge comes with the one in the other direction, as often."""
        return self.cached("is_symmetric", self._find_symmetric, "edges")

    def _find_symmetric(self) -> bool:
        # Sums over edges in both directions, with weights that differ from node to node, agree by chance only.
        places = torch.arange(self.num_nodes, device=self.device, dtype=torch.float64)
        first, second = (places * 0.6180339887498949).frac(), (places * 0.4142135623730951).frac()
        source, target = self.edge_index
        there, back = (first[source] * second[target]).sum(), (first[target] * second[source]).sum()
        return bool((there - back).abs() <= 1e-10 * (there + 1.0))

    def support(self, num_hops: int, eta: float) -> Tensor:
        """Effective number of nodes that each propagated score averages (see `oddnode.functional.energy.support`).

        Parameters
        ----------
        num_hops : int
            Number of hops.
        eta : float
            Share of its own score that a node keeps in every hop.

        Returns
        -------
        Tensor
            One number per node, ``[N]``.
        """
        key = ("support", num_hops, eta)
        return self.cached(key, lambda: support(self.random_walk, num_hops, eta), "edges")

    @property
    def sparse_x(self) -> SparseMatrix | None:
        """The features as a sparse matrix, if it is faster to multiply by; otherwise ``None``."""
        return self.sparse_features if self.device.type == "cpu" and self.is_sparse else None

    @property
    def is_sparse(self) -> bool:
        """Whether few features are non-zero, and none of them requires a gradient."""
        return not self.x.requires_grad and self.density < _SPARSE_BELOW

    @property
    def sparse_features(self) -> SparseMatrix:
        """The features as a sparse matrix."""
        return self.cached("sparse_features", lambda: SparseMatrix.from_dense(self.x), "features")

    @property
    def feature_pattern(self) -> SparsePattern:
        """The positions of non-zero features."""
        return self.cached("feature_pattern", self._make_feature_pattern, "features")

    def _make_feature_pattern(self) -> SparsePattern:
        row, col = self.x.nonzero(as_tuple=True)
        return SparsePattern(row, col, (self.x.shape[0], self.x.shape[1]))

    @property
    def feature_entries(self) -> Tensor:
        """The non-zero features, in the order of `feature_pattern`."""
        pattern = self.feature_pattern
        return self.cached("feature_entries", lambda: self.x[pattern.row, pattern.col], "features")

    @property
    def density(self) -> float:
        """The share of non-zero features."""
        return self.cached("density", lambda: torch.count_nonzero(self.x).item() / max(self.x.numel(), 1), "features")

    @property
    def max_abs_feature(self) -> float:
        """The largest magnitude of a feature."""
        return self.cached("max_abs_feature", lambda: max(map(abs, torch.stack(self.x.aminmax()).tolist())), "features")

    @property
    def smoothed_x(self) -> Tensor:
        """``D^-1/2 (A + I) D^-1/2 X``: the part of the first graph convolution without weights."""
        return self.cached("smoothed_x", lambda: self.gcn_matrix @ self.x)

    def times_features(self, weight: Tensor) -> Tensor:
        """Compute ``X W^T``.

        Parameters
        ----------
        weight : Tensor
            Laid out as in `torch.nn.Linear`, ``[C, F]``.

        Returns
        -------
        Tensor
            Shape ``[N, C]``.
        """
        return self.x @ weight.t() if self.sparse_x is None else self.sparse_x @ weight.t()

    def convolve_features(self, weight: Tensor) -> Tensor:
        """Compute ``D^-1/2 (A + I) D^-1/2 X W^T`` in the cheaper order.

        Parameters
        ----------
        weight : Tensor
            Laid out as in `torch.nn.Linear`, ``[C, F]``. Within a training step, graphs with the same features share
            their product with the same tensor object, such as a parameter.

        Returns
        -------
        Tensor
            Shape ``[N, C]``.
        """
        features = self.sparse_x
        if features is None:
            return self.smoothed_x @ weight.t()
        if self._products is None:
            return self.gcn_matrix @ (features @ weight.t())
        return self.gcn_matrix @ self._products.linear(features, weight)

    def one_hop_subgraph(self, nodes: Tensor) -> tuple[Tensor, Graph]:
        """Extract the part of the graph that a graph convolution at some nodes needs.

        Parameters
        ----------
        nodes : Tensor
            Positions ``[n]`` of the nodes.

        Returns
        -------
        rows : Tensor
            Positions ``[m]`` of the nodes and their neighbours.
        graph : Graph
            A graph whose ``gcn_matrix``, ``[n, m]``, maps ``rows`` to ``nodes``.
        """
        matrix, rows = self.gcn_matrix.rows(nodes)
        part = Graph(self.x, self.edge_index)
        part.cached("gcn_matrix", lambda: matrix, "edges")
        return rows, part

    def __repr__(self) -> str:
        return (
            f"Graph({self.num_nodes} nodes, {self.edge_index.shape[1]} edges, "
            f"{self.x.shape[1]} features, {self.device})"
        )
