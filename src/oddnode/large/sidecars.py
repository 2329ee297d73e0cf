"""Sidecars: results that depend on a graph alone, which are computed once and kept in its folder.

If several ranks work together, all of them compute a sidecar, and the first one writes it. Only the first one takes the
lock of the folder. A rank that waited for the lock of another would keep that one waiting in an exchange for ever.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor

from oddnode.large.arrays import ArrayEntry, ArrayWriter, FolderError, NoWriter, full_disk_explained, map_array, written
from oddnode.large.file_checks import check_once, mark_checked
from oddnode.large.manifest import folder_lock, read_json, write_json
from oddnode.large.ranks import active_ranks
from oddnode.large.resident import RowsInMemory, computed

__all__ = ["Sidecars", "Write"]

_log = logging.getLogger("oddnode")

_LIST = "sidecars.json"
# A shared disk may show a new file to other machines only after a while.
_SECONDS_UNTIL_VISIBLE = 60

#: Computes a sidecar, and appends its rows to the writer that it is called with.
Write = Callable[[ArrayWriter | NoWriter | RowsInMemory], None]


class Sidecars:
    """The sidecars of a folder.

    Parameters
    ----------
    folder : Path
        The folder.
    """

    def __init__(self, folder: Path):
        self._folder = folder

    def get(self, name: str, make: Write, dtype: str) -> Tensor:
        """Return a sidecar; compute it if it is not there, or damaged.

        Parameters
        ----------
        name : str
            Its name, which is part of that of its file.
        make : callable
            Computes it, and appends its rows to the writer that it is called with.
        dtype : str
            The type of its numbers.
        """
        ranks = active_ranks()
        entry = ranks.from_first(lambda: self._known(name), ArrayEntry | None)
        if entry is None and ranks.from_first(lambda: not os.access(self._folder, os.W_OK), bool):
            return computed(make, dtype)
        if entry is None:
            with folder_lock(self._folder) if ranks.is_first else nullcontext():
                # Another run may have made it before the first rank got the lock, which the others wait for here.
                entry = ranks.from_first(lambda: self._known(name), ArrayEntry | None) or self._made(name, make, dtype)
        return _visible(self._file(name), entry)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.bin"

    def _entries(self) -> dict[str, ArrayEntry]:
        path = self._folder / _LIST
        return read_json(path, dict[str, ArrayEntry]) if path.exists() else {}

    def _known(self, name: str) -> ArrayEntry | None:
        try:
            entry = self._entries().get(name)
            if entry is not None:
                map_array(self._file(name), entry)
                check_once(self._file(name), entry)
            return entry
        except FolderError as error:
            _log.warning("%s; it is computed again", error)
            return None

    def _made(self, name: str, make: Write, dtype: str) -> ArrayEntry:
        ranks = active_ranks()
        entry: Any = None
        if ranks.is_first:
            entry = self._written(name, make, dtype)
        else:
            make(NoWriter())
        return ranks.from_first(lambda: entry, ArrayEntry)

    def _written(self, name: str, make: Write, dtype: str) -> ArrayEntry:
        for left in self._folder.glob("*.part"):  # by a process that was killed: whoever writes has the lock
            left.unlink()
        with full_disk_explained(self._folder):
            part = self._folder / f"{name}.part"
            entry = written(part, make, dtype)
            part.replace(self._file(name))
            mark_checked(self._file(name))
            write_json(self._folder / _LIST, self._entries() | {name: entry})
        return entry


def _visible(path: Path, entry: ArrayEntry) -> Tensor:
    """Map a file that the first rank has checked or written, perhaps on another machine."""
    end = time.monotonic() + _SECONDS_UNTIL_VISIBLE
    while True:
        try:
            return map_array(path, entry)
        except FolderError:
            if active_ranks().is_first or time.monotonic() > end:
                raise
            time.sleep(0.5)
