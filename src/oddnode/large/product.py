"""The one kernel of graphs on disk: sums over neighbours, for some rows of the edges at a time.

``out[a:b] = scale[a:b] * (rows a:b of the edges @ values)``. The values of all nodes are in memory, the edges and their
weights are read from disk in order. Without weights no number is stored per edge: rows of ones share one buffer. On a
GPU the edges are in its memory, and a Triton kernel sums.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from oddnode.large.arrays import at_once
from oddnode.large.ranks import active_ranks
from oddnode.ops import LongRows, Mix, sum_neighbours, triton_kernels
from oddnode.ops.csr import cpu_has_csr_kernel, from_offsets, multiply

__all__ = ["ChangedShares", "NeighbourSum", "RowBlock"]

_EDGES_AT_ONCE = 2**21
_WEIGHTS_AT_ONCE = 2**19  # fewer, because the shares of the edges are computed in memory
_EDGES_ON_GPU = 2**25
_ROWS_AT_ONCE = 2**17
# Torch's CSR kernel is the faster one for so many columns in single precision.
_FEW_COLUMNS = 2


class RowBlock(NamedTuple):
    """Some rows of the edges in CSR form.

    Parameters
    ----------
    start, stop : int
        The first row, and the one after the last.
    offsets : Tensor
        Where the edges of each row begin in ``sources``, ``[rows + 1]``.
    sources : Tensor
        The sources of the edges, ``[edges]``.
    weights : Tensor or None
        Their weights, ``[edges]``.
    """

    start: int
    stop: int
    offsets: Tensor
    sources: Tensor
    weights: Tensor | None


class NeighbourSum:
    """Sums over the sources of the edges to every node; of edges with weights, means.

    In a mean an edge has its share of the weight of all edges to the node, as in the matrix of a graph in memory. Sums
    of values times weights would leave single precision where weights are very large or very small.

    If several ranks work together (`oddnode.large.joined`), each of them sums for some rows.

    Parameters
    ----------
    offsets : Tensor
        Where the edges of every node begin, ``[N + 1]``.
    sources : Tensor
        The sources of the edges, sorted by target, ``[E]``.
    weights : Tensor, optional
        The weights of the edges, above 0, ``[E]``.
    edges_at_once : int, optional
        How many edges are multiplied at a time; a row is not divided.
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
        """Read the edges in order.

        Yields
        ------
        RowBlock
            The next rows.
        """
        return self._blocks(0, len(self.offsets) - 1)

    def own_blocks(self) -> Iterator[RowBlock]:
        """Read the edges to the rows that are the work of this process, in order; `all_gather` must follow.

        Yields
        ------
        RowBlock
            The next rows; of a single process, all that there are.
        """
        first, last = self._rank_bounds[active_ranks().rank :][:2]
        return self._blocks(first, last)

    def all_gather(self, out: Tensor) -> Tensor:
        """Complete a result of which `own_blocks` has filled the rows of this process.

        Parameters
        ----------
        out : Tensor
            Shape ``[N]`` or ``[N, C]``.

        Returns
        -------
        Tensor
            The same tensor, with the rows of all processes.
        """
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
        """Number of equal edges that a mean over each node's edges is worth ``[N]``: without weights, of its edges."""
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
        """Sum values over the neighbours of some nodes; of edges with weights, average them.

        Parameters
        ----------
        block : RowBlock
            From `blocks`.
        values : Tensor
            Shape ``[N]`` or ``[N, C]``.

        Returns
        -------
        Tensor
            Shape ``[rows]`` or ``[rows, C]``.
        """
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
            return multiply(from_offsets(block.offsets, block.sources, entries, shape), values)
        columns = values.unsqueeze(1) if is_column else values
        # Sums of embeddings are the fastest product by a matrix of ones; see `oddnode.ops.csr.multiply_wide`.
        sums = F.embedding_bag(
            block.sources, columns, block.offsets, mode="sum", per_sample_weights=shares, include_last_offset=True
        )
        return sums.squeeze(1) if is_column else sums

    def mix_into(self, out: Tensor, values: Tensor, kept: Tensor | None, share: Tensor) -> None:
        """Mix the values of all nodes with the sums over their neighbours: ``kept * values + share * sums``.

        Parameters
        ----------
        out : Tensor
            Where the result is written, ``[N]`` or ``[N, C]``.
        values : Tensor
            Of the same shape, contiguous.
        kept : Tensor or None
            The share of its own value that each node keeps, ``[N]``; None for nothing.
        share : Tensor
            The factors of the sums, ``[N]``. On a CPU, both may have the columns of the values.
        """
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
        """Mix the values of some nodes, always with the same rounding.

        Parameters
        ----------
        block : RowBlock
            From `blocks`.
        values, kept, share
            As for `mix_into`, of all nodes.
        out : Tensor, optional
            Where the result is written, ``[rows]`` or ``[rows, C]``.

        Returns
        -------
        Tensor
            The result.
        """
        rows = slice(block.start, block.stop)
        sums, factor = self.of_block(block, values), _beside(share[rows], values)
        if kept is None:
            return torch.mul(sums, factor, out=out)
        return torch.mul(values[rows], _beside(kept[rows], values), out=out).addcmul_(sums, factor)

    def _uses_kernel(self, values: Tensor) -> bool:
        return self.weights is None and triton_kernels.can_run(values.device)

    def _long_rows_of(self, offsets: Tensor, start: int) -> LongRows:
        """Those of some rows, the first of which is ``start``."""
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


class ChangedShares(NeighbourSum):
    """Sums over neighbours with other shares, for `oddnode.graph.Graph.changed_walk`.

    Parameters
    ----------
    whole : NeighbourSum
        The edges of a symmetric graph, with weights.
    change : callable
        Maps sources, by how many equal edges a target counts around them, and shares to other shares, ``[e]`` each.
    """

    def __init__(self, whole: NeighbourSum, change: Callable[[Tensor, Tensor, Tensor], Tensor]):
        super().__init__(whole.offsets, whole.sources, whole.weights, whole.edges_at_once)
        self.__dict__["_weight_to"] = whole.in_degree  # which are computed once
        self._change = change
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
        return self._change(source, back.to(dtype), shares).to(dtype)
