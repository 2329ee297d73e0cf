"""Multiplication by a fixed sparse matrix, the kernel that graph learning on a CPU spends most of its time in.

A matrix is built once and multiplied hundreds of times, so its transpose, which the backward pass needs, is kept.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from oddnode.ops import csr
from oddnode.ops import triton_kernels as _kernels
from oddnode.ops.sparse_products import Diffusion, Product, apply, diffuse_by_hops

__all__ = ["SparseMatrix"]

# On a GPU, matrices of at most this many rows use their dense k-hop power (64 MiB): one product instead of k launches.
_SMALL = 4096


class SparseMatrix:
    """A constant sparse matrix in CSR form whose product with a dense one is differentiable.

    Parameters
    ----------
    row, col : Tensor
        Coordinates of the entries, ``[nnz]``; equal coordinates add up.
    value : Tensor
        One number per entry, ``[nnz]``.
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

    #: Of a `oddnode.ops.BlockMatrix`, all its blocks along the diagonal of one matrix.
    diagonal: SparseMatrix | None = None

    def __init__(self, row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]):
        self._set(csr.from_coordinates(row, col, value, shape))

    def _set(self, tensor: Tensor) -> None:
        self.shape: tuple[int, int] = (tensor.shape[0], tensor.shape[1])
        self._csr = tensor
        self._csr_transposed: Tensor | None = None
        self._longest: dict[bool, int] = {}
        self._rows_of: tuple[Tensor, tuple[float, int], Tensor] | None = None
        self._dense_diffusions: dict[tuple[float, int], Tensor] = {}

    @classmethod
    def _of(cls, tensor: Tensor) -> SparseMatrix:
        matrix = object.__new__(SparseMatrix)
        matrix._set(tensor)
        return matrix

    @classmethod
    def from_csr(cls, crow: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> SparseMatrix:
        """Make a matrix of the parts of its CSR form, which are not checked.

        Parameters
        ----------
        crow : Tensor
            Where every row starts, ``[rows + 1]``.
        col : Tensor
            Columns of the entries, ``[nnz]``, sorted within every row.
        value : Tensor
            One number per entry, ``[nnz]``.
        shape : tuple of int
            Rows and columns.

        Returns
        -------
        SparseMatrix
            The matrix; the tensors are not copied.
        """
        return cls._of(csr.from_offsets(crow, col, value, shape))

    @classmethod
    def from_dense(cls, dense: Tensor) -> SparseMatrix:
        """Take the non-zero entries of a dense matrix.

        Parameters
        ----------
        dense : Tensor
            Shape ``[rows, columns]``.

        Returns
        -------
        SparseMatrix
            The same matrix without its zeros.
        """
        row, col = dense.nonzero(as_tuple=True)
        return cls(row, col, dense[row, col], (dense.shape[0], dense.shape[1]))

    @property
    def nnz(self) -> int:
        """The number of stored entries."""
        return self._csr.values().numel()

    @property
    def device(self) -> torch.device:
        """The device that holds the matrix."""
        return self._csr.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of its numbers."""
        return self._csr.dtype

    def row_counts(self) -> Tensor:
        """How many entries each row has, ``[rows]``."""
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
        """Insert diagonal entries, in time linear in the number of entries.

        Parameters
        ----------
        rows : Tensor
            Mask of the rows that get an entry ``[rows]``; none of them may have one.
        value : Tensor
            The new entries, one for each of them.

        Returns
        -------
        SparseMatrix
            A new matrix.
        """
        return SparseMatrix._of(csr.with_diagonal(self._csr, rows, value))

    def with_values(self, value: Tensor) -> SparseMatrix:
        """Put other numbers at the same entries.

        Parameters
        ----------
        value : Tensor
            One number per entry ``[nnz]``, in the order of `coordinates`.

        Returns
        -------
        SparseMatrix
            A new matrix.
        """
        return SparseMatrix.from_csr(self._csr.crow_indices(), self._csr.col_indices(), value, self.shape)

    def coordinates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, columns and numbers of the entries, ``[nnz]`` each."""
        return csr.coordinates(self._csr)

    def to_dense(self) -> Tensor:
        """The same matrix with its zeros written out."""
        return self._csr.to_dense()

    def to(self, target: torch.device | torch.dtype | str) -> SparseMatrix:
        """Copy the matrix to another device or into another precision.

        Parameters
        ----------
        target : torch.device, torch.dtype or str
            Where to, or which precision.

        Returns
        -------
        SparseMatrix
            The copy.
        """
        return self._of(self._csr.to(target))

    def rows(self, nodes: Tensor) -> tuple[SparseMatrix, Tensor]:
        """Cut some rows out, over the columns that they touch.

        Parameters
        ----------
        nodes : Tensor
            Positions of the rows, ``[n]``.

        Returns
        -------
        part : SparseMatrix
            Shape ``[n, m]``.
        columns : Tensor
            Which columns of this matrix those of the part are, ``[m]``.
        """
        counts = self.row_counts().long()
        start = self._csr.crow_indices().long()[nodes]
        row = torch.repeat_interleave(torch.arange(len(nodes), device=self.device), counts[nodes])
        entry = torch.arange(len(row), device=self.device)
        entry += (start - (counts[nodes].cumsum(0) - counts[nodes]))[row]
        columns, col = self._csr.col_indices()[entry].long().unique(return_inverse=True)
        return SparseMatrix(row, col, self._csr.values()[entry], (len(nodes), len(columns))), columns

    def diffuse(self, values: Tensor, eta: float, num_hops: int) -> Tensor:
        """Repeat ``v <- eta v + (1 - eta) M v`` as one differentiable operation.

        Parameters
        ----------
        values : Tensor
            Shape ``[N]`` or ``[N, C]``, for a square matrix ``[N, N]``.
        eta : float
            Share of its own value that a row keeps in every hop.
        num_hops : int
            How often.

        Returns
        -------
        Tensor
            Of the same shape as the values.
        """
        if values.dtype != self.dtype:
            raise TypeError(f"matrix is {self.dtype}, but the values are {values.dtype}")
        return apply(Diffusion, values, self, False, eta, num_hops)

    def diffusion_rows(self, nodes: Tensor, eta: float, num_hops: int) -> Tensor:
        """Some rows of the matrix that `diffuse` multiplies by; those of the last nodes are kept.

        Parameters
        ----------
        nodes : Tensor
            Positions of the rows, ``[n]``; the tensor must not change afterwards.
        eta : float
            As for `diffuse`.
        num_hops : int
            As for `diffuse`.

        Returns
        -------
        Tensor
            Dense, ``[n, N]``.
        """
        key = (eta, num_hops)
        if self._rows_of is None or self._rows_of[0] is not nodes or self._rows_of[1] != key:
            chosen = torch.zeros(self.shape[0], len(nodes), dtype=self.dtype, device=self.device)
            chosen[nodes, torch.arange(len(nodes), device=self.device)] = 1.0
            with torch.no_grad():
                rows = apply(Diffusion, chosen, self, True, eta, num_hops).t().contiguous()
            self._rows_of = nodes, key, rows
        return self._rows_of[2]

    @property
    def prefers_dense(self) -> bool:
        """Whether `diffuse` multiplies by `dense_diffusion`: on a GPU, for a small matrix."""
        return _kernels.can_run(self.device) and 0 < self.shape[0] <= _SMALL

    def dense_diffusion(self, eta: float, num_hops: int) -> Tensor:
        """The dense matrix that `diffuse` multiplies by.

        It is kept as long as this matrix is, because captured CUDA graphs may refer to it.

        Parameters
        ----------
        eta : float
            As for `diffuse`.
        num_hops : int
            As for `diffuse`.

        Returns
        -------
        Tensor
            Shape ``[N, N]``.
        """
        if (eta, num_hops) not in self._dense_diffusions:
            identity = torch.eye(self.shape[0], dtype=self.dtype, device=self.device)
            self._dense_diffusions[eta, num_hops] = diffuse_by_hops(identity, self, False, eta, num_hops)
        return self._dense_diffusions[eta, num_hops]

    def longest_row(self, transpose: bool) -> int:
        """The largest number of entries in a row.

        Parameters
        ----------
        transpose : bool
            Whether of the transpose.

        Returns
        -------
        int
            The number; computed once.
        """
        if transpose not in self._longest:
            self._longest[transpose] = int(self.oriented(transpose).crow_indices().diff().max())
        return self._longest[transpose]

    def oriented(self, transpose: bool) -> Tensor:
        """The matrix or its transpose as a CSR tensor of torch.

        Parameters
        ----------
        transpose : bool
            Whether the transpose.

        Returns
        -------
        Tensor
            Sparse CSR, built once.
        """
        return self._transposed() if transpose else self._csr

    def _transposed(self) -> Tensor:
        if self._csr_transposed is None:
            row, col, value = csr.coordinates(self._csr)
            self._csr_transposed = csr.from_coordinates(col, row, value, (self.shape[1], self.shape[0]))
        return self._csr_transposed

    def __matmul__(self, dense: Tensor) -> Tensor:
        if dense.dtype != self.dtype:
            raise TypeError(f"matrix is {self.dtype}, but the other factor is {dense.dtype}")
        return apply(Product, dense, self, False)

    def __repr__(self) -> str:
        return f"SparseMatrix({self.shape[0]}x{self.shape[1]}, nnz={self.nnz}, {self.dtype}, {self.device})"
