"""Kills: whatever the moment, the old file or the new one is there, whole, and the next run tidies up."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import ClassVar

from soak.operations import COMMAND, OPERATIONS, Operation
from soak.placing import RAW, SIGNALS, at_call, at_system_call, can_trace, forked, injection, waited
from soak.trial import Family, Trial

__all__ = ["Kills"]

_PATIENCE = 60.0


class Kills(Family):
    """Signals to work in forks, and to commands: two of ten."""

    name = "kills"
    quota = 500
    kinds: ClassVar[tuple[str, ...]] = (
        "save, at a system call",
        "save, at a call",
        "save, after a time",
        "score, at a system call",
        "score, after a time",
        "fit, at a system call",
        "fit, after a time",
        "paper, after a time",
        "command, at a system call",
        "command, after a time",
    )
    limit = 150.0
    batch = 10

    def _operations(self, folder: Path) -> dict[str, Operation]:
        return {name: made(folder / name) for name, made in (OPERATIONS | {"command": COMMAND}).items()}

    def prepare(self, folder: Path) -> None:
        seconds = {}
        for name, operation in self._operations(folder).items():
            operation.base.mkdir()
            operation.prepare()
            operation.start()
            place = folder / f"{name}-place"
            place.mkdir()
            operation.set_up(place)
            began = time.monotonic()
            if isinstance(operation, COMMAND):
                subprocess.run(operation.command(place), check=True, capture_output=True)
            else:
                operation.act(place)
            seconds[name] = time.monotonic() - began
        (folder / "seconds.json").write_text(json.dumps(seconds))

    def start(self, folder: Path) -> None:
        logging.getLogger("oddnode").setLevel(logging.ERROR)
        self.seconds = json.loads((folder / "seconds.json").read_text())
        self.operations = self._operations(folder)
        for operation in self.operations.values():
            operation.start()

    def trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        name, moment = kind.split(", ")
        operation, place, log = self.operations[name], work / "place", work / "error.txt"
        place.mkdir()
        operation.set_up(place)
        sent = rng.choice(SIGNALS)
        if name == "command":
            status = self._kill_command(operation, place, moment, sent, rng)
        else:
            status = self._kill_fork(name, place, log, moment, sent, rng)
        if status is None:
            violation: str | None = f"the process hung after {sent}"
        elif status == RAW:
            violation = f"{sent} made the process raise {log.read_text()}"
        else:
            violation = operation.wrong(place) or operation.unfinished(place)
        yield Trial(kind, None if violation is None else f"{violation} (after {sent})")

    def _kill_fork(self, name: str, place: Path, log: Path, moment: str, sent: str, rng: Random) -> int | None:
        act = self.operations[name].act
        if moment == "at a system call" and can_trace():
            return at_system_call(injection(rng, f"signal={sent}"), lambda: act(place), log, _PATIENCE)
        if moment == "after a time":
            pid = forked(lambda: act(place), log)
            time.sleep(rng.uniform(0, self.seconds[name]))
            os.kill(pid, getattr(signal, sent))
        else:
            pid = forked(lambda: act(place), log, first=at_call(rng, sent))
        return waited(pid, _PATIENCE)

    def _kill_command(self, operation: Operation, place: Path, moment: str, sent: str, rng: Random) -> int | None:
        assert isinstance(operation, COMMAND)
        command = operation.command(place)
        traced = moment == "at a system call" and can_trace()
        if traced:
            command = ["strace", "--seccomp-bpf", *injection(rng, f"signal={sent}"), *command]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        try:
            if not traced:
                time.sleep(rng.uniform(0.5, 1.0) * self.seconds["command"])
                process.send_signal(getattr(signal, sent))
            process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None
        return process.returncode if process.returncode != RAW else 1
