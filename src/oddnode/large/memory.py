"""How much memory a process may use: that of the machine, or less where its control groups allow less."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["local_ranks", "memory_limit", "memory_share"]

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
# Of a machine that does not say how much it has.
_UNKNOWN = 2**33
# This part of the memory may be taken by values that a product reads at random.
_PART = 4


def memory_limit() -> int:
    """Find the number of bytes that this process may use.

    Returns
    -------
    int
        The least of the memory of the machine and the limits of the control groups (version 1 or 2) of the process.
    """
    return min([_physical(), *_limits()])


def memory_share() -> int:
    """How many bytes the values may take that a product reads at random."""
    return memory_limit() // _PART


def local_ranks() -> int:
    """How many ranks there are on this machine."""
    return max(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN


def _limits() -> Iterator[int]:
    """The limits of the groups of this process and of the groups around these."""
    try:
        lines = _OWN_CGROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, file = (_CGROUPS / "memory", "memory.limit_in_bytes") if controllers else (_CGROUPS, "memory.max")
        group = Path(path.lstrip("/"))
        for place in (group, *group.parents):
            try:
                found = (root / place / file).read_text().strip()
            except OSError:
                continue
            if found.isdigit():  # "max" is no limit
                yield int(found)
