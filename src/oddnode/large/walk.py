"""The random walk on a graph on disk, for values of any number of columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from oddnode.large.arrays import is_in_file
from oddnode.large.product import NeighbourSum
from oddnode.large.ranks import active_ranks
from oddnode.large.rooms import copied, room_in_memory
from oddnode.ops import NeighbourMean, neighbour_mean_of_sorted, triton_kernels

__all__ = ["FolderWalk", "column_groups", "in_memory"]

# So many columns of factors are repeated for many hops.
_REPEATED_COLUMNS = 4
# So many columns are overwritten at a time; a product with fewer is slower.
_COLUMNS_IN_PLACE = 16
# The values of columns that a GPU has in its memory besides others.
_COLUMNS_ON_GPU = 2**34


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
        counts = self.row_counts()
        if self.neighbours.weights is not None:
            return (counts > 0).to(dtype)
        # Not kept: there is no room for a number of every node that takes no time to compute.
        return counts.to(dtype).reciprocal_().masked_fill_(counts == 0, 0.0)

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
            if self._for_columns is not None:
                return self._for_columns.diffuse(values, eta, num_hops)
            return self._diffuse_into(room_in_memory(tuple(values.shape), values), in_memory(values), eta, num_hops)
        out = self.empty(tuple(values.shape), values.dtype)
        copies, many = (1 if num_hops < 2 else 2), num_hops > 2
        for columns in column_groups(values, copies):  # before and after a hop
            part = values[:, columns]
            # From the third hop on, the values themselves are room for a result.
            self._diffuse_into(out[:, columns], copied(part) if many else in_memory(part), eta, num_hops, many)
        return out

    def map_means(
        self,
        values: Tensor,
        make: Callable[[slice, Tensor], Tensor],
        out: Tensor,
        num_hops: int = 1,
        eta: float = 0.0,
        in_place: bool = False,
    ) -> Tensor:
        """Compute numbers for every node from what `diffuse` returns, which is not kept.

        Parameters
        ----------
        values : Tensor
            Shape ``[N, C]``.
        make : callable
            Computes those of some nodes from their positions and averages ``[n, C]``; it must not need other ranks.
        out : Tensor
            Where they are written, ``[N]`` or ``[N, ...]``.
        num_hops, eta
            As for `diffuse`; one hop or more.
        in_place : bool
            Whether the values may be overwritten, which takes less memory.

        Returns
        -------
        Tensor
            ``out``.
        """
        present = in_memory(values.detach())
        if num_hops > 1 and in_place:
            for columns in present.split(_COLUMNS_IN_PLACE, dim=1):
                self._diffuse_into(columns, copied(columns), eta, num_hops - 1, overwrite=True)
        elif num_hops > 1:
            room = room_in_memory(tuple(present.shape), present)
            present = self._diffuse_into(room, present, eta, num_hops - 1)
        share, kept = self._shares(eta, present.dtype)
        with active_ranks().by_itself():
            for block in self.neighbours.own_blocks():
                rows = slice(block.start, block.stop)
                out[rows] = make(rows, self.neighbours.mixed_block(block, present, kept, share))
        return self.neighbours.all_gather(out)

    def _shares(self, eta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """What the sum over a node's neighbours counts, and its own value ``[N]``; None if no node keeps any of it."""
        share = self.inverse_degree(dtype) * (1.0 - eta)
        kept = self.own_share(eta, share)
        if isinstance(kept, Tensor):
            return share, kept
        return share, torch.full_like(share, kept) if kept else None

    def _diffuse_into(self, out: Tensor, values: Tensor, eta: float, num_hops: int, overwrite: bool = False) -> Tensor:
        """Write what `diffuse` returns; with ``overwrite`` the values serve as room for it."""
        share, kept = self._shares(eta, values.dtype)
        if values.dim() == 2 and values.shape[1] <= _REPEATED_COLUMNS and values.device.type == "cpu":
            # Torch multiplies few columns by a column more slowly than by as many columns.
            share, kept = _repeated(share, values), None if kept is None else _repeated(kept, values)
        present, spare = values, None
        for hop in range(num_hops - 1):
            after = room_in_memory(tuple(values.shape), values) if spare is None else spare
            self.neighbours.mix_into(after, present, kept, share)
            present, spare = after, present if hop or overwrite else None
        if not num_hops:
            return out.copy_(values)
        self.neighbours.mix_into(out, present, kept, share)
        return out


def in_memory(values: Tensor) -> Tensor:
    """Copy values that are in a file or not in one piece, because a product reads them at random.

    Parameters
    ----------
    values : Tensor
        Shape ``[N, C]``.
    """
    if values.is_contiguous() and not is_in_file(values):
        return values
    return copied(values)


def column_groups(values: Tensor, copies: int = 1) -> list[slice]:
    """Divide columns into groups that fit into memory.

    Parameters
    ----------
    values : Tensor
        Shape ``[N, C]``, in memory or on disk.
    copies : int
        How often a group is in memory at the same time.

    Returns
    -------
    list of slice
        The columns of each group, one or more.
    """
    num_rows, width = values.shape
    most = active_ranks().memory_share if values.device.type == "cpu" else _COLUMNS_ON_GPU
    step = max(most // max(copies * num_rows * values.dtype.itemsize, 1), 1)
    even = -(-width // max(-(-width // step), 1))  # so that all groups are about as large
    for few in (16, 8):  # a product with a multiple of these is faster
        rounded = -(-even // few) * few
        if rounded <= step:
            even = rounded
            break
    return [slice(first, min(first + even, width)) for first in range(0, width, max(even, 1))]


def _repeated(numbers: Tensor, values: Tensor) -> Tensor:
    """One number per node as often as values have columns, ``[N, C]``."""
    return numbers.unsqueeze(1).expand_as(values).contiguous()
