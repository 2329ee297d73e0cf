"""Arrays on disk: raw values in a file, whose dtype, shape and checksum are in a manifest."""

from __future__ import annotations

import errno
import os
import stat
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

#: Identifies a file, as opposed to a later one of the same name: path, size, and times of the last changes.
FileStamp = tuple[str, int, int, int]

#: What to do with a folder that cannot be used; `oddnode prepare` keeps what it finds.
ANEW = "delete the folder and prepare the graph again"

_READ_AT_ONCE = 2**24
# Files whose checksum this process has verified.
_checked: set[FileStamp] = set()
# A GPU needs much larger chunks than a CPU to stay busy.
_MORE_ON_GPU = 64


class FolderError(ValueError):
    """A graph folder that cannot be used; the message says what is wrong, what was expected and what to do."""


class ArrayEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """The entry of an array in a manifest."""

    dtype: Literal["float32", "float64", "int32", "int64", "bool", "uint8"]  # The type of its numbers, little-endian
    shape: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=1, max_length=2)]
    crc32: Annotated[int, Meta(ge=0, lt=2**32)]  # The checksum of the file

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


class ArrayWriter(AbstractContextManager):
    """Writes an array to a file, some rows at a time; as a context manager it closes the file in any case."""

    def __init__(self, path: Path, dtype: str):
        self.path = path
        self.dtype = np.dtype(dtype)
        self._file = path.open("wb")
        self._crc32 = 0
        self._shape: tuple[int, ...] = (0,)

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):  # on a full disk the last bytes cannot be written
            self._file.close()

    def append(self, rows: np.ndarray | Tensor) -> None:
        rows = rows.numpy() if isinstance(rows, Tensor) else rows
        if self._shape[0] and self._shape[1:] != rows.shape[1:]:
            raise FolderError(
                f"rows of {self.path.stem!r} have {list(rows.shape[1:])} columns, expected {list(self._shape[1:])}"
            )
        rows = np.ascontiguousarray(rows, self.dtype)
        self._file.write(rows.data)
        self._crc32 = zlib.crc32(rows.data, self._crc32)
        self._shape = (self._shape[0] + len(rows), *rows.shape[1:])

    def close(self) -> ArrayEntry:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return ArrayEntry(self.dtype.name, self._shape, self._crc32)  # type: ignore[arg-type]


def write_array(path: Path, values: np.ndarray) -> ArrayEntry:
    """Write a whole array."""
    with ArrayWriter(path, values.dtype.name) as writer:
        writer.append(values)
        return writer.close()


def regular_size(path: Path) -> int:
    """Return the size of a file of a folder. Links, pipes and devices are refused: reading them might never end."""
    try:
        found = path.lstat()
    except OSError as error:
        raise FolderError(f"{path} is missing or cannot be read ({error.strerror}); {ANEW}") from None
    if not stat.S_ISREG(found.st_mode):
        raise FolderError(f"{path} is a link, a folder or a special file, expected a regular file; {ANEW}")
    return found.st_size


def map_array(path: Path, entry: ArrayEntry) -> Tensor:
    """Map an array into memory; its pages are read when they are used, and shared by all processes."""
    size = regular_size(path)
    if size != entry.num_bytes:
        raise FolderError(f"{path} has {size} bytes, expected {entry.num_bytes}, so the folder is damaged; {ANEW}")
    dtype = np.dtype(entry.dtype)
    if not size:
        return torch.from_numpy(np.empty(entry.shape, dtype))
    # Copy-on-write, since torch warns of read-only arrays.
    return mapped(np.memmap(path, dtype, "c", shape=entry.shape))


def check_sum(path: Path, entry: ArrayEntry) -> None:
    """Read a file and compare its checksum."""
    regular_size(path)
    crc32 = file_checksum(path)
    if crc32 != entry.crc32:
        raise FolderError(
            f"{path} has the checksum {crc32:08x}, expected {entry.crc32:08x}, so the folder is damaged; {ANEW}"
        )


def file_checksum(path: Path) -> int:
    """Read a file and return its CRC-32."""
    crc32 = 0
    with path.open("rb") as file:
        while part := file.read(_READ_AT_ONCE):
            crc32 = zlib.crc32(part, crc32)
    return crc32


def check_once(path: Path, entry: ArrayEntry, check_values: Callable[[], None] | None = None) -> None:
    """Verify the checksum of a file and its values, unless this process has done so since the file was written."""
    if file_stamp(path) not in _checked:
        check_sum(path, entry)
        if check_values is not None:
            check_values()
        mark_checked(path)


def mark_checked(path: Path) -> None:
    """Record that the checksum of a file was verified."""
    _checked.add(file_stamp(path))


def file_stamp(path: Path) -> FileStamp:
    """Identify a file, as opposed to a later one of the same name."""
    found = path.stat()
    return str(path.resolve()), found.st_size, found.st_mtime_ns, found.st_ctime_ns


# Addresses of tensors whose values are in files, and of tensors that ranks share.
_in_files: set[int] = set()
_shared: set[int] = set()


def mapped(array: np.memmap, is_on_disk: bool = True, is_shared: bool = False) -> Tensor:
    """Make a tensor from a mapped file."""
    tensor = torch.from_numpy(array)
    for addresses in [_in_files] * is_on_disk + [_shared] * is_shared:
        addresses.add(tensor.data_ptr())
        weakref.finalize(array, addresses.discard, tensor.data_ptr())
    return tensor


def is_in_file(tensor: Tensor) -> bool:
    """Whether the values of a tensor are in a file on disk."""
    return tensor.device.type == "cpu" and tensor.untyped_storage().data_ptr() in _in_files


def is_shared(tensor: Tensor) -> bool:
    """Whether all ranks share the memory or file of a tensor."""
    return bool(_shared) and tensor.device.type == "cpu" and tensor.untyped_storage().data_ptr() in _shared


def reserve(descriptor: int, num_bytes: int) -> None:
    """Reserve space for a file, because writing to a mapped file on a full disk ends the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, num_bytes)
        return
    zeros = bytes(_READ_AT_ONCE)
    for start in range(0, num_bytes, _READ_AT_ONCE):
        os.write(descriptor, zeros[: num_bytes - start])


@contextmanager
def full_disk_explained(folder: Path) -> Iterator[None]:
    """Name the folder in the error for a full disk, and say that nothing is lost."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(
            error.errno,
            f"the disk of {folder} is full; what was finished is kept: free some space and run it again",
        ) from None


def at_once(count: int, device: torch.device) -> int:
    """How many numbers are processed at a time on a device."""
    return count if device.type == "cpu" else _MORE_ON_GPU * count


def row_chunks(num_rows: int, row_bytes: int, limit: int = 2**25) -> Iterator[tuple[int, int]]:
    """Divide rows into chunks that take up a limited amount of memory."""
    step = max(limit // max(row_bytes, 1), 1)
    for start in range(0, num_rows, step):
        yield start, min(start + step, num_rows)
