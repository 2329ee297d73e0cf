"""Atomic writes: the content goes into a hidden sibling first, which takes the target's place once it is complete."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from oddnode._utils.exchange import exchange
from oddnode._utils.hidden_siblings import check_name, hidden_sibling, moved_aside, recover, remove

__all__ = ["new_file", "new_folder", "read_folder", "sync_file"]

T = TypeVar("T")

# Another process that writes or reads the same folder can come first; then it is tried again, at most so many times.
_TRIES = 100
_PAUSE = 0.01
_OTHER_CAME_FIRST = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST)


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Write a file atomically: it appears at ``target`` only if the block succeeds.

    Parameters
    ----------
    target : Path
        Where the file is to be; a file that is there already is replaced.

    Yields
    ------
    Path
        A temporary file to write to. It is deleted if the block raises.
    """
    target = target.resolve()
    part = _prepared(target)
    try:
        _reported(target, lambda: part.touch(exist_ok=False))
        yield part
        sync_file(part)
        part.replace(target)
    except BaseException as error:  # also on Ctrl-C, so that no half-written file stays behind
        remove(part)
        raise _with_target(error, target) from None


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Write a folder atomically: it replaces ``target`` only if the block succeeds.

    Where the system can exchange two folders in one step, ``target`` is never missing. Elsewhere the old folder is
    moved aside first; it is moved back if the last step fails, and `read_folder` and the next writer find it if the
    process is killed at that moment.

    Parameters
    ----------
    target : Path
        Where the folder is to be.

    Yields
    ------
    Path
        A temporary folder to fill. It is deleted if the block raises.
    """
    target = target.resolve()
    part, aside = _prepared(target), hidden_sibling(target, "old")
    try:
        _reported(target, part.mkdir)
        yield part
        _put(part, target, aside)
        remove(aside)
    except BaseException as error:
        _put_back(aside, target)
        raise _with_target(error, target) from None
    finally:  # after an exchange this is the old folder
        remove(part)


def _prepared(target: Path) -> Path:
    check_name(target)
    recover(target)
    return hidden_sibling(target, "new")


def _put(part: Path, target: Path, aside: Path) -> None:
    """Move a folder to its place; what was there is at ``part`` or ``aside`` afterwards."""
    for _ in range(_TRIES):
        try:
            if target.is_dir():
                if exchange(part, target):
                    return
                remove(aside)
                target.rename(aside)
            part.rename(target)
            return
        except OSError as error:
            if error.errno not in _OTHER_CAME_FIRST:
                raise
    raise OSError(errno.EBUSY, f"cannot write {target}: other processes keep replacing it")


def _put_back(aside: Path, target: Path) -> None:
    """Undo the first of two renames; which of them took place, only the file system knows."""
    if target.exists():
        remove(aside)
    else:
        with suppress(OSError):  # nothing was moved aside, or another process has written its own folder
            aside.rename(target)


def read_folder(folder: Path, read: Callable[[Path], T]) -> T:
    """Read a folder that `new_folder` may replace at the same time: all of it is old, or all of it is new.

    Parameters
    ----------
    folder : Path
        The folder. If it is missing because a process was killed when it replaced it, it is put back first.
    read : callable
        Reads it; it is called again if the folder was replaced meanwhile.

    Returns
    -------
    object
        What ``read`` returned.
    """
    for _ in range(_TRIES):
        before = _identity(folder)
        if before is None and moved_aside(folder) is not None:
            recover(folder)
            time.sleep(_PAUSE)
            continue
        try:
            result = read(folder)
        except Exception:
            if _identity(folder) == before:
                raise
        else:
            if _identity(folder) == before:
                return result
    return read(folder)


def _identity(folder: Path) -> tuple[int, ...] | None:
    """Numbers that change when a folder is replaced; ``None`` if there is none."""
    try:
        found = folder.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def sync_file(path: Path) -> None:
    """Flush a file to disk, so that after a power cut a rename never points to an empty file.

    Parameters
    ----------
    path : Path
        A file that has been written and closed.
    """
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _reported(target: Path, make: Callable[[], None]) -> None:
    try:
        make()
    except FileNotFoundError:
        raise FileNotFoundError(f"cannot write {target}: the folder {target.parent} does not exist") from None
    except PermissionError:
        raise PermissionError(f"cannot write {target}: no permission to write into {target.parent}") from None
    except NotADirectoryError:
        raise NotADirectoryError(f"cannot write {target}: {target.parent} is not a folder") from None


def _with_target(error: BaseException, target: Path) -> BaseException:
    """Name the target in the error of a full disk, which itself names no file."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OSError(error.errno, f"cannot write {target}: {os.strerror(error.errno)}; nothing was changed")
    return error
