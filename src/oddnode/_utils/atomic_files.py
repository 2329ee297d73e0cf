"""Atomic writes: the content goes into a hidden sibling first, which replaces the target once it is complete.

A sibling's name says whose it is: ``.<target>.oddnode-<machine>-<pid>-<random>.new`` holds the content that is being
written, ``.old`` the folder that it replaces. A sibling is abandoned if its process on this machine has ended, or if it
is older than a day.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

T = TypeVar("T")

# Number of attempts if other processes write or read the same folder at the same time.
_TRIES = 100
_PAUSE = 0.01
_OTHER_CAME_FIRST = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST)

_LONGEST_NAME = 255  # bytes, on every file system in common use
_LONGEST_PID = 10
_SECONDS_TO_ABANDON = 24 * 3600
_MARK = "oddnode"

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_SUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ENOTSUP)


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Write a file atomically: it appears at ``target`` only if the block succeeds."""
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


def write_text(target: Path, text: str) -> Path:
    """Write a text file atomically, and return its path."""
    with new_file(target) as part:
        part.write_text(text, encoding="utf-8")
    return target


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Write a folder atomically: it replaces ``target`` only if the block succeeds.

    Where the system can exchange two folders in one step, ``target`` is never missing. Elsewhere the old folder is
    moved aside first; it is moved back if the last step fails, and `read_folder` and the next writer find it if the
    process is killed at that moment.
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
    """Move a folder to its target; the old one is at ``part`` or ``aside`` afterwards."""
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
    """Read a folder that `new_folder` may replace at the same time: all of it is old, or all of it is new."""
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
        status = folder.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def sync_file(path: Path) -> None:
    """Flush a file to disk, so that after a power cut a rename never points to an empty file."""
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


def hidden_sibling(target: Path, kind: Literal["new", "old"]) -> Path:
    """Choose the path of a hidden sibling; nothing is created."""
    return target.with_name(f".{target.name}.{_MARK}-{_machine()}-{os.getpid()}-{secrets.token_hex(4)}.{kind}")


def check_name(target: Path) -> None:
    """Raise an error if the name of a target is too long for its hidden siblings."""
    longest = _LONGEST_NAME - len(f"..{_MARK}-{_machine()}--{'0' * 8}.new") - _LONGEST_PID
    size = len(os.fsencode(_real(target).name))
    if size > longest:
        raise OSError(
            errno.ENAMETOOLONG,
            f"cannot write {target.name[:20]}...: its name has {size} bytes, expected at most {longest}, because a "
            "temporary file beside it has a longer name; choose a shorter name",
        )


def recover(target: Path) -> None:
    """Put back an old folder whose replacement was killed half-way, and delete what killed processes have left.

    Without permission to do so, everything stays as it is.
    """
    target = _real(target)
    for sibling in filter(_is_abandoned, _siblings(target)):
        if sibling.suffix == ".old" and not target.exists():
            with suppress(OSError):
                sibling.rename(target)
        else:
            remove(sibling)


def moved_aside(target: Path) -> Path | None:
    """Find the old folder of a target that is being replaced, or was when the process was killed."""
    return next((sibling for sibling in _siblings(_real(target)) if sibling.suffix == ".old"), None)


def remove(path: Path) -> None:
    """Delete a file or a folder if it is there and the permissions allow it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _real(target: Path) -> Path:
    """The path without links: siblings are beside what a link points to."""
    try:
        return Path(os.path.realpath(target))
    except ValueError:  # a name that no file can have
        return target


def _siblings(target: Path) -> list[Path]:
    form = re.compile(rf"\.{re.escape(target.name)}\.{_MARK}-[0-9a-f]{{8}}-[0-9]+-[0-9a-f]{{8}}\.(new|old)")
    try:
        names = os.listdir(target.parent)
    except (OSError, ValueError):
        return []
    return list(map(target.with_name, filter(form.fullmatch, sorted(names))))


def _is_abandoned(sibling: Path) -> bool:
    machine, pid = sibling.name.rsplit(f".{_MARK}-", 1)[1].split("-")[:2]
    if machine == _machine() and os.name == "posix" and not is_running(int(pid)):
        return True
    try:
        status = sibling.stat()
        # A rename changes ctime only: a folder that was moved aside just now may have been written long ago.
        return time.time() - max(status.st_mtime, status.st_ctime) > _SECONDS_TO_ABANDON
    except OSError:  # its owner has just removed it
        return False


def is_running(pid: int) -> bool:
    """Whether a process of this machine is alive; a dead one that its parent has not reaped is not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:  # it has just ended, or the system has no /proc
        return not Path("/proc/self").exists()


@cache
def _machine() -> str:
    """Eight hexadecimal digits for the set of processes whose pids this one can see.

    Containers and computers that share a folder do not share pids.
    """
    facts = [platform.node()]
    with suppress(OSError):
        facts += [Path("/proc/sys/kernel/random/boot_id").read_text(), os.readlink("/proc/self/ns/pid")]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:8]


def exchange(one: Path, other: Path) -> bool:
    """Exchange two files or folders, so that no other process ever sees one of them missing."""
    renameat2 = _renameat2()
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_SUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


@cache
def _renameat2() -> Any:
    """Linux's ``renameat2``, or ``None`` elsewhere and in old C libraries."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return function
