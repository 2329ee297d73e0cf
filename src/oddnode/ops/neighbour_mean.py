"""The mean over neighbours without a matrix of values: what propagation over very large graphs is made of.

A random-walk matrix repeats one number, 1 / degree, along every row. Storing it takes as much memory as the edges do;
here it is divided by once. On a GPU a small Triton kernel sums neighbours; elsewhere torch does.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from oddnode.ops import triton_kernels as _kernels
from oddnode.ops.long_rows import LongRows, sum_neighbours

__all__ = ["NeighbourMean"]


class NeighbourMean:
    """``D^-1 A`` of a graph, by its incoming edges in CSR form.

    Parameters
    ----------
    offsets : Tensor
        Where the incoming edges of every node start, ``[N + 1]``.
    sources : Tensor
        The sources of the edges, ``[E]``, sorted by target.
    self_loops_where_empty : bool
        Whether a node without neighbours counts as its own.

    Examples
    --------
    >>> import torch
    >>> walk = NeighbourMean.from_edges(torch.tensor([[0, 1, 1], [1, 0, 2]]), 3)
    >>> walk.diffuse(torch.tensor([4.0, 0.0, 0.0]), eta=0.5, num_hops=1)
    tensor([2., 2., 0.])
    """

    dtype = torch.float32  # of estimates that depend on the edges alone

    def __init__(self, offsets: Tensor, sources: Tensor, self_loops_where_empty: bool = False):
        self.offsets = offsets
        self.sources = sources
        self.self_loops_where_empty = self_loops_where_empty
        self._inverse_degrees: dict[torch.dtype, Tensor] = {}

    @classmethod
    def from_edges(cls, edge_index: Tensor, num_nodes: int) -> NeighbourMean:
        """Sort the incoming edges of every node; sources are kept in 32 bits.

        Parameters
        ----------
        edge_index : Tensor
            Edges ``[2, E]``, from source to target.
        num_nodes : int
            How many nodes there are.

        Returns
        -------
        NeighbourMean
            The mean over every node's neighbours.
        """
        source, target = edge_index
        order = target.argsort(stable=True)
        counts = torch.bincount(target, minlength=num_nodes)
        offsets = torch.zeros(num_nodes + 1, dtype=torch.long, device=target.device)
        torch.cumsum(counts, 0, out=offsets[1:])
        return cls(offsets.int() if target.numel() < 2**31 else offsets, source[order].int())

    @property
    def device(self) -> torch.device:
        """The device that holds the edges."""
        return self.sources.device

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return len(self.offsets) - 1

    def row_counts(self) -> Tensor:
        """How many neighbours each node has, ``[N]``."""
        return self.offsets.diff()

    def inverse_degree(self, dtype: torch.dtype) -> Tensor:
        """Compute 1 / degree once, 0 for a node without neighbours.

        Parameters
        ----------
        dtype : torch.dtype
            The precision.

        Returns
        -------
        Tensor
            Shape ``[N]``.
        """
        if dtype not in self._inverse_degrees:
            counts = self.row_counts()
            self._inverse_degrees[dtype] = counts.to(dtype).reciprocal_().masked_fill_(counts == 0, 0.0)
        return self._inverse_degrees[dtype]

    @cached_property
    def with_self_loops_where_empty(self) -> NeighbourMean:
        """The same with every node that has no neighbour as its own; the edges are not copied for that."""
        return NeighbourMean(self.offsets, self.sources, self_loops_where_empty=True)

    def own_share(self, eta: float, like: Tensor) -> float | Tensor:
        """The share of its own value that a node keeps in every hop.

        Parameters
        ----------
        eta : float
            The share of a node that has neighbours.
        like : Tensor
            Values ``[N]``, for the type and the device.

        Returns
        -------
        float or Tensor
            One share for all nodes, or one each, ``[N]``.
        """
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
        """Sum values over every node's neighbours.

        Parameters
        ----------
        values : Tensor
            Shape ``[N]``, as the result.
        """
        if _kernels.can_run(values.device):
            return sum_neighbours(self.offsets, self.sources, values, self._long_rows)
        gathered = values.index_select(0, self.sources)
        return torch.segment_reduce(gathered, "sum", offsets=self.offsets, axis=0, initial=0.0)

    def diffuse(self, values: Tensor, eta: float, num_hops: int) -> Tensor:
        """Repeat ``v <- eta v + (1 - eta) M v`` as one differentiable operation.

        Parameters
        ----------
        values : Tensor
            Shape ``[N]``.
        eta : float
            Share of its own value that a node keeps in every hop.
        num_hops : int
            How often.

        Returns
        -------
        Tensor
            Shape ``[N]``.
        """
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
            # In place where possible: on the largest graphs memory is what is short.
            if transpose:
                drawn = walk.transposed.sums((values * share).mul_(1.0 - eta))
            else:
                drawn = walk.sums(values).mul_(share).mul_(1.0 - eta)
            values = drawn.addcmul_(values, own) if isinstance(own, Tensor) else drawn.add_(values, alpha=own)
        return values

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        return _Diffusion.apply(grads[0], *ctx.settings), None, None, None, None
