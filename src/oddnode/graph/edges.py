"""The edges of a graph: counted, looked up and handed out in parts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from oddnode.graph.incoming import IncomingEdges
from oddnode.ops import NeighbourMean, effective_degree, is_symmetric, weighted_in_degree

__all__ = ["GraphEdges"]


class GraphEdges(IncomingEdges):
    """Base of `oddnode.graph.Graph`: features and edges.

    Parameters
    ----------
    x : Tensor
        Features ``[N, F]``, floating point.
    edge_index : Tensor
        Edges ``[2, E]``, from source to target.
    edge_weight : Tensor, optional
        Their weights ``[E]``, above 0; by default every edge counts as one.
    """

    def __init__(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None):
        super().__init__(x)
        self.edge_index = edge_index
        self.edge_weight = edge_weight

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.edge_index.shape[1]

    def edges_at(self, places: Tensor) -> Tensor:
        """Look up edges by their places among all edges, sorted by target and then by source.

        Parameters
        ----------
        places : Tensor
            Places ``[n]`` from 0 to E - 1.

        Returns
        -------
        Tensor
            Edges ``[2, n]``.
        """
        pairs = self.cached("sorted_edges", lambda: _numbered(self.edge_index, self.num_nodes).sort().values, "edges")
        return _edges_of(pairs[places], self.num_nodes)

    def edges_to(self, nodes: Tensor) -> Tensor:
        """Find the edges that lead to some nodes.

        Parameters
        ----------
        nodes : Tensor
            Positions ``[n]``, each once.

        Returns
        -------
        Tensor
            Edges ``[2, e]``, sorted by target and then by source.
        """
        wanted = torch.zeros(self.num_nodes, dtype=torch.bool, device=self.device)
        wanted[nodes] = True
        found = self.edge_index[:, wanted[self.edge_index[1]]]
        return _edges_of(_numbered(found, self.num_nodes).sort().values, self.num_nodes)

    def contains(self, edges: Tensor) -> Tensor:
        """Tell whether the graph has edges.

        Parameters
        ----------
        edges : Tensor
            Pairs of a source and a target, ``[2, e]``.

        Returns
        -------
        Tensor
            One boolean for each ``[e]``.
        """
        return torch.isin(_numbered(edges, self.num_nodes), _numbered(self.edge_index, self.num_nodes))

    def sources_of(self, node: int) -> Tensor:
        """Find the sources of the edges that lead to a node, for many calls.

        Parameters
        ----------
        node : int
            Its position.

        Returns
        -------
        Tensor
            Positions ``[e]``.
        """
        make = partial(NeighbourMean.from_edges, self.edge_index, self.num_nodes)
        incoming = self.cached("incoming_edges", make, "edges")
        return incoming.sources[int(incoming.offsets[node]) : int(incoming.offsets[node + 1])].long()

    @property
    def in_degree(self) -> Tensor:
        """Sum of the weights of the edges that lead to each node ``[N]``; without weights, the number of these edges.

        A repeated edge counts as often as it is repeated.
        """
        return self.cached("in_degree", self._make_in_degree, "edges")

    def _make_in_degree(self) -> Tensor:
        if self.edge_weight is None:
            return torch.bincount(self.edge_index[1], minlength=self.num_nodes)
        return weighted_in_degree(self.edge_index, self.num_nodes, self.edge_weight)

    @property
    def effective_degree(self) -> Tensor:
        """Number of equal edges that a mean over each node's edges is worth ``[N]``: without weights, of its edges."""
        if self.edge_weight is None:
            return self.in_degree
        make = partial(effective_degree, self.edge_index, self.num_nodes, self.edge_weight)
        return self.cached("effective_degree", make, "edges")

    @property
    def mean_edge_weight(self) -> float:
        """Mean weight of an edge; 1 without weights or edges."""
        weight = self.edge_weight
        return 1.0 if weight is None or not len(weight) else float(weight.double().mean())

    @property
    def is_symmetric(self) -> bool:
        """Whether every edge comes with the one in the other direction, as often and with the same weight."""
        make = partial(is_symmetric, self.edge_index, self.num_nodes, self.edge_weight)
        return self.cached("is_symmetric", make, "edges")

    def weight_back(self, edges: Tensor) -> Tensor:
        """Find by how many equal edges the target of each edge counts around its source, in a symmetric graph.

        Parameters
        ----------
        edges : Tensor
            Edges of the graph ``[2, e]``.

        Returns
        -------
        Tensor
            Shape ``[e]``; without weights, that is one. A repeated edge has the mean weight of its repetitions.
        """
        source, target = edges
        if self.edge_weight is None or not self.num_edges:
            return torch.ones_like(source)
        keys = self.edge_index[0] * self.num_nodes + self.edge_index[1]
        order = keys.argsort(stable=True)
        pairs, counts = keys[order].unique_consecutive(return_counts=True)
        weight = torch.segment_reduce(self.edge_weight.double()[order], "mean", lengths=counts, axis=0)
        own = weight[torch.searchsorted(pairs, source * self.num_nodes + target)]
        return own * (self.effective_degree / self.in_degree)[source]

    def edge_blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Yield sources, targets and weights, if any, ``[n]`` of some edges; a graph on disk yields several parts."""
        source, target = self.edge_index
        yield source, target, self.edge_weight

    def edge_blocks_to(self, nodes: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Yield edges as `edge_blocks` does: all that lead to some nodes, and of a graph on disk no others.

        Parameters
        ----------
        nodes : Tensor
            Positions ``[n]``, each once.
        """
        yield from self.edge_blocks()

    def num_others(self) -> Tensor:
        """Count the edges that lead to each node from others ``[N]``."""
        source, target = self.edge_index
        counts = torch.zeros(self.num_nodes, dtype=torch.long, device=target.device)
        return counts.index_add_(0, target, (source != target).long())


def _numbered(edge_index: Tensor, num_nodes: int) -> Tensor:
    """A number for every edge; in their order edges are sorted by target and then by source."""
    source, target = edge_index
    return target * num_nodes + source


def _edges_of(numbers: Tensor, num_nodes: int) -> Tensor:
    return torch.stack([numbers % num_nodes, numbers // num_nodes])
