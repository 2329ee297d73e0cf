"""The contract of a family of trials."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar

__all__ = ["Family", "Trial", "described", "is_ours"]


@dataclass(frozen=True)
class Trial:
    """The outcome of a trial.

    Parameters
    ----------
    kind : str
        The class of what was done, for example of the mutation.
    violation : str, optional
        The promise that was broken, in words.
    parsed : bool, optional
        Whether the input got past the parsers, judged without oddnode; None where nothing is parsed.
    accepted : bool, optional
        Whether oddnode accepted the input; None where it must.
    """

    kind: str
    violation: str | None = None
    parsed: bool | None = None
    accepted: bool | None = None


class Family(ABC):
    """Trials of one sort. An instance is plain: it is made in the first process and used in forks of it."""

    #: The name in the summary and in the names of cases.
    name: ClassVar[str]
    #: The number of trials in a soak of 30 minutes on two cores.
    quota: ClassVar[int]
    #: The classes of trials; they take turns, so that each has an equal share.
    kinds: ClassVar[tuple[str, ...]]
    #: The number of trials that one call of `trial` makes.
    examples: ClassVar[int] = 1
    #: The number of trials that every soak makes, however short or slow.
    least: ClassVar[int] = 30
    #: CPU seconds after which a trial takes too long; one that does not compute may wait five times as long.
    limit: ClassVar[float] = 60.0
    #: Trials that one process runs before a new one takes its place.
    batch: ClassVar[int] = 25

    def prepare(self, folder: Path) -> None:  # noqa: B027
        """Write what the trials have in common; called once, in a process of its own."""

    def start(self, folder: Path) -> None:  # noqa: B027
        """Read what `prepare` has written; called once in every process that runs trials."""

    @abstractmethod
    def trial(self, kind: str, rng: Random, work: Path) -> Iterable[Trial]:
        """Run a trial. All chance comes from ``rng``; ``work`` is an empty folder, kept if there is a violation."""

    def trials(self, number: int, rng: Random, work: Path) -> Iterable[Trial]:
        """Run the trial with a number; an error of the harness itself is a violation, too."""
        kind = self.kinds[number % len(self.kinds)]
        try:
            return list(self.trial(kind, rng, work))
        except Exception:
            return [Trial(kind, f"an error that no oracle expects:\n{traceback.format_exc(limit=-6)}")]


def is_ours(error: BaseException) -> bool:
    """Whether an error has a type of oddnode: the user reads words that were written for this case."""
    return type(error).__module__.split(".")[0] == "oddnode"


def described(error: BaseException) -> str:
    """Name the type of an error, its message and where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(last[0].filename).name}:{last[0].lineno})" if last else ""
    return f"{type(error).__module__}.{type(error).__name__}: {str(error)[:300]}{where}"
