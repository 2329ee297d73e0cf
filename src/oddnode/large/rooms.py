"""Room for numbers of all nodes: in memory, or in a temporary file if they are many.

Ranks on one machine share it (`oddnode.large.ranks.Ranks.share`), so that every number is there once, and what one rank
has written the others read. So all ranks must ask for the same room at the same time, and after they have filled it,
nobody may change it by a step that is not the same however often it is done.
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

__all__ = ["copied", "filled", "own_copy", "room_in_memory", "scratch"]

# Larger results are kept in a file that the system can write out when memory is short: so many bytes, or this part of
# the memory of the process, since some tens of results are kept at the same time.
_LARGEST_IN_MEMORY, _PART_IN_MEMORY = 2**28, 64
# Ranks copy rows in so many parts each.
_PARTS = 8


def scratch(folder: Path, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Make room for a result: in memory, or in a temporary file if it is large.

    Parameters
    ----------
    folder : Path
        Where the file is to be. It has no name there, so that nothing is left of it if the process is killed.
    shape : tuple of int
        The shape.
    dtype : torch.dtype
        The type of the numbers.

    Returns
    -------
    Tensor
        Not initialised.
    """
    if prod(shape) * dtype.itemsize <= min(_LARGEST_IN_MEMORY, active_ranks().memory_limit // _PART_IN_MEMORY):
        return room_in_memory(shape, torch.empty(0, dtype=dtype))
    with full_disk_explained(folder):
        return _in_file(lambda: tempfile.TemporaryFile(dir=folder), shape, dtype, reserve)


def room_in_memory(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Make room in memory, for values that a product reads at random.

    Parameters
    ----------
    shape : tuple of int
        The shape.
    like : Tensor
        Any tensor of the type of the numbers, on their device.

    Returns
    -------
    Tensor
        Not initialised.
    """
    if not active_ranks().share_memory or like.device.type != "cpu" or not prod(shape):
        return like.new_empty(shape)
    return _in_file(lambda: os.fdopen(os.memfd_create("oddnode"), "r+b"), shape, like.dtype, os.ftruncate)


def copied(values: Tensor) -> Tensor:
    """Copy values into memory, in one piece.

    Parameters
    ----------
    values : Tensor
        Shape ``[N, ...]``.
    """
    room = room_in_memory(tuple(values.shape), values)
    if not is_shared(room):
        return room.copy_(values)
    step = max(-(-len(values) // (_PARTS * active_ranks().world_size)), 1)
    parts = [slice(start, min(start + step, len(values))) for start in range(0, len(values), step)]
    return filled(room, parts, lambda rows: values[rows])


def filled(room: Tensor, parts: Sequence[slice], make: Callable[[slice], Tensor]) -> Tensor:
    """Fill room with what is computed faster than it is sent: ranks divide the work only if they share the room.

    Parameters
    ----------
    room, parts, make
        As for `oddnode.large.ranks.Ranks.fill`.
    """
    if is_shared(room):
        return active_ranks().fill(room, parts, make)
    for rows in parts:
        room[rows] = make(rows)
    return room


def own_copy(values: Tensor) -> Tensor:
    """Return values that may be changed: a copy of those that other ranks have as well.

    Parameters
    ----------
    values : Tensor
        Any tensor.
    """
    return values.clone() if is_shared(values) else values


def _in_file(
    make: Callable[[], Any], shape: tuple[int, ...], dtype: torch.dtype, extend: Callable[[int, int], None]
) -> Tensor:
    """Numbers in a file without a name, which ends with the last process that uses it."""
    num_bytes, name = prod(shape) * dtype.itemsize, str(dtype).removeprefix("torch.")

    def extended() -> Any:
        file = make()
        extend(file.fileno(), num_bytes)
        return file

    file, is_shared = active_ranks().share(extended)
    with file:
        array = np.memmap(file, name, "r+", shape=shape)
    return mapped(array, is_on_disk=extend is reserve, is_shared=is_shared)
