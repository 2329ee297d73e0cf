"""Atomic writes: the content goes into a hidden sibling first, which is renamed once it is complete."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["new_file", "new_folder", "sync_file"]


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
    handle, name = _reported(target, lambda: tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent))
    os.close(handle)
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~_umask())
        sync_file(part)
        part.replace(target)
    except BaseException as error:  # also on Ctrl-C, so that no half-written file stays behind
        part.unlink(missing_ok=True)
        raise _with_target(error, target) from None


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Write a folder atomically: it replaces ``target`` only if the block succeeds.

    An old folder at ``target`` is moved aside first, and moved back if the last step fails.

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
    part = Path(_reported(target, lambda: tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent)))
    try:
        yield part
        part.chmod(0o777 & ~_umask())
        _swap(part, target)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        raise _with_target(error, target) from None


def _swap(part: Path, target: Path) -> None:
    if not target.exists():
        part.rename(target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    target.rename(aside / target.name)
    try:
        part.rename(target)
    except BaseException:
        (aside / target.name).rename(target)
        aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)


def sync_file(path: Path) -> None:
    """Flush a file to disk, so that after a power cut a rename never points to an empty file.

    Parameters
    ----------
    path : Path
        A file that has been written and closed.
    """
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _reported(target: Path, make):  # type: ignore[no-untyped-def]
    try:
        return make()
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
