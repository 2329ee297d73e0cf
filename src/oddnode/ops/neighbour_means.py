"""The mean over neighbours without a matrix of values: for propagation over very large graphs.

A random-walk matrix repeats one number, 1 / degree, along every row. Storing it takes as much memory as the edges do;
here each sum is divided once. On a GPU a small Triton kernel sums neighbours; elsewhere torch does.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import torch
from torch import Tensor

from oddnode._utils.lazy import cached_property
from oddnode.ops import triton_kernels as _kernels
from oddnode.ops.triton_kernels import Mix

# Edges of a row that are summed at a time: a program with a row of a million edges would keep all others waiting.
_MOST = 1024
# Edges of a row and a block that are summed one after the other.
_MOST_IN_BLOCK = 128
# Edges that are divided into blocks at a time, which takes several values for each.
_EDGES_AT_ONCE = 2**27


class LongRows:
    """The edges of long CSR rows beyond the first ones, in pieces that a GPU sums in parallel."""

    def __init__(self, starts: Tensor, ends: Tensor, most: int = _MOST):
        self.most = most
        self.rows = (ends - starts > most).nonzero().squeeze(1)
        first, last = starts[self.rows].long() + most, ends[self.rows].long()
        num_pieces = (last - first + _MOST - 1) // _MOST
        row = torch.repeat_interleave(torch.arange(len(self.rows), device=starts.device), num_pieces)
        self._pieces = torch.arange(len(row), device=starts.device)
        self._last_pieces = num_pieces.cumsum(0)
        self._first_pieces = self._last_pieces - num_pieces
        self._starts = first[row] + (self._pieces - self._first_pieces[row]) * _MOST
        self._ends = torch.minimum(self._starts + _MOST, last[row])

    def add(self, sources: Tensor, values: Tensor, total: Tensor, share: Tensor | None = None) -> Tensor:
        """Add the sums of the pieces, always in the same order."""
        if len(self.rows):
            of_pieces = _kernels.sum_ranges(self._starts, self._ends, sources, values)
            sums = _kernels.sum_ranges(self._first_pieces, self._last_pieces, self._pieces, of_pieces)
            total[self.rows] += sums if share is None else (sums.t() * share[self.rows]).t()
        return total


def sum_neighbours(
    offsets: Tensor,
    sources: Tensor,
    values: Tensor,
    long_rows: LongRows | None = None,
    mix: Mix | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Sum ``values`` over the sources of every row of a CSR structure, on a GPU."""
    rest = long_rows or LongRows(offsets[:-1], offsets[1:])
    sums = _kernels.sum_ranges(offsets[:-1], offsets[1:], sources, values, rest.most, mix=mix, out=out)
    return rest.add(sources, values, sums, None if mix is None else mix.share)


class NeighbourMean:
    """``D^-1 A`` of a graph, by its incoming edges in CSR form."""

    dtype = torch.float32  # of estimates that depend on the edges alone
    self_loops_where_empty = False

    def __init__(self, offsets: Tensor, sources: Tensor):
        self.offsets = offsets
        self.sources = sources
        self._inverse_degrees: dict[torch.dtype, Tensor] = {}

    @classmethod
    def from_edges(cls, edge_index: Tensor, num_nodes: int) -> NeighbourMean:
        """Sort the incoming edges of every node; sources are kept in 32 bits."""
        source, target = edge_index
        order = target.argsort(stable=True)
        counts = torch.bincount(target, minlength=num_nodes)
        offsets = torch.zeros(num_nodes + 1, dtype=torch.long, device=target.device)
        torch.cumsum(counts, 0, out=offsets[1:])
        return cls(offsets.int() if target.numel() < 2**31 else offsets, source[order].int())

    @property
    def device(self) -> torch.device:
        return self.sources.device

    @property
    def num_nodes(self) -> int:
        return len(self.offsets) - 1

    def row_counts(self) -> Tensor:
        return self.offsets.diff()

    def inverse_degree(self, dtype: torch.dtype) -> Tensor:
        """Compute 1 / degree once, 0 for a node without neighbours."""
        if dtype not in self._inverse_degrees:
            counts = self.row_counts()
            self._inverse_degrees[dtype] = counts.to(dtype).reciprocal_().masked_fill_(counts == 0, 0.0)
        return self._inverse_degrees[dtype]

    @cached_property
    def with_self_loops_where_empty(self) -> Self:
        """The same with isolated nodes as their own neighbours; the edges are not copied."""
        looped = copy(self)
        looped.self_loops_where_empty = True
        return looped

    def own_share(self, eta: float, like: Tensor) -> float | Tensor:
        """The share of its own value that a node keeps in every hop."""
        if not self.self_loops_where_empty:
            return eta
        return torch.full_like(like, eta).masked_fill_(self.row_counts() == 0, 1.0)

    @cached_property
    def transposed(self) -> NeighbourMean:
        """The outgoing edges, for the backward pass."""
        target = torch.repeat_interleave(torch.arange(self.num_nodes, device=self.device), self.row_counts())
        return NeighbourMean.from_edges(torch.stack([target, self.sources.long()]), self.num_nodes)

    @cached_property
    def _long_rows(self) -> LongRows:
        return LongRows(self.offsets[:-1], self.offsets[1:])

    def sums(self, values: Tensor) -> Tensor:
        if _kernels.can_run(values.device):
            return sum_neighbours(self.offsets, self.sources, values, self._long_rows)
        gathered = values.index_select(0, self.sources)
        return torch.segment_reduce(gathered, "sum", offsets=self.offsets, axis=0, initial=0.0)

    def diffuse(self, values: Tensor, eta: float, num_hops: int) -> Tensor:
        """Repeat ``v <- eta v + (1 - eta) M v`` as one differentiable operation."""
        if values.dim() != 1:
            raise ValueError(f"values have shape {list(values.shape)}, expected one per node")
        return _Diffusion.apply(values, self, False, eta, num_hops)

    def __repr__(self) -> str:
        return f"NeighbourMean({self.num_nodes} nodes, {len(self.sources)} edges, {self.device})"


class _Diffusion(torch.autograd.Function):
    """`NeighbourMean.diffuse`; in its gradient the division comes before the sum, over outgoing edges."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, walk: NeighbourMean, transpose: bool, eta: float, num_hops: int) -> Tensor:
        ctx.settings = walk, not transpose, eta, num_hops
        values, share = values.detach(), walk.inverse_degree(values.dtype)
        own = walk.own_share(eta, values)
        for _ in range(num_hops):
            # In place where possible: on the largest graphs, memory is the bottleneck.
            if transpose:
                drawn = walk.transposed.sums((values * share).mul_(1.0 - eta))
            else:
                drawn = walk.sums(values).mul_(share).mul_(1.0 - eta)
            values = drawn.addcmul_(values, own) if isinstance(own, Tensor) else drawn.add_(values, alpha=own)
        return values

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        return _Diffusion.apply(grads[0], *ctx.settings), None, None, None, None


class BlockedNeighbourMean(NeighbourMean):
    """`NeighbourMean` with the edges in blocks of sources, so that a GPU finds the values of a block in its cache.

    Worth it where values of all nodes do not fit there: reading them in random order is what a hop costs.
    """

    def __init__(self, counts: Sequence[Tensor], sources: Sequence[Tensor]):
        self.counts, self.block_sources = list(counts), list(sources)
        self._inverse_degrees = {}
        self._bases = [_tile_bases(each) for each in counts]

    @classmethod
    def from_edges(cls, edge_index: Tensor, num_nodes: int, num_blocks: int = 8) -> BlockedNeighbourMean:
        """Sort edges into blocks of equally many nodes."""
        source, target = edge_index
        block = torch.div(source * num_blocks, max(num_nodes, 1), rounding_mode="floor")
        counts, sources = [], []
        for number in range(num_blocks):
            chosen = (block == number).nonzero().squeeze(1)
            chosen = chosen[target[chosen].argsort(stable=True)]
            counts.append(_smallest(torch.bincount(target[chosen], minlength=num_nodes)))
            sources.append(source[chosen].int())
        return cls(counts, sources)

    @classmethod
    def from_sorted(cls, offsets: Tensor, sources: Tensor, num_blocks: int = 8) -> BlockedNeighbourMean:
        """Divide edges that are sorted by target into blocks of equally many nodes, some rows at a time."""
        size = max(-(-(len(offsets) - 1) // num_blocks), 1)
        counts: list[list[Tensor]] = [[] for _ in range(num_blocks)]
        parts: list[list[Tensor]] = [[] for _ in range(num_blocks)]
        step = max(_EDGES_AT_ONCE * (len(offsets) - 1) // max(len(sources), 1), 1)
        for row in range(0, len(offsets) - 1, step):
            own = offsets[row : row + step + 1].long()
            here = sources[int(own[0]) : int(own[-1])]
            for number in range(num_blocks):
                inside = (here >= number * size) & (here < (number + 1) * size)
                before = torch.cat([own.new_zeros(1), inside.cumsum(0)])
                counts[number].append(before[own - own[0]].diff().int())
                parts[number].append(here[inside].int())
        return cls([_smallest(torch.cat(each)) for each in counts], [torch.cat(each) for each in parts])

    @property
    def device(self) -> torch.device:
        return self.counts[0].device

    @property
    def num_nodes(self) -> int:
        return len(self.counts[0])

    def row_counts(self) -> Tensor:
        total = self.counts[0].to(torch.int32, copy=True)  # they may be int32 already
        for each in self.counts[1:]:
            total += each
        return total

    @cached_property
    def transposed(self) -> NeighbourMean:
        nodes = torch.arange(self.num_nodes, device=self.device)
        targets = torch.cat([nodes.repeat_interleave(each.int()) for each in self.counts])
        outgoing = torch.stack([targets, torch.cat(self.block_sources).long()])
        return BlockedNeighbourMean.from_edges(outgoing, self.num_nodes, len(self.counts))

    def sums(self, values: Tensor) -> Tensor:
        total, values = torch.zeros_like(values), values.contiguous()
        if not _kernels.can_run(values.device):
            for counts, sources in zip(self.counts, self.block_sources, strict=True):
                gathered = values.index_select(0, sources)
                total += torch.segment_reduce(gathered, "sum", lengths=counts.int(), axis=0, initial=0.0)
            return total
        blocks = zip(self.counts, self._bases, self.block_sources, self._long_rows_of_blocks, strict=True)
        for counts, bases, sources, long_rows in blocks:
            _kernels.add_block(counts, bases, sources, values, total, long_rows.most)
            long_rows.add(sources, values, total)
        return total

    @cached_property
    def _long_rows_of_blocks(self) -> list[LongRows]:
        """The long rows of every block, whose edges a program would add one after another."""
        blocks = []
        for counts in self.counts:
            ends = counts.cumsum(0, dtype=torch.long)
            blocks.append(LongRows(ends - counts, ends, _MOST_IN_BLOCK))
        return blocks

    def __repr__(self) -> str:
        edges = sum(len(sources) for sources in self.block_sources)
        return f"BlockedNeighbourMean({self.num_nodes} nodes, {edges} edges, {len(self.counts)} blocks, {self.device})"


def neighbour_mean(edge_index: Tensor, num_nodes: int) -> NeighbourMean:
    """Choose the form of the mean over neighbours that suits the size of the graph and the device."""
    num_blocks = _num_blocks(num_nodes, edge_index.device)
    if num_blocks == 1:
        return NeighbourMean.from_edges(edge_index, num_nodes)
    return BlockedNeighbourMean.from_edges(edge_index, num_nodes, num_blocks)


def neighbour_mean_of_sorted(offsets: Tensor, sources: Tensor) -> NeighbourMean:
    """Like `neighbour_mean`, for edges that are sorted by target."""
    num_blocks = _num_blocks(len(offsets) - 1, sources.device)
    if num_blocks == 1:
        return NeighbourMean(offsets, sources)
    return BlockedNeighbourMean.from_sorted(offsets, sources, num_blocks)


def _num_blocks(num_nodes: int, device: torch.device) -> int:
    if not _kernels.can_run(device):
        return 1
    # Two blocks in cache at a time: the one being read and what is left of the last.
    blocks = -(-2 * 4 * num_nodes // torch.cuda.get_device_properties(device).L2_cache_size)
    return blocks if blocks > 2 else 1


def _smallest(counts: Tensor) -> Tensor:
    """Convert to the smallest integer type that holds the largest."""
    largest = int(counts.max()) if counts.numel() else 0
    return counts.to(torch.uint8 if largest < 2**8 else torch.int16 if largest < 2**15 else torch.int32)


def _tile_bases(counts: Tensor) -> Tensor:
    """Where the edges of every tile of rows begin."""
    tiles = -(-len(counts) // _kernels.TILE)
    padded = torch.nn.functional.pad(counts, (0, tiles * _kernels.TILE - len(counts)))
    per_tile = padded.view(tiles, -1).sum(dim=1, dtype=torch.long)
    return per_tile.cumsum(0) - per_tile
