"""Cases: a violation as a file that says how to do the trial again.

``<family>-<seed>-<number>.json`` holds the family, the seed and the number, from which all chance of a trial follows,
and what was found. A folder of the same name holds the trial's files as they were.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

__all__ = ["Case", "chance"]


@dataclass(frozen=True)
class Case:
    """A trial that broke a promise.

    Parameters
    ----------
    family, kind : str
        What was tried.
    seed, number : int
        Of the soak, and of the trial in it.
    violation : str
        What was found.
    """

    family: str
    kind: str
    seed: int
    number: int
    violation: str

    def write(self, folder: Path, work: Path | None = None) -> Path:
        """Write the case and a copy of the trial's files."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.family}-{self.seed}-{self.number}.json"
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        if work is not None and any(work.iterdir()):
            with contextlib.suppress(shutil.Error):  # a service that still runs removes files meanwhile
                shutil.copytree(work, path.with_suffix(""), symlinks=True, dirs_exist_ok=True)
        return path

    @classmethod
    def read(cls, path: Path) -> Case:
        """Read a case that `write` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def chance(family: str, seed: int, number: int) -> Random:
    """Return the source of all chance in a trial."""
    return Random(f"{family}/{seed}/{number}")
