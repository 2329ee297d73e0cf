"""The edges of a graph on disk: counted, looked up and handed out in parts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from oddnode.graph import Graph, GraphError
from oddnode.graph.features import NodeFeatures
from oddnode.large.arrays import ArrayWriter, NoWriter, at_once
from oddnode.large.folder import GraphFolder
from oddnode.large.part import FolderPart
from oddnode.large.product import NeighbourSum
from oddnode.large.resident import ResidentFolder, RowsInMemory
from oddnode.ops import direction_sums, sums_agree

__all__ = ["FolderEdges"]

# Whoever goes through the edges needs several numbers for each.
_EDGES_AT_ONCE = 2**18
_NODES_AT_ONCE = 2**14


class FolderEdges(Graph):
    """Base of `oddnode.large.FolderGraph`: its edges, which are never in memory as a whole.

    Parameters
    ----------
    folder : GraphFolder, ResidentFolder or FolderPart
        The folder, its copy in the memory of a GPU, or a part of one of them.
    x : Tensor, optional
        Other features ``[N, F]`` on the same edges.
    """

    is_on_disk = True

    def __init__(self, folder: GraphFolder | ResidentFolder | FolderPart, x: Tensor | None = None):
        NodeFeatures.__init__(self, folder.x if x is None else x)
        self.folder = folder
        self.edge_weight = folder.edge_weight
        self._products = None

    @property
    def edge_index(self) -> Tensor:  # type: ignore[override]
        """Refused: the edges are on disk."""
        raise GraphError(f"the edges of {self.folder.path} are on disk, but what was asked for needs them in memory")

    @cached_property
    def neighbours(self) -> NeighbourSum:
        """Sums over the neighbours of every node."""
        return NeighbourSum(self.folder.offsets, self.folder.sources, self.edge_weight)

    @property
    def in_degree(self) -> Tensor:
        """Number of edges that lead to each node ``[N]``, or the sum of their weights."""
        return self.neighbours.in_degree

    @property
    def effective_degree(self) -> Tensor:
        """Number of equal edges that a mean over each node's edges is worth ``[N]``."""
        return self.neighbours.effective_degree

    @property
    def mean_edge_weight(self) -> float:
        """Mean weight of an edge; 1 without weights or edges."""
        if self.edge_weight is None or not self.num_edges:
            return 1.0
        return float(self.in_degree.sum()) / self.num_edges

    @property
    def incoming(self) -> tuple[Tensor, Tensor, None]:
        """The edges in CSR form, as they are on disk; their weights have the same order."""
        return self.cached("incoming", lambda: (self.folder.offsets.cpu(), self.folder.sources.cpu(), None))

    def edge_blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        offsets, sources = self.folder.offsets, self.folder.sources
        step = at_once(_EDGES_AT_ONCE, self.device)
        for first in range(0, len(sources), step):
            source = sources[first : first + step].long()
            last = first + len(source)
            ends = torch.tensor([first + 1, last], device=self.device)
            start, stop = torch.searchsorted(offsets, ends).tolist()
            counts = offsets[start - 1 : stop + 1].clamp(first, last).diff()
            target = torch.repeat_interleave(self._arange(start - 1, stop), counts)
            yield source, target, None if self.edge_weight is None else self.edge_weight[first:last]

    def edge_blocks_to(self, nodes: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        for own in nodes.split(at_once(_NODES_AT_ONCE, self.device)):
            place, position = self._incoming(own)
            weight = None if self.edge_weight is None else self.edge_weight[place]
            yield self.folder.sources[place].long(), own[position], weight

    def num_others(self) -> Tensor:
        nodes, often, _ = self.folder.loops
        counts = self.folder.offsets.diff()
        counts[nodes.long()] -= often.long()
        return counts

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.folder.sources)

    def edges_at(self, places: Tensor) -> Tensor:
        target = torch.searchsorted(self.folder.offsets, places, right=True) - 1
        return torch.stack([self.folder.sources[places].long(), target])

    def edges_to(self, nodes: Tensor) -> Tensor:
        nodes = nodes.sort().values
        place, position = self._incoming(nodes)
        return torch.stack([self.folder.sources[place].long(), nodes[position]])

    def weight_back(self, edges: Tensor) -> Tensor:
        if self.edge_weight is None:
            return torch.ones_like(edges[0])
        first, last = self._places_of(edges)
        counts = last - first
        position = torch.repeat_interleave(self._arange(0, len(counts)), counts)
        places = self._arange(0, len(position)) - (counts.cumsum(0) - counts)[position] + first[position]
        total = torch.zeros(len(counts), dtype=torch.float64, device=self.device)
        total.index_add_(0, position, self.edge_weight[places].double())
        return total / counts * (self.effective_degree / self.in_degree)[edges[0]]

    def _places_of(self, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Where each of some edges begins and ends among the edges on disk, all at once by bisection, ``[e]`` each."""
        source, target = edges
        found = []
        for is_last in (False, True):
            low, high = self.folder.offsets[target], self.folder.offsets[target + 1]
            while bool((low < high).any()):
                middle = (low + high) // 2
                here = self.folder.sources[middle.clamp_max(self.num_edges - 1)].long()
                is_before = (here <= source if is_last else here < source) & (low < high)
                low, high = torch.where(is_before, middle + 1, low), torch.where(is_before, high, middle)
            found.append(low)
        return found[0], found[1]

    def contains(self, edges: Tensor) -> Tensor:
        first, last = self._places_of(edges)
        return last > first

    def sources_of(self, node: int) -> Tensor:
        return self.edges_to(torch.tensor([node], device=self.device))[0]

    def _incoming(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """The places of the edges to some nodes ``[e]``, and the positions of their targets among these nodes."""
        first = self.folder.offsets[nodes]
        counts = self.folder.offsets[nodes + 1] - first
        position = torch.repeat_interleave(self._arange(0, len(nodes)), counts)
        return self._arange(0, len(position)) - (counts.cumsum(0) - counts)[position] + first[position], position

    def _arange(self, start: int, stop: int) -> Tensor:
        return torch.arange(start, stop, device=self.device)

    @property
    def is_symmetric(self) -> bool:
        """Whether every edge comes with the one in the other direction, as often and with the same weight."""
        there, back = self.folder.sidecar("symmetry", self._write_symmetry, "float64").tolist()
        return sums_agree(there, back)

    def _write_symmetry(self, writer: ArrayWriter | NoWriter | RowsInMemory) -> None:
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for source, target, weight in self.edge_blocks():
            relative = None if weight is None else weight.double() / self.mean_edge_weight
            sums += direction_sums(source, target, relative)
        writer.append(sums)
