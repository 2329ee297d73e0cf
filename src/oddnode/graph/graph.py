"""A checked graph with the matrices that are computed once per graph.

The rest of the library works on `Graph`. `Graph.from_data` makes one from a user's `torch_geometric.data.Data`, and is
the only place where its tensors are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import add_self_loops, remove_self_loops

from oddnode.functional import support
from oddnode.graph.cache import active_cache
from oddnode.graph.conversion import as_source
from oddnode.graph.edges import GraphEdges
from oddnode.graph.source import GraphSource, optional_attribute
from oddnode.graph.validation import _checked_edges, _checked_features
from oddnode.ops import FeatureProducts, SparseMatrix, SparsePattern, gcn_matrix, neighbour_mean_matrix

__all__ = ["Graph"]


class Graph(GraphEdges):
    """Node features and edges, with the matrices that models and scorers multiply by.

    Each matrix is built on first use and cached, since it is used hundreds of times.

    Parameters
    ----------
    x : Tensor
        Features ``[N, F]``, floating point.
    edge_index : Tensor
        Edges ``[2, E]``, from source to target.
    edge_weight : Tensor, optional
        Their weights ``[E]``, above 0, in the precision of ``x``; by default every edge counts as one.
    """

    def __init__(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None):
        super().__init__(x, edge_index, edge_weight)
        self._products: FeatureProducts | None = None

    @classmethod
    def from_data(cls, data: GraphSource, device: torch.device | str = "cpu") -> Graph:
        """Make a graph from a PyG ``Data`` after checking it.

        Parameters
        ----------
        data : GraphSource
            An object with ``x``, ``edge_index`` and, if the edges have weights, ``edge_weight``, or another graph that
            `oddnode.graph.as_source` takes.
        device : torch.device or str
            The device of the graph.

        Returns
        -------
        Graph
            The checked graph, without edges of weight 0; within `graph_cache` the same one for the same tensors.
        """
        data = as_source(data)
        as_graph = optional_attribute(data, "as_graph")
        if as_graph is not None:  # a source that is not in memory, such as a folder, makes a graph of its own
            return as_graph(device)
        device = torch.device(device)
        cache = active_cache()

        def make() -> Graph:
            x = cache.get(lambda: _checked_features(data).to(device), device, data.x)
            edges, weight = _checked_edges(data, x.dtype)
            return cls(x, edges.to(device), None if weight is None else weight.to(device))

        return cache.get(make, device, data.x, data.edge_index, optional_attribute(data, "edge_weight"))

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
        other = Graph(x, self.edge_index, None if self.edge_weight is None else self.edge_weight.to(x.dtype))
        if x.dtype == self.x.dtype:
            other._caches["edges"] = self._caches["edges"]
        return other

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
        view = Graph(self.x, self.edge_index, self.edge_weight)
        view._caches, view._products = self._caches, products
        return view

    @property
    def gcn_matrix(self) -> SparseMatrix:
        """``D^-1/2 (A + I) D^-1/2``, with missing self-loops added."""
        return self.cached("gcn_matrix", self._make_gcn_matrix, "edges")

    def _make_gcn_matrix(self) -> SparseMatrix:
        return gcn_matrix(self.random_walk, self.edge_index, self.edge_weight)

    @property
    def attention(self) -> SparsePattern:
        """The nodes that a node attends to: the source of each incoming edge, and itself once."""
        return self.cached("attention", self._make_attention, "edges")[0]

    @property
    def attention_bias(self) -> Tensor | None:
        """The logarithms of the weights of these edges, and 0 for the node itself; ``None`` without weights."""
        return self.cached("attention", self._make_attention, "edges")[1]

    def _make_attention(self) -> tuple[SparsePattern, Tensor | None]:
        edges, weight = remove_self_loops(self.edge_index, self.edge_weight)
        (source, target), weight = add_self_loops(edges, weight, fill_value=1.0, num_nodes=self.num_nodes)
        pattern = SparsePattern.of_unsorted(target, source, (self.num_nodes, self.num_nodes))
        return pattern, None if weight is None else weight[target.argsort(stable=True)].log()

    @property
    def random_walk(self) -> SparseMatrix:
        """``D^-1 A`` without added self-loops: the mean over a node's neighbours."""
        return self.cached("random_walk", self._make_random_walk, "edges")

    def _make_random_walk(self) -> SparseMatrix:
        return neighbour_mean_matrix(self.edge_index, self.num_nodes, self.x.dtype, self.edge_weight)

    def changed_walk(self, change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Any:
        """Change the entries of the random walk of a symmetric graph.

        Parameters
        ----------
        change : callable
            Maps the sources of edges ``[e]``, `weight_back` of them and their entries to other entries ``[e]``.

        Returns
        -------
        SparseMatrix
            A matrix ``[N, N]`` to multiply by; of a graph on disk, an object that does the same.
        """
        target, source, share = self.random_walk.coordinates()
        back = self.weight_back(torch.stack([source, target])).to(share)
        return self.random_walk.with_values(change(source, back, share))

    def without(self, nodes: Tensor) -> tuple[Graph, Tensor]:
        """Remove nodes with their edges.

        Parameters
        ----------
        nodes : Tensor
            Positions of the nodes to remove ``[n]``.

        Returns
        -------
        Graph
            The rest of the graph.
        Tensor
            The new position of every node ``[N]``; -1 for those removed.
        """
        keep, place = self._places_without(nodes)
        edges = place[self.edge_index]
        inside = (edges >= 0).all(dim=0)
        weight = None if self.edge_weight is None else self.edge_weight[inside]
        return Graph(self.x[keep], edges[:, inside], weight), place

    def _places_without(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        keep = torch.ones(self.num_nodes, dtype=torch.bool, device=self.device)
        keep[nodes] = False
        return keep, torch.where(keep, keep.cumsum(0) - 1, -1)

    def neighbour_sums(self, values: Tensor) -> Tensor:
        """Sum values, times the weights of edges, over the sources of the edges that lead to each node.

        Parameters
        ----------
        values : Tensor
            Shape ``[N]``, as the result.
        """
        if self.edge_weight is not None:
            return self.in_degree.to(values) * (self.random_walk @ values)
        source, target = self.edge_index
        return torch.zeros_like(values).index_add_(0, target, values[source])

    def by_neighbours(
        self,
        values: Tensor,
        width: int | None,
        make: Callable[[slice, Tensor], Tensor],
        walk: SparseMatrix | None = None,
        num_hops: int = 1,
        eta: float = 0.0,
        in_place: bool = False,
    ) -> Tensor:
        """Compute numbers for every node from a mean over its neighbours; a graph on disk does not keep these means.

        With several hops, or a share of its own value that a node keeps, the means are those of
        `oddnode.functional.energy.propagate`.

        Parameters
        ----------
        values : Tensor
            What is averaged, ``[N, C]``.
        width : int or None
            How many numbers a node has; ``None`` for one number and no second dimension.
        make : callable
            Computes those of some nodes from their positions and means ``[n, C]``: ``[n, width]`` or ``[n]``.
        walk : SparseMatrix, optional
            What averages; by default `random_walk`.
        num_hops : int
            How often.
        eta : float
            Share of its own value that a node keeps in every hop.
        in_place : bool
            Whether ``values`` may be overwritten; a graph on disk then needs less memory.

        Returns
        -------
        Tensor
            Shape ``[N, width]`` or ``[N]``.
        """
        walk = self.random_walk if walk is None else walk
        if num_hops == 1 and not eta:
            return make(slice(None), walk @ values)
        return make(slice(None), walk.diffuse(values, eta, num_hops) if num_hops else values)

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
    def smoothed_x(self) -> Tensor:
        """``D^-1/2 (A + I) D^-1/2 X``: the part of the first graph convolution without weights."""
        return self.cached("smoothed_x", lambda: self.gcn_matrix @ self.x)

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
        part = Graph(self.x, self.edge_index, self.edge_weight)
        part.cached("gcn_matrix", lambda: matrix, "edges")
        return rows, part

    def __repr__(self) -> str:
        return (
            f"Graph({self.num_nodes} nodes, {self.edge_index.shape[1]} edges, "
            f"{self.x.shape[1]} features, {self.device})"
        )
