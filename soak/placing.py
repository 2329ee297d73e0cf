"""Signals and failures at chosen moments: after a time, at a call that Python audits, or at a system call (strace)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from soak.trial import described, is_ours

__all__ = [
    "CLEAN",
    "FINISHED",
    "RAW",
    "SIGNALS",
    "at_call",
    "at_system_call",
    "can_trace",
    "forked",
    "injection",
    "waited",
]

SIGNALS = ("SIGKILL", "SIGKILL", "SIGINT", "SIGTERM")

#: Exit statuses of a fork: it finished, raised an error that users may see, or raised another one.
FINISHED, CLEAN, RAW = 0, 4, 5

_CALLS = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.listdir", "shutil.rmtree", "open", "sqlite3.connect")
# With the number of the call that is hit, at most.
_SYSTEM_CALLS = {"rename": 3, "renameat2": 2, "mkdir": 2, "fsync": 4, "unlinkat": 6, "openat": 60, "write": 20}
_PATIENCE = 10.0


@cache
def can_trace() -> bool:
    """Whether strace is there and may trace our processes."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0


def forked(work: Callable[[], None], log: Path, first: Callable[[], None] = lambda: None) -> int:
    """Start work in a fork of this process, which ends with `FINISHED`, `CLEAN` or `RAW`; return its number."""
    pid = os.fork()
    if pid == 0:
        status = RAW
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            first()
            work()
            status = FINISHED
        except KeyboardInterrupt:
            status = CLEAN
        except BaseException as error:
            with suppress(OSError):
                log.write_text(described(error))
            status = CLEAN if is_ours(error) or isinstance(error, OSError) else RAW
        finally:
            os._exit(status)
    return pid


def waited(pid: int, seconds: float) -> int | None:
    """Wait for a process and return its status; kill it and return None if it takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def at_call(rng: Random, name: str) -> Callable[[], None]:
    """Return what makes a process send itself a signal at one of the next calls that touch files."""
    left = rng.choice([1, 2, 3, 5, 8, 12, 20])

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in _CALLS:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), getattr(signal, name))

    return lambda: sys.addaudithook(hook)


def injection(rng: Random, what: str) -> list[str]:
    """Options of strace that let something happen at a system call: ``signal=SIGKILL`` or ``error=ENOSPC``."""
    call = rng.choice(sorted(_SYSTEM_CALLS))
    number = rng.randint(1, _SYSTEM_CALLS[call])
    when = f"{number}+" if what.startswith("error") else str(number)
    return ["-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{what}:when={when}"]


def at_system_call(options: list[str], work: Callable[[], None], log: Path, seconds: float) -> int | None:
    """Run work in a fork that strace disturbs; return its status, None if it hangs."""
    pid = forked(work, log, first=_wait_for_tracer)
    tracer = subprocess.Popen(
        ["strace", *options, "-p", str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        return waited(pid, seconds)
    finally:
        with suppress(subprocess.TimeoutExpired):
            tracer.wait(5)
        tracer.kill()
        tracer.wait()


def _wait_for_tracer() -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if "TracerPid:\t0\n" not in Path("/proc/self/status").read_text():
            return
        time.sleep(0.001)
