"""File locks, which the operating system releases when their process ends for whatever reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from filelock import BaseFileLock, FileLock, Timeout

__all__ = ["lock_file", "mark_open", "open_elsewhere", "unlock_file"]


@contextmanager
def lock_file(folder: Path, name: str) -> Iterator[bool]:
    """Try to hold a lock of a store during a block.

    Parameters
    ----------
    folder : Path
        The store's folder.
    name : str
        Name of the lock.

    Yields
    ------
    bool
        Whether this process has the lock.
    """
    lock = _lock_in(folder, name)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        unlock_file(lock)


def unlock_file(lock: BaseFileLock) -> None:
    """Release a lock and remove its file.

    Parameters
    ----------
    lock : BaseFileLock
        A lock that this process has.
    """
    # Removed before the release, so that no new lock of another process is removed; on Windows the release removes it.
    with suppress(OSError):
        os.unlink(lock.lock_file)
    lock.release()


def mark_open(folder: Path) -> BaseFileLock:
    """Mark the store as open in this process.

    Parameters
    ----------
    folder : Path
        The store's folder.

    Returns
    -------
    BaseFileLock
        The lock; pass it to `unlock_file` when the store is closed.
    """
    lock = _lock_in(folder, f"open-{uuid4().hex}")
    lock.acquire()
    return lock


def open_elsewhere(folder: Path) -> bool:
    """Whether a process has the store open.

    Parameters
    ----------
    folder : Path
        The store's folder.

    Returns
    -------
    bool
        Marks of processes that have ended are ignored and removed.
    """
    return not all(_is_free(folder, path.name) for path in (folder / "locks").glob("open-*"))


def _is_free(folder: Path, name: str) -> bool:
    with lock_file(folder, name) as mine:
        return mine


def _lock_in(folder: Path, name: str) -> BaseFileLock:
    locks = folder / "locks"
    locks.mkdir(exist_ok=True)
    return FileLock(locks / name)
