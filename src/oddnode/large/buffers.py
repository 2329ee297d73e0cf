"""Buffers for values of all nodes: in memory, or in a temporary file if they are large.

Ranks on one machine share them (`oddnode.large.ranks.Ranks.share`), so that every value is stored once, and what one
rank writes, the others can read. Hence allocation is collective: every rank must call it with the same shape. Once a
buffer is filled, only idempotent writes are allowed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oddnode.large.arrays import full_disk_explained, is_shared, mapped, reserve
from oddnode.large.ranks import active_ranks

# Larger results are kept in a file that the system can write out when memory is short: this many bytes, or this part of
# the memory of the process, since dozens of results are kept at the same time.
_LARGEST_IN_MEMORY, _PART_IN_MEMORY = 2**28, 64
# Ranks copy rows in this many parts each.
_PARTS = 8


def scratch_buffer(folder: Path, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Allocate a result: in memory, or in a temporary file if it is large."""
    if prod(shape) * dtype.itemsize <= min(_LARGEST_IN_MEMORY, active_ranks().memory_limit // _PART_IN_MEMORY):
        return shared_buffer(shape, torch.empty(0, dtype=dtype))
    # A folder that is read-only cannot hold temporary files.
    folder = folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())
    with full_disk_explained(folder):
        return _in_file(lambda: tempfile.TemporaryFile(dir=folder), shape, dtype, reserve)


def shared_buffer(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Allocate memory that all ranks on this machine share, for values that a product reads at random."""
    if not active_ranks().share_memory or like.device.type != "cpu" or not prod(shape):
        return like.new_empty(shape)
    return _in_file(lambda: os.fdopen(os.memfd_create("oddnode"), "r+b"), shape, like.dtype, os.ftruncate)


def copied(values: Tensor) -> Tensor:
    """Copy values into contiguous memory."""
    buffer = shared_buffer(tuple(values.shape), values)
    if not is_shared(buffer):
        return buffer.copy_(values)
    step = max(-(-len(values) // (_PARTS * active_ranks().world_size)), 1)
    parts = [slice(start, min(start + step, len(values))) for start in range(0, len(values), step)]
    return filled(buffer, parts, lambda rows: values[rows])


def filled(buffer: Tensor, parts: Sequence[slice], make: Callable[[slice], Tensor]) -> Tensor:
    """Fill a buffer with values that are faster computed than sent: ranks divide the work only if they share it."""
    for rows in active_ranks().shards(buffer, parts) if is_shared(buffer) else parts:
        buffer[rows] = make(rows)
    return buffer


def own_copy(values: Tensor) -> Tensor:
    """Return values that may be changed: a copy of shared ones."""
    return values.clone() if is_shared(values) else values


def _in_file(
    make: Callable[[], Any], shape: tuple[int, ...], dtype: torch.dtype, extend: Callable[[int, int], None]
) -> Tensor:
    """A tensor in an unnamed file, which is deleted when the last process that uses it ends."""
    num_bytes, name = prod(shape) * dtype.itemsize, str(dtype).removeprefix("torch.")

    def extended() -> Any:
        file = make()
        extend(file.fileno(), num_bytes)
        return file

    file, is_shared = active_ranks().share(extended)
    with file:
        array = np.memmap(file, name, "r+", shape=shape)
    return mapped(array, is_on_disk=extend is reserve, is_shared=is_shared)
