"""The mean over neighbours without a matrix of values: what propagation over very large graphs is made of.

A random-walk matrix repeats one number, 1 / degree, along every row. Storing it takes as much memory as the edges do;
here it is divided by once. On a GPU a small Triton kernel sums neighbours; elsewhere torch does.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from oddnode import _kernels

__all__ = ["NeighbourMean"]


class NeighbourMean:
    """``D^-1 A`` of a graph, by its incoming edges in CSR form: offsets ``[N + 1]`` and sources ``[E]``.

    Examples
    --------
    >>> import torch
    >>> walk = NeighbourMean.from_edges(torch.tensor([[0, 1, 1], [1, 0, 2]]), 3)
    >>> walk.mixed(torch.tensor([4.0, 0.0, 0.0]), keep=0.5, times=1)
    tensor([2., 2., 0.])
    """

    def __init__(self, offsets: Tensor, sources: Tensor, full_rows: bool = False):
        self.offsets = offsets
        self.sources = sources
        self.full_rows = full_rows
        self._inverse_degrees: dict[torch.dtype, Tensor] = {}

    @classmethod
    def from_edges(cls, edge_index: Tensor, num_nodes: int) -> NeighbourMean:
        """The incoming edges of every node, sorted; sources are kept in 32 bits."""
        source, target = edge_index
        order = target.argsort(stable=True)
        counts = torch.bincount(target, minlength=num_nodes)
        offsets = torch.zeros(num_nodes + 1, dtype=torch.long, device=target.device)
        torch.cumsum(counts, 0, out=offsets[1:])
        return cls(offsets.int() if target.numel() < 2**31 else offsets, source[order].int())

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.sources.device

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return len(self.offsets) - 1

    def row_counts(self) -> Tensor:
        """How many neighbours each node has."""
        return self.offsets.diff()

    def inverse_degree(self, dtype: torch.dtype) -> Tensor:
        """1 / degree, 0 for a node without neighbours."""
        if dtype not in self._inverse_degrees:
            counts = self.row_counts()
            self._inverse_degrees[dtype] = counts.to(dtype).reciprocal_().masked_fill_(counts == 0, 0.0)
        return self._inverse_degrees[dtype]

    @cached_property
    def with_full_rows(self) -> NeighbourMean:
        """The same with every node that has no neighbour as its own; no edge is copied for that."""
        return NeighbourMean(self.offsets, self.sources, full_rows=True)

    def own_share(self, keep: float, like: Tensor) -> float | Tensor:
        """What a node keeps of its own value in every step."""
        if not self.full_rows:
            return keep
        return torch.full_like(like, keep).masked_fill_(self.row_counts() == 0, 1.0)

    @cached_property
    def transposed(self) -> NeighbourMean:
        """The outgoing edges, for the backward pass."""
        target = torch.repeat_interleave(torch.arange(self.num_nodes, device=self.device), self.row_counts())
        return NeighbourMean.from_edges(torch.stack([target, self.sources.long()]), self.num_nodes)

    def sums(self, values: Tensor) -> Tensor:
        """The sum over every node's neighbours of ``values`` (``[N]``)."""
        if _kernels.can_run(values.device):
            return _kernels.sum_neighbours(self.offsets, self.sources, values)
        gathered = values.index_select(0, self.sources)
        return torch.segment_reduce(gathered, "sum", offsets=self.offsets, axis=0, initial=0.0)

    def mixed(self, values: Tensor, keep: float, times: int) -> Tensor:
        """``v <- keep v + (1 - keep) M v``, repeated, for values ``[N]``; differentiable."""
        if values.dim() != 1:
            raise ValueError(f"values have shape {list(values.shape)}, expected one per node")
        return _Mix.apply(values, self, False, keep, times)

    def __repr__(self) -> str:
        return f"NeighbourMean({self.num_nodes} nodes, {len(self.sources)} edges, {self.device})"


class _Mix(torch.autograd.Function):
    """`NeighbourMean.mixed`; in its gradient the division comes before the sum, over outgoing edges."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, walk: NeighbourMean, transpose: bool, keep: float, times: int) -> Tensor:
        ctx.settings = walk, not transpose, keep, times
        mixed = values.detach()
        scale = walk.inverse_degree(values.dtype) * (1.0 - keep)
        own = walk.own_share(keep, mixed)
        for _ in range(times):
            if transpose:
                mixed = own * mixed + walk.transposed.sums(mixed * scale)
            else:
                mixed = torch.addcmul(own * mixed, walk.sums(mixed), scale)
        return mixed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        return _Mix.apply(grads[0], *ctx.settings), None, None, None, None
