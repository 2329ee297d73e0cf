"""Torch's CSR tensors: building them, and multiplying by them on any device.

Indices have 32 bits wherever they fit: half the memory traffic, and kernels that require them need not convert at every
product.
"""

from __future__ import annotations

import warnings
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

_LARGEST_INT32 = 2**31 - 1
# Up to this many columns torch's CSR kernel is faster.
_FEW_COLUMNS = 16


# Torch warns once per process that CSR is in beta, which no user can act on. It does so now: warnings are filtered for
# all threads at once, so they must not be filtered later, while several threads score.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    _none = torch.zeros(2, dtype=torch.long, device="cpu")
    torch.sparse_csr_tensor(_none, _none[:0], _none[:0], (1, 1), check_invariants=False)


def from_coordinates(row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    """Build a CSR tensor from coordinates; equal coordinates add up."""
    coo = torch.sparse_coo_tensor(torch.stack([row, col]), value, shape, check_invariants=False)
    csr = coo.coalesce().to_sparse_csr()
    if max(csr.values().numel(), *shape) > _LARGEST_INT32:
        return csr
    crow, col = csr.crow_indices().int(), csr.col_indices().int()
    return torch.sparse_csr_tensor(crow, col, csr.values(), shape, check_invariants=False)


def multiply(csr: Tensor, dense: Tensor, other: Tensor | None = None, share: float = 0.0) -> Tensor:
    """Compute ``share * other + (1 - share) * M dense``; without ``other``, the product alone."""
    dense = dense.detach()
    if csr.values().numel() == 0:
        product = dense.new_zeros(csr.shape[0], *dense.shape[1:])
        return product if other is None else share * other
    if is_wide(dense):
        product = multiply_wide(csr, dense)
        return product if other is None else product.lerp_(other, share)
    if csr.device.type != "cpu" or cpu_has_csr_kernel():
        # Writing into existing memory saves torch a fill and a copy; with a weight of 0 it is not read.
        if csr.device.type == "cuda" and dense.dim() == 1:
            # On a GPU, the product with a vector is not deterministic; the one with a column is.
            column = None if other is None else other.unsqueeze(1)
            return multiply(csr, dense.unsqueeze(1), column, share).squeeze(1)
        out = dense.new_empty(csr.shape[0], *dense.shape[1:])
        add = torch.addmv if dense.dim() == 1 else torch.addmm
        return add(out if other is None else other, csr, dense, beta=share, alpha=1.0 - share, out=out)
    row = torch.repeat_interleave(torch.arange(csr.shape[0], device=csr.device), csr.crow_indices().diff())
    value = csr.values() if dense.dim() == 1 else csr.values().unsqueeze(1)
    out = dense.new_zeros(csr.shape[0], *dense.shape[1:])
    out.index_add_(0, row, value * dense[csr.col_indices().long()])
    return out if other is None else share * other + (1.0 - share) * out


def is_wide(dense: Tensor) -> bool:
    """Whether `multiply_wide` is the fastest way to multiply by a matrix."""
    is_single = dense.dtype == torch.float32 and dense.device.type == "cpu"
    return is_single and dense.dim() == 2 and dense.shape[1] > _FEW_COLUMNS


def multiply_wide(csr: Tensor, dense: Tensor) -> Tensor:
    """Compute ``M dense`` as weighted sums of embeddings, two to three times as fast as torch's CSR kernel."""
    return F.embedding_bag(
        csr.col_indices(),
        dense.detach().contiguous(),
        csr.crow_indices(),
        mode="sum",
        per_sample_weights=csr.values(),
        include_last_offset=True,
    )


@cache
def cpu_has_csr_kernel() -> bool:
    """Whether torch can multiply CSR tensors on this CPU: some builds (ARM, macOS) lack the library for it."""
    try:
        index = torch.zeros(1, dtype=torch.long)
        _ = from_coordinates(index, index, torch.ones(1), (1, 1)) @ torch.ones(1, 1)
    except RuntimeError:
        return False
    return True
