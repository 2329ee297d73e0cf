"""Multiplication by a fixed sparse matrix, the kernel that graph learning on a CPU spends most of its time in.

A matrix is built once and multiplied hundreds of times, so its transpose, which the backward pass needs, is kept:
differentiating ``torch.sparse.mm`` directly transposes the matrix at every step, which is ten times slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from oddnode._utils.lazy import cached_property
from oddnode.ops import csr
from oddnode.ops import triton_kernels as _kernels

# On a GPU, matrices of at most this many rows use their dense k-hop power (64 MiB): one product instead of k launches.
_SMALL = 4096
# At most this many stacked networks use dense k-hop powers of their matrices.
_FEW_NETWORKS = 16


class SparseMatrix:
    """A constant sparse matrix in CSR form whose product with a dense one is differentiable."""

    #: Of a `oddnode.ops.BlockMatrix`, all its blocks along the diagonal of one matrix.
    diagonal: SparseMatrix | None = None

    shape: tuple[int, int]
    dtype: torch.dtype
    device: torch.device
    nnz: int

    def __init__(self, row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]):
        self._set(csr.from_coordinates(row, col, value, shape))

    def _set(self, tensor: Tensor) -> None:
        self.shape, self.dtype, self.device = (tensor.shape[0], tensor.shape[1]), tensor.dtype, tensor.device
        self.nnz = tensor.values().numel()
        self._csr = tensor
        self._longest: dict[bool, int] = {}
        self._rows_of: tuple[Tensor, tuple[float, int], Tensor] | None = None
        self._dense_diffusions: dict[tuple[float, int], Tensor] = {}

    @classmethod
    def from_csr(cls, crow: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> SparseMatrix:
        matrix = object.__new__(SparseMatrix)
        matrix._set(torch.sparse_csr_tensor(crow, col, value, shape, check_invariants=False))
        return matrix

    @classmethod
    def from_dense(cls, dense: Tensor) -> SparseMatrix:
        row, col = dense.nonzero(as_tuple=True)
        return cls(row, col, dense[row, col], (dense.shape[0], dense.shape[1]))

    def row_counts(self) -> Tensor:
        return self._csr.crow_indices().diff()

    @cached_property
    def is_plain(self) -> bool:
        """Whether torch's CPU CSR kernel can be called directly."""
        return self.nnz > 0 and self.device.type == "cpu" and csr.cpu_has_csr_kernel()

    @cached_property
    def with_self_loops_where_empty(self) -> SparseMatrix:
        """The same square matrix with a one on the diagonal of every row that has no entry."""
        empty = self.row_counts() == 0
        if not bool(empty.any()):
            return self
        return self.with_diagonal(empty, torch.ones(int(empty.sum()), dtype=self.dtype, device=self.device))

    def with_diagonal(self, rows: Tensor, value: Tensor) -> SparseMatrix:
        """Insert diagonal entries, in time linear in the number of entries."""
        crow, col = self._csr.crow_indices(), self._csr.col_indices()
        count = len(crow) - 1
        row = torch.repeat_interleave(torch.arange(count, device=col.device), crow.diff())
        before = rows.cumsum(0)  # how many rows up to and including this one get an entry
        # An entry moves by one for every earlier row with a new entry, and for that of its row if it is right of it.
        shift = before[row] - (rows[row] & (col < row)).long()
        left = torch.bincount(row[col < row], minlength=count)
        new = (crow[:-1].long() + left + before - 1)[rows]
        columns = torch.empty(len(col) + int(before[-1]) if count else 0, dtype=col.dtype, device=col.device)
        values = torch.empty(len(columns), dtype=self.dtype, device=col.device)
        old = torch.arange(len(col), device=col.device) + shift
        columns[old], values[old] = col, self._csr.values()
        columns[new], values[new] = rows.nonzero().squeeze(1).to(col.dtype), value
        offsets = torch.cat([crow[:1], crow[1:] + before.to(crow.dtype)])
        return SparseMatrix.from_csr(offsets, columns, values, self.shape)

    def with_values(self, value: Tensor) -> SparseMatrix:
        return SparseMatrix.from_csr(self._csr.crow_indices(), self._csr.col_indices(), value, self.shape)

    def coordinates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, columns and numbers of the entries, ``[nnz]`` each."""
        row = torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), self.row_counts())
        return row, self._csr.col_indices().long(), self._csr.values()

    def to_dense(self) -> Tensor:
        return self._csr.to_dense()

    def to(self, target: torch.device | torch.dtype | str) -> SparseMatrix:
        moved = self._csr.to(target)
        return SparseMatrix.from_csr(moved.crow_indices(), moved.col_indices(), moved.values(), self.shape)

    def rows(self, nodes: Tensor) -> tuple[SparseMatrix, Tensor]:
        """Extract some rows, over the columns that they touch."""
        counts = self.row_counts().long()
        start = self._csr.crow_indices().long()[nodes]
        row = torch.repeat_interleave(torch.arange(len(nodes), device=self.device), counts[nodes])
        entry = torch.arange(len(row), device=self.device)
        entry += (start - (counts[nodes].cumsum(0) - counts[nodes]))[row]
        columns, col = self._csr.col_indices()[entry].long().unique(return_inverse=True)
        return SparseMatrix(row, col, self._csr.values()[entry], (len(nodes), len(columns))), columns

    def diffuse(self, values: Tensor, eta: float, num_hops: int) -> Tensor:
        """Repeat ``v <- eta v + (1 - eta) M v`` as one differentiable operation."""
        if values.dtype != self.dtype:
            raise TypeError(f"matrix is {self.dtype}, but the values are {values.dtype}")
        return _apply(_Diffusion, values, self, False, eta, num_hops)

    def diffusion_rows(self, nodes: Tensor, eta: float, num_hops: int) -> Tensor:
        """Some rows of the matrix that `diffuse` multiplies by; those of the last nodes are cached."""
        key = (eta, num_hops)
        if self._rows_of is None or self._rows_of[0] is not nodes or self._rows_of[1] != key:
            chosen = torch.zeros(self.shape[0], len(nodes), dtype=self.dtype, device=self.device)
            chosen[nodes, torch.arange(len(nodes), device=self.device)] = 1.0
            with torch.no_grad():
                rows = _apply(_Diffusion, chosen, self, True, eta, num_hops).t().contiguous()
            self._rows_of = nodes, key, rows
        return self._rows_of[2]

    @property
    def prefers_dense(self) -> bool:
        """Whether `diffuse` multiplies by `dense_diffusion`: on a GPU, for a small matrix."""
        return _kernels.can_run(self.device) and 0 < self.shape[0] <= _SMALL

    def dense_diffusion(self, eta: float, num_hops: int) -> Tensor:
        """The dense matrix that `diffuse` multiplies by.

        It is kept as long as this matrix is, because captured CUDA graphs may refer to it.
        """
        if (eta, num_hops) not in self._dense_diffusions:
            identity = torch.eye(self.shape[0], dtype=self.dtype, device=self.device)
            self._dense_diffusions[eta, num_hops] = _diffuse_by_hops(identity, self, False, eta, num_hops)
        return self._dense_diffusions[eta, num_hops]

    def longest_row(self, transpose: bool) -> int:
        if transpose not in self._longest:
            self._longest[transpose] = int(self.oriented(transpose).crow_indices().diff().max())
        return self._longest[transpose]

    def oriented(self, transpose: bool) -> Tensor:
        """The matrix or its transpose as a CSR tensor of torch."""
        return self._csr_transposed if transpose else self._csr

    @cached_property
    def _csr_transposed(self) -> Tensor:
        row, col, value = self.coordinates()
        return csr.from_coordinates(col, row, value, (self.shape[1], self.shape[0]))

    def __matmul__(self, dense: Tensor) -> Tensor:
        if dense.dtype != self.dtype:
            raise TypeError(f"matrix is {self.dtype}, but the other factor is {dense.dtype}")
        return _apply(_Product, dense, self, False)

    def times_sparse(self, other: SparseMatrix) -> SparseMatrix:
        """Multiply by a sparse matrix, where both are `is_plain`."""
        product = self._csr @ other._csr
        shape = self.shape[0], other.shape[1]
        return SparseMatrix.from_csr(product.crow_indices(), product.col_indices(), product.values(), shape)

    def __repr__(self) -> str:
        return f"SparseMatrix({self.shape[0]}x{self.shape[1]}, nnz={self.nnz}, {self.dtype}, {self.device})"


class BlockMatrix(SparseMatrix):
    """Square matrices of one size, one for each of the vectors that `torch.vmap` runs over; of no use elsewhere."""

    diagonal: SparseMatrix

    def __init__(self, blocks: Sequence[SparseMatrix]):
        self._set(blocks[0].oriented(transpose=False))  # for the shape, the type and the device
        self.blocks = blocks
        parts = [block.coordinates() for block in blocks]
        size = self.shape[0]
        row = torch.cat([row + block * size for block, (row, _, _) in enumerate(parts)])
        col = torch.cat([col + block * size for block, (_, col, _) in enumerate(parts)])
        value = torch.cat([value for *_, value in parts])
        self.diagonal = SparseMatrix(row, col, value, (len(blocks) * size, len(blocks) * size))

    @property
    def prefers_dense(self) -> bool:
        """Whether `diffuse` multiplies by dense matrices: on a GPU, for few small blocks."""
        return super().prefers_dense and len(self.blocks) <= _FEW_NETWORKS

    def dense_diffusion(self, eta: float, num_hops: int) -> Tensor:
        if (eta, num_hops) not in self._dense_diffusions:
            dense = [block.dense_diffusion(eta, num_hops) for block in self.blocks]
            self._dense_diffusions[eta, num_hops] = torch.stack(dense)
        return self._dense_diffusions[eta, num_hops]

    @cached_property
    def with_self_loops_where_empty(self) -> BlockMatrix:
        return BlockMatrix([block.with_self_loops_where_empty for block in self.blocks])


class FeatureProducts:
    """The last product ``X W``, for graphs that have the same features and pass through a network in the same step.

    The product is the largest cost of a step on a CPU. The ID graph and an exposure graph often differ in their edges
    alone; they then share one product, forward and backward. An instance belongs to a single step: weights must not
    change while it is in use, and nothing of it may be kept for the next step.
    """

    _last: tuple[SparseMatrix, Tensor, bool, Tensor] | None = None

    def linear(self, features: SparseMatrix, weight: Tensor) -> Tensor:
        """Compute ``X W^T``, or return it where the same objects were multiplied last."""
        with_gradient = weight.requires_grad and torch.is_grad_enabled()
        if self._last is not None:
            known_features, known_weight, had_gradient, product = self._last
            if known_features is features and known_weight is weight and had_gradient == with_gradient:
                return product
        product = features @ weight.t()
        self._last = features, weight, with_gradient, product
        return product


class _Product(torch.autograd.Function):
    """``y = A x``; the gradient is ``A^T g``, and so on for second derivatives."""

    @staticmethod
    def forward(dense: Tensor, matrix: SparseMatrix, transpose: bool) -> Tensor:
        assert matrix.diagonal is None, "a BlockMatrix can be used under torch.vmap only"
        tensor = matrix.oriented(transpose)
        if matrix.is_plain and dense.dim() == 2:  # the usual case, without the checks that the others need
            if csr.is_wide(dense):
                return csr.multiply_wide(tensor, dense)
            out = dense.new_empty(tensor.shape[0], dense.shape[1])
            return torch.addmm(out, tensor, dense, beta=0, out=out)
        return csr.multiply(tensor, dense)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.matrix, ctx.transpose = inputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _apply(_Product, grads[0], ctx.matrix, not ctx.transpose), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], dense: Tensor, *settings: Any) -> tuple[Tensor, int]:
        return _stacked(_Product, in_dims[0], dense, *settings)


class _Diffusion(torch.autograd.Function):
    """`SparseMatrix.diffuse`; its gradient is the diffusion by the transpose."""

    @staticmethod
    def forward(values: Tensor, matrix: SparseMatrix, transpose: bool, eta: float, num_hops: int) -> Tensor:
        assert matrix.diagonal is None, "a BlockMatrix can be used under torch.vmap only"
        if matrix.prefers_dense:
            power = matrix.dense_diffusion(eta, num_hops)
            return (power.t() if transpose else power) @ values.detach()
        return _diffuse_by_hops(values.detach(), matrix, transpose, eta, num_hops)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, matrix, transpose, eta, num_hops = inputs
        ctx.settings = matrix, not transpose, eta, num_hops

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        return _apply(_Diffusion, grads[0], *ctx.settings), None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], values: Tensor, matrix: SparseMatrix, *settings: Any
    ) -> tuple[Tensor, int]:
        if matrix.diagonal is not None and matrix.prefers_dense:
            transpose, eta, num_hops = settings
            power = matrix.dense_diffusion(eta, num_hops)
            stacked = values.movedim(in_dims[0], 0)
            product = torch.bmm(power.mT if transpose else power, stacked.reshape(*stacked.shape[:2], -1))
            return product.view(stacked.shape), 0
        return _stacked(_Diffusion, in_dims[0], values, matrix, *settings)


def _diffuse_by_hops(values: Tensor, matrix: SparseMatrix, transpose: bool, eta: float, num_hops: int) -> Tensor:
    """Diffuse hop by hop, without a gradient."""
    tensor = matrix.oriented(transpose)
    if _kernels.can_run(values.device) and matrix.nnz:
        longest = matrix.longest_row(transpose)
        for _ in range(num_hops):
            values = _kernels.mix(tensor, values, eta, longest)
        return values
    if values.device.type == "cpu" and values.dim() == 1 and matrix.nnz and csr.cpu_has_csr_kernel():
        buffers = torch.empty_like(values), torch.empty_like(values)
        for hop in range(num_hops):
            values = torch.addmv(values, tensor, values, beta=eta, alpha=1.0 - eta, out=buffers[hop % 2])
        return values
    for _ in range(num_hops):
        values = csr.multiply(tensor, values, values, eta)
    return values


def _apply(function: Any, *inputs: Any) -> Tensor:
    """Apply an autograd function without the checks of its signature.

    `torch.autograd.Function.apply` binds the signature of ``forward`` in every call; this does not. A product by a
    matrix of 627 rows and 16 columns takes 57 instead of 94 microseconds, a training on digits 7 % less time.
    """
    if torch._C._are_functorch_transforms_active():
        return function.apply(*inputs)
    if not (inputs[0].requires_grad and torch.is_grad_enabled()):  # no gradient: another third less
        return function.forward(*inputs)
    return super(torch.autograd.Function, function).apply(*inputs)


def _stacked(function: Any, batch_dim: int, values: Tensor, matrix: SparseMatrix, *settings: Any) -> tuple[Tensor, int]:
    """Many products by one matrix as one wide product; by one matrix each, as one product by their block diagonal."""
    if matrix.diagonal is not None:
        stacked = values.movedim(batch_dim, 0)
        out = _apply(function, stacked.flatten(0, 1), matrix.diagonal, *settings)
        return out.unflatten(0, (stacked.shape[0], -1)), 0
    columns = values.movedim(batch_dim, 1)
    out = _apply(function, columns.flatten(1), matrix, *settings)
    return out.unflatten(1, columns.shape[1:]), 1


class SparsePattern:
    """The pattern of matrices whose values vary, sorted by rows. Entries with equal coordinates are kept apart."""

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
        # Torch's kernel refuses more entries than the matrix has elements, which is possible with duplicates.
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
