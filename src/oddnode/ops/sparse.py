"""Multiplication by a fixed sparse matrix: the one kernel that graph learning on a CPU lives from.

A matrix is built once and multiplied hundreds of times, so its transpose, which the backward pass needs, is
kept beside it. (Differentiating ``torch.sparse.mm`` directly transposes at every step, ten times slower.) Indices have
32 bits wherever they fit: half the memory traffic, and kernels that want them so need not convert at every product.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from oddnode.ops import triton_kernels as _kernels

__all__ = ["BlockMatrix", "SparseMatrix"]

_LARGEST_INT32 = 2**31 - 1

# Up to so many rows a GPU has a repeated product as one dense matrix: 64 MiB, read faster than many kernels start.
_SMALL = 4096
# Of networks side by side with a matrix each, up to so many have theirs this way.
_FEW_NETWORKS = 16


class SparseMatrix:
    """A constant sparse matrix in CSR form whose product with a dense one is differentiable.

    Parameters
    ----------
    row, col : Tensor
        Coordinates of the entries; equal coordinates add up.
    value : Tensor
        One number per entry.
    shape : tuple of int
        Rows and columns.

    Examples
    --------
    >>> import torch
    >>> swap = SparseMatrix(torch.tensor([0, 1]), torch.tensor([1, 0]), torch.ones(2), (2, 2))
    >>> swap @ torch.tensor([[1.0], [2.0]])
    tensor([[2.],
            [1.]])
    """

    def __init__(self, row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]):
        self._set(_to_csr(row, col, value, shape))

    def _set(self, csr: Tensor) -> None:
        self.shape: tuple[int, int] = (csr.shape[0], csr.shape[1])
        self._csr = csr
        self._csr_transposed: Tensor | None = None
        self._once: tuple[Any, Tensor, Tensor] | None = None
        self._longest: dict[bool, int] = {}
        self._rows_of: tuple[Tensor, tuple[float, int], Tensor] | None = None
        self._powers: dict[tuple[float, int], Tensor] = {}

    @classmethod
    def from_csr(cls, crow: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> SparseMatrix:
        """A matrix that is in CSR form already, with offsets of rows and sorted columns; nothing is checked."""
        matrix = object.__new__(cls)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            matrix._set(torch.sparse_csr_tensor(crow, col, value, shape, check_invariants=False))
        return matrix

    @classmethod
    def from_dense(cls, dense: Tensor) -> SparseMatrix:
        """The non-zero entries of a dense matrix."""
        row, col = dense.nonzero(as_tuple=True)
        return cls(row, col, dense[row, col], (dense.shape[0], dense.shape[1]))

    @property
    def nnz(self) -> int:
        """The number of stored entries."""
        return self._csr.values().numel()

    @property
    def device(self) -> torch.device:
        """Where the matrix lies."""
        return self._csr.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of its numbers."""
        return self._csr.dtype

    def row_counts(self) -> Tensor:
        """How many entries each row has."""
        return self._csr.crow_indices().diff()

    @cached_property
    def is_plain(self) -> bool:
        """Whether torch multiplies by it without further ado."""
        return self.nnz > 0 and self.device.type == "cpu" and _cpu_has_csr_kernel()

    @cached_property
    def with_full_rows(self) -> SparseMatrix:
        """The same square matrix with a one on the diagonal of every row that has no entry."""
        empty = (self.row_counts() == 0).nonzero().squeeze(1)
        if len(empty) == 0:
            return self
        row, col, value = _coordinates(self._csr)
        ones = torch.ones(len(empty), dtype=self.dtype, device=self.device)
        return SparseMatrix(torch.cat([row, empty]), torch.cat([col, empty]), torch.cat([value, ones]), self.shape)

    def to_dense(self) -> Tensor:
        """The same matrix with its zeros written out."""
        return self._csr.to_dense()

    def to(self, target: torch.device | torch.dtype | str) -> SparseMatrix:
        """The same matrix on another device or in another precision."""
        moved = object.__new__(SparseMatrix)
        moved._set(self._csr.to(target))
        return moved

    def rows(self, nodes: Tensor) -> tuple[SparseMatrix, Tensor]:
        """These rows alone, over the columns that they touch; and which columns these are."""
        counts = self.row_counts().long()
        start = self._csr.crow_indices().long()[nodes]
        row = torch.repeat_interleave(torch.arange(len(nodes), device=self.device), counts[nodes])
        entry = torch.arange(len(row), device=self.device)
        entry += (start - (counts[nodes].cumsum(0) - counts[nodes]))[row]
        columns, col = self._csr.col_indices()[entry].long().unique(return_inverse=True)
        return SparseMatrix(row, col, self._csr.values()[entry], (len(nodes), len(columns))), columns

    def product_once(self, dense: Tensor) -> Tensor:
        """The product with a weight that two graphs with the same features multiply by: computed once for both.

        Forward and backward. A weight does not always show that an optimiser has changed it, so whoever trains calls
        `forget_product` after every step.
        """
        with_gradient = dense.requires_grad and torch.is_grad_enabled()
        key = (dense.data_ptr(), dense._version, dense.shape, dense.stride(), with_gradient)
        if self._once is None or self._once[0] != key:
            self._once = key, self @ dense, dense  # kept, so that its address stays its own
        return self._once[1]

    def forget_product(self) -> None:
        """Let go of what `product_once` has computed."""
        self._once = None

    def mixed(self, values: Tensor, keep: float, times: int) -> Tensor:
        """``v <- keep v + (1 - keep) M v``, repeated: as one differentiable operation, for a square matrix."""
        if values.dtype != self.dtype:
            raise TypeError(f"matrix is {self.dtype}, but the values are {values.dtype}")
        return _apply(_Mix, values, self, False, keep, times)

    def mixed_rows(self, nodes: Tensor, keep: float, times: int) -> Tensor:
        """Rows of the matrix that `mixed` multiplies by, dense ``[nodes, N]``; kept for the nodes asked for last."""
        key = (keep, times)
        if self._rows_of is None or self._rows_of[0] is not nodes or self._rows_of[1] != key:
            chosen = torch.zeros(self.shape[0], len(nodes), dtype=self.dtype, device=self.device)
            chosen[nodes, torch.arange(len(nodes), device=self.device)] = 1.0
            with torch.no_grad():
                rows = _apply(_Mix, chosen, self, True, keep, times).t().contiguous()
            self._rows_of = nodes, key, rows
        return self._rows_of[2]

    @property
    def has_powers(self) -> bool:
        """Whether what `mixed` multiplies by is worth having as a dense matrix."""
        return _kernels.can_run(self.device) and 0 < self.shape[0] <= _SMALL

    def power(self, keep: float, times: int) -> Tensor:
        """What `mixed` multiplies by, dense; kept as long as the matrix is, since recorded steps may refer to it."""
        if (keep, times) not in self._powers:
            identity = torch.eye(self.shape[0], dtype=self.dtype, device=self.device)
            self._powers[keep, times] = _mixed(identity, self, False, keep, times)
        return self._powers[keep, times]

    def _longest_row(self, transpose: bool) -> int:
        """The most entries that a row has."""
        if transpose not in self._longest:
            self._longest[transpose] = int(self._oriented(transpose).crow_indices().diff().max())
        return self._longest[transpose]

    def _oriented(self, transpose: bool) -> Tensor:
        return self._transposed() if transpose else self._csr

    def _transposed(self) -> Tensor:
        if self._csr_transposed is None:
            row, col, value = _coordinates(self._csr)
            self._csr_transposed = _to_csr(col, row, value, (self.shape[1], self.shape[0]))
        return self._csr_transposed

    def __matmul__(self, dense: Tensor) -> Tensor:
        if dense.dtype != self.dtype:
            raise TypeError(f"matrix is {self.dtype}, but the other factor is {dense.dtype}")
        return _apply(_Product, dense, self, False)

    def __repr__(self) -> str:
        return f"SparseMatrix({self.shape[0]}x{self.shape[1]}, nnz={self.nnz}, {self.dtype}, {self.device})"


class BlockMatrix(SparseMatrix):
    """Square matrices of one size, each for one of as many vectors that `torch.vmap` runs over; of no use elsewhere."""

    def __init__(self, blocks: Sequence[SparseMatrix]):
        self._set(blocks[0]._csr)  # for the shape, the type and the device
        self.size = len(blocks)
        self.blocks = blocks
        parts = [_coordinates(block._csr) for block in blocks]
        size = self.shape[0]
        row = torch.cat([row + place * size for place, (row, _, _) in enumerate(parts)])
        col = torch.cat([col + place * size for place, (_, col, _) in enumerate(parts)])
        self.diagonal = SparseMatrix(row, col, torch.cat([value for *_, value in parts]), (self.size * size,) * 2)

    @property
    def has_powers(self) -> bool:
        return super().has_powers and self.size <= _FEW_NETWORKS

    def power(self, keep: float, times: int) -> Tensor:
        """Those of all blocks, ``[S, N, N]``."""
        if (keep, times) not in self._powers:
            self._powers[keep, times] = torch.stack([block.power(keep, times) for block in self.blocks])
        return self._powers[keep, times]

    @cached_property
    def with_full_rows(self) -> BlockMatrix:
        """The same for every one of the matrices."""
        return BlockMatrix([block.with_full_rows for block in self.blocks])


class _Product(torch.autograd.Function):
    """``y = A x``; the gradient is ``A^T g``, and so on for second derivatives."""

    @staticmethod
    def forward(dense: Tensor, matrix: SparseMatrix, transpose: bool) -> Tensor:
        assert not isinstance(matrix, BlockMatrix), "for torch.vmap alone"
        csr = matrix._oriented(transpose)
        if matrix.is_plain and dense.dim() == 2:  # the usual case, past all questions
            out = dense.new_empty(csr.shape[0], dense.shape[1])
            return torch.addmm(out, csr, dense, beta=0, out=out)
        return _multiply(csr, dense)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.matrix, ctx.transpose = inputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        ctx.matrix._once = None  # what was computed for this pass has served
        return _apply(_Product, grads[0], ctx.matrix, not ctx.transpose), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], dense: Tensor, *settings: Any) -> tuple[Tensor, int]:
        return _side_by_side(_Product, in_dims[0], dense, *settings)


class _Mix(torch.autograd.Function):
    """`SparseMatrix.mixed`; its gradient is the same with the transpose."""

    @staticmethod
    def forward(values: Tensor, matrix: SparseMatrix, transpose: bool, keep: float, times: int) -> Tensor:
        assert not isinstance(matrix, BlockMatrix), "for torch.vmap alone"
        if matrix.has_powers:
            power = matrix.power(keep, times)
            return (power.t() if transpose else power) @ values.detach()
        return _mixed(values.detach(), matrix, transpose, keep, times)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, matrix, transpose, keep, times = inputs
        ctx.settings = matrix, not transpose, keep, times

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        return _apply(_Mix, grads[0], *ctx.settings), None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], values: Tensor, matrix: SparseMatrix, *settings: Any
    ) -> tuple[Tensor, int]:
        if isinstance(matrix, BlockMatrix) and matrix.has_powers:
            transpose, keep, times = settings
            power = matrix.power(keep, times)
            stacked = values.movedim(in_dims[0], 0)
            product = torch.bmm(power.mT if transpose else power, stacked.reshape(*stacked.shape[:2], -1))
            return product.view(stacked.shape), 0
        return _side_by_side(_Mix, in_dims[0], values, matrix, *settings)


def _mixed(mixed: Tensor, matrix: SparseMatrix, transpose: bool, keep: float, times: int) -> Tensor:
    """`SparseMatrix.mixed` hop by hop."""
    csr = matrix._oriented(transpose)
    if _kernels.can_run(mixed.device) and matrix.nnz:
        longest = matrix._longest_row(transpose)
        for _ in range(times):
            mixed = _kernels.mix(csr, mixed, keep, longest)
        return mixed
    if mixed.device.type == "cpu" and mixed.dim() == 1 and matrix.nnz and _cpu_has_csr_kernel():
        buffers = torch.empty_like(mixed), torch.empty_like(mixed)
        for step in range(times):
            out = buffers[step % 2]
            mixed = torch.addmv(mixed, csr, mixed, beta=keep, alpha=1.0 - keep, out=out)
        return mixed
    for _ in range(times):
        mixed = _multiply(csr, mixed, mixed, keep)
    return mixed


def _apply(function: Any, *inputs: Any) -> Tensor:
    """``function.apply``; outside `torch.vmap` past a check of the signature that takes longer than a small product."""
    if torch._C._are_functorch_transforms_active():
        return function.apply(*inputs)
    return super(torch.autograd.Function, function).apply(*inputs)


def _side_by_side(
    function: Any, batch_dim: int, values: Tensor, matrix: SparseMatrix, *settings: Any
) -> tuple[Tensor, int]:
    """Many products by one matrix as one wide product; by one matrix each, as one product by their diagonal."""
    if isinstance(matrix, BlockMatrix):
        stacked = values.movedim(batch_dim, 0)
        out = _apply(function, stacked.flatten(0, 1), matrix.diagonal, *settings)
        return out.unflatten(0, (stacked.shape[0], -1)), 0
    beside = values.movedim(batch_dim, 1)
    out = _apply(function, beside.flatten(1), matrix, *settings)
    return out.unflatten(1, beside.shape[1:]), 1


def _to_csr(row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        # CSR is "beta" in torch's words, once per process; nothing a user can act on.
        warnings.simplefilter("ignore", UserWarning)
        coo = torch.sparse_coo_tensor(torch.stack([row, col]), value, shape, check_invariants=False)
        csr = coo.coalesce().to_sparse_csr()
        if max(csr.values().numel(), *shape) > _LARGEST_INT32:
            return csr
        crow, col = csr.crow_indices().int(), csr.col_indices().int()
        return torch.sparse_csr_tensor(crow, col, csr.values(), shape, check_invariants=False)


def _coordinates(csr: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    counts = csr.crow_indices().diff()
    row = torch.repeat_interleave(torch.arange(csr.shape[0], device=csr.device), counts)
    return row, csr.col_indices().long(), csr.values()


def _multiply(csr: Tensor, dense: Tensor, other: Tensor | None = None, share: float = 0.0) -> Tensor:
    """``share * other + (1 - share) * M dense``, without ``other`` the product."""
    dense = dense.detach()
    if csr.values().numel() == 0:
        product = dense.new_zeros(csr.shape[0], *dense.shape[1:])
        return product if other is None else share * other
    if csr.device.type != "cpu" or _cpu_has_csr_kernel():
        # Writing into memory that is there spares torch filling and copying it; a weight of 0 means it is not read.
        if csr.device.type == "cuda" and dense.dim() == 1:
            # The product with a vector sums in any order there, differently in every call; that with a column does not.
            column = None if other is None else other.unsqueeze(1)
            return _multiply(csr, dense.unsqueeze(1), column, share).squeeze(1)
        out = dense.new_empty(csr.shape[0], *dense.shape[1:])
        add = torch.addmv if dense.dim() == 1 else torch.addmm
        return add(out if other is None else other, csr, dense, beta=share, alpha=1.0 - share, out=out)
    row, col, value = _coordinates(csr)
    out = dense.new_zeros(csr.shape[0], *dense.shape[1:])
    out.index_add_(0, row, (value if dense.dim() == 1 else value.unsqueeze(1)) * dense[col])
    return out if other is None else share * other + (1.0 - share) * out


@cache
def _cpu_has_csr_kernel() -> bool:
    """Some builds of torch (ARM, macOS) come without the library that multiplies CSR matrices."""
    try:
        index = torch.zeros(1, dtype=torch.long)
        _ = _to_csr(index, index, torch.ones(1), (1, 1)) @ torch.ones(1, 1)
    except RuntimeError:
        return False
    return True
