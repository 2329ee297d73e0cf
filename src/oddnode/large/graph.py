"""The graph of a folder, with the interface of `oddnode.graph.Graph`: its products stream the edges from disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from oddnode.functional import support
from oddnode.large.arrays import ArrayWriter, NoWriter, at_once, is_in_file, row_chunks
from oddnode.large.edges import FolderEdges
from oddnode.large.folder import GraphFolder
from oddnode.large.moments import Moments
from oddnode.large.part import FolderPart
from oddnode.large.product import ChangedShares
from oddnode.large.ranks import active_ranks
from oddnode.large.resident import LARGEST_PROBES, ResidentFolder, RowsInMemory
from oddnode.large.rooms import filled, room_in_memory
from oddnode.large.walk import FolderWalk, column_groups
from oddnode.ops import SparseMatrix

__all__ = ["FolderGraph"]

# Random vectors that are propagated together, which is done in two copies of them, and their size.
_PROBES = {"cpu": (16, 8), "cuda": (64, 32, 16, 8)}
_PROBES_IN_MEMORY = {"cpu": 2**30, "cuda": LARGEST_PROBES}
# Of larger matrices than this, a GPU has so many columns at a time besides others.
_LARGE_ON_GPU, _COLUMNS_ON_GPU = 2**32, 16
# What passes through a network, or is computed from rows, at a time.
_BYTES_AT_ONCE = 2**25


class FolderGraph(FolderEdges):
    """A graph on disk; results that depend on it alone are sidecars of its folder.

    Parameters
    ----------
    folder : GraphFolder, ResidentFolder or FolderPart
        The folder, its copy in the memory of a GPU, or a part of one of them.
    x : Tensor, optional
        Other features ``[N, F]`` on the same edges.
    """

    def __init__(self, folder: GraphFolder | ResidentFolder | FolderPart, x: Tensor | None = None):
        super().__init__(folder, x)
        self._has_own_features = x is None or x is folder.x

    def _make_gcn_matrix(self) -> SparseMatrix:
        _ = self.edge_index  # refused
        raise AssertionError

    @cached_property
    def random_walk(self) -> FolderWalk:  # type: ignore[override]
        """``D^-1 A`` without added self-loops."""
        return FolderWalk(self.neighbours, self.x.dtype, self.folder.empty)

    @cached_property
    def gcn_scale(self) -> Tensor:
        """``D^-1/2`` of the graph convolution, which gives each node one edge to itself, ``[N]``."""
        return (self.in_degree + self._missing_loops).to(self.x.dtype).pow_(-0.5)

    @cached_property
    def _missing_loops(self) -> Tensor:
        """How many edges to itself a node lacks to have one; below 0 for a node with several.

        With weights, how much the edges to itself lack to weigh as much as one of them does on average.
        """
        nodes, counts, weights = self.folder.loops
        if self.edge_weight is None:
            missing = torch.ones(self.num_nodes, dtype=torch.int32, device=self.device)
            missing[nodes.long()] -= counts.int()
            return missing
        missing = self.loop_weight.double()
        missing[nodes.long()] -= weights
        return missing

    @property
    def loop_weight(self) -> Tensor:
        """The weight of the one edge to itself that each node has in the graph convolution ``[N]``."""
        nodes, counts, weights = self.folder.loops
        own = self.x.new_ones(self.num_nodes)
        own[nodes.long()] = (weights / counts).to(own.dtype)
        return own

    def convolve(self, values: Tensor, bias: Tensor | None = None) -> Tensor:
        """Compute ``D^-1/2 (A + I) D^-1/2 V + b``.

        Parameters
        ----------
        values : Tensor
            Shape ``[N, C]``, in memory or on disk.
        bias : Tensor, optional
            What is added to every row ``[C]``; nothing by default.

        Returns
        -------
        Tensor
            The result, ``[N, C]``; a large one is in a temporary file.
        """
        out = self.empty(values.shape[1])
        for columns in column_groups(values):
            self._convolve(values[:, columns], out[:, columns], None if bias is None else bias[columns])
        return out

    def _convolve(self, values: Tensor, out: Tensor, bias: Tensor | None) -> None:
        scale, room = self.gcn_scale, room_in_memory(tuple(values.shape), values)
        scaled = filled(room, list(self.row_slices()), lambda rows: values[rows] * scale[rows].unsqueeze(1))
        for block in self.neighbours.own_blocks():
            rows = slice(block.start, block.stop)
            sums, missing = self.neighbours.of_block(block, scaled), self._missing_loops[rows]
            if self.edge_weight is None:
                sums.addcmul_(scaled[rows], missing.to(sums.dtype).unsqueeze(1)).mul_(scale[rows].unsqueeze(1))
            else:  # these are means; the factors first, since a degree times a mean may be too large a number
                to_sum, to_own = (
                    (each * scale[rows]).to(sums).unsqueeze(1) for each in (self.in_degree[rows], missing)
                )
                sums.mul_(to_sum).addcmul_(scaled[rows], to_own)
            out[rows] = sums if bias is None else sums.add_(bias)
        self.neighbours.all_gather(out)

    @property
    def smoothed_x(self) -> Tensor:
        """``D^-1/2 (A + I) D^-1/2 X``, a sidecar; of other features than the folder's, a temporary file."""
        if not self._has_own_features:
            return self.cached("smoothed_x", lambda: self.convolve(self.x))
        return self.cached("smoothed_x", lambda: self.folder.sidecar("ax", self._write_smoothed, self._dtype))

    def release(self) -> None:
        """Forget results that take much room; they are computed again when needed."""
        for name in ("gcn_scale", "_missing_loops", "neighbours", "random_walk"):
            self.__dict__.pop(name, None)
        if isinstance(self.folder, FolderPart):
            self._caches["graph"].pop("smoothed_x", None)
            self.folder.release()

    def empty(self, width: int) -> Tensor:
        return self.folder.empty((self.num_nodes, width), self.x.dtype)

    def convolve_features(self, weight: Tensor) -> Tensor:
        return self.by_rows(len(weight), lambda rows: self.smoothed_x[rows] @ weight.detach().t())

    def times_features(self, weight: Tensor, rows: slice | Tensor = slice(None)) -> Tensor:
        if isinstance(rows, slice) and rows == slice(None):
            return self.by_rows(len(weight), lambda part: self.x[part] @ weight.detach().t())
        return self.x[rows] @ weight.detach().t()

    def _write_smoothed(self, writer: ArrayWriter | NoWriter | RowsInMemory) -> None:
        writer.append(self.convolve(self.x))

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
        packed = self.folder.sidecar(name, lambda writer: writer.append(Moments.of(rows).packed), "float64")
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
        kind = "cpu" if self.device.type == "cpu" else "cuda"
        fitting = _PROBES_IN_MEMORY[kind] // max(self.num_nodes * self.x.dtype.itemsize, 1)
        probes = next((each for each in _PROBES[kind] if each <= fitting), _PROBES[kind][-1])

        def make(writer: ArrayWriter | NoWriter | RowsInMemory) -> None:
            writer.append(self.keep(support(self.random_walk, num_hops, eta, probes_at_once=probes)))

        return self.folder.sidecar(name, make, self._dtype)

    @property
    def max_abs_feature(self) -> float:
        """The largest magnitude of a feature, from the manifest."""
        known = self.folder.max_abs_feature if self._has_own_features else None
        return super().max_abs_feature if known is None else known

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

    def changed_walk(self, change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> FolderWalk:
        assert self.edge_weight is not None
        sums = ChangedShares(self.neighbours, change)
        return FolderWalk(sums, self.x.dtype, self.folder.empty)

    @property
    def sparse_x(self) -> None:
        """None: a sparse copy would be in memory."""
        return None

    def row_slices(self) -> Iterator[slice]:
        row_bytes = 4 * self.x.dtype.itemsize * max(self.x.shape[1], 64)
        for start, stop in row_chunks(self.num_nodes, row_bytes, at_once(_BYTES_AT_ONCE, self.device)):
            yield slice(start, stop)

    def by_rows(
        self,
        width: int | None,
        make: Callable[[slice], Tensor],
        dtype: torch.dtype | None = None,
        is_factor: bool = False,
    ) -> Tensor:
        out = self._room(width, dtype or self.x.dtype, is_factor)
        return active_ranks().fill(out, list(self.row_slices()), make)

    def column_groups(self, width: int) -> list[slice]:
        num_bytes = self.num_nodes * width * self.x.dtype.itemsize
        step = width if self.device.type == "cpu" or num_bytes <= _LARGE_ON_GPU else _COLUMNS_ON_GPU
        return [slice(first, min(first + step, width)) for first in range(0, max(width, 1), max(step, 1))]

    def keep(self, values: Tensor) -> Tensor:
        if is_in_file(values) and values.is_contiguous():
            return values
        room = self.folder.empty(tuple(values.shape), values.dtype)
        return room.copy_(values) if is_in_file(room) else values.contiguous()

    def _room(self, width: int | None, dtype: torch.dtype, is_factor: bool = False) -> Tensor:
        shape = (self.num_nodes,) if width is None else (self.num_nodes, width)
        fits = is_factor and prod(shape) * dtype.itemsize <= active_ranks().memory_share
        return room_in_memory(shape, self.x.new_empty(0, dtype=dtype)) if fits else self.folder.empty(shape, dtype)

    def without(self, nodes: Tensor) -> tuple[FolderGraph, Tensor]:
        keep, place = self._places_without(nodes)
        part = FolderPart.of(self, keep, place)
        return FolderGraph(part, part.x), place

    def without_edges(self) -> FolderGraph:
        """Make a graph of the same nodes without edges."""
        none = self.folder.loops[0][:0].long()
        part = FolderPart(
            whole=self.folder,
            x=self.x,
            offsets=torch.zeros(self.num_nodes + 1, dtype=torch.long, device=self.device),
            sources=self.folder.sources[:0],
            edge_weight=None,
            loops=(none, none, none),
        )
        return FolderGraph(part, self.x)

    def neighbour_sums(self, values: Tensor) -> Tensor:
        return self.random_walk.sums(values)

    def by_neighbours(
        self,
        values: Tensor,
        width: int | None,
        make: Callable[[slice, Tensor], Tensor],
        walk: FolderWalk | None = None,  # type: ignore[override]
        num_hops: int = 1,
        eta: float = 0.0,
        in_place: bool = False,
    ) -> Tensor:
        walk = self.random_walk if walk is None else walk
        if len(column_groups(values)) > 1 or not num_hops:
            averages = walk.diffuse(values, eta, num_hops) if num_hops else values
            return self.by_rows(width, lambda rows: make(rows, averages[rows]))
        return walk.map_means(values, make, self._room(width, values.dtype), num_hops, eta, in_place)

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
        place, row = self._incoming(nodes)
        source = self.folder.sources[place].long()
        keep = source != nodes[row]
        row = torch.cat([row[keep], self._arange(0, len(nodes))])
        source = torch.cat([source[keep], nodes])
        rows, column = source.unique(return_inverse=True)
        values = self._gcn_scale_of(rows)[column]
        if self.edge_weight is not None:
            values *= torch.cat([self.edge_weight[place][keep], self.loop_weight[nodes]])
        values *= self._gcn_scale_of(nodes)[row]
        return rows, torch.stack([row, column]), values

    def _gcn_scale_of(self, nodes: Tensor) -> Tensor:
        """`gcn_scale` of some nodes, for which those of all nodes are not computed."""
        if self.edge_weight is not None or "gcn_scale" in self.__dict__:
            return self.gcn_scale[nodes]
        offsets, (looped, counts, _) = self.folder.offsets, self.folder.loops
        degree = offsets[nodes + 1] - offsets[nodes] + 1
        if len(looped):
            place = torch.searchsorted(looped, nodes.to(looped.dtype)).clamp_max(len(looped) - 1)
            degree -= torch.where(looped[place] == nodes, counts[place], 0)
        return degree.to(self.x.dtype).pow_(-0.5)

    def __repr__(self) -> str:
        return f"FolderGraph({self.folder!r})"
