"""Mini-batches of a graph: sampled neighbourhoods of some nodes whose products estimate those of the whole graph."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric import typing as pyg_typing
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import NodeSamplerInput, SamplerOutput

from oddnode._utils.random import borrowed
from oddnode.graph import CSRSampler, Graph, SampledEdges
from oddnode.graph.sampling import NodeNumbering
from oddnode.ops import SparseMatrix

__all__ = ["MiniBatches", "NeighbourBatch"]

_log = logging.getLogger("oddnode")


class _BatchSampler(CSRSampler):
    """Adds random nodes of the graph to the seeds of every batch; `rows` says where they are in the last one.

    If pyg-lib is installed, it draws the neighbours, with seeds that are drawn here.
    """

    rows: Tensor

    def __init__(self, offsets: Tensor, sources: Tensor, *arguments: Any, num_random: int):
        super().__init__(offsets, sources, *arguments)
        self._num_random = min(num_random, len(offsets) - 1)
        # pyg-lib wants numbers of one type, and copies of the sources might not fit into memory.
        fits = len(sources) <= torch.iinfo(sources.dtype).max
        self._for_pyg_lib = (offsets.to(sources.dtype), sources) if pyg_typing.WITH_PYG_LIB and fits else None
        _log.debug("neighbours are sampled by %s", "oddnode" if self._for_pyg_lib is None else "pyg-lib")

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        drawn = self._rng.choice(len(self.offsets) - 1, self._num_random, replace=False, shuffle=False)
        seeds = NodeNumbering(index.node.numpy())
        self.rows = torch.from_numpy(seeds.number(drawn))
        out = super().sample_from_nodes(NodeSamplerInput(None, torch.from_numpy(seeds.nodes)))
        out.metadata = (index.input_id, index.time)
        return out

    def draw(self, seeds: Tensor) -> SampledEdges:
        if self._for_pyg_lib is None:
            return super().draw(seeds)
        generator = torch.Generator().manual_seed(int(self._rng.integers(2**62)))
        return _drawn_by_pyg_lib(*self._for_pyg_lib, seeds, self.num_neighbours, generator)


def _drawn_by_pyg_lib(
    offsets: Tensor, sources: Tensor, seeds: Tensor, num_neighbours: Sequence[int], generator: torch.Generator
) -> SampledEdges:
    # Times of nodes and seeds, and in newer versions times and weights of edges: there are none.
    newer = pyg_typing.WITH_EDGE_TIME_NEIGHBOR_SAMPLE, pyg_typing.WITH_WEIGHTED_NEIGHBOR_SAMPLE
    nothing = [None] * (2 + sum(newer))
    is_csc, replace, directed, disjoint, returns_edges = True, False, True, False, True
    arguments = is_csc, replace, directed, disjoint, "uniform", returns_edges
    with borrowed(generator):
        row, col, nodes, edge, num_nodes, num_edges = torch.ops.pyg.neighbor_sample(
            offsets, sources, seeds.to(sources.dtype), list(num_neighbours), *nothing, *arguments
        )
    return SampledEdges(nodes.long(), row.long(), col.long(), edge.long(), list(num_nodes), list(num_edges))


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
        offsets, sources, order = graph.incoming
        self._counts = offsets.diff().to(graph.x)
        self._sampler = _BatchSampler(offsets, sources, num_neighbours, seed, order, num_random=num_random)
        # The loader takes edges from the sampler, so that those of a graph on disk need not be in memory.
        self._loader = NodeLoader(
            Data(x=graph.x, edge_index=torch.empty(2, 0, dtype=torch.long)),
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
        if self._graph.edge_weight is not None:
            weight = weight * self._graph.edge_weight[data.e_id.to(device)]
        graph = Graph(data.x, edges, weight if self._weighted else None)
        scale, between = self._graph.gcn_scale[nodes], source != target
        values = (scale[source] * weight * scale[target])[between]
        row = torch.arange(len(nodes), device=device)
        matrix = SparseMatrix(
            torch.cat([target[between], row]),
            torch.cat([source[between], row]),
            torch.cat([values, self._graph.loop_weight[nodes] * scale * scale]),
            (len(nodes), len(nodes)),
        )
        graph.cached("gcn_matrix", lambda: matrix, "edges")
        return graph
