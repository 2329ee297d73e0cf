"""The graph of a folder, with the interface of `oddnode.graph.Graph`: its products stream the edges from disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Tensor

from oddnode.functional import support
from oddnode.graph import Graph, GraphError
from oddnode.graph.features import NodeFeatures
from oddnode.large.arrays import ArrayWriter, row_chunks, scratch
from oddnode.large.folder import GraphFolder
from oddnode.large.moments import Moments
from oddnode.large.product import FolderWalk, NeighbourSum
from oddnode.ops import SparseMatrix

__all__ = ["FolderGraph", "changed_features"]

# The features that a product reads at random are copied to memory, as many columns as fit into this many bytes.
_COLUMNS_IN_MEMORY = 2**29
# Random vectors that are propagated together, which is done in two copies of them.
_PROBES_IN_MEMORY = 2**30
# Whoever goes through the edges needs several numbers for each.
_EDGES_AT_ONCE = 2**18


class FolderGraph(Graph):
    """A graph on disk; results that depend on it alone are sidecars of its folder.

    Parameters
    ----------
    folder : GraphFolder
        The folder.
    x : Tensor, optional
        Other features ``[N, F]`` on the same edges.
    """

    is_on_disk = True

    def __init__(self, folder: GraphFolder, x: Tensor | None = None):
        self.folder = folder
        NodeFeatures.__init__(self, folder.x if x is None else x)
        self.edge_weight = None
        self._products = None
        self._has_own_features = x is None or x is folder.x

    @property
    def edge_index(self) -> Tensor:  # type: ignore[override]
        """Refused: the edges are on disk."""
        raise GraphError(f"the edges of {self.folder.path} are on disk, but what was asked for needs them in memory")

    def _make_gcn_matrix(self) -> SparseMatrix:
        _ = self.edge_index  # refused
        raise AssertionError

    @cached_property
    def neighbours(self) -> NeighbourSum:
        """Sums over the neighbours of every node."""
        return NeighbourSum(self.folder.offsets, self.folder.sources)

    @cached_property
    def random_walk(self) -> FolderWalk:  # type: ignore[override]
        """``D^-1 A`` without added self-loops."""
        return FolderWalk(self.neighbours, self.x.dtype)

    @property
    def in_degree(self) -> Tensor:
        """Number of edges that lead to each node ``[N]``."""
        return self.folder.offsets.diff()

    @property
    def incoming(self) -> tuple[Tensor, Tensor, None]:
        """The edges in CSR form, as they are on disk."""
        return self.folder.offsets, self.folder.sources, None

    @property
    def loop_weight(self) -> Tensor:
        """1 for every node, ``[N]``."""
        return self.x.new_ones(1).expand(self.num_nodes)

    @cached_property
    def gcn_scale(self) -> Tensor:
        """``D^-1/2`` of the graph convolution, which gives each node one edge to itself, ``[N]``."""
        return (self.in_degree + self._missing_loops).to(self.x.dtype).pow_(-0.5)

    @cached_property
    def _missing_loops(self) -> Tensor:
        """How many edges to itself a node lacks to have one; below 0 for a node with several."""
        missing = torch.ones(self.num_nodes, dtype=torch.int32)
        nodes, counts = self.folder.loops
        missing[nodes.long()] -= counts.int()
        return missing

    def convolve(self, values: Tensor) -> Tensor:
        """Compute ``D^-1/2 (A + I) D^-1/2 V``.

        Parameters
        ----------
        values : Tensor
            Shape ``[N, C]``, in memory or on disk.

        Returns
        -------
        Tensor
            The result, ``[N, C]``; a large one is in a temporary file.
        """
        out = self.empty(values.shape[1])
        step = max(_COLUMNS_IN_MEMORY // (self.num_nodes * values.dtype.itemsize), 1)
        for first in range(0, values.shape[1], step):
            columns = slice(first, first + step)
            self._convolve(values[:, columns].contiguous(), out[:, columns])
        return out

    def _convolve(self, values: Tensor, out: Tensor) -> None:
        scale, scaled = self.gcn_scale, torch.empty(values.shape, dtype=values.dtype)
        torch.mul(values, scale.unsqueeze(1), out=scaled)
        for block in self.neighbours.blocks():
            rows = slice(block.start, block.stop)
            sums = self.neighbours.of_block(block, scaled)
            sums.addcmul_(scaled[rows], self._missing_loops[rows].to(sums.dtype).unsqueeze(1))
            out[rows] = sums.mul_(scale[rows].unsqueeze(1))

    @property
    def smoothed_x(self) -> Tensor:
        """``D^-1/2 (A + I) D^-1/2 X``, a sidecar; of other features than the folder's, a temporary file."""
        if not self._has_own_features:
            return self.cached("smoothed_x", lambda: self.convolve(self.x))
        return self.cached("smoothed_x", lambda: self.folder.sidecar("ax", self._write_smoothed, self._dtype))

    def empty(self, width: int) -> Tensor:
        return scratch(self.folder.scratch_folder, (self.num_nodes, width), self.x.dtype)

    def convolve_features(self, weight: Tensor) -> Tensor:
        return self._rows_times(self.smoothed_x, weight)

    def times_features(self, weight: Tensor) -> Tensor:
        return self._rows_times(self.x, weight)

    def _rows_times(self, values: Tensor, weight: Tensor) -> Tensor:
        out = self.empty(len(weight))
        for start, stop in row_chunks(self.num_nodes, values.shape[1] * values.dtype.itemsize):
            out[start:stop] = values[start:stop] @ weight.detach().t()
        return out

    def _write_smoothed(self, writer: ArrayWriter) -> None:
        smoothed = self.convolve(self.x)
        for start, stop in row_chunks(len(smoothed), smoothed.shape[1] * smoothed.dtype.itemsize):
            writer.append(smoothed[start:stop].numpy())

    @property
    def _dtype(self) -> str:
        return str(self.x.dtype).removeprefix("torch.")

    @property
    def smoothed_moments(self) -> Moments:
        """Mean and covariance of the rows of `smoothed_x`."""
        return self._moments("ax-moments", self.smoothed_x)

    @property
    def feature_moments(self) -> Moments:
        """Mean and covariance of the rows of the features."""
        return self._moments("x-moments", self.x)

    def _moments(self, name: str, rows: Tensor) -> Moments:
        if not self._has_own_features:
            return self.cached(name, lambda: Moments.of(rows))
        packed = self.folder.sidecar(name, lambda writer: writer.append(Moments.of(rows).packed.numpy()), "float64")
        return Moments.unpacked(packed, self.num_nodes)

    def support(self, num_hops: int, eta: float) -> Tensor:
        """Effective number of nodes that each propagated score averages, a sidecar.

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
        name = re.sub(r"[^0-9a-z-]", "_", f"support-{num_hops}-{eta!r}-{self._dtype}")
        fits = 16 * self.num_nodes * self.x.dtype.itemsize <= _PROBES_IN_MEMORY

        def make(writer: ArrayWriter) -> None:
            writer.append(support(self.random_walk, num_hops, eta, probes_at_once=16 if fits else 8).numpy())

        return self.folder.sidecar(name, make, self._dtype)

    @property
    def max_abs_feature(self) -> float:
        """The largest magnitude of a feature, from the manifest."""
        if not self._has_own_features:
            return super().max_abs_feature
        return self.folder.manifest.max_abs_feature

    def with_features(self, x: Tensor) -> FolderGraph:
        """Put other features on the same edges.

        Parameters
        ----------
        x : Tensor
            Features ``[N, F']``, floating point.
        """
        other = FolderGraph(self.folder, x)
        if x.dtype == self.x.dtype:
            other.__dict__["neighbours"] = self.neighbours
        return other

    def edge_blocks(self) -> Iterator[tuple[Tensor, Tensor, None]]:
        offsets, sources = self.folder.offsets, self.folder.sources
        for first in range(0, len(sources), _EDGES_AT_ONCE):
            source = sources[first : first + _EDGES_AT_ONCE].long()
            last = first + len(source)
            start, stop = torch.searchsorted(offsets, torch.tensor([first + 1, last])).tolist()
            counts = offsets[start - 1 : stop + 1].clamp(first, last).diff()
            yield source, torch.repeat_interleave(torch.arange(start - 1, stop), counts), None

    def neighbour_sums(self, values: Tensor) -> Tensor:
        return self.random_walk.sums(values)

    def neighbour_means(self) -> Iterator[tuple[slice, Tensor]]:
        share = self.random_walk.inverse_degree(self.x.dtype)
        for block in self.neighbours.blocks():
            rows = slice(block.start, block.stop)
            yield rows, self.neighbours.of_block(block, self.x) * share[rows].unsqueeze(1)

    def rows_around(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Find the rows of the GCN matrix of some nodes.

        Parameters
        ----------
        nodes : Tensor
            Positions ``[n]``.

        Returns
        -------
        rows : Tensor
            Positions of the nodes and of their neighbours, each once, ascending ``[m]``.
        index : Tensor
            Coordinates ``[2, e]`` of the entries: positions in ``nodes``, and in ``rows``.
        values : Tensor
            The entries ``[e]``.
        """
        counts = self.in_degree[nodes]
        first = self.folder.offsets[nodes]
        row = torch.repeat_interleave(torch.arange(len(nodes)), counts)
        place = torch.arange(len(row)) - (counts.cumsum(0) - counts)[row] + first[row]
        source = self.folder.sources[place].long()
        keep = source != nodes[row]
        row = torch.cat([row[keep], torch.arange(len(nodes))])
        source = torch.cat([source[keep], nodes])
        values = self.gcn_scale[source] * self.gcn_scale[nodes][row]
        rows, column = source.unique(return_inverse=True)
        return rows, torch.stack([row, column]), values

    def __repr__(self) -> str:
        return f"FolderGraph({self.folder!r})"


def changed_features(graph: Graph, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Change the features of a graph row by row; those of a graph on disk go into a temporary file.

    Parameters
    ----------
    graph : Graph
        Any graph.
    change : callable
        Maps features of some nodes ``[n, F]`` to others of the same shape.

    Returns
    -------
    Tensor
        Features ``[N, F]``.
    """
    if not isinstance(graph, FolderGraph):
        return change(graph.x)
    out = scratch(graph.folder.scratch_folder, tuple(graph.x.shape), graph.x.dtype)
    for start, stop in row_chunks(len(out), out.shape[1] * out.dtype.itemsize):
        out[start:stop] = change(graph.x[start:stop])
    return out
