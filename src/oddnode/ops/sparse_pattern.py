"""Products by a sparse matrix with a fixed sparsity pattern and varying values: attention, dropped features."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from oddnode.ops.sparse import SparseMatrix


class SparsePattern:
    """The sparsity pattern of a matrix, sorted by rows. Entries with equal coordinates count apart.

    Examples
    --------
    >>> import torch
    >>> pattern = SparsePattern(torch.tensor([0, 1]), torch.tensor([1, 0]), (2, 2))
    >>> pattern.times(torch.tensor([1.0, 10.0]), torch.tensor([[1.0], [2.0]]))
    tensor([[ 2.],
            [10.]])
    """

    def __init__(self, row: Tensor, col: Tensor, shape: tuple[int, int]):
        self.row, self.col, self.shape = row, col, shape
        counts = torch.bincount(row, minlength=shape[0])
        self.offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        self._offsets32, self._col32 = self.offsets.int(), col.int()

    @classmethod
    def of_unsorted(cls, row: Tensor, col: Tensor, shape: tuple[int, int]) -> SparsePattern:
        """Sort entries in any order by row."""
        order = row.argsort(stable=True)
        return cls(row[order], col[order], shape)

    @cached_property
    def _by_column(self) -> tuple[Tensor, SparsePattern]:
        """The order of the transpose's entries, and its pattern."""
        order = self.col.argsort(stable=True)
        return order, SparsePattern(self.col[order], self.row[order], (self.shape[1], self.shape[0]))

    def times(self, values: Tensor, dense: Tensor) -> Tensor:
        """Multiply a dense matrix by the one with these values; differentiable in both."""
        return _Times.apply(values, dense, self)

    def dots(self, left: Tensor, right: Tensor) -> Tensor:
        """Compute for every entry the inner product of a row of ``left`` and a row of ``right``."""
        return _Dots.apply(left, right, self)

    def _times_transposed(self, values: Tensor, dense: Tensor) -> Tensor:
        order, transposed = self._by_column
        return transposed.times(values[order], dense)

    def _matrix(self, values: Tensor) -> SparseMatrix:
        return SparseMatrix.from_csr(self._offsets32, self._col32, values, self.shape)


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dense: Tensor, pattern: SparsePattern) -> Tensor:
        ctx.save_for_backward(values, dense)
        ctx.pattern = pattern
        return pattern._matrix(values.detach().contiguous()) @ dense.detach().contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (values, dense), pattern = ctx.saved_tensors, ctx.pattern
        to_values, to_dense, _ = ctx.needs_input_grad
        return (
            pattern.dots(grads[0], dense) if to_values else None,
            pattern._times_transposed(values, grads[0]) if to_dense else None,
            None,
        )


class _Dots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, pattern: SparsePattern) -> Tensor:
        ctx.save_for_backward(left, right)
        ctx.pattern = pattern
        ones = pattern._matrix(left.new_ones(len(pattern.row)))
        # Torch's kernel refuses more entries than the matrix has elements, which repeated ones can be.
        if ones.is_plain and ones.nnz <= pattern.shape[0] * pattern.shape[1]:
            return torch.sparse.sampled_addmm(
                ones.oriented(transpose=False), left.contiguous(), right.t(), beta=0.0
            ).values()
        return (left[pattern.row] * right[pattern.col]).sum(dim=1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (left, right), pattern = ctx.saved_tensors, ctx.pattern
        to_left, to_right, _ = ctx.needs_input_grad
        return (
            pattern.times(grads[0], right) if to_left else None,
            pattern._times_transposed(grads[0], left) if to_right else None,
            None,
        )
