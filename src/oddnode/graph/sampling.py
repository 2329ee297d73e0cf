"""Neighbourhoods of some nodes, sampled or whole: a sampler for PyG's loaders that needs no compiled extension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from oddnode.graph.graph import Graph

if TYPE_CHECKING:
    from torch_geometric.sampler import NodeSamplerInput, SamplerOutput


class CSRSampler:
    """Samples incoming edges hop by hop, without replacement; for PyG's `torch_geometric.loader.NodeLoader`.

    The seeds come first among the sampled nodes, then the nodes of the first hop, and so on. Every node is expanded
    once, in the hop that samples it first.

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
        Indices of the edges in the graph that features of edges are taken from ``[E]``; by default the same as here.

    Examples
    --------
    >>> from torch_geometric.sampler import NodeSamplerInput
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
        """Restart the random samples."""
        self._rng = np.random.default_rng(seed)

    @property
    def edge_permutation(self) -> Tensor | None:
        """Indices of the edges in the graph that features of edges are taken from."""
        return self._permutation

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        out = self.draw(index.node)
        out.metadata = (index.input_id, index.time)
        return out

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> SamplerOutput:
        raise NotImplementedError("CSRSampler samples around nodes, not around edges")

    def draw(self, seeds: Tensor) -> SamplerOutput:
        """Sample the neighbourhood of some nodes ``[n]``, all different."""
        from torch_geometric.sampler import SamplerOutput

        numbering = NodeNumbering(seeds.numpy())
        rows, cols, edges, num_edges = [], [], [], []
        first, num_nodes = 0, [len(numbering.nodes)]
        for count in self.num_neighbours:
            frontier = numbering.nodes[first:]
            chosen, owner = self._incoming(frontier, count)
            first, end = len(numbering.nodes), first
            rows.append(numbering.number(np.asarray(self.sources[chosen], dtype=np.int64)))
            cols.append(end + owner)
            edges.append(chosen)
            num_nodes.append(len(numbering.nodes) - first)
            num_edges.append(len(chosen))
        none = np.empty(0, dtype=np.int64)
        row, col, edge = (torch.from_numpy(np.concatenate([none, *parts])) for parts in (rows, cols, edges))
        return SamplerOutput(torch.from_numpy(numbering.nodes), row, col, edge, None, num_nodes, num_edges)

    def _incoming(self, nodes: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Indices of sampled edges, and the indices of their targets among the nodes."""
        start = np.asarray(self.offsets[nodes], dtype=np.int64)
        degree = np.asarray(self.offsets[nodes + 1], dtype=np.int64) - start
        many = np.flatnonzero(degree > count) if count >= 0 else np.empty(0, dtype=np.int64)
        few = np.setdiff1d(np.arange(len(nodes)), many, assume_unique=True)
        owner = np.repeat(few, degree[few])
        edge = np.arange(len(owner)) + np.repeat(start[few] - (np.cumsum(degree[few]) - degree[few]), degree[few])
        drawn = start[many, None] + _choices(degree[many], max(count, 0), self._rng)
        edge, owner = np.concatenate([edge, drawn.ravel()]), np.concatenate([owner, np.repeat(many, max(count, 0))])
        order = np.argsort(owner, kind="stable")
        return edge[order], owner[order]


def _choices(totals: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """For every total n, ``count`` different numbers below n, all sets equally likely (Floyd's algorithm)."""
    chosen = np.empty((len(totals), count), dtype=np.int64)
    for step in range(count):
        last = totals - count + step
        drawn = rng.integers(last + 1) if len(last) else last
        taken = (chosen[:, :step] == drawn[:, None]).any(axis=1)
        chosen[:, step] = np.where(taken, last, drawn)
    return chosen


class NodeNumbering:
    """Distinct nodes in the order of insertion, with look-ups whose memory depends on their number alone."""

    def __init__(self, nodes: np.ndarray):
        self.nodes = nodes
        self._sort()
        if len(nodes) and bool((np.diff(nodes[self._order]) == 0).any()):
            raise ValueError("a node is twice among the seeds of a batch; give every node once")

    def _sort(self) -> None:
        self._order = np.argsort(self.nodes)
        self._sorted = self.nodes[self._order]

    def number(self, nodes: np.ndarray) -> np.ndarray:
        """Look up the numbers of nodes; new ones are added, in ascending order."""
        different = np.unique(nodes)
        new = different[~np.isin(different, self._sorted, assume_unique=True)]
        if len(new):
            self.nodes = np.concatenate([self.nodes, new])
            self._sort()
        return self._order[np.searchsorted(self._sorted, nodes)]


def neighbourhood(graph: Graph, nodes: Tensor, num_hops: int) -> tuple[Graph, int]:
    """Extract everything that leads to some nodes within a number of hops."""
    offsets, sources, order = graph.incoming
    around = CSRSampler(offsets, sources, [-1] * num_hops).draw(nodes.cpu())
    weight = None
    if graph.edge_weight is not None:
        indices = around.edge if order is None else order[around.edge]
        weight = graph.edge_weight[indices.to(graph.device)]
    edges = torch.stack([around.row, around.col]).to(graph.device)
    return Graph(graph.x[around.node.to(graph.device)], edges, weight), len(around.node) - around.num_sampled_nodes[-1]


def node_blocks(graph: Graph, most_edges: int) -> Iterator[slice]:
    """Divide the nodes into blocks that a limited number of edges lead to; a node is not divided."""
    offsets, start = graph.incoming[0], 0
    while start < graph.num_nodes:
        ends = offsets[start + 1 : start + 1 + most_edges]
        counts = ends - offsets[start] + torch.arange(1, len(ends) + 1)
        stop = start + max(int((counts <= most_edges).sum()), 1)
        yield slice(start, stop)
        start = stop
