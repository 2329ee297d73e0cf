"""The mean over neighbours with the edges in blocks by their sources, for graphs that outgrow the cache of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from oddnode.ops import triton_kernels as _kernels
from oddnode.ops.long_rows import LongRows
from oddnode.ops.neighbour_mean import NeighbourMean

__all__ = ["BlockedNeighbourMean", "neighbour_mean", "neighbour_mean_of_sorted"]

# Edges that are divided into blocks at a time, which takes several numbers for each.
_EDGES_AT_ONCE = 2**27
# So many edges of a row and a block are summed one after the other.
_MOST_IN_BLOCK = 128


class BlockedNeighbourMean(NeighbourMean):
    """The same with the edges in blocks by their sources, so that a GPU finds the values of a block in its cache.

    Worth it where values of all nodes do not fit there: reading them in random order is what a hop costs.

    Parameters
    ----------
    counts : list of Tensor
        For each block, how many edges of it every node has, ``[N]`` whole numbers of any size.
    sources : list of Tensor
        For each block, the sources of its edges, sorted by target.
    self_loops_where_empty : bool
        Whether a node without neighbours counts as its own.
    """

    def __init__(self, counts: Sequence[Tensor], sources: Sequence[Tensor], self_loops_where_empty: bool = False):
        self.counts, self.block_sources = list(counts), list(sources)
        self.self_loops_where_empty = self_loops_where_empty
        self._inverse_degrees = {}
        self._bases = [_tile_bases(each) for each in counts]

    @classmethod
    def from_edges(cls, edge_index: Tensor, num_nodes: int, num_blocks: int = 8) -> BlockedNeighbourMean:
        """Sort edges into blocks of equally many nodes.

        Parameters
        ----------
        edge_index : Tensor
            Edges ``[2, E]``, from source to target.
        num_nodes : int
            How many nodes there are.
        num_blocks : int
            How many blocks to make.

        Returns
        -------
        BlockedNeighbourMean
            The mean over every node's neighbours.
        """
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
        """Divide edges that are sorted by target into blocks of equally many nodes, some rows at a time.

        Parameters
        ----------
        offsets, sources
            As for `NeighbourMean`.
        num_blocks : int
            How many blocks to make.
        """
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
    def with_self_loops_where_empty(self) -> BlockedNeighbourMean:
        """The same with every node that has no neighbour as its own."""
        return BlockedNeighbourMean(self.counts, self.block_sources, self_loops_where_empty=True)

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
        """Of every block: a program adds one edge of a row after the other."""
        found = []
        for counts in self.counts:
            ends = counts.cumsum(0, dtype=torch.long)
            found.append(LongRows(ends - counts, ends, _MOST_IN_BLOCK))
        return found

    def __repr__(self) -> str:
        edges = sum(len(sources) for sources in self.block_sources)
        return f"BlockedNeighbourMean({self.num_nodes} nodes, {edges} edges, {len(self.counts)} blocks, {self.device})"


def neighbour_mean(edge_index: Tensor, num_nodes: int) -> NeighbourMean:
    """Choose the form of the mean over neighbours that suits the size of the graph and the device.

    Parameters
    ----------
    edge_index : Tensor
        Edges ``[2, E]``, from source to target.
    num_nodes : int
        How many nodes there are.

    Returns
    -------
    NeighbourMean
        In blocks where the values of all nodes do not fit into the cache of a GPU.
    """
    num_blocks = _num_blocks(num_nodes, edge_index.device)
    if num_blocks == 1:
        return NeighbourMean.from_edges(edge_index, num_nodes)
    return BlockedNeighbourMean.from_edges(edge_index, num_nodes, num_blocks)


def neighbour_mean_of_sorted(offsets: Tensor, sources: Tensor) -> NeighbourMean:
    """As `neighbour_mean`, for edges that are sorted by target.

    Parameters
    ----------
    offsets, sources
        As for `NeighbourMean`.
    """
    num_blocks = _num_blocks(len(offsets) - 1, sources.device)
    if num_blocks == 1:
        return NeighbourMean(offsets, sources)
    return BlockedNeighbourMean.from_sorted(offsets, sources, num_blocks)


def _num_blocks(num_nodes: int, device: torch.device) -> int:
    if not _kernels.can_run(device):
        return 1
    # Two blocks in cache at a time: the one being read and what is left of the last.
    found = -(-2 * 4 * num_nodes // torch.cuda.get_device_properties(device).L2_cache_size)
    return found if found > 2 else 1


def _smallest(counts: Tensor) -> Tensor:
    """In as few bytes as the largest needs."""
    largest = int(counts.max()) if counts.numel() else 0
    return counts.to(torch.uint8 if largest < 2**8 else torch.int16 if largest < 2**15 else torch.int32)


def _tile_bases(counts: Tensor) -> Tensor:
    """Where the edges of every tile of rows begin."""
    tiles = -(-len(counts) // _kernels.TILE)
    padded = torch.nn.functional.pad(counts, (0, tiles * _kernels.TILE - len(counts)))
    per_tile = padded.view(tiles, -1).sum(dim=1, dtype=torch.long)
    return per_tile.cumsum(0) - per_tile
