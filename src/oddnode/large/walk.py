"""The random walk on a graph on disk, for values of any number of columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from oddnode.large.arrays import at_once
from oddnode.large.product import NeighbourSum
from oddnode.large.ranks import active_ranks
from oddnode.ops import NeighbourMean, neighbour_mean_of_sorted, triton_kernels

__all__ = ["FolderWalk", "column_groups"]

# A product reads values at random, so that they are copied to memory: as many columns as fit into this many bytes.
_COLUMNS_IN_MEMORY = 2**28


class FolderWalk(NeighbourMean):
    """``D^-1 A`` of a graph on disk, as `oddnode.functional.energy.propagate` takes it.

    Parameters
    ----------
    sums : NeighbourSum
        The edges.
    dtype : torch.dtype
        The precision of the graph.
    empty : callable
        Makes room for results of many columns, of a shape and a type.
    self_loops_where_empty : bool
        Whether a node without neighbours counts as its own.
    """

    def __init__(
        self,
        sums: NeighbourSum,
        dtype: torch.dtype,
        empty: Callable[[tuple[int, ...], torch.dtype], Tensor],
        self_loops_where_empty: bool = False,
    ):
        super().__init__(sums.offsets, sums.sources, self_loops_where_empty)
        self.neighbours = sums
        self.dtype = dtype
        self.empty = empty

    @cached_property
    def with_self_loops_where_empty(self) -> FolderWalk:
        """The same with every node that has no neighbour as its own."""
        return FolderWalk(self.neighbours, self.dtype, self.empty, self_loops_where_empty=True)

    @cached_property
    def _for_columns(self) -> NeighbourMean | None:
        """The same for one number per node on a GPU, whose cache may be too small for those of all nodes."""
        alone = active_ranks().world_size == 1
        if self.neighbours.weights is not None or not triton_kernels.can_run(self.device) or not alone:
            return None
        walk = neighbour_mean_of_sorted(self.offsets, self.sources)
        return walk.with_self_loops_where_empty if self.self_loops_where_empty else walk

    def inverse_degree(self, dtype: torch.dtype) -> Tensor:
        """Compute what makes a mean of what `NeighbourSum.of_block` returns: 1 / degree, or 1 where it is a mean.

        Parameters
        ----------
        dtype : torch.dtype
            The precision.

        Returns
        -------
        Tensor
            Shape ``[N]``; 0 for a node without neighbours.
        """
        if self.neighbours.weights is None:
            return super().inverse_degree(dtype)
        return (self.row_counts() > 0).to(dtype)

    def sums(self, values: Tensor) -> Tensor:
        """Sum values, times the weights of edges, over every node's neighbours.

        Parameters
        ----------
        values : Tensor
            Shape ``[N]``, as the result.
        """
        out = torch.empty_like(values)
        for block in self.neighbours.own_blocks():
            out[block.start : block.stop] = self.neighbours.of_block(block, values)
        self.neighbours.all_gather(out)
        return out if self.neighbours.weights is None else out.mul_(self.neighbours.in_degree.to(out.dtype))

    def __matmul__(self, values: Tensor) -> Tensor:
        return self.diffuse(values, eta=0.0, num_hops=1)

    def diffuse(self, values: Tensor, eta: float, num_hops: int) -> Tensor:
        """Repeat ``v <- eta v + (1 - eta) M v``, without a gradient.

        Parameters
        ----------
        values : Tensor
            Shape ``[N]`` or ``[N, C]``.
        eta : float
            Share of its own value that a node keeps in every hop.
        num_hops : int
            How often.

        Returns
        -------
        Tensor
            Of the same shape.
        """
        values = values.detach()
        if values.dim() == 1:
            return self._diffused(values, eta, num_hops)
        groups = column_groups(values)
        if len(groups) == 1:
            return self._diffused(values, eta, num_hops)
        out = self.empty(tuple(values.shape), values.dtype)
        for columns in groups:
            out[:, columns] = self._diffused(values[:, columns].contiguous(), eta, num_hops)
        return out

    def _diffused(self, values: Tensor, eta: float, num_hops: int) -> Tensor:
        if values.dim() == 1 and self._for_columns is not None:
            return self._for_columns.diffuse(values, eta, num_hops)
        present, after = values, torch.empty_like(values)
        share = self.inverse_degree(values.dtype) * (1.0 - eta)
        own = self.own_share(eta, share)
        for hop in range(num_hops):
            for block in self.neighbours.own_blocks():
                rows = slice(block.start, block.stop)
                drawn = self.neighbours.of_block(block, present) * _beside(share[rows], values)
                kept = _beside(own[rows], values) if isinstance(own, Tensor) else own
                torch.add(drawn, present[rows] * kept, out=after[rows])
            self.neighbours.all_gather(after)
            # The caller's values are not written to.
            present, after = after, torch.empty_like(values) if hop == 0 < num_hops - 1 else present
        return present


def column_groups(values: Tensor) -> list[slice]:
    """Divide columns into groups that fit into memory.

    Parameters
    ----------
    values : Tensor
        Shape ``[N, C]``, in memory or on disk.

    Returns
    -------
    list of slice
        The columns of each group, one or more.
    """
    num_rows, width = values.shape
    most = at_once(_COLUMNS_IN_MEMORY, values.device)
    step = max(most // max(num_rows * values.dtype.itemsize, 1), 1)
    return [slice(first, min(first + step, width)) for first in range(0, width, step)]


def _beside(numbers: Tensor, values: Tensor) -> Tensor:
    """One number per node, for a product with values of one or more columns."""
    return numbers if values.dim() == 1 else numbers.unsqueeze(1)
