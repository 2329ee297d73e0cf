"""Faults, put in one after another: a soak that cannot find them finds nothing.

Each is a small patch in this process and its forks. Most are faults of earlier versions, and every family has one.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from oddnode import Detector
from oddnode._utils import atomic_files, random
from oddnode.detector import Calibration, saved_files
from oddnode.graph import training_data
from oddnode.large import arrays
from oddnode.large.heartbeat import Heartbeat
from oddnode.nn import forward
from oddnode.paper import record
from oddnode.service.log import ChangeLog
from oddnode.tables.scores import ScoredNodes
from soak.arrivals import Arrivals
from soak.disks import Disks
from soak.engine import Engine
from soak.folders import Folders
from soak.graphs import Graphs
from soak.kills import Kills
from soak.leaks import Leaks
from soak.models import Models
from soak.ranks import Ranks
from soak.services import Services
from soak.statistics import Statistics
from soak.stores import Stores
from soak.tables import Tables
from soak.threads import Threads
from soak.trial import Family, Trial

__all__ = ["CANARIES", "find", "find_all"]


@contextmanager
def _everywhere(original: Any, stand_in: Any) -> Iterator[None]:
    """Replace a function in every module that has imported it."""
    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "oddnode"]
    with ExitStack() as patches:
        for module in modules:
            for name, value in list(vars(module).items()):
                if value is original:
                    patches.enter_context(patch.object(module, name, stand_in))
        yield


@contextmanager
def _two_renames() -> Iterator[None]:
    """A model was replaced by two renames, and what was moved aside was never put back."""

    def tidy_up(target: Path) -> None:
        for sibling in filter(atomic_files._is_abandoned, atomic_files._siblings(target.resolve())):
            atomic_files.remove(sibling)

    with (
        patch.object(atomic_files, "exchange", lambda one, other: False),
        patch.object(atomic_files, "_put_back", lambda aside, target: None),
        _everywhere(atomic_files.recover, tidy_up),
        _everywhere(atomic_files.moved_aside, lambda target: None),
    ):
        yield


@contextmanager
def _no_manifest() -> Iterator[None]:
    """The config was under no checksum."""
    with patch.object(saved_files, "_check_content", lambda path, raw, facts: None):
        yield


@contextmanager
def _all_classes() -> Iterator[None]:
    """The classes were compared with ``set(range(num_classes))``, whatever number a label was."""

    def check(y_train: torch.Tensor, y_val: torch.Tensor, num_classes: int, num_spare_logits: int) -> None:
        missing = set(range(num_classes)) - set(y_train.tolist())
        if missing:
            raise training_data.GraphError(f"no training node has class {min(missing)}")

    with patch.object(training_data, "_check_classes", check):
        yield


@contextmanager
def _shared_generator() -> Iterator[None]:
    """Seeds were set in torch's own generator, which all threads share."""

    @contextmanager
    def seeded(seed: int) -> Iterator[None]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield

    with _everywhere(random.seeded, seeded):
        yield


@contextmanager
def _shared_modules() -> Iterator[None]:
    """Hooks and attributes of a pass were on the user's module, which all threads share."""
    with patch.object(forward, "_isolated", lambda module, copies=None: module):
        yield


@contextmanager
def _unchecked_rows() -> Iterator[None]:
    """Rows of the store were read without a look at their checksum."""
    with _everywhere(record.checksum_of, lambda *parts: _Anything()):
        yield


class _Anything(str):
    """A checksum that fits everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


@contextmanager
def _in_place() -> Iterator[None]:
    """A file was opened for writing where the old one was."""

    @contextmanager
    def new_file(target: Path) -> Iterator[Path]:
        target.write_bytes(b"")
        yield target

    with _everywhere(atomic_files.new_file, new_file):
        yield


@contextmanager
def _unchecked_arrays() -> Iterator[None]:
    """Arrays of a folder were used without a look at their checksum."""
    with _everywhere(arrays.check_once, lambda path, entry, check_values=None: None):
        yield


@contextmanager
def _no_watch() -> Iterator[None]:
    """Nobody noticed a rank that hangs."""

    def watch(self: Heartbeat) -> None:
        pass

    with patch.object(Heartbeat, "_watch", watch):
        yield


@contextmanager
def _acknowledged_early() -> Iterator[None]:
    """A change was acknowledged before it was on disk: only every eighth transaction was committed."""
    begin, commit, count = ChangeLog.begin, ChangeLog.commit, itertools.count(1)

    def late(self: ChangeLog) -> None:
        if next(count) % 8 == 0:
            commit(self)

    with (
        patch.object(ChangeLog, "begin", lambda self: None if self.connection.in_transaction else begin(self)),
        patch.object(ChangeLog, "commit", late),
    ):
        yield


@contextmanager
def _lost_row() -> Iterator[None]:
    """The last row of a table of scores was not written."""
    real = ScoredNodes.parts
    with patch.object(ScoredNodes, "parts", lambda self: (part.slice(0, len(part) - 1) for part in real(self))):
        yield


@contextmanager
def _centred() -> Iterator[None]:
    """A score depended on all nodes of the graph."""
    real = Detector._scores
    with patch.object(Detector, "_scores", lambda self, outputs: (s := real(self, outputs)) - 0.5 * s.mean()):
        yield


@contextmanager
def _kept() -> Iterator[None]:
    """Something of every call was kept."""
    real, kept = Detector._scores, list[torch.Tensor]()

    def scores(self: Detector, outputs: Any) -> torch.Tensor:
        kept.append(torch.zeros(2**18))
        return real(self, outputs)

    with patch.object(Detector, "_scores", scores):
        yield


@contextmanager
def _too_many_alarms() -> Iterator[None]:
    """The threshold was that of twice the rate."""
    real = Calibration.from_scores.__func__  # type: ignore[attr-defined]

    def from_scores(
        cls: type[Calibration], scores: Any, classes: Any = None, false_alarm_rate: float = 0.05, weights: Any = None
    ) -> Any:
        return real(cls, scores, classes, min(2 * false_alarm_rate, 0.9), weights)

    with patch.object(Calibration, "from_scores", classmethod(from_scores)):
        yield


class _Stopped(Ranks):
    kinds = ("stopped",)


class _Killed(Services):
    kinds = ("kill",)


class _Calibrated(Statistics):
    kinds = ("detector",)


class _Loaded(Leaks):
    kinds = ("load and score",)


class _Wrapped(Threads):
    kinds = ("wrapped",)


class _Saves(Kills):
    """Without the commands, which are new processes and have no patch."""

    kinds = tuple(kind for kind in Kills.kinds if kind.startswith("save"))


#: The name of a fault, the family that must find it, and what puts it back.
CANARIES: dict[str, tuple[Family, Callable[[], AbstractContextManager[None]]]] = {
    "a model is replaced by two renames": (_Saves(), _two_renames),
    "the manifest is not compared": (Models(), _no_manifest),
    "all classes up to the largest label are listed": (Graphs(), _all_classes),
    "threads share a generator": (Threads(), _shared_generator),
    "threads share a user's module": (_Wrapped(), _shared_modules),
    "rows of the store are not checked": (Stores(), _unchecked_rows),
    "arrays of a folder are not checked": (Folders(), _unchecked_arrays),
    "a rank that hangs is not noticed": (_Stopped(), _no_watch),
    "a change is acknowledged too early": (_Killed(), _acknowledged_early),
    "scores depend on strangers": (Arrivals(), _centred),
    "files are written in place": (Disks(), _in_place),
    "a row is not written": (Tables(), _lost_row),
    "something of every call is kept": (_Loaded(), _kept),
    "twice as many false alarms": (_Calibrated(), _too_many_alarms),
}


def find(name: str, folder: Path, seed: int, jobs: int, seconds: float) -> str | None:
    """Put a fault back and return the first violation, or None if there is none in so many seconds."""
    family, put_back = CANARIES[name]
    found: list[str] = []

    def on_trial(_: Family, trial: Trial) -> None:
        if trial.violation is not None:
            found.append(trial.violation)

    engine = Engine([family], seed, folder, jobs, on_trial)
    engine.prepare()
    with put_back():
        engine.run(time.monotonic() + seconds, enough=lambda: bool(found))
    return found[0] if found else None


def find_all(folder: Path, seed: int, jobs: int, seconds: float) -> bool:
    """Put all faults back, one after another; return whether each was found."""
    all_found = True
    for number, name in enumerate(CANARIES):
        began = time.monotonic()
        violation = find(name, folder / f"canary-{number}", seed, jobs, seconds)
        took = f"{time.monotonic() - began:.0f} s"
        with contextlib.suppress(BrokenPipeError):
            what = f"found in {took}: {violation.splitlines()[0][:150]}" if violation else f"NOT FOUND in {took}"
            print(f"{name}: {what}", flush=True)
        all_found &= violation is not None
    return all_found
