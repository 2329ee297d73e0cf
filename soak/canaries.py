"""Old faults, put back one after another: a soak that cannot find them finds nothing.

Each is a fault of an earlier version, as a small patch in this process and its forks.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from oddnode._utils import atomic_files, random
from oddnode.detector import saved_files
from oddnode.graph import training_data
from oddnode.paper import record
from soak.engine import Engine
from soak.graphs import Graphs
from soak.kills import Kills
from soak.models import Models
from soak.stores import Stores
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


class _Saves(Kills):
    """Without the commands, which are new processes and have no patch."""

    kinds = tuple(kind for kind in Kills.kinds if kind.startswith("save"))


#: The name of a fault, the family that must find it, and what puts it back.
CANARIES: dict[str, tuple[Family, Callable[[], AbstractContextManager[None]]]] = {
    "a model is replaced by two renames": (_Saves(), _two_renames),
    "the manifest is not compared": (Models(), _no_manifest),
    "all classes up to the largest label are listed": (Graphs(), _all_classes),
    "threads share a generator": (Threads(), _shared_generator),
    "rows of the store are not checked": (Stores(), _unchecked_rows),
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
