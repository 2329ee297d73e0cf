"""Writing whole or not at all: into a hidden sibling first, renamed when it is complete."""

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
    """A path to write to; it becomes ``target`` when the block ends well and vanishes when it does not."""
    target = target.resolve()
    handle, name = _reported(target, lambda: tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent))
    os.close(handle)
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~_umask())
        sync_file(part)
        part.replace(target)
    except BaseException as error:  # Ctrl-C too: nothing half-written stays behind
        part.unlink(missing_ok=True)
        raise _with_target(error, target) from None


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill; it takes the place of ``target`` when the block ends well and vanishes when it does not.

    What stood at ``target`` is moved aside first and put back should the last step fail.
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
    """Hand a file over to the disk, so that a rename never points to an empty one after a power cut."""
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
    """A full disk does not say what did not fit on it."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OSError(error.errno, f"cannot write {target}: {os.strerror(error.errno)}; nothing was changed")
    return error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
