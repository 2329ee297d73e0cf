"""Full disks: an error that can be read, what was there is still there, and nothing else."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from soak.operations import OPERATIONS, Operation
from soak.placing import FINISHED, RAW, at_system_call, can_trace, forked, injection, waited
from soak.trial import Family, Trial

__all__ = ["Disks"]

_PATIENCE = 60.0
_NEW_MOUNTS, _PRIVATE = 0x20000, 0x44000


class Disks(Family):
    """Limits on the size of files, small file systems, and errors at system calls."""

    name = "disk"
    quota = 150
    kinds = ("limit on files", "small file system", "error of a system call")
    limit = 150.0
    batch = 10

    def prepare(self, folder: Path) -> None:
        for name, made in OPERATIONS.items():
            (folder / name).mkdir()
            made(folder / name).prepare()

    def start(self, folder: Path) -> None:
        logging.getLogger("oddnode").setLevel(logging.ERROR)
        self.operations = {name: made(folder / name) for name, made in OPERATIONS.items()}
        for operation in self.operations.values():
            operation.start()

    def trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        name = rng.choice(sorted(self.operations))
        operation, place, log = self.operations[name], work / "place", work / "error.txt"
        place.mkdir()
        if kind == "small file system":
            judge = _on_small_disk(operation, place, rng.choice([12, 16, 20, 24, 64, 128, 256]), log)
            status = waited(forked(judge, log), _PATIENCE)
            violation = log.read_text() if status == RAW else None
        else:
            operation.set_up(place)
            status = self._disturbed(kind, operation, place, log, rng)
            violation = f"the error is {log.read_text()}" if status == RAW else None
            violation = violation or operation.wrong(place)
            if violation is None and status != FINISHED and name != "paper" and kind == "limit on files":
                violation = operation.leftovers(place)
            violation = violation or operation.unfinished(place)
        if status is None:
            violation = "the process hung"
        yield Trial(kind, None if violation is None else f"{name}: {violation}")

    def _disturbed(self, kind: str, operation: Operation, place: Path, log: Path, rng: Random) -> int | None:
        if kind == "error of a system call" and can_trace():
            options = injection(rng, f"error={rng.choice(['ENOSPC', 'EIO', 'EDQUOT'])}")
            return at_system_call(options, lambda: operation.act(place), log, _PATIENCE)
        size = rng.choice([0, 1, 100, 1000, 4096, 10_000, 40_000])

        def shrink() -> None:
            log.touch()
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        return waited(forked(lambda: operation.act(place), log, first=shrink), _PATIENCE)


class _Broken(Exception):
    """What was found on the small disk; the process that mounted it is the only one that sees it."""


def _on_small_disk(operation: Operation, place: Path, kilobytes: int, log: Path) -> Callable[[], None]:
    """Return work on a file system of its own, with what was there before and little room besides."""

    def work() -> None:
        if not _mount(place, kilobytes):
            return  # only the administrator may mount
        try:
            operation.set_up(place)
        except OSError:
            return  # too small even for what is there before
        try:
            operation.act(place)
        except OSError:
            pass
        except Exception as error:
            if type(error).__module__.split(".")[0] != "oddnode":
                raise
        found = operation.wrong(place) or operation.leftovers(place)
        if found is not None:
            raise _Broken(found)

    return work


def _mount(place: Path, kilobytes: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare") or libc.unshare(_NEW_MOUNTS) or libc.mount(b"none", b"/", None, _PRIVATE, None):
        return False
    return not libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, f"size={kilobytes}k".encode())
