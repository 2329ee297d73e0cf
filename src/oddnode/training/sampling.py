"""Sampled neighbourhoods: a sampler for PyG's loaders that needs no compiled extension, and mini-batches of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from oddnode.graph import Graph
from oddnode.ops import SparseMatrix, weighted_in_degree, with_self_loops

__all__ = ["CSRSampler", "MiniBatches", "NeighbourBatch"]


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
        found = _Numbering(index.node.numpy())
        rows, cols, edges, num_edges = [], [], [], []
        first, num_nodes = 0, [len(found)]
        for count in self.num_neighbours:
            frontier = found.nodes[first:]
            edge, place = self._incoming(frontier, count)
            first, end = len(found), first
            rows.append(found.number(np.asarray(self.sources[edge], dtype=np.int64)))
            cols.append(end + place)
            edges.append(edge)
            num_nodes.append(len(found) - first)
            num_edges.append(len(edge))
        indices = (torch.from_numpy(_joined(parts)) for parts in (rows, cols, edges))
        nodes = torch.from_numpy(found.nodes)
        metadata = (index.input_id, index.time)
        return SamplerOutput(nodes, *indices, None, num_nodes, num_edges, metadata=metadata)

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


class _Numbering:
    """Different nodes in the order in which they were found, with look-ups in memory of their number alone."""

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
        """The numbers of nodes; new ones are added, in ascending order."""
        different = np.unique(nodes)
        new = different[~np.isin(different, self._sorted, assume_unique=True)]
        if len(new):
            self.nodes = np.concatenate([self.nodes, new])
            self._sort()
        return self._order[np.searchsorted(self._sorted, nodes)]


class _RandomNodesSampler(CSRSampler):
    """Adds random nodes of the graph to the seeds of every batch; `rows` says where they are in the last one."""

    rows: Tensor

    def __init__(self, *arguments: Any, num_random: int):
        super().__init__(*arguments)
        self._num_random = min(num_random, len(self.offsets) - 1)

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        drawn = self._rng.choice(len(self.offsets) - 1, self._num_random, replace=False, shuffle=False)
        seeds = _Numbering(index.node.numpy())
        self.rows = torch.from_numpy(seeds.number(drawn))
        out = super().sample_from_nodes(NodeSamplerInput(None, torch.from_numpy(seeds.nodes)))
        out.metadata = (index.input_id, index.time)
        return out


@dataclass(frozen=True)
class NeighbourBatch:
    """Some seeds with sampled edges around them.

    Parameters
    ----------
    graph : Graph
        The sampled nodes, the seeds first, and edges. Its products estimate those of the whole graph.
    seeds : Tensor
        Which of the nodes to batch the seeds are ``[n]``.
    random : Tensor
        Positions in the graph of the batch of random nodes of the whole graph, with their own neighbourhoods ``[r]``.
    """

    graph: Graph
    seeds: Tensor
    random: Tensor


class MiniBatches:
    r"""Mini-batches of the neighbourhoods of some nodes.

    An edge that is sampled among :math:`k` of the :math:`d` edges of a node has its weight times :math:`d / k`, so that
    sums and weighted means over neighbours are those of the whole graph, but for chance. The graph convolution uses
    the degrees of the whole graph.

    Parameters
    ----------
    graph : Graph
        The whole graph.
    nodes : Tensor
        Positions of the nodes to batch ``[n]``, all different.
    num_neighbours : sequence of int
        As for `CSRSampler`.
    batch_size : int
        The number of seeds in a batch.
    num_random : int
        The number of random nodes in addition.
    seed : int
        Seed of the samples and of the order.
    shuffle : bool
        Whether every iteration draws another order and other samples; if not, all are the same.
    weighted : bool
        Whether edges have weights. Networks that take none get plain edges, each of which counts as one.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: Tensor,
        num_neighbours: Sequence[int],
        batch_size: int,
        num_random: int = 0,
        seed: int = 0,
        shuffle: bool = True,
        weighted: bool = True,
    ):
        self._graph, self._weighted, self._seed, self._shuffle = graph, weighted, seed, shuffle
        offsets, sources, order = graph.cached(
            "incoming", lambda: _incoming(graph.edge_index, graph.num_nodes), "edges"
        )
        self._counts = offsets.diff().to(graph.x)
        self._scale, self._loop = graph.cached("gcn_scale", lambda: _gcn_scale(graph), "edges")
        self._sampler = _RandomNodesSampler(offsets, sources, num_neighbours, seed, order, num_random=num_random)
        self._loader = NodeLoader(
            Data(x=graph.x, edge_index=graph.edge_index, edge_weight=graph.edge_weight),
            self._sampler,
            nodes.cpu(),
            batch_size=batch_size,
            shuffle=shuffle,
            generator=torch.Generator().manual_seed(seed),
            filter_per_worker=False,
        )

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[NeighbourBatch]:
        if not self._shuffle:
            self._sampler.set_seed(self._seed)
        for data in self._loader:
            yield NeighbourBatch(self._batch_graph(data), data.input_id, self._sampler.rows)

    def _batch_graph(self, data: Data) -> Graph:
        device = self._graph.device
        nodes, edges = data.n_id.to(device), data.edge_index.to(device)
        source, target = edges
        sampled = torch.bincount(target, minlength=len(nodes)).to(data.x)
        weight = (self._counts[nodes] / sampled)[target]
        if data.edge_weight is not None:
            weight = weight * data.edge_weight.to(device)
        graph = Graph(data.x, edges, weight if self._weighted else None)
        scale, between = self._scale[nodes], source != target
        values = (scale[source] * weight * scale[target])[between]
        row = torch.arange(len(nodes), device=device)
        matrix = SparseMatrix(
            torch.cat([target[between], row]),
            torch.cat([source[between], row]),
            torch.cat([values, self._loop[nodes] * scale * scale]),
            (len(nodes), len(nodes)),
        )
        graph.cached("gcn_matrix", lambda: matrix, "edges")
        return graph


def _incoming(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """The incoming edges of every node in CSR form, and the positions that they have in the list of edges."""
    source, target = edge_index.cpu()
    order = target.argsort(stable=True)
    counts = torch.bincount(target, minlength=num_nodes)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]), source[order], order


def _gcn_scale(graph: Graph) -> tuple[Tensor, Tensor]:
    """The factor of every node in GCN's normalisation ``[N]``, and the weight of its self-loop ``[N]``."""
    ones = torch.ones_like(graph.edge_index[0], dtype=graph.x.dtype)
    weight = ones if graph.edge_weight is None else graph.edge_weight
    edges, weight = with_self_loops(graph.edge_index, graph.num_nodes, weight)
    scale = weighted_in_degree(edges, graph.num_nodes, weight).to(graph.x.dtype).pow(-0.5)
    return scale, weight[-graph.num_nodes :]
