"""Runs trials in processes that may crash, hang or fill the memory, and tells which trial did.

The first process imports and forks, and never computes: a fork of a process that has used torch's threads is broken.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

from soak.cases import Case, chance
from soak.trial import Family, Trial

__all__ = ["Engine", "in_child"]

_MOST_MEMORY = 2 * 2**30  # that a trial may take, in bytes
_ADDRESS_SPACE = 8 * 2**30
_POLL = 0.1


@dataclass
class _Batch:
    """A process that runs some trials of a family."""

    family: Family
    numbers: list[int]
    pid: int
    pipe: Connection
    work: Path
    memory: int
    current: int = -1
    began: float = field(default_factory=time.monotonic)


@dataclass
class Engine:
    """Runs the trials of families, those that are furthest behind their quota first.

    Parameters
    ----------
    families : sequence of Family
        What to try.
    seed : int
        The seed of all chance.
    folder : Path
        For temporary files, and for cases.
    jobs : int
        Number of processes at a time.
    on_trial : callable
        Called with the family and every trial.
    """

    families: Sequence[Family]
    seed: int
    folder: Path
    jobs: int
    on_trial: Callable[[Family, Trial], None]
    _next: dict[str, int] = field(default_factory=dict)
    _running: list[_Batch] = field(default_factory=list)

    def prepare(self) -> None:
        """Write what trials have in common, each family in a process of its own."""
        for family in self.families:
            base = self._base(family)
            base.mkdir(parents=True, exist_ok=True)
            status = in_child(lambda family=family, base=base: family.prepare(base))  # type: ignore[misc]
            if status:
                raise RuntimeError(f"the soak of {family.name} could not be prepared: exit status {status}")

    def run(self, deadline: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Run trials until a time of `time.monotonic`, or until there are enough."""
        try:
            while (time.monotonic() < deadline and not enough()) or self._running:
                while len(self._running) < self.jobs and time.monotonic() < deadline and not enough():
                    family = min(self.families, key=self._progress)
                    first = self._next.get(family.name, 0)
                    self._start(family, range(first, first + family.batch), deadline)
                    self._next[family.name] = first + family.batch
                self._attend()
        finally:
            for batch in self._running:
                self._end(batch)
            self._running.clear()

    def replay(self, case: Case) -> list[Trial]:
        """Do the trial of a case again and return what came of it."""
        found: list[Trial] = []
        self.on_trial = lambda family, trial: found.append(trial)
        [family] = self.families
        self._start(family, [case.number], time.monotonic() + family.limit)
        while self._running:
            self._attend()
        return found

    def _progress(self, family: Family) -> float:
        return self._next.get(family.name, 0) * family.examples / family.quota

    def _base(self, family: Family) -> Path:
        return self.folder / "bases" / family.name

    def _start(self, family: Family, numbers: Iterable[int], deadline: float) -> None:
        ours, theirs = Pipe(duplex=False)
        work = self.folder / "work" / f"{family.name}-{next(iter(numbers))}"
        numbers = list(numbers)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                ours.close()
                _set_up_child(self.folder / f"{family.name}.log")
                _run_trials(family, self.seed, numbers, self._base(family), work, deadline, theirs)
                status = 0
            finally:
                os._exit(status)
        theirs.close()
        self._running.append(_Batch(family, numbers, pid, ours, work, memory=_rss(os.getpid())))

    def _attend(self) -> None:
        """Take what processes say, and look after those that say nothing."""
        ready = wait([batch.pipe for batch in self._running], timeout=_POLL)
        for batch in list(self._running):
            if batch.pipe in ready:
                self._take(batch)
            elif time.monotonic() - batch.began > batch.family.limit:
                self._lost(batch, f"a trial took more than {batch.family.limit:.0f} s")
            elif _rss(batch.pid) - batch.memory > _MOST_MEMORY:
                self._lost(batch, f"a trial took more than {_MOST_MEMORY / 2**30:g} GiB")

    def _take(self, batch: _Batch) -> None:
        try:
            said = batch.pipe.recv()
        except EOFError:
            status = self._end(batch)
            self._running.remove(batch)
            if status:
                self._report(batch, [self._broken(batch, f"the process ended with status {status}")])
            return
        batch.began = time.monotonic()
        if isinstance(said, int):
            batch.current = said
        else:
            self._report(batch, said)

    def _lost(self, batch: _Batch, violation: str) -> None:
        self._end(batch)
        self._running.remove(batch)
        self._report(batch, [self._broken(batch, violation)])

    def _broken(self, batch: _Batch, violation: str) -> Trial:
        return Trial(batch.family.kinds[batch.current % len(batch.family.kinds)], violation)

    def _report(self, batch: _Batch, trials: list[Trial]) -> None:
        for trial in trials:
            if trial.violation is not None:
                case = Case(batch.family.name, trial.kind, self.seed, batch.current, trial.violation)
                work = batch.work / str(batch.current)
                case.write(self.folder / "cases", work if work.exists() else None)
            self.on_trial(batch.family, trial)

    def _end(self, batch: _Batch) -> int:
        """End a process and those that it has started, and return its status."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(batch.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(batch.pid, 0)[1])
        batch.pipe.close()
        return status


def in_child(work: Callable[[], None]) -> int:
    """Run something in a fork of this process and return its exit status."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _set_up_child(log: Path) -> None:
    os.setpgid(0, 0)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _ADDRESS_SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _run_trials(
    family: Family, seed: int, numbers: list[int], base: Path, work: Path, deadline: float, pipe: Connection
) -> None:
    work.mkdir(parents=True, exist_ok=True)
    family.start(base)
    for number in numbers:
        if time.monotonic() > deadline:
            break
        folder = work / str(number)
        folder.mkdir()
        pipe.send(number)
        trials = list(family.trials(number, chance(family.name, seed, number), folder))
        pipe.send(trials)
        if all(trial.violation is None for trial in trials):
            shutil.rmtree(folder, ignore_errors=True)
    if not any(work.iterdir()):
        work.rmdir()


def _rss(pid: int) -> int:
    """Memory of a process in bytes."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0
