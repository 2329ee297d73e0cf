"""Triton kernels for sums over neighbours, ReLU and dropout, and the functions that launch them.

Triton comes with torch for CUDA. Everything here has another implementation in torch for machines without it. A kernel
runs on the current GPU, which need not be the one that holds the tensors; hence ``torch.cuda.device_of`` around every
launch. With ``TRITON_INTERPRET=1`` the kernels also run on CPU tensors, slowly, which tests them without a
GPU; `can_run` does not offer that to the library.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

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
    """Whether the kernels run on a device."""
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

    @triton.jit
    def _finalise(x):
        x = x ^ (x >> 16)
        x = x * 0x7FEB352D
        x = x ^ (x >> 15)
        x = x * 0x846CA68B
        return x ^ (x >> 16)

    @triton.jit
    def _relu_dropout(
        values,
        rows,
        table,
        count,
        grad,
        out,
        total,
        networks,
        width,
        words_per_node,
        keys_per_epoch,
        place,
        threshold,
        scale,
        ONE_BIT: tl.constexpr,
        HAS_ROWS: tl.constexpr,
        BACKWARD: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        # The same masks as `oddnode.ops.dropout.dropout_scales`, bit for bit.
        i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = i < total
        channel = i % width
        network = (i // width) % networks
        row = i // (width * networks)
        node = tl.load(rows + row, mask=inside, other=0) if HAS_ROWS else row
        epoch = tl.load(count)
        key = table + epoch * keys_per_epoch + (place * networks + network) * 2
        low = tl.load(key, mask=inside, other=0).to(tl.uint32, bitcast=True)
        high = tl.load(key + 1, mask=inside, other=0).to(tl.uint32, bitcast=True)
        per_word = 32 if ONE_BIT else 2
        word = (node * words_per_node + channel // per_word).to(tl.uint32)
        word = _finalise(_finalise(word ^ low) ^ high)
        if ONE_BIT:
            kept = ((word >> (channel % 32).to(tl.uint32)) & 1) == 1
        else:
            kept = ((word >> (16 * (channel % 2)).to(tl.uint32)) & 0xFFFF) >= threshold
        at = (node * networks + network) * width + channel
        value = tl.load(values + at, mask=inside, other=0.0)
        if BACKWARD:
            slope = tl.load(grad + i, mask=inside, other=0.0)
            tl.store(out + at, tl.where(kept & (value > 0), slope * scale, 0.0), mask=inside)
        else:
            tl.store(out + i, tl.where(kept & (value > 0), value * scale, 0.0), mask=inside)


class Mix(NamedTuple):
    """What a sum over a range is mixed with: ``kept * own + share * sum``."""

    own: Tensor  # A value of every range, `[n]` or `[n, C]`, contiguous
    kept: Tensor  # The factor of this value, `[n]`, of the same dtype
    share: Tensor  # The factor of the sum, `[n]`, of the same dtype


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
    """Sum ``values`` over ranges of sources."""
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
    """Add the sums of ``values`` over one block of edges to ``total``, in place."""
    with torch.cuda.device_of(values):
        _add_block[(-(-len(counts) // TILE),)](counts, bases, sources, values, total, len(counts), most, ROWS=TILE)


def mix(csr: Tensor, values: Tensor, keep: float, longest: int) -> Tensor:
    """One diffusion step, ``keep v + (1 - keep) M v``."""
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


def relu_dropout(
    values: Tensor, rows: Tensor | None, table: Tensor, count: Tensor, place: int, p: float, grad: Tensor | None = None
) -> Tensor:
    """``relu(values) * scales`` with the masks of `oddnode.ops.dropout.dropout_scales`, or the gradient of that."""
    networks, width = values.shape[1:]
    chosen = len(values) if rows is None else len(rows)
    one_bit = p == 0.5
    threshold = round(p * 65536)
    scale = 65536 / max(65536 - threshold, 1)
    if grad is None:
        out = torch.empty(chosen, networks, width, dtype=values.dtype, device=values.device)
    else:
        grad = grad.contiguous()
        out = torch.zeros_like(values) if rows is not None else torch.empty_like(values)
    total, block, words_per_node = chosen * networks * width, 1024, -(-width // (32 if one_bit else 2))
    tensors = values, values if rows is None else rows, table, count, values if grad is None else grad, out
    sizes = total, networks, width, words_per_node, table[0].numel(), place, threshold, scale
    switches = {"ONE_BIT": one_bit, "HAS_ROWS": rows is not None, "BACKWARD": grad is not None}
    with torch.cuda.device_of(values):
        _relu_dropout[(-(-total // block),)](*tensors, *sizes, **switches, BLOCK=block)
    return out
