"""The graph of a folder, with the interface of `oddnode.graph.Graph`: its products stream the edges from disk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

import torch
from torch import Tensor

from oddnode._utils.lazy import cached_property
from oddnode.functional import support
from oddnode.graph import CSR, Graph, GraphError
from oddnode.large.arrays import at_once, is_in_file, row_chunks
from oddnode.large.buffers import filled, own_copy, shared_buffer
from oddnode.large.graph_arrays import LARGEST_PROBES, GraphArrays
from oddnode.large.moments import Moments
from oddnode.large.product import FolderWalk, NeighbourSum, SumWithoutReturn, column_groups
from oddnode.large.ranks import active_ranks
from oddnode.ops import direction_sums, sums_agree

# Edges that are processed at a time, with several values for each.
_EDGES_AT_ONCE = 2**18
# How many random vectors are propagated together, in two copies, and the most bytes that these take.
_PROBES = {"cpu": (16, 8), "cuda": (64, 32, 16, 8)}
_PROBES_IN_MEMORY = {"cpu": 2**30, "cuda": LARGEST_PROBES}
# Bytes that pass through a network, or are computed from rows, at a time.
_BYTES_AT_ONCE = 2**25


class FolderGraph(Graph):
    """A graph whose edges are never all in memory; what depends on the graph alone is a sidecar of its folder."""

    is_on_disk = True

    def __init__(self, folder: GraphArrays, x: Tensor | None = None):
        # Not the constructor of `Graph`, which sets `edge_index`.
        self.x = folder.x if x is None else x
        self.folder = folder
        self.edge_weight = folder.csr.weights
        self.num_nodes, self.num_edges, self.device = len(self.x), len(folder.csr.sources), self.x.device
        self.caches = {"graph": {}, "edges": {"csr": folder.csr}, "features": {}}
        self.neighbours = NeighbourSum(*folder.csr)
        self._products = None
        self._has_own_features = self.x is folder.x

    def __repr__(self) -> str:
        return f"FolderGraph({self.folder.path}, {self.num_nodes} nodes, {self.num_edges} edges, {self.device})"

    @property
    def edge_index(self) -> Tensor:  # type: ignore[override]
        raise GraphError(
            f"the edges of {self.folder.path} are on disk, and this operation needs `edge_index` in memory; load the "
            "graph as `Data`"
        )

    def release(self) -> None:
        """Drop large results; they are recomputed when needed."""
        self.neighbours = NeighbourSum(*self.csr)
        large = ["random_walk", "gcn_scale", "_missing_loops"] + ["smoothed_x"] * (self.folder.kind == "part")
        for name in large:
            vars(self).pop(name, None)
        self.folder.release()

    def with_features(self, x: Tensor) -> FolderGraph:
        other = FolderGraph(self.folder, x)
        other.neighbours = self.neighbours
        return other

    def without(self, nodes: Tensor) -> tuple[FolderGraph, Tensor]:
        keep, index = self._indices_without(nodes)
        return FolderGraph(self._part(keep, index)), index

    def _part(self, keep: Tensor, index: Tensor) -> GraphArrays:
        """Copy what is left of the graph into scratch buffers."""
        empty, num_nodes = self.folder.empty, int(keep.sum())
        x = empty((num_nodes, self.x.shape[1]), self.x.dtype)
        done = 0
        for rows in self.row_slices():
            part = self.x[rows][keep[rows]]
            x[done : done + len(part)] = part
            done += len(part)
        sources = empty((self.num_edges,), self.csr.sources.dtype)
        weights = None if self.edge_weight is None else empty((self.num_edges,), self.edge_weight.dtype)
        counts, done = torch.zeros(num_nodes, dtype=torch.long, device=self.device), 0
        for source, target, weight in self.edge_blocks():
            inside = keep[source] & keep[target]
            moved = index[source[inside]]
            sources[done : done + len(moved)] = moved.to(sources.dtype)
            if weights is not None and weight is not None:
                weights[done : done + len(moved)] = weight[inside]
            targets, often = index[target[inside]].unique_consecutive(return_counts=True)
            counts[targets] += often  # a node's edges may be in two blocks
            done += len(moved)
        offsets = empty((num_nodes + 1,), torch.long)
        offsets[0] = 0
        torch.cumsum(counts, 0, out=offsets[1:])
        nodes, often, total = self.folder.loops
        stays = keep[nodes.long()]
        csr = CSR(offsets, sources[:done], None if weights is None else weights[:done])
        loops = index[nodes.long()][stays], often[stays], total[stays]
        return GraphArrays(self.folder.path, x, csr, loops, "part")

    def without_edges(self) -> FolderGraph:
        none = self.folder.loops[0][:0].long()
        csr = CSR(torch.zeros_like(self.csr.offsets), self.csr.sources[:0], None)
        return FolderGraph(GraphArrays(self.folder.path, self.x, csr, (none, none, none), "part"))

    # --- features ---

    @property
    def max_abs_feature(self) -> float:
        known = self.folder.max_abs_feature if self._has_own_features else None
        return super().max_abs_feature if known is None else known

    @property
    def sparse_x(self) -> None:
        """None: a sparse copy would be in memory."""
        return None

    def times_features(self, weight: Tensor, rows: slice | Tensor = slice(None)) -> Tensor:
        if isinstance(rows, Tensor) or rows != slice(None):
            return self.x[rows] @ weight.detach().t()
        return self._times(self.x, weight)

    def convolve_features(self, weight: Tensor) -> Tensor:
        return self._times(self.smoothed_x, weight)

    def _times(self, values: Tensor, weight: Tensor) -> Tensor:
        out = self.empty(len(weight))
        for rows in self.shards(out):
            out[rows] = values[rows] @ weight.detach().t()
        return out

    def moments(self, smoothed: bool) -> Moments:
        """Mean and covariance of the rows of `smoothed_x`, or of the features."""
        name, rows = ("ax-moments", self.smoothed_x) if smoothed else ("x-moments", self.x)
        if not self._has_own_features:
            return self.cached(name, lambda: Moments.of(rows))
        shape = rows.shape[1] + 1, rows.shape[1]
        packed = self.folder.sidecar(name, lambda: Moments.of(rows).packed, "float64", shape)
        return Moments(self.num_nodes, packed[0], packed[1:])

    # --- edges ---

    @property
    def incoming(self) -> tuple[Tensor, Tensor, None]:
        """The edges as they are on disk; their weights have the same order."""
        return self.cached("incoming", lambda: (self.csr.offsets.cpu(), self.csr.sources.cpu(), None))

    def edge_blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Yield sources, targets and weights, if any, ``[n]`` of some edges."""
        offsets, sources, weights = self.csr
        step = at_once(_EDGES_AT_ONCE, self.device)
        for first in range(0, len(sources), step):
            source = sources[first : first + step].long()
            last = first + len(source)
            ends = torch.tensor([first + 1, last], device=self.device)
            start, stop = torch.searchsorted(offsets, ends).tolist()
            counts = offsets[start - 1 : stop + 1].clamp(first, last).diff()
            target = torch.repeat_interleave(torch.arange(start - 1, stop, device=self.device), counts)
            yield source, target, None if weights is None else weights[first:last]

    def num_others(self) -> Tensor:
        nodes, often, _ = self.folder.loops
        counts = self.csr.offsets.diff()
        counts[nodes.long()] -= often.long()
        return counts

    @property
    def in_degree(self) -> Tensor:
        return self.neighbours.in_degree

    @property
    def effective_degree(self) -> Tensor:
        return self.neighbours.effective_degree

    @property
    def mean_edge_weight(self) -> float:
        if self.edge_weight is None or not self.num_edges:
            return 1.0
        return float(self.in_degree.sum()) / self.num_edges

    @property
    def is_symmetric(self) -> bool:
        return sums_agree(self.folder.sidecar("symmetry", self._direction_sums, "float64", (2,)))

    def _direction_sums(self) -> Tensor:
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for source, target, weight in self.edge_blocks():
            relative = None if weight is None else weight.double() / self.mean_edge_weight
            sums += direction_sums(source, target, relative)
        return sums

    # --- products ---

    @cached_property
    def random_walk(self) -> FolderWalk:  # type: ignore[override]
        return FolderWalk(self.neighbours, self.x.dtype, self.folder.empty)

    def walk_without_return(self, count: Tensor, counts_return: bool) -> FolderWalk:
        sums = SumWithoutReturn(self.neighbours, count, counts_return)
        return FolderWalk(sums, self.x.dtype, self.folder.empty)

    @cached_property
    def gcn_scale(self) -> Tensor:
        return (self.in_degree + self._missing_loops).to(self.x.dtype).pow_(-0.5)

    @property
    def loop_weight(self) -> Tensor:
        nodes, counts, weights = self.folder.loops
        own = self.x.new_ones(self.num_nodes)
        own[nodes.long()] = (weights / counts).to(own.dtype)
        return own

    @cached_property
    def _missing_loops(self) -> Tensor:
        """One minus the number of self-loops of each node.

        With weights, the weight of the one self-loop that `gcn_matrix` has, minus the total weight of the self-loops.
        """
        nodes, counts, weights = self.folder.loops
        if self.edge_weight is None:
            missing = torch.ones(self.num_nodes, dtype=torch.int32, device=self.device)
            missing[nodes.long()] -= counts.int()
            return missing
        missing = self.loop_weight.double()
        missing[nodes.long()] -= weights
        return missing

    def convolve(self, values: Tensor, bias: Tensor | None = None) -> Tensor:
        out = self.empty(values.shape[1])
        for columns in column_groups(values):
            self._convolve(values[:, columns], out[:, columns], None if bias is None else bias[columns])
        return out

    def _convolve(self, values: Tensor, out: Tensor, bias: Tensor | None) -> None:
        scale, buffer = self.gcn_scale, shared_buffer(tuple(values.shape), values)
        scaled = filled(buffer, list(self.row_slices()), lambda rows: values[rows] * scale[rows].unsqueeze(1))
        for block in self.neighbours.own_blocks():
            rows = slice(block.start, block.stop)
            sums, missing = self.neighbours.of_block(block, scaled), self._missing_loops[rows]
            if self.edge_weight is None:
                sums.addcmul_(scaled[rows], missing.to(sums.dtype).unsqueeze(1)).mul_(scale[rows].unsqueeze(1))
            else:  # these are means; the factors first, since a degree times a mean may overflow
                to_sum, to_own = (
                    (factor * scale[rows]).to(sums).unsqueeze(1) for factor in (self.in_degree[rows], missing)
                )
                sums.mul_(to_sum).addcmul_(scaled[rows], to_own)
            out[rows] = sums if bias is None else sums.add_(bias)
        self.neighbours.all_gather(out)

    @cached_property
    def smoothed_x(self) -> Tensor:
        if self._has_own_features:
            return self.folder.sidecar("ax", lambda: self.convolve(self.x), self._dtype, tuple(self.x.shape))
        return self.convolve(self.x)

    @property
    def _dtype(self) -> str:
        return str(self.x.dtype).removeprefix("torch.")

    def support(self, num_hops: int, eta: float) -> Tensor:
        name = re.sub(r"[^0-9a-z-]", "_", f"support-{num_hops}-{eta!r}-{self._dtype}")
        kind = "cpu" if self.device.type == "cpu" else "cuda"
        fitting = _PROBES_IN_MEMORY[kind] // max(self.num_nodes * self.x.dtype.itemsize, 1)
        probes = next((count for count in _PROBES[kind] if count <= fitting), _PROBES[kind][-1])

        def make() -> Tensor:
            return self.keep(support(self.random_walk, num_hops, eta, probes_at_once=probes))

        return self.folder.sidecar(name, make, self._dtype, (self.num_nodes,))

    def neighbour_sums(self, values: Tensor) -> Tensor:
        out = torch.empty_like(values)
        for block in self.neighbours.own_blocks():
            out[block.start : block.stop] = self.neighbours.of_block(block, values)
        self.neighbours.all_gather(out)
        return out if self.edge_weight is None else out.mul_(self.in_degree.to(out.dtype))

    def rows_around(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The GCN matrix at some nodes: its columns ``[m]``, and coordinates ``[2, e]`` and values of its entries."""
        edge, row = self.csr.edges_to(nodes)
        source = self.csr.sources[edge].long()
        keep = source != nodes[row]
        row = torch.cat([row[keep], torch.arange(len(nodes), device=self.device)])
        source = torch.cat([source[keep], nodes])
        rows, column = source.unique(return_inverse=True)
        values = self.gcn_scale[rows][column]
        if self.edge_weight is not None:
            values *= torch.cat([self.edge_weight[edge][keep], self.loop_weight[nodes]])
        values *= self.gcn_scale[nodes][row]
        return rows, torch.stack([row, column]), values

    # --- results for every node ---

    def row_slices(self) -> Iterator[slice]:
        # Rounding depends on these slices, so they are the same for all ranks and memory limits.
        row_bytes = 4 * self.x.dtype.itemsize * max(self.x.shape[1], 64)
        for start, stop in row_chunks(self.num_nodes, row_bytes, at_once(_BYTES_AT_ONCE, self.device)):
            yield slice(start, stop)

    def empty(self, width: int | None, dtype: torch.dtype | None = None, is_factor: bool = False) -> Tensor:
        shape, dtype = (self.num_nodes,) if width is None else (self.num_nodes, width), dtype or self.x.dtype
        if is_factor and prod(shape) * dtype.itemsize <= active_ranks().memory_share:
            return shared_buffer(shape, self.x.new_empty(0, dtype=dtype))
        return self.folder.empty(shape, dtype)

    def shards(self, out: Tensor) -> Iterator[slice]:
        return active_ranks().shards(out, list(self.row_slices()))

    def neighbour_means(
        self,
        values: Tensor,
        out: Tensor,
        walk: FolderWalk | None = None,  # type: ignore[override]
        num_hops: int = 1,
        eta: float = 0.0,
        in_place: bool = False,
    ) -> Iterator[tuple[slice, Tensor]]:
        walk = self.random_walk if walk is None else walk
        if num_hops and len(column_groups(values)) == 1:
            yield from walk.means(values, out, num_hops, eta, in_place)
            return
        means = walk.diffuse(values, eta, num_hops) if num_hops else values
        for rows in self.shards(out):
            yield rows, means[rows]

    def own_copy(self, values: Tensor) -> Tensor:
        return own_copy(values)

    def keep(self, values: Tensor) -> Tensor:
        if is_in_file(values) and values.is_contiguous():
            return values
        buffer = self.folder.empty(tuple(values.shape), values.dtype)
        return buffer.copy_(values) if is_in_file(buffer) else values.contiguous()
