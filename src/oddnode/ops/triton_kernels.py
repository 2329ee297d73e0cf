"""Triton kernels for sums over neighbours, and the functions that start them.

Triton comes with torch for CUDA. Everything here has another implementation in torch for machines without it. A kernel
runs on the current GPU, which need not be the one that holds the tensors; hence ``torch.cuda.device_of`` around every
start. With ``TRITON_INTERPRET=1`` the kernels also run on CPU tensors, slowly, which is how they are tested without a
GPU; `can_run` does not offer that to the library.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["EVERY", "TILE", "Mix", "add_block", "can_run", "mix", "sum_ranges"]

#: The number of rows of a block of edges that one program processes.
TILE = 256
#: More edges than any row has.
EVERY = 2**62

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


def can_run(device: torch.device) -> bool:
    """Whether the kernels run on a device.

    Parameters
    ----------
    device : torch.device
        Where the tensors are.

    Returns
    -------
    bool
        True for a CUDA device where triton is installed.
    """
    return triton is not None and device.type == "cuda"


if triton is not None:

    @triton.jit
    def _sum_ranges(
        starts,
        ends,
        sources,
        values,
        out,
        own,
        kept,
        share,
        num_ranges,
        width,
        stride,
        most,
        ROWS: tl.constexpr,
        LANES: tl.constexpr,
        COLUMNS: tl.constexpr,
        MIXES: tl.constexpr,
    ):
        # One program sums ROWS ranges and COLUMNS columns, LANES edges of each range at a time.
        row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        inside = row < num_ranges
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        start = tl.load(starts + row, mask=inside, other=0).to(tl.int64)
        end = tl.minimum(tl.load(ends + row, mask=inside, other=0).to(tl.int64), start + most)
        lane = tl.arange(0, LANES)
        total = tl.zeros((ROWS, LANES, COLUMNS), dtype=values.dtype.element_ty)
        for step in range(0, tl.max(end - start), LANES):
            place = start[:, None] + step + lane[None, :]
            within = place < end[:, None]
            source = tl.load(sources + place, mask=within, other=0).to(tl.int64)
            at = values + source[:, :, None] * width + column[None, None, :]
            total += tl.load(at, mask=within[:, :, None] & (column < width)[None, None, :], other=0.0)
        there = inside[:, None] & (column < width)[None, :]
        found = tl.sum(total, axis=1)
        if MIXES:
            before = tl.load(own + row[:, None] * width + column[None, :], mask=there, other=0.0)
            found = found * tl.load(share + row, mask=inside, other=0.0)[:, None]
            found += before * tl.load(kept + row, mask=inside, other=0.0)[:, None]
        tl.store(out + row[:, None] * stride + column[None, :], found, mask=there)

    @triton.jit
    def _add_block(counts, bases, sources, values, total, num_nodes, most, ROWS: tl.constexpr):
        # One program adds ROWS rows of a block, one edge of each at a time: in a block a row has few edges.
        tile = tl.program_id(0)
        row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        inside = row < num_nodes
        count = tl.load(counts + row, mask=inside, other=0).to(tl.int32)
        start = tl.load(bases + tile) + tl.cumsum(count, 0) - count
        found = tl.load(total + row, mask=inside, other=0.0)
        count = tl.minimum(count, most)
        for step in range(0, tl.max(count)):
            within = step < count
            source = tl.load(sources + start + step, mask=within, other=0)
            found += tl.load(values + source, mask=within, other=0.0)
        tl.store(total + row, found, mask=inside)

    @triton.jit
    def _mix(
        crow,
        col,
        weight,
        values,
        out,
        num_rows,
        width,
        keep,
        ROWS: tl.constexpr,
        LANES: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        # One program computes ROWS rows and COLUMNS columns of the output, LANES entries of each row at a time.
        row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        inside = row < num_rows
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        start = tl.load(crow + row, mask=inside, other=0).to(tl.int64)
        end = tl.load(crow + row + 1, mask=inside, other=0).to(tl.int64)
        lane = tl.arange(0, LANES)
        total = tl.zeros((ROWS, LANES, COLUMNS), dtype=values.dtype.element_ty)
        for step in range(0, tl.max(end - start), LANES):
            place = start[:, None] + step + lane[None, :]
            within = place < end[:, None]
            source = tl.load(col + place, mask=within, other=0).to(tl.int64)
            share = tl.load(weight + place, mask=within, other=0.0)
            at = values + source[:, :, None] * width + column[None, None, :]
            there = within[:, :, None] & (column < width)[None, None, :]
            total += share[:, :, None] * tl.load(at, mask=there, other=0.0)
        at = row[:, None] * width + column[None, :]
        there = inside[:, None] & (column < width)[None, :]
        own = tl.load(values + at, mask=there, other=0.0)
        tl.store(out + at, keep * own + (1.0 - keep) * tl.sum(total, axis=1), mask=there)


class Mix(NamedTuple):
    """What a sum over a range is mixed with: ``kept * own + share * sum``.

    Parameters
    ----------
    own : Tensor
        A value of every range, ``[n]`` or ``[n, C]``, contiguous.
    kept, share : Tensor
        The factors of this value and of the sum, ``[n]`` each, of the same type.
    """

    own: Tensor
    kept: Tensor
    share: Tensor


def sum_ranges(
    starts: Tensor,
    ends: Tensor,
    sources: Tensor,
    values: Tensor,
    most: int = EVERY,
    program: tuple[int, int, int] | None = None,
    mix: Mix | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Sum ``values`` over ranges of sources.

    Parameters
    ----------
    starts, ends : Tensor
        Where each range begins and ends, ``[n]`` integers; for a CSR structure, its offsets without the last and
        without the first.
    sources : Tensor
        The sources, ``[E]`` integers.
    values : Tensor
        One or more numbers per source node, ``[M]`` or ``[M, C]``.
    most : int
        Only so many sources of a range count, from its first on.
    program : tuple of int, optional
        How many ranges a program sums, how many sources of each at a time, and its number of warps: powers of two.
    mix : Mix, optional
        What the sums are mixed with.
    out : Tensor, optional
        Where the result is written, ``[n]`` or ``[n, C]``, its rows contiguous.

    Returns
    -------
    Tensor
        The sums, ``[n]`` or ``[n, C]``; 0 for an empty range.
    """
    if out is None:
        out = torch.empty((len(starts), *values.shape[1:]), dtype=values.dtype, device=values.device)
    width = values.shape[1] if values.dim() == 2 else 1
    columns = min(64, 1 << max(width - 1, 0).bit_length())
    # The fastest on an H200.
    rows, lanes, warps = program or ((16, 32, 4) if width == 1 else (4, 4, 1) if columns <= 32 else (1, 8, 1))
    grid, shape = (-(-len(out) // rows), -(-width // columns)), {"ROWS": rows, "LANES": lanes, "COLUMNS": columns}
    if out.numel():
        with torch.cuda.device_of(values):
            numbers = starts, ends, sources, values.contiguous(), out, *(mix or (values, values, values))
            sizes = len(out), width, out.stride(0), most
            _sum_ranges[grid](*numbers, *sizes, **shape, MIXES=mix is not None, num_warps=warps)
    return out


def add_block(counts: Tensor, bases: Tensor, sources: Tensor, values: Tensor, total: Tensor, most: int = EVERY) -> None:
    """Add the sums of ``values`` over one block of edges to ``total``, in place.

    Parameters
    ----------
    counts : Tensor
        How many edges of the block each row has, ``[N]`` integers.
    bases : Tensor
        Where the sources of every `TILE` consecutive rows begin, ``[ceil(N / TILE)]`` integers.
    sources : Tensor
        The sources of the block's edges, sorted by row.
    values : Tensor
        One number per source node, ``[M]``, contiguous.
    total : Tensor
        The sums so far, ``[N]``, contiguous.
    most : int
        Only so many edges of a row count, from its first on.
    """
    with torch.cuda.device_of(values):
        _add_block[(-(-len(counts) // TILE),)](counts, bases, sources, values, total, len(counts), most, ROWS=TILE)


def mix(csr: Tensor, values: Tensor, keep: float, longest: int) -> Tensor:
    """One diffusion step, ``keep v + (1 - keep) M v``.

    Parameters
    ----------
    csr : Tensor
        The square matrix ``M`` as a sparse CSR tensor, ``[N, N]``.
    values : Tensor
        ``v``, of shape ``[N]`` or ``[N, C]``.
    keep : float
        The weight of ``v`` itself.
    longest : int
        The number of entries in the longest row of ``M``, which decides the shape of the programs.

    Returns
    -------
    Tensor
        The same shape as ``values``.
    """
    if keep != 0.0 and values.dtype == torch.float64:  # a kernel receives its floats in single precision
        return torch.add(mix(csr, values, 0.0, longest) * (1.0 - keep), values, alpha=keep)
    values = values.contiguous()
    width = values.shape[1] if values.dim() == 2 else 1
    columns = min(512, 1 << max(width - 1, 0).bit_length())
    # A long row delays its whole program, so more of its entries are read at once.
    lanes = 16 if longest <= 256 else 32 if longest <= 4096 else 128 if longest <= 65536 else 256
    rows = max(256 // (lanes * columns), 1)
    if columns > 16:  # the columns alone keep a program busy
        lanes = 4 if longest <= 256 else 16
    out = torch.empty_like(values)
    grid = (-(-len(values) // rows), -(-width // columns))
    crow, col, weight = csr.crow_indices(), csr.col_indices(), csr.values()
    with torch.cuda.device_of(values):
        _mix[grid](crow, col, weight, values, out, len(values), width, keep, ROWS=rows, LANES=lanes, COLUMNS=columns)
    return out
