"""Neighbourhoods of some nodes, sampled or whole: a sampler for PyG's loaders that needs no compiled extension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from oddnode.graph.graph import Graph

__all__ = ["CSRSampler", "NodeNumbering", "SampledEdges", "neighbourhood", "node_blocks"]


class SampledEdges(NamedTuple):
    """Nodes in the order in which they were found, and the edges between them.

    Parameters
    ----------
    nodes : Tensor
        Positions of the nodes in the graph ``[m]``, the seeds first.
    row, col : Tensor
        Sources and targets of the edges ``[e]``, as positions among the nodes.
    edge : Tensor
        Positions of the edges in the CSR form ``[e]``.
    num_nodes, num_edges : list of int
        How many nodes and edges were found in each hop; the first nodes are the seeds.
    """

    nodes: Tensor
    row: Tensor
    col: Tensor
    edge: Tensor
    num_nodes: list[int]
    num_edges: list[int]


class CSRSampler(BaseSampler):
    """Samples incoming edges hop by hop, without replacement; for PyG's `torch_geometric.loader.NodeLoader`.

    The seeds come first among the sampled nodes, then the nodes of the first hop, and so on. Every node is expanded
    once, where it is first found.

    Parameters
    ----------
    offsets : array or Tensor
        Where the incoming edges of every node start, ``[N + 1]``.
    sources : array or Tensor
        The sources of the edges ``[E]``, sorted by target. Both may be mapped from a file; only what is sampled is
        read.
    num_neighbours : sequence of int
        How many edges of every node to sample in each hop, at most; -1 for all.
    seed : int
        Seed of the samples.
    permutation : Tensor, optional
        The positions of the edges in the graph that features of edges are taken from ``[E]``; by default as here.

    Examples
    --------
    >>> star = CSRSampler([0, 3, 3, 3, 3], [1, 2, 3], num_neighbours=[2])
    >>> out = star.sample_from_nodes(NodeSamplerInput(None, torch.tensor([0])))
    >>> out.num_sampled_nodes
    [1, 2]
    """

    def __init__(
        self,
        offsets: Any,
        sources: Any,
        num_neighbours: Sequence[int],
        seed: int = 0,
        permutation: Tensor | None = None,
    ):
        if any(count < -1 for count in num_neighbours):
            raise ValueError(f"num_neighbours is {list(num_neighbours)}, expected numbers of 0 or more, or -1 for all")
        self.offsets, self.sources = np.asanyarray(offsets), np.asanyarray(sources)
        self.num_neighbours = tuple(num_neighbours)
        self._permutation = permutation
        self.set_seed(seed)

    def set_seed(self, seed: int) -> None:
        """Start the samples anew.

        Parameters
        ----------
        seed : int
            Seed of the samples.
        """
        self._rng = np.random.default_rng(seed)

    @property
    def edge_permutation(self) -> Tensor | None:
        """The positions of the edges in the graph that features of edges are taken from."""
        return self._permutation

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        """Sample the neighbourhood of some nodes.

        Parameters
        ----------
        index : NodeSamplerInput
            The seeds, all different.
        **kwargs
            Not used.

        Returns
        -------
        SamplerOutput
            The nodes, and the edges by their positions among these.
        """
        out = self.draw(index.node)
        metadata = (index.input_id, index.time)
        return SamplerOutput(
            out.nodes, out.row, out.col, out.edge, None, out.num_nodes, out.num_edges, metadata=metadata
        )

    def draw(self, seeds: Tensor) -> SampledEdges:
        """Sample the neighbourhood of some nodes.

        Parameters
        ----------
        seeds : Tensor
            Positions of the nodes ``[n]``, all different.

        Returns
        -------
        SampledEdges
            The next sample.
        """
        found = NodeNumbering(seeds.numpy())
        rows, cols, edges, num_edges = [], [], [], []
        first, num_nodes = 0, [len(found)]
        for count in self.num_neighbours:
            frontier = found.nodes[first:]
            chosen, place = self._incoming(frontier, count)
            first, end = len(found), first
            rows.append(found.number(np.asarray(self.sources[chosen], dtype=np.int64)))
            cols.append(end + place)
            edges.append(chosen)
            num_nodes.append(len(found) - first)
            num_edges.append(len(chosen))
        row, col, edge = (torch.from_numpy(_joined(parts)) for parts in (rows, cols, edges))
        return SampledEdges(torch.from_numpy(found.nodes), row, col, edge, num_nodes, num_edges)

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> SamplerOutput:
        """Not supported: batches are of nodes.

        Parameters
        ----------
        index, neg_sampling
            Not used.
        """
        raise NotImplementedError("CSRSampler samples around nodes, not around edges")

    def _incoming(self, nodes: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions of sampled edges, and the positions of their targets among the nodes."""
        start = np.asarray(self.offsets[nodes], dtype=np.int64)
        degree = np.asarray(self.offsets[nodes + 1], dtype=np.int64) - start
        many = np.flatnonzero(degree > count) if count >= 0 else np.empty(0, dtype=np.int64)
        few = np.setdiff1d(np.arange(len(nodes)), many, assume_unique=True)
        place = np.repeat(few, degree[few])
        edge = np.arange(len(place)) + np.repeat(start[few] - (np.cumsum(degree[few]) - degree[few]), degree[few])
        drawn = start[many, None] + _choices(degree[many], max(count, 0), self._rng)
        edge, place = np.concatenate([edge, drawn.ravel()]), np.concatenate([place, np.repeat(many, max(count, 0))])
        order = np.argsort(place, kind="stable")
        return edge[order], place[order]


def _choices(totals: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """For every total n, ``count`` different numbers below n, all sets equally likely (Floyd's algorithm)."""
    chosen = np.empty((len(totals), count), dtype=np.int64)
    for step in range(count):
        last = totals - count + step
        drawn = rng.integers(last + 1) if len(last) else last
        taken = (chosen[:, :step] == drawn[:, None]).any(axis=1)
        chosen[:, step] = np.where(taken, last, drawn)
    return chosen


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


class NodeNumbering:
    """Different nodes in the order in which they were found, with look-ups in memory of their number alone.

    Parameters
    ----------
    nodes : numpy.ndarray
        The first nodes ``[n]``, all different.
    """

    def __init__(self, nodes: np.ndarray):
        self.nodes = nodes
        self._sort()
        if len(nodes) and bool((np.diff(nodes[self._order]) == 0).any()):
            raise ValueError("a node is twice among the seeds of a batch; give every node once")

    def __len__(self) -> int:
        return len(self.nodes)

    def _sort(self) -> None:
        self._order = np.argsort(self.nodes)
        self._sorted = self.nodes[self._order]

    def number(self, nodes: np.ndarray) -> np.ndarray:
        """Look up the numbers of nodes; new ones are added, in ascending order.

        Parameters
        ----------
        nodes : numpy.ndarray
            Positions in the graph ``[n]``.
        """
        different = np.unique(nodes)
        new = different[~np.isin(different, self._sorted, assume_unique=True)]
        if len(new):
            self.nodes = np.concatenate([self.nodes, new])
            self._sort()
        return self._order[np.searchsorted(self._sorted, nodes)]


def neighbourhood(graph: Graph, nodes: Tensor, num_hops: int) -> tuple[Graph, int]:
    """Extract everything that leads to some nodes within a number of hops.

    Parameters
    ----------
    graph : Graph
        A graph in memory or on disk.
    nodes : Tensor
        Positions ``[n]``, all different.
    num_hops : int
        The number of hops.

    Returns
    -------
    part : Graph
        These nodes first, then those around them, the nearest first.
    num_inner : int
        How many of its nodes are fewer hops away; these have all their incoming edges, the others have none.
    """
    offsets, sources, order = graph.incoming
    found = CSRSampler(offsets, sources, [-1] * num_hops).draw(nodes.cpu())
    weight = None
    if graph.edge_weight is not None:
        places = found.edge if order is None else order[found.edge]
        weight = graph.edge_weight[places.to(graph.device)]
    edges = torch.stack([found.row, found.col]).to(graph.device)
    return Graph(graph.x[found.nodes.to(graph.device)], edges, weight), len(found.nodes) - found.num_nodes[-1]


def node_blocks(graph: Graph, most_edges: int) -> Iterator[slice]:
    """Divide the nodes into blocks that a limited number of edges lead to; a node is not divided.

    Parameters
    ----------
    graph : Graph
        A graph in memory or on disk.
    most_edges : int
        How many edges may lead to a block of several nodes; a node counts as one more.

    Yields
    ------
    slice
        The next nodes.
    """
    offsets, start = graph.incoming[0], 0
    while start < graph.num_nodes:
        ends = offsets[start + 1 : start + 1 + most_edges]
        counts = ends - offsets[start] + torch.arange(1, len(ends) + 1)
        stop = start + max(int((counts <= most_edges).sum()), 1)
        yield slice(start, stop)
        start = stop
