"""Sums over long rows on a GPU, in pieces: a program with a row of a million edges would keep all others waiting."""

from __future__ import annotations

import torch
from torch import Tensor

from oddnode.ops import triton_kernels as _kernels
from oddnode.ops.triton_kernels import Mix

__all__ = ["LongRows", "sum_neighbours"]

#: So many edges of a row are summed at a time.
MOST = 1024


class LongRows:
    """What the rows of a CSR structure have beyond their first edges, in pieces.

    Parameters
    ----------
    starts, ends : Tensor
        Where the edges of each row begin and end, ``[N]``.
    most : int
        So many edges of a row are summed elsewhere.
    """

    def __init__(self, starts: Tensor, ends: Tensor, most: int = MOST):
        self.most = most
        self.rows = (ends - starts > most).nonzero().squeeze(1)
        first, last = starts[self.rows].long() + most, ends[self.rows].long()
        num_pieces = (last - first + MOST - 1) // MOST
        row = torch.repeat_interleave(torch.arange(len(self.rows), device=starts.device), num_pieces)
        self._pieces = torch.arange(len(row), device=starts.device)
        self._last_pieces = num_pieces.cumsum(0)
        self._first_pieces = self._last_pieces - num_pieces
        self._starts = first[row] + (self._pieces - self._first_pieces[row]) * MOST
        self._ends = torch.minimum(self._starts + MOST, last[row])

    def add(self, sources: Tensor, values: Tensor, total: Tensor, share: Tensor | None = None) -> Tensor:
        """Add the sums of the pieces, always in the same order.

        Parameters
        ----------
        sources : Tensor
            The sources of all edges, ``[E]``.
        values : Tensor
            One or more numbers per source node, ``[M]`` or ``[M, C]``.
        total : Tensor
            The sums of the first edges of each row, ``[N]`` or ``[N, C]``, changed in place.
        share : Tensor, optional
            What the sums are multiplied by, ``[N]``.

        Returns
        -------
        Tensor
            The same tensor, with the sums of all edges.
        """
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
    """Sum ``values`` over the sources of every row of a CSR structure, on a GPU.

    Parameters
    ----------
    offsets : Tensor
        Where the sources of each row begin, ``[N + 1]`` integers.
    sources : Tensor
        The sources of all rows, ``[E]`` integers.
    values : Tensor
        One or more numbers per source node, ``[M]`` or ``[M, C]``.
    long_rows : LongRows, optional
        The long ones of these rows, if they are known.
    mix, out
        As for `oddnode.ops.triton_kernels.sum_ranges`.

    Returns
    -------
    Tensor
        The sums, ``[N]`` or ``[N, C]``; 0 for a row without sources.
    """
    rest = long_rows or LongRows(offsets[:-1], offsets[1:])
    sums = _kernels.sum_ranges(offsets[:-1], offsets[1:], sources, values, rest.most, mix=mix, out=out)
    return rest.add(sources, values, sums, None if mix is None else mix.share)
