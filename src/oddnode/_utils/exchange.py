"""The exchange of two paths in one step of the operating system."""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["exchange"]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_SUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ENOTSUP)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two files or folders, so that no other process ever sees one of them missing.

    Parameters
    ----------
    one, other : Path
        Both exist, on one file system.

    Returns
    -------
    bool
        False if the system or the file system cannot do it; nothing has changed then.
    """
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
    """The function of Linux, or ``None`` elsewhere and in old C libraries."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return function
