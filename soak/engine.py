"""Runs trials in processes that may crash, hang or fill the memory, and tells which trial did.

The first process imports and forks, and never computes: a fork of a process that has used torch's threads is broken.
"""

from __future__ import annotations

import math
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

from soak.cases import Case, chance
from soak.trial import Family, Trial

__all__ = ["Engine", "in_child"]

_MOST_MEMORY = 2 * 2**30  # that a trial may take, in bytes
_ADDRESS_SPACE = 8 * 2**30
_POLL = 0.1
# A trial may take this many times its limit if it does not compute: the machine may be busy.
_WAITING = 5
_REPLAYS = 3


@dataclass
class _Doubt:
    """A violation that is replayed before it is reported."""

    family: Family
    number: int
    trial: Trial
    case: Path
    is_exhausted: bool  # Whether the trial took too much time or memory
    replays: int = 0


@dataclass
class _Batch:
    """A process that runs some trials of a family."""

    family: Family
    numbers: list[int]
    pid: int
    pipe: Connection
    work: Path
    memory: int
    doubt: _Doubt | None = None
    current: int = -1
    is_broken: bool = False
    began: float = field(default_factory=time.monotonic)
    cpu: float = 0.0  # CPU seconds before the current trial


@dataclass
class Engine:
    """Runs the trials of families: first `Family.least` of each, then those that are furthest behind their quota.

    A violation is replayed, alone, before it is reported. One of time or memory that does not come back is dismissed,
    because the machine was busy; any other is reported in any case, and says whether it came back.

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
    dismissed: list[str] = field(default_factory=list)
    _next: dict[str, int] = field(default_factory=dict)
    _running: list[_Batch] = field(default_factory=list)
    _doubts: list[_Doubt] = field(default_factory=list)

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
            while (time.monotonic() < deadline and not enough()) or self._running or self._doubts:
                while self._doubts and len(self._running) < self.jobs:
                    doubt = self._doubts.pop()
                    self._start(doubt.family, [doubt.number], math.inf, doubt)
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
        self._start(family, [case.number], math.inf)
        while self._running or self._doubts:
            while self._doubts:
                doubt = self._doubts.pop()
                self._start(family, [doubt.number], math.inf, doubt)
            self._attend()
        return found

    def _progress(self, family: Family) -> tuple[bool, float]:
        done = self._next.get(family.name, 0) * family.examples
        return done >= family.least, done / family.quota

    def _base(self, family: Family) -> Path:
        return self.folder / "bases" / family.name

    def _start(self, family: Family, numbers: Iterable[int], deadline: float, doubt: _Doubt | None = None) -> None:
        ours, theirs = Pipe(duplex=False)
        work = self.folder / "work" / f"{family.name}-{next(iter(numbers))}"
        if doubt is not None:
            work = work.with_name(f"{work.name}-replay-{doubt.replays}")
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
        self._running.append(_Batch(family, numbers, pid, ours, work, memory=_rss(pid), doubt=doubt))

    def _attend(self) -> None:
        """Take what processes say, and look after those that say nothing."""
        ready = wait([batch.pipe for batch in self._running], timeout=_POLL)
        for batch in list(self._running):
            if batch.pipe in ready:
                self._take(batch)
            elif _cpu(batch.pid) - batch.cpu > batch.family.limit:
                self._lost(batch, f"a trial took more than {batch.family.limit:.0f} s of CPU time")
            elif time.monotonic() - batch.began > _WAITING * batch.family.limit:
                self._lost(batch, f"a trial hung for {_WAITING * batch.family.limit:.0f} s")
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
            if batch.doubt is not None:
                self._replayed(batch, batch.doubt)
            return
        batch.began, batch.cpu = time.monotonic(), _cpu(batch.pid)
        if isinstance(said, int):
            batch.current = said
        else:
            self._report(batch, said)

    def _lost(self, batch: _Batch, violation: str) -> None:
        self._end(batch)
        self._running.remove(batch)
        self._report(batch, [self._broken(batch, violation)], is_exhausted=True)
        if batch.doubt is not None:
            self._replayed(batch, batch.doubt)

    def _broken(self, batch: _Batch, violation: str) -> Trial:
        return Trial(batch.family.kinds[batch.current % len(batch.family.kinds)], violation)

    def _report(self, batch: _Batch, trials: list[Trial], is_exhausted: bool = False) -> None:
        for trial in trials:
            if batch.doubt is not None:
                batch.is_broken |= trial.violation is not None
            elif trial.violation is None:
                self.on_trial(batch.family, trial)
            else:
                case = Case(batch.family.name, trial.kind, self.seed, batch.current, trial.violation)
                work = batch.work / str(batch.current)
                path = case.write(self.folder / "cases", work if work.exists() else None)
                self._doubts.append(_Doubt(batch.family, batch.current, trial, path, is_exhausted))

    def _replayed(self, batch: _Batch, doubt: _Doubt) -> None:
        doubt.replays += 1
        if not batch.is_broken and doubt.replays < _REPLAYS:
            self._doubts.append(doubt)
            return
        trial, again = doubt.trial, "again" if batch.is_broken else "not"
        if doubt.is_exhausted and not batch.is_broken:
            self.dismissed.append(f"{doubt.family.name}, {trial.kind}: {trial.violation}")
            doubt.case.unlink(missing_ok=True)
            trial = replace(trial, violation=None)
        else:
            trial = replace(trial, violation=f"{trial.violation} ({again} in replay {doubt.replays})")
        self.on_trial(doubt.family, trial)

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


def _cpu(pid: int) -> float:
    """CPU seconds of a process and of those that it has started and waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return 0.0


def _rss(pid: int) -> int:
    """Memory of a process in bytes."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0
