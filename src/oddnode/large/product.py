"""Products with the edges of a graph on disk: sums over neighbours for some rows at a time, and the random walk.

``out[a:b] = scale[a:b] * (rows a:b of the edges @ values)``. The values of all nodes are in memory, the edges and their
weights are read from disk in order. Without weights no number is stored per edge: rows of ones share one buffer. On a
GPU the edges are in its memory, and a Triton kernel sums.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode._utils.lazy import cached_property
from oddnode.graph.graph import without_return
from oddnode.large.arrays import at_once, is_in_file
from oddnode.large.buffers import copied, shared_buffer
from oddnode.large.ranks import active_ranks
from oddnode.ops import LongRows, Mix, NeighbourMean, neighbour_mean_of_sorted, sum_neighbours, triton_kernels
from oddnode.ops.csr import cpu_has_csr_kernel, multiply

_EDGES_AT_ONCE = 2**21
_WEIGHTS_AT_ONCE = 2**19  # fewer, because the shares of the edges are computed in memory
_EDGES_ON_GPU = 2**25
_ROWS_AT_ONCE = 2**17
# Up to this many columns in single precision, torch's CSR kernel is faster.
_FEW_COLUMNS = 2
# Up to this many columns, per-node factors are expanded to full columns.
_REPEATED_COLUMNS = 4
# This many columns are overwritten at a time; a product with fewer is slower.
_COLUMNS_IN_PLACE = 16
# Bytes of columns that a GPU holds at a time.
_COLUMNS_ON_GPU = 2**34


class RowBlock(NamedTuple):
    """Some rows of the edges in CSR form."""

    start: int  # The first row
    stop: int  # The one after the last
    offsets: Tensor  # Where the edges of each row begin in `sources`, `[rows + 1]`
    sources: Tensor  # The sources of the edges, `[edges]`
    weights: Tensor | None


class NeighbourSum:
    """Sums over the sources of the edges to every node; of edges with weights, means.

    In a mean an edge has its share of the weight of all edges to the node, as in the matrix of a graph in memory. Sums
    of values times weights would leave the range of single precision if weights are very large or very small.

    If several ranks work together (`oddnode.large.joined`), each of them sums for some rows.
    """

    def __init__(
        self, offsets: Tensor, sources: Tensor, weights: Tensor | None = None, edges_at_once: int | None = None
    ):
        self.offsets = offsets
        self.sources = sources
        self.weights = weights
        most = _EDGES_AT_ONCE if weights is None else _WEIGHTS_AT_ONCE
        self.edges_at_once = edges_at_once or (most if sources.device.type == "cpu" else _EDGES_ON_GPU)
        self._ones: dict[torch.dtype, Tensor] = {}
        self._long_rows: dict[tuple[int, int], LongRows] = {}
        self._bounds: dict[int, list[int]] = {}

    @cached_property
    def _cuts(self) -> list[int]:
        """The rows at which blocks begin, and the number of rows."""
        num_rows, cuts = len(self.offsets) - 1, [0]
        most = at_once(_ROWS_AT_ONCE, self.offsets.device)
        while cuts[-1] < num_rows:
            start = cuts[-1]
            last = int(self.offsets[start]) + self.edges_at_once
            fitting = int(torch.searchsorted(self.offsets[start : start + most + 1], last, right=True)) - 1
            cuts.append(min(start + max(fitting, 1), num_rows))
        return cuts

    @property
    def _rank_bounds(self) -> list[int]:
        """The first row of every rank, and the number of rows: a row is as much work as an edge to it."""
        ranks = active_ranks()
        if ranks.world_size not in self._bounds:
            bounds = ranks.bounds(self._cuts, lambda row: row + int(self.offsets[row]))
            self._bounds[ranks.world_size] = bounds
        return self._bounds[ranks.world_size]

    def blocks(self) -> Iterator[RowBlock]:
        return self._blocks(0, len(self.offsets) - 1)

    def own_blocks(self) -> Iterator[RowBlock]:
        """Read the edges to the rows assigned to this process, in order; `all_gather` must follow."""
        first, last = self._rank_bounds[active_ranks().rank :][:2]
        return self._blocks(first, last)

    def all_gather(self, out: Tensor) -> Tensor:
        """Complete a result after the rows of `own_blocks` were filled."""
        return active_ranks().all_gather(out, self._rank_bounds)

    def _blocks(self, first_row: int, last_row: int) -> Iterator[RowBlock]:
        cuts = self._cuts
        for start, stop in pairwise(cuts[bisect_left(cuts, first_row) : bisect_right(cuts, last_row)]):
            own = self.offsets[start : stop + 1]
            first, last = int(own[0]), int(own[-1])
            weights = None if self.weights is None else self.weights[first:last]
            yield RowBlock(start, stop, (own - first).to(self.sources.dtype), self.sources[first:last], weights)

    @property
    def in_degree(self) -> Tensor:
        """Number of edges that lead to each node ``[N]``; with weights, their sum in double precision."""
        return self.offsets.diff() if self.weights is None else self._weight_to

    @property
    def effective_degree(self) -> Tensor:
        """Effective sample size (Kish) of each node's edge weights ``[N]``; without weights, the number of edges."""
        return self.offsets.diff() if self.weights is None else self._effective_degree

    @cached_property
    def _weight_to(self) -> Tensor:
        return self._sums_of_weights(lambda weights: weights)

    @cached_property
    def _effective_degree(self) -> Tensor:
        squares = self._sums_of_weights(torch.square)  # of numbers that single precision holds: none overflows
        return torch.where(squares > 0, self.in_degree.square() / squares, 0.0)

    def _sums_of_weights(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The sums of a function of the weights of the edges to each node ``[N]``."""
        sums = torch.empty(len(self.offsets) - 1, dtype=torch.float64, device=self.offsets.device)
        for block in self.blocks():
            assert block.weights is not None
            values = function(block.weights.double())
            own = torch.segment_reduce(values, "sum", offsets=block.offsets, axis=0, initial=0.0)
            sums[block.start : block.stop] = own
        return sums

    def _shares(self, block: RowBlock, dtype: torch.dtype) -> Tensor | None:
        """The share of each edge in the weight of all edges to its target."""
        if block.weights is None:
            return None
        degree = self.in_degree[block.start : block.stop].to(block.weights.dtype)
        counts, total = block.offsets.diff(), len(block.sources)
        return (block.weights / degree.repeat_interleave(counts, output_size=total)).to(dtype)

    def of_block(self, block: RowBlock, values: Tensor) -> Tensor:
        """Sum values over the neighbours of some nodes; of edges with weights, average them."""
        is_column = values.dim() == 1
        if self._uses_kernel(values):
            return sum_neighbours(block.offsets, block.sources, values, self._long_rows_of(block.offsets, block.start))
        shares = self._shares(block, values.dtype)
        if is_column and values.device.type != "cpu":
            gathered = values[block.sources] if shares is None else values[block.sources] * shares
            return torch.segment_reduce(gathered, "sum", offsets=block.offsets, axis=0, initial=0.0)
        is_narrow = is_column or values.shape[1] <= _FEW_COLUMNS
        if values.device.type == "cpu" and cpu_has_csr_kernel() and (is_narrow or values.dtype != torch.float32):
            shape = block.stop - block.start, len(values)
            entries = self._ones_like(values, len(block.sources)) if shares is None else shares
            rows = torch.sparse_csr_tensor(block.offsets, block.sources, entries, shape, check_invariants=False)
            return multiply(rows, values)
        columns = values.unsqueeze(1) if is_column else values
        # Sums of embeddings are the fastest product by a matrix of ones; see `oddnode.ops.csr.multiply_wide`.
        sums = F.embedding_bag(
            block.sources, columns, block.offsets, mode="sum", per_sample_weights=shares, include_last_offset=True
        )
        return sums.squeeze(1) if is_column else sums

    def mix_into(self, out: Tensor, values: Tensor, kept: Tensor | None, share: Tensor) -> None:
        """Mix the values of all nodes with the sums over their neighbours: ``kept * values + share * sums``."""
        if kept is not None and self._uses_kernel(values) and active_ranks().world_size == 1:
            # The kernel writes every row where it belongs, so that there is no need for blocks.
            mix = Mix(values, kept, share)
            sum_neighbours(self.offsets, self.sources, values, self._long_rows_of(self.offsets, 0), mix, out)
            return
        for block in self.own_blocks():
            self.mixed_block(block, values, kept, share, out[block.start : block.stop])
        self.all_gather(out)

    def mixed_block(
        self, block: RowBlock, values: Tensor, kept: Tensor | None, share: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """Mix the values of some nodes, always with the same rounding."""
        rows = slice(block.start, block.stop)
        sums, factor = self.of_block(block, values), _beside(share[rows], values)
        if kept is None:
            return torch.mul(sums, factor, out=out)
        return torch.mul(values[rows], _beside(kept[rows], values), out=out).addcmul_(sums, factor)

    def _uses_kernel(self, values: Tensor) -> bool:
        return self.weights is None and triton_kernels.can_run(values.device)

    def _long_rows_of(self, offsets: Tensor, start: int) -> LongRows:
        """The long rows among the rows from ``start`` on."""
        key = start, len(offsets)
        if key not in self._long_rows:
            self._long_rows[key] = LongRows(offsets[:-1], offsets[1:])
        return self._long_rows[key]

    def _ones_like(self, values: Tensor, count: int) -> Tensor:
        known = self._ones.get(values.dtype)
        if known is None or len(known) < count:
            known = self._ones[values.dtype] = torch.ones(max(count, min(self.edges_at_once, len(self.sources))))
            known = self._ones[values.dtype] = known.to(values.dtype)
        return known[:count]


def _beside(numbers: Tensor, values: Tensor) -> Tensor:
    """One number per node, for a product with values of one or more columns."""
    return numbers if values.dim() == numbers.dim() else numbers.unsqueeze(1)


class SumWithoutReturn(NeighbourSum):
    """Sums over neighbours with the entries of `oddnode.graph.Graph.walk_without_return`."""

    def __init__(self, whole: NeighbourSum, count: Tensor, counts_return: bool):
        super().__init__(whole.offsets, whole.sources, whole.weights, whole.edges_at_once)
        self._weight_to = whole.in_degree  # computed once
        self._count, self._counts_return = count, counts_return
        self._ratio = whole.effective_degree / whole.in_degree

    def _shares(self, block: RowBlock, dtype: torch.dtype) -> Tensor | None:
        shares, source = super()._shares(block, dtype), block.sources.long()
        assert shares is not None
        assert block.weights is not None
        rows = torch.arange(block.stop - block.start, device=source.device)
        row = torch.repeat_interleave(rows, block.offsets.diff())
        # A repeated edge has the mean weight of its repetitions, which lie side by side.
        _, edge, often = torch.stack([row, source]).unique_consecutive(return_inverse=True, return_counts=True, dim=1)
        total = block.weights.new_zeros(len(often), dtype=torch.float64).index_add_(0, edge, block.weights.double())
        back = (total / often)[edge] * self._ratio[source]
        return without_return(self._count[source], back.to(dtype), shares, self._counts_return).to(dtype)


class FolderWalk(NeighbourMean):
    """``D^-1 A`` of a graph on disk, as `oddnode.functional.energy.propagate` takes it."""

    def __init__(
        self,
        sums: NeighbourSum,
        dtype: torch.dtype,
        empty: Callable[[tuple[int, ...], torch.dtype], Tensor],
    ):
        super().__init__(sums.offsets, sums.sources)
        self.neighbours = sums
        self.dtype = dtype
        self.empty = empty

    @cached_property
    def _for_columns(self) -> NeighbourMean | None:
        """Cache-blocked variant for vectors on a GPU."""
        alone = active_ranks().world_size == 1
        if self.neighbours.weights is not None or not triton_kernels.can_run(self.device) or not alone:
            return None
        return neighbour_mean_of_sorted(self.offsets, self.sources)

    def inverse_degree(self, dtype: torch.dtype) -> Tensor:
        """Compute the factors that turn what `NeighbourSum.of_block` returns into means: 1 / degree, or 1 for means."""
        counts = self.row_counts()
        if self.neighbours.weights is not None:
            return (counts > 0).to(dtype)
        # Not cached: it is fast to compute and would take memory.
        return counts.to(dtype).reciprocal_().masked_fill_(counts == 0, 0.0)

    def __matmul__(self, values: Tensor) -> Tensor:
        return self.diffuse(values, eta=0.0, num_hops=1)

    def diffuse(self, values: Tensor, eta: float, num_hops: int) -> Tensor:
        values = values.detach()
        if values.dim() == 1:
            if self._for_columns is not None:
                walk = self._for_columns
                walk = walk.with_self_loops_where_empty if self.self_loops_where_empty else walk
                return walk.diffuse(values, eta, num_hops)
            return self._diffuse_into(shared_buffer(tuple(values.shape), values), in_memory(values), eta, num_hops)
        out = self.empty(tuple(values.shape), values.dtype)
        copies, many = (1 if num_hops < 2 else 2), num_hops > 2
        for columns in column_groups(values, copies):  # before and after a hop
            part = values[:, columns]
            # From the third hop on, the values themselves are a buffer.
            self._diffuse_into(out[:, columns], copied(part) if many else in_memory(part), eta, num_hops, many)
        return out

    def means(
        self, values: Tensor, out: Tensor, num_hops: int, eta: float, in_place: bool
    ) -> Iterator[tuple[slice, Tensor]]:
        """Yield the rows that this rank computes, with these rows of what `diffuse` returns, which is not kept."""
        present = in_memory(values.detach())
        if num_hops > 1 and in_place:
            for columns in present.split(_COLUMNS_IN_PLACE, dim=1):
                self._diffuse_into(columns, copied(columns), eta, num_hops - 1, overwrite=True)
        elif num_hops > 1:
            buffer = shared_buffer(tuple(present.shape), present)
            present = self._diffuse_into(buffer, present, eta, num_hops - 1)
        share, kept = self._shares(eta, present.dtype)
        with active_ranks().by_itself():
            for block in self.neighbours.own_blocks():
                yield slice(block.start, block.stop), self.neighbours.mixed_block(block, present, kept, share)
        self.neighbours.all_gather(out)

    def _shares(self, eta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Factors of neighbour sums and of nodes' own values ``[N]``; None for the latter if nodes keep nothing."""
        share = self.inverse_degree(dtype) * (1.0 - eta)
        kept = self.own_share(eta, share)
        if isinstance(kept, Tensor):
            return share, kept
        return share, torch.full_like(share, kept) if kept else None

    def _diffuse_into(self, out: Tensor, values: Tensor, eta: float, num_hops: int, overwrite: bool = False) -> Tensor:
        """Write what `diffuse` returns; with ``overwrite`` the values serve as a buffer."""
        share, kept = self._shares(eta, values.dtype)
        if values.dim() == 2 and values.shape[1] <= _REPEATED_COLUMNS and values.device.type == "cpu":
            # Torch multiplies a few columns more slowly by one broadcast column than by full columns.
            share, kept = _repeated(share, values), None if kept is None else _repeated(kept, values)
        present, spare = values, None
        for hop in range(num_hops - 1):
            after = shared_buffer(tuple(values.shape), values) if spare is None else spare
            self.neighbours.mix_into(after, present, kept, share)
            present, spare = after, present if hop or overwrite else None
        if not num_hops:
            return out.copy_(values)
        self.neighbours.mix_into(out, present, kept, share)
        return out


def in_memory(values: Tensor) -> Tensor:
    """Copy values that are in a file or not contiguous, because a product reads them at random."""
    if values.is_contiguous() and not is_in_file(values):
        return values
    return copied(values)


def column_groups(values: Tensor, copies: int = 1) -> list[slice]:
    """Divide columns into groups that fit into memory."""
    num_rows, width = values.shape
    most = active_ranks().memory_share if values.device.type == "cpu" else _COLUMNS_ON_GPU
    step = max(most // max(copies * num_rows * values.dtype.itemsize, 1), 1)
    even = -(-width // max(-(-width // step), 1))  # so that all groups have about the same size
    for few in (16, 8):  # a product with a multiple of these is faster
        rounded = -(-even // few) * few
        if rounded <= step:
            even = rounded
            break
    return [slice(first, min(first + even, width)) for first in range(0, width, max(even, 1))]


def _repeated(numbers: Tensor, values: Tensor) -> Tensor:
    """One number per node, repeated for every column of the values, ``[N, C]``."""
    return numbers.unsqueeze(1).expand_as(values).contiguous()
