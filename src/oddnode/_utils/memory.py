"""How much memory this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
# Assumed memory of a machine that does not report it.
_UNKNOWN = 2**33


def memory_limit() -> int:
    """How many bytes this process may use: the memory of the machine, or less if a control group limits it."""
    return min([_physical(), *_limits()])


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN


def _limits() -> Iterator[int]:
    """The limits of the control groups of this process and of their parents."""
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
        for parent in (group, *group.parents):
            try:
                limit = (root / parent / file).read_text().strip()
            except OSError:
                continue
            if limit.isdigit():  # "max" is no limit
                yield int(limit)
