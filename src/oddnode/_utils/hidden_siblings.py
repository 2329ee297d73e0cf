"""Hidden siblings: the temporary files and folders beside a target, and what a killed process has left of them.

A sibling's name says whose it is: ``.<target>.oddnode-<machine>-<pid>-<random>.new`` holds the content that is being
written, ``.old`` the folder that it replaces. A sibling is abandoned if its process on this machine is gone, or if it
is older than a day.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal

__all__ = ["check_name", "hidden_sibling", "moved_aside", "recover", "remove"]

_LONGEST_NAME = 255  # bytes, on every file system in common use
_LONGEST_PID = 10
_SECONDS_TO_ABANDON = 24 * 3600
_MARK = "oddnode"


def hidden_sibling(target: Path, kind: Literal["new", "old"]) -> Path:
    """Choose the path of a hidden sibling; nothing is created.

    Parameters
    ----------
    target : Path
        The file or folder to write.
    kind : {"new", "old"}
        Whether it is for the new content or for the old.
    """
    return target.with_name(f".{target.name}.{_MARK}-{_machine()}-{os.getpid()}-{secrets.token_hex(4)}.{kind}")


def check_name(target: Path) -> None:
    """Raise an error if the name of a target is too long for its hidden siblings.

    Parameters
    ----------
    target : Path
        The file or folder to write.
    """
    longest = _LONGEST_NAME - len(f"..{_MARK}-{_machine()}--{'0' * 8}.new") - _LONGEST_PID
    found = len(os.fsencode(_real(target).name))
    if found > longest:
        raise OSError(
            errno.ENAMETOOLONG,
            f"cannot write {target.name[:20]}...: its name has {found} bytes, expected at most {longest}, because a "
            "temporary file beside it has a longer name; choose a shorter name",
        )


def recover(target: Path) -> None:
    """Put back an old folder whose replacement was killed half-way, and delete what killed processes have left.

    Without permission to do so, everything stays as it is.

    Parameters
    ----------
    target : Path
        The file or folder that they were to write.
    """
    target = _real(target)
    for sibling in filter(_is_abandoned, _siblings(target)):
        if sibling.suffix == ".old" and not target.exists():
            with suppress(OSError):
                sibling.rename(target)
        else:
            remove(sibling)


def moved_aside(target: Path) -> Path | None:
    """Find the old folder of a target that is being replaced, or was when the process was killed.

    Parameters
    ----------
    target : Path
        The folder.
    """
    return next((sibling for sibling in _siblings(_real(target)) if sibling.suffix == ".old"), None)


def remove(path: Path) -> None:
    """Delete a file or a folder if it is there and the permissions allow it.

    Parameters
    ----------
    path : Path
        The file or folder.
    """
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
    """The hidden siblings of a target."""
    form = re.compile(rf"\.{re.escape(target.name)}\.{_MARK}-[0-9a-f]{{8}}-[0-9]+-[0-9a-f]{{8}}\.(new|old)")
    try:
        names = os.listdir(target.parent)
    except (OSError, ValueError):
        return []
    return [target.with_name(name) for name in sorted(names) if form.fullmatch(name)]


def _is_abandoned(sibling: Path) -> bool:
    machine, pid = sibling.name.rsplit(f".{_MARK}-", 1)[1].split("-")[:2]
    if machine == _machine() and os.name == "posix" and not _is_running(int(pid)):
        return True
    try:
        found = sibling.stat()
        # A rename changes the second time only: a folder that was moved aside just now may have been written long ago.
        return time.time() - max(found.st_mtime, found.st_ctime) > _SECONDS_TO_ABANDON
    except OSError:  # its owner has just removed it
        return False


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


@cache
def _machine() -> str:
    """Eight hexadecimal digits for the set of processes that this one can see by their number.

    Containers and computers that share a folder do not share process numbers.
    """
    facts = [platform.node()]
    with suppress(OSError):
        facts += [Path("/proc/sys/kernel/random/boot_id").read_text(), os.readlink("/proc/self/ns/pid")]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:8]
