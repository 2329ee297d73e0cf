"""One sparse matrix for each of several stacked networks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from oddnode.ops.sparse import SparseMatrix

__all__ = ["BlockMatrix"]

# At most this many networks use dense k-hop powers of their matrices, 64 MiB each.
_FEW_NETWORKS = 16


class BlockMatrix(SparseMatrix):
    """Square matrices of one size, one for each of the vectors that `torch.vmap` runs over; of no use elsewhere.

    Parameters
    ----------
    blocks : sequence of SparseMatrix
        The matrices, ``[N, N]`` each.
    """

    diagonal: SparseMatrix

    def __init__(self, blocks: Sequence[SparseMatrix]):
        self._set(blocks[0].oriented(transpose=False))  # for the shape, the type and the device
        self.blocks = blocks
        parts = [block.coordinates() for block in blocks]
        size = self.shape[0]
        row = torch.cat([row + place * size for place, (row, _, _) in enumerate(parts)])
        col = torch.cat([col + place * size for place, (_, col, _) in enumerate(parts)])
        value = torch.cat([value for *_, value in parts])
        self.diagonal = SparseMatrix(row, col, value, (len(blocks) * size, len(blocks) * size))

    @property
    def prefers_dense(self) -> bool:
        """Whether `diffuse` multiplies by dense matrices: on a GPU, for few small blocks."""
        return super().prefers_dense and len(self.blocks) <= _FEW_NETWORKS

    def dense_diffusion(self, eta: float, num_hops: int) -> Tensor:
        """The dense matrices that `diffuse` multiplies by.

        Parameters
        ----------
        eta : float
            As for `diffuse`.
        num_hops : int
            As for `diffuse`.

        Returns
        -------
        Tensor
            Those of all blocks, ``[S, N, N]``.
        """
        if (eta, num_hops) not in self._dense_diffusions:
            dense = [block.dense_diffusion(eta, num_hops) for block in self.blocks]
            self._dense_diffusions[eta, num_hops] = torch.stack(dense)
        return self._dense_diffusions[eta, num_hops]

    @cached_property
    def with_self_loops_where_empty(self) -> BlockMatrix:
        """The same for every one of the matrices."""
        return BlockMatrix([block.with_self_loops_where_empty for block in self.blocks])
