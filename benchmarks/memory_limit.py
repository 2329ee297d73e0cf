"""Run a command under a memory limit that counts the page cache, and report what it used.

    python benchmarks/memory_limit.py --limit 8GiB -- oddnode score model --graph graph --out scores.parquet

The command runs in a memory cgroup of its own, of version 1 or 2, whichever the machine has. Pages of files that it
reads or maps count, so a command that needs more than the limit is slow or killed, and "out of core" is proven. Pages
that are in the cache already do not count: `forget` drops those of the input first.

Where no cgroup can be made, the command runs without a limit, and the report says so and why. Linux only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["MemoryGroup", "NoMemoryGroup", "Usage", "forget", "num_bytes", "run"]

# Seconds between two looks at the memory: the kernel keeps a maximum of the total, but none of anonymous memory.
_INTERVAL = 0.02
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_numbers = itertools.count()


@dataclass(frozen=True)
class Usage:
    """What a command used.

    Parameters
    ----------
    status : int
        The exit status; a negative number is the signal that ended the command.
    out_of_memory : bool
        Whether a process was killed because the limit was reached.
    limit : int or None
        The limit in bytes; None if there was none.
    no_limit_because : str or None
        The reason why there was no limit.
    seconds, cpu_seconds : float
        Wall time, and processor time of all processes that have ended.
    peak_anonymous : int
        The most bytes that are no copy of a file, seen every 20 ms; without a limit those of the first process.
    peak_total : int
        The most bytes with the page cache; without a limit the most that a single process had mapped.
    bytes_read, bytes_written : int or None
        Bytes that came from and went to the disk; None if the system does not tell.
    """

    status: int
    out_of_memory: bool
    limit: int | None
    no_limit_because: str | None
    seconds: float
    cpu_seconds: float
    peak_anonymous: int
    peak_total: int
    bytes_read: int | None
    bytes_written: int | None

    def __str__(self) -> str:
        end = "out of memory" if self.out_of_memory else f"status {self.status}"
        limit = f"no limit ({self.no_limit_because})" if self.limit is None else f"limit {_in_words(self.limit)}"
        return (
            f"{end}, {self.seconds:.1f} s (CPU {self.cpu_seconds:.1f} s), {limit}, anonymous "
            f"{_in_words(self.peak_anonymous)}, with page cache {_in_words(self.peak_total)}, read "
            f"{_in_words(self.bytes_read)}, written {_in_words(self.bytes_written)}"
        )


class NoMemoryGroup(OSError):
    """No memory cgroup can be made here; the message says why and what to do."""


@dataclass(frozen=True)
class _Version:
    """The names of the files of a cgroup."""

    limit: str
    swap: str
    peak: str
    current: str
    anonymous: tuple[str, ...]  # lines of memory.stat
    events: str


_V1 = _Version(
    limit="memory.limit_in_bytes",
    swap="memory.memsw.limit_in_bytes",
    peak="memory.max_usage_in_bytes",
    current="memory.usage_in_bytes",
    anonymous=("rss", "shmem"),
    events="memory.oom_control",
)
_V2 = _Version(
    limit="memory.max",
    swap="memory.swap.max",
    peak="memory.peak",
    current="memory.current",
    anonymous=("anon", "shmem"),
    events="memory.events",
)


class MemoryGroup:
    """A new memory cgroup with a limit.

    Parameters
    ----------
    limit : int
        Bytes that its processes may use, page cache included.
    proc : Path
        Where the kernel describes this process and the mounts.

    Raises
    ------
    NoMemoryGroup
        If the machine has no memory cgroups, or this process may not make one.
    """

    def __init__(self, limit: int, proc: Path = Path("/proc/self")):
        reasons = []
        for version, parent in _parents(proc):
            path = parent / f"oddnode-{os.getpid()}-{next(_numbers)}"
            try:
                path.mkdir()
            except OSError as error:
                reasons.append(f"{parent}: {error.strerror}")
                continue
            try:
                _limit(path, version, limit)
            except OSError as error:
                path.rmdir()
                reasons.append(f"{path}: {error.strerror or error}")
                continue
            self.path, self.version, self.limit = path, version, limit
            self._peak_anonymous = self._peak_total = 0
            return
        raise NoMemoryGroup(
            f"no memory cgroup: {'; '.join(reasons) or 'none is mounted'}; run as root, or in a group that is yours "
            "(systemd-run --user --scope -p Delegate=yes)"
        )

    def entering(self, command: Sequence[str]) -> list[str]:
        """A command that enters the group, then becomes the given one."""
        return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.path / "cgroup.procs"), *command]

    def look(self) -> None:
        """Note how much memory is used now."""
        stat = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        anonymous = sum(int(stat.get(name, 0)) for name in self.version.anonymous)
        self._peak_anonymous = max(self._peak_anonymous, anonymous)
        self._peak_total = max(self._peak_total, int((self.path / self.version.current).read_text()))

    def peaks(self) -> tuple[int, int]:
        """The most anonymous memory that was seen, and the most memory that there was."""
        with suppress(OSError):  # Linux before 5.19 keeps no maximum in version 2
            self._peak_total = max(self._peak_total, int((self.path / self.version.peak).read_text()))
        return self._peak_anonymous, self._peak_total

    def kills(self) -> int:
        """How many processes were killed because the limit was reached."""
        events = dict(line.split() for line in (self.path / self.version.events).read_text().splitlines())
        return int(events.get("oom_kill", 0))

    def remove(self) -> None:
        """Kill what the command left behind and remove the group."""
        for _ in range(500):
            for pid in map(int, (self.path / "cgroup.procs").read_text().split()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(OSError):  # busy until the last process is gone
                self.path.rmdir()
                return
            time.sleep(_INTERVAL)
        raise NoMemoryGroup(f"{self.path} is still in use and cannot be removed")


def _limit(path: Path, version: _Version, limit: int) -> None:
    """Set the limit of a new group and check that a process can enter it."""
    if not (path / version.limit).exists():
        raise NoMemoryGroup("it has no memory controller")
    (path / version.limit).write_text(str(limit))
    if (path / version.swap).exists():  # version 1 limits memory and swap together
        (path / version.swap).write_text(str(limit if version is _V1 else 0))
    entered = subprocess.run(["/bin/sh", "-c", 'echo $$ > "$0"', path / "cgroup.procs"], stderr=subprocess.DEVNULL)
    if entered.returncode:
        raise NoMemoryGroup("a process may not enter it")


def _parents(proc: Path) -> Iterator[tuple[_Version, Path]]:
    """Groups in which a new one may be made: this process's own, and those above it."""
    own = {controllers: path for _, controllers, path in _fields(proc / "cgroup", ":", 3)}
    for fields in _fields(proc / "mountinfo", " "):
        mount, (kind, _, options) = Path(fields[4]), fields[fields.index("-") + 1 :][:3]
        is_v1 = kind == "cgroup" and "memory" in options.split(",")
        if not is_v1 and kind != "cgroup2":
            continue
        inside = next((path for names, path in own.items() if ("memory" in names.split(",")) == is_v1), "/")
        start = mount / inside.lstrip("/")
        for group in (start, *start.parents):
            if group.is_dir() and (is_v1 or "memory" in _words(group / "cgroup.subtree_control")):
                yield (_V1 if is_v1 else _V2), group
            if group == mount:
                break


def _fields(path: Path, separator: str, count: int = -1) -> list[list[str]]:
    with suppress(OSError):
        return [line.split(separator, count - 1 if count > 0 else -1) for line in path.read_text().splitlines()]
    return []


def _words(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text().split()
    return []


def run(command: Sequence[str], limit: int | None = None, **options: Any) -> Usage:
    """Run a command under a limit and wait for its end.

    Parameters
    ----------
    command : sequence of str
        The program and its arguments.
    limit : int, optional
        Bytes that it may use, page cache included; without it nothing is limited.
    **options
        As for `subprocess.Popen`, for example ``env`` and ``stdout``.
    """
    group, reason = None, None
    if limit is not None:
        try:
            group = MemoryGroup(limit)
        except NoMemoryGroup as error:
            reason = str(error)
            print(f"the command runs WITHOUT A LIMIT: {reason}", file=sys.stderr)
    try:
        return _run(list(command), group, reason, options)
    finally:
        if group is not None:
            group.remove()


def _run(command: list[str], group: MemoryGroup | None, reason: str | None, options: dict[str, Any]) -> Usage:
    began, anonymous = time.perf_counter(), 0
    process = subprocess.Popen(command if group is None else group.entering(command), **options)
    try:
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if group is None:
                anonymous = max(anonymous, _anonymous(process.pid))
            else:
                group.look()
            time.sleep(_INTERVAL)
        seconds = time.perf_counter() - began
        read, written = _disk_bytes(process.pid)  # a process that nobody has waited for still has its counts
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    except BaseException:
        process.kill()
        process.wait()
        raise
    total = used.ru_maxrss * 1024
    if group is not None:
        anonymous, total = group.peaks()
    return Usage(
        status=process.returncode,
        out_of_memory=group is not None and group.kills() > 0,
        limit=None if group is None else group.limit,
        no_limit_because=reason,
        seconds=seconds,
        cpu_seconds=used.ru_utime + used.ru_stime,
        peak_anonymous=anonymous,
        peak_total=total,
        bytes_read=read,
        bytes_written=written,
    )


def _anonymous(pid: int) -> int:
    with suppress(OSError):
        text = Path(f"/proc/{pid}/status").read_text()
        return sum(int(kb) * 1024 for kb in re.findall(r"Rss(?:Anon|Shmem):\s+(\d+) kB", text))
    return 0


def _disk_bytes(pid: int) -> tuple[int | None, int | None]:
    """Bytes that a process and those that it has waited for read from and wrote to the disk."""
    try:
        counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    except OSError:
        return None, None
    return int(counts["read_bytes"]), int(counts["write_bytes"])


def forget(paths: Iterable[Path]) -> None:
    """Drop files, and those in folders, from the page cache, so that the next reader has to pay for them."""
    for path in paths:
        for file in [path] if path.is_file() else filter(Path.is_file, path.rglob("*")):
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)  # changed pages are not dropped before they are written
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def num_bytes(text: str) -> int:
    """Read a size: 8GiB, 512M, 1.5G or a number of bytes; units are powers of 1024."""
    match = re.fullmatch(r"([0-9.]+)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(f"{text!r} is no size; expected for example 8GiB or 512M")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _in_words(size: int | None) -> str:
    return "?" if size is None else f"{size / (1 << 30):.2f} GiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=num_bytes, required=True, help="for example 8GiB; the page cache counts")
    parser.add_argument("--report", type=Path, help="file for the report as JSON")
    parser.add_argument("command", nargs="+", help="after --")
    options = parser.parse_args()
    usage = run(options.command, options.limit)
    print(usage, file=sys.stderr)
    if options.report:
        options.report.write_text(json.dumps(asdict(usage), indent=1) + "\n")
    sys.exit(usage.status if usage.status >= 0 else 128 - usage.status)


if __name__ == "__main__":
    main()
