"""Files of a graph are compared with their checksums before they are used, once in a process."""

from __future__ import annotations

import zlib
from pathlib import Path

import torch
from torch import Tensor

from oddnode.large.arrays import ArrayEntry, FolderError

__all__ = ["check_once", "check_positive", "check_sum", "file_stamp", "mark_checked"]

_READ_AT_ONCE = 2**24
# Files whose checksum this process has compared, with their size and time.
_checked: set[tuple[str, int, int]] = set()


def check_sum(path: Path, entry: ArrayEntry) -> None:
    """Read a file and compare its checksum.

    Parameters
    ----------
    path : Path
        The file.
    entry : ArrayEntry
        What the manifest says of it.
    """
    found = 0
    with path.open("rb") as file:
        while part := file.read(_READ_AT_ONCE):
            found = zlib.crc32(part, found)
    if found != entry.crc32:
        raise FolderError(
            f"{path} has the checksum {found:08x}, expected {entry.crc32:08x}, so the folder is damaged; "
            "prepare the graph again"
        )


def check_positive(path: Path, values: Tensor) -> None:
    """Raise an error for an array of other values than finite numbers above 0.

    Parameters
    ----------
    path : Path
        Its file, for the message.
    values : Tensor
        The array ``[n]``.
    """
    for part in values.split(_READ_AT_ONCE):
        if not bool(((part > 0) & (part < torch.inf)).all()):  # NaN compares as neither
            raise FolderError(f"{path} has weights that are no finite numbers above 0; prepare the graph again")


def check_once(path: Path, entry: ArrayEntry, weights: Tensor | None = None) -> None:
    """Compare the checksum of a file, unless this process has done so since the file was written.

    Parameters
    ----------
    path : Path
        The file.
    entry : ArrayEntry
        What the manifest says of it.
    weights : Tensor, optional
        Its content, if it has weights of edges, which are checked as well.
    """
    if file_stamp(path) not in _checked:
        check_sum(path, entry)
        if weights is not None:
            check_positive(path, weights)
        mark_checked(path)


def mark_checked(path: Path) -> None:
    """Remember that the checksum of a file is right.

    Parameters
    ----------
    path : Path
        The file, which this process has read or written.
    """
    _checked.add(file_stamp(path))


def file_stamp(path: Path) -> tuple[str, int, int]:
    """Tell a file from what is written in its place later.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    tuple
        Its full name, its size and its time.
    """
    found = path.stat()
    return str(path.resolve()), found.st_size, found.st_mtime_ns
