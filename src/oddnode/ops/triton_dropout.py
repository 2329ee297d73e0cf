"""The Triton kernel for ReLU and dropout, and the function that starts it; see `oddnode.ops.triton_kernels`."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["relu_dropout"]

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


if triton is not None:

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


def relu_dropout(
    values: Tensor, rows: Tensor | None, table: Tensor, count: Tensor, place: int, p: float, grad: Tensor | None = None
) -> Tensor:
    """``relu(values) * scales`` with the masks of `oddnode.ops.dropout.dropout_scales`, or the gradient of that.

    Parameters
    ----------
    values : Tensor
        What ReLU and dropout apply to, ``[N, S, H]`` for S networks, contiguous.
    rows : Tensor or None
        The rows to compute, ``[n]``; all of them where None.
    table : Tensor
        Dropout keys, ``[epochs, places, S, 2]`` (int32).
    count : Tensor
        The present epoch, a tensor of one integer on the same device.
    place : int
        Which of the table's places the masks belong to.
    p : float
        The probability that a feature is dropped.
    grad : Tensor, optional
        The gradient with respect to the output, ``[n, S, H]``. Where it is given, the gradient with respect to
        ``values`` is computed instead.

    Returns
    -------
    Tensor
        The output, ``[n, S, H]``, or the gradient, ``[N, S, H]``.
    """
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
    total, block = chosen * networks * width, 1024
    with torch.cuda.device_of(values):
        _relu_dropout[(-(-total // block),)](
            values,
            values if rows is None else rows,
            table,
            count,
            values if grad is None else grad,
            out,
            total,
            networks,
            width,
            -(-width // (32 if one_bit else 2)),
            table[0].numel(),
            place,
            threshold,
            scale,
            ONE_BIT=one_bit,
            HAS_ROWS=rows is not None,
            BACKWARD=grad is not None,
            BLOCK=block,
        )
    return out
