"""Differentiable operations of `oddnode.ops.sparse.SparseMatrix`: the product and the diffusion, also under vmap.

Differentiating ``torch.sparse.mm`` directly transposes the matrix at every step, which is ten times slower than these:
their backward passes multiply by a transpose that the matrix holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from oddnode.ops import csr
from oddnode.ops import triton_kernels as _kernels

if TYPE_CHECKING:
    from oddnode.ops.sparse import SparseMatrix

__all__ = ["Diffusion", "Product", "apply", "diffuse_by_hops"]


class Product(torch.autograd.Function):
    """``y = A x``; the gradient is ``A^T g``, and so on for second derivatives."""

    @staticmethod
    def forward(dense: Tensor, matrix: SparseMatrix, transpose: bool) -> Tensor:
        assert matrix.diagonal is None, "a BlockMatrix can be used under torch.vmap alone"
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
        return apply(Product, grads[0], ctx.matrix, not ctx.transpose), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], dense: Tensor, *settings: Any) -> tuple[Tensor, int]:
        return _stacked(Product, in_dims[0], dense, *settings)


class Diffusion(torch.autograd.Function):
    """`SparseMatrix.diffuse`; its gradient is the diffusion by the transpose."""

    @staticmethod
    def forward(values: Tensor, matrix: SparseMatrix, transpose: bool, eta: float, num_hops: int) -> Tensor:
        assert matrix.diagonal is None, "a BlockMatrix can be used under torch.vmap alone"
        if matrix.prefers_dense:
            power = matrix.dense_diffusion(eta, num_hops)
            return (power.t() if transpose else power) @ values.detach()
        return diffuse_by_hops(values.detach(), matrix, transpose, eta, num_hops)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, matrix, transpose, eta, num_hops = inputs
        ctx.settings = matrix, not transpose, eta, num_hops

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        return apply(Diffusion, grads[0], *ctx.settings), None, None, None, None

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
        return _stacked(Diffusion, in_dims[0], values, matrix, *settings)


def diffuse_by_hops(values: Tensor, matrix: SparseMatrix, transpose: bool, eta: float, num_hops: int) -> Tensor:
    """Diffuse hop by hop, without a gradient.

    Parameters
    ----------
    values : Tensor
        Shape ``[N]`` or ``[N, C]``.
    matrix : SparseMatrix
        Square, ``[N, N]``.
    transpose : bool
        Whether to multiply by the transpose.
    eta : float
        Share of its own value that a row keeps in every hop.
    num_hops : int
        How many hops.

    Returns
    -------
    Tensor
        Of the same shape as the values.
    """
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


def apply(function: Any, *inputs: Any) -> Tensor:
    """Apply an autograd function without the checks of its signature, which take longer than a small product.

    Parameters
    ----------
    function : type
        `Product` or `Diffusion`.
    *inputs
        The arguments of its ``forward``.

    Returns
    -------
    Tensor
        The result of its ``forward``.
    """
    if torch._C._are_functorch_transforms_active():
        return function.apply(*inputs)
    return super(torch.autograd.Function, function).apply(*inputs)


def _stacked(function: Any, batch_dim: int, values: Tensor, matrix: SparseMatrix, *settings: Any) -> tuple[Tensor, int]:
    """Many products by one matrix as one wide product; by one matrix each, as one product by their block diagonal."""
    if matrix.diagonal is not None:
        stacked = values.movedim(batch_dim, 0)
        out = apply(function, stacked.flatten(0, 1), matrix.diagonal, *settings)
        return out.unflatten(0, (stacked.shape[0], -1)), 0
    columns = values.movedim(batch_dim, 1)
    out = apply(function, columns.flatten(1), matrix, *settings)
    return out.unflatten(1, columns.shape[1:]), 1
