"""What is saved beside the log, so that a start need not compute the base and make every change again.

A name has the version that a folder is for, and a mark of all changes up to there: what belongs to other changes, after
a backup was put back, is never used. Everything here can be computed again from the base and the log.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from oddnode._utils.atomic_files import remove
from oddnode.large import FolderError
from oddnode.online import LiveGraph
from oddnode.service.log import ChangeLog

_log = logging.getLogger("oddnode.service")
_NAME = re.compile(r"(base|graph|changes)-([0-9]+)-([0-9a-f]{16})")
_MARK = 16
UNDONE = "changes were undone in the meantime"

Kind = Literal["base", "graph", "changes"]


class Saved(NamedTuple):
    """A folder beside the log."""

    version: int
    kind: str
    path: Path


class SavedGraphs:
    """The folders beside a log.

    Parameters
    ----------
    log : ChangeLog
        The log.
    """

    def __init__(self, log: ChangeLog):
        self.log = log

    def clean(self) -> None:
        """Delete what a killed process has left half-written; only for the process that writes."""
        for path in self.log.folder.iterdir():
            if path.name.startswith(tuple(f".{kind}-" for kind in ("base", "graph", "changes"))):
                remove(path)

    def mark(self, version: int) -> str:
        """The mark of a version of the graph; empty if the log does not have it."""
        return self.log.facts["base"][:_MARK] if version == 0 else self.log.chain_of(version).hex()[:_MARK]

    def all(self, *kinds: Kind) -> list[Saved]:
        """All folders of some kinds that belong to this log, the newest first."""
        found = []
        for path in self.log.folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match and match[1] in kinds and self.mark(int(match[2])) == match[3]:
                found.append(Saved(int(match[2]), match[1], path))
        return sorted(found, reverse=True)

    def path(self, kind: Kind, version: int) -> Path:
        """The name of a folder."""
        return self.log.folder / f"{kind}-{version}-{self.mark(version)}"

    def open(self, model: Any, graph: Path | None) -> tuple[LiveGraph, int] | None:
        """Open the newest base, with the newest changes since; and the version of the base."""
        for base in self.all("base"):
            compacted = self.path("graph", base.version)
            own = None if graph is None else compacted if base.version and compacted.exists() else graph
            try:
                live = LiveGraph.open(model, base.path, graph=own)
            except (FolderError, OSError) as error:
                _log.warning("%s is not used: %s", base.path.name, error)
                continue
            for changes in self.all("changes"):
                if changes.version > live.version:
                    try:
                        live.load_changes(changes.path)
                        break
                    except (FolderError, OSError) as error:
                        _log.warning("%s is not used: %s", changes.path.name, error)
            return live, base.version
        return None

    def save_base(self, live: LiveGraph, version: int) -> None:
        """Save a base; a failure costs time at the next start and nothing else."""
        try:
            live.save(self.path("base", version))
        except (ValueError, OSError) as error:
            _log.warning("the base is not saved, so the next start takes longer: %s", error)

    def save_changes(self, live: LiveGraph) -> None:
        """Save what has changed since the base, in place of what was saved before."""
        target = self.path("changes", live.version)
        if live.base_key is None or target.exists():
            return
        try:
            live.save_changes(target)
        except (ValueError, OSError) as error:
            _log.warning("changes are not saved, so the next start takes longer: %s", error)
        else:
            self.remove("changes", before=live.version)

    def compacted(self, model: Any, live: LiveGraph, on_disk: bool, is_current: Callable[[], bool]) -> LiveGraph:
        """Compute a new base for a graph that keeps changing, and save it if the graph ``is_current`` still."""
        building = self.log.folder / f".graph-{secrets.token_hex(4)}"
        try:
            other = live.rebased(building) if on_disk else live.rebased()
            version, graph = other.version, None
            if not is_current():
                raise RuntimeError(UNDONE)
            if on_disk:
                graph = self.path("graph", version)
                remove(graph)
                building.rename(graph)
            other.save(self.path("base", version))
            return LiveGraph.open(model, self.path("base", version), graph=graph)
        finally:
            remove(building)

    def remove(self, *kinds: Kind, before: int) -> None:
        """Delete folders of older versions."""
        for path in self.log.folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match and match[1] in kinds and int(match[2]) < before:
                remove(path)
