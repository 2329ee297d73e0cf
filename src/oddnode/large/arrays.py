"""Arrays on disk: plain numbers in a file, with their type, shape and checksum kept in a manifest."""

from __future__ import annotations

import errno
import os
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from msgspec import Meta, Struct
from torch import Tensor

__all__ = [
    "ArrayEntry",
    "ArrayWriter",
    "FolderError",
    "NoWriter",
    "array_of",
    "at_once",
    "full_disk_explained",
    "is_in_file",
    "is_shared",
    "map_array",
    "mapped",
    "reserve",
    "row_chunks",
    "written",
]

_READ_AT_ONCE = 2**24
# A GPU is busy only if it has much more to do at a time than a CPU has.
_MORE_ON_GPU = 64


class FolderError(ValueError):
    """A graph folder that cannot be used; the message says what was found, what was expected and what to do."""


class ArrayEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """What a manifest says of an array.

    Parameters
    ----------
    dtype : str
        The type of its numbers, little-endian.
    shape : tuple of int
        Its shape.
    crc32 : int
        The checksum of the file.
    """

    dtype: Literal["float32", "float64", "int32", "int64", "bool", "uint8"]
    shape: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=1, max_length=2)]
    crc32: Annotated[int, Meta(ge=0, lt=2**32)]

    @property
    def num_bytes(self) -> int:
        """The size of the file."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


class ArrayWriter(AbstractContextManager):
    """Writes an array to a file, some rows at a time; as a context manager it closes the file in any case.

    Parameters
    ----------
    path : Path
        The file, which is replaced.
    dtype : str
        The type of the numbers; rows are converted to it.
    """

    def __init__(self, path: Path, dtype: str):
        self.path = path
        self._dtype = np.dtype(dtype)
        self._file = path.open("wb")
        self._crc32 = 0
        self._shape: tuple[int, ...] = (0,)

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):  # on a full disk the last bytes cannot be written
            self._file.close()

    def append(self, rows: np.ndarray | Tensor) -> None:
        """Write more rows.

        Parameters
        ----------
        rows : numpy.ndarray or Tensor
            Shape ``[n]`` or ``[n, columns]``, with as many columns as before.
        """
        rows = rows.numpy() if isinstance(rows, Tensor) else rows
        if self._shape[0] and self._shape[1:] != rows.shape[1:]:
            raise FolderError(
                f"rows of {self.path.stem!r} have {list(rows.shape[1:])} columns, but before {list(self._shape[1:])}"
            )
        rows = np.ascontiguousarray(rows, self._dtype)
        self._file.write(rows.data)
        self._crc32 = zlib.crc32(rows.data, self._crc32)
        self._shape = (self._shape[0] + len(rows), *rows.shape[1:])

    def close(self) -> ArrayEntry:
        """Flush the file to disk.

        Returns
        -------
        ArrayEntry
            For the manifest.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return ArrayEntry(self._dtype.name, self._shape, self._crc32)  # type: ignore[arg-type]


def written(path: Path, make: Callable[[ArrayWriter], None], dtype: str) -> ArrayEntry:
    """Write an array by a function; nothing is left of it after an error.

    Parameters
    ----------
    path : Path
        The file.
    make : callable
        Appends the rows to the writer that it is called with.
    dtype : str
        The type of the numbers.

    Returns
    -------
    ArrayEntry
        For the manifest.
    """
    with ArrayWriter(path, dtype) as writer:
        try:
            make(writer)
            return writer.close()
        except BaseException:
            path.unlink(missing_ok=True)
            raise


class NoWriter:
    """Stands for the writer in a process that helps to compute an array which another process writes."""

    def append(self, rows: np.ndarray | Tensor) -> None:
        """Write nothing.

        Parameters
        ----------
        rows : numpy.ndarray or Tensor
            Shape ``[n]`` or ``[n, columns]``.
        """


def array_of(path: Path, values: np.ndarray) -> ArrayEntry:
    """Write a whole array.

    Parameters
    ----------
    path : Path
        The file, which is replaced.
    values : numpy.ndarray
        Shape ``[n]`` or ``[n, columns]``.

    Returns
    -------
    ArrayEntry
        For the manifest.
    """
    with ArrayWriter(path, values.dtype.name) as writer:
        writer.append(values)
        return writer.close()


def map_array(path: Path, entry: ArrayEntry) -> Tensor:
    """Map an array into memory; its pages are read when they are used, and shared by all processes.

    Parameters
    ----------
    path : Path
        The file.
    entry : ArrayEntry
        What the manifest says of it.

    Returns
    -------
    Tensor
        Changes to it are not written to the file.
    """
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        raise FolderError(f"{path} is missing, so the folder is damaged; prepare the graph again") from None
    if found != entry.num_bytes:
        raise FolderError(
            f"{path} has {found} bytes, expected {entry.num_bytes}, so the folder is damaged; prepare the graph again"
        )
    dtype = np.dtype(entry.dtype)
    if not found:
        return torch.from_numpy(np.empty(entry.shape, dtype))
    # Copy-on-write, since torch warns of arrays that cannot be written.
    return mapped(np.memmap(path, dtype, "c", shape=entry.shape))


# Where the tensors are in memory whose numbers are in files, and those that other ranks have as well.
_in_files: set[int] = set()
_shared: set[int] = set()


def mapped(array: np.memmap, is_on_disk: bool = True, is_shared: bool = False) -> Tensor:
    """Make a tensor of a mapped file.

    Parameters
    ----------
    array : numpy.memmap
        The array.
    is_on_disk : bool
        Whether the file is on a disk, and not in memory only.
    is_shared : bool
        Whether other ranks on this machine have mapped it as well.
    """
    tensor = torch.from_numpy(array)
    for places in [_in_files] * is_on_disk + [_shared] * is_shared:
        places.add(tensor.data_ptr())
        weakref.finalize(array, places.discard, tensor.data_ptr())
    return tensor


def is_in_file(tensor: Tensor) -> bool:
    """Tell whether the numbers of a tensor are in a file on a disk.

    Parameters
    ----------
    tensor : Tensor
        Any tensor, or a part of one.
    """
    return tensor.device.type == "cpu" and tensor.untyped_storage().data_ptr() in _in_files


def is_shared(tensor: Tensor) -> bool:
    """Tell whether all ranks have a tensor in the same memory or file.

    Parameters
    ----------
    tensor : Tensor
        Any tensor, or a part of one.
    """
    return bool(_shared) and tensor.device.type == "cpu" and tensor.untyped_storage().data_ptr() in _shared


def reserve(descriptor: int, num_bytes: int) -> None:
    """Reserve room for a file, because writing to a mapped file on a full disk ends the process.

    Parameters
    ----------
    descriptor : int
        The open file.
    num_bytes : int
        Its size.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, num_bytes)
        return
    zeros = bytes(_READ_AT_ONCE)
    for start in range(0, num_bytes, _READ_AT_ONCE):
        os.write(descriptor, zeros[: num_bytes - start])


@contextmanager
def full_disk_explained(folder: Path) -> Iterator[None]:
    """Say in the error of a full disk which folder it is about, and that nothing is lost.

    Parameters
    ----------
    folder : Path
        The folder that is written to.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(
            error.errno,
            f"the disk of {folder} is full; what was finished is kept: free some space and do the same again",
        ) from None


def at_once(count: int, device: torch.device) -> int:
    """How many numbers are handled at a time on a device.

    Parameters
    ----------
    count : int
        How many on a CPU.
    device : torch.device
        The device.
    """
    return count if device.type == "cpu" else _MORE_ON_GPU * count


def row_chunks(num_rows: int, row_bytes: int, limit: int = 2**25) -> Iterator[tuple[int, int]]:
    """Divide rows into chunks that take up a limited amount of memory.

    Parameters
    ----------
    num_rows : int
        The number of rows.
    row_bytes : int
        The memory of a row.
    limit : int
        The memory of a chunk, 32 MiB by default.

    Yields
    ------
    start, stop : int
        The rows of a chunk.
    """
    step = max(limit // max(row_bytes, 1), 1)
    for start in range(0, num_rows, step):
        yield start, min(start + step, num_rows)
