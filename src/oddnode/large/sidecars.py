"""Sidecars: results that depend on a graph alone, which are computed once and kept in its folder.

If several ranks work together, all of them compute a sidecar, and the first one writes it. Only the first one takes the
lock of the folder: a rank that waited for the lock of another would keep that one waiting in an exchange for ever.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oddnode.large.arrays import (
    ArrayEntry,
    FolderError,
    check_once,
    full_disk_explained,
    map_array,
    mark_checked,
    write_array,
)
from oddnode.large.manifest import folder_lock, read_json, write_json
from oddnode.large.ranks import active_ranks

_log = logging.getLogger("oddnode")

_LIST = "sidecars.json"
# A shared disk may show a new file to other machines only after a while.
_SECONDS_UNTIL_VISIBLE = 60


def sidecar(folder: Path, name: str, make: Callable[[], Tensor], dtype: str) -> Tensor:
    """Return a sidecar; compute it if it is missing or damaged. A read-only folder keeps none."""
    ranks = active_ranks()
    entry = ranks.on_rank_zero(lambda: _known(folder, name), ArrayEntry | None)
    if entry is None and ranks.on_rank_zero(lambda: not os.access(folder, os.W_OK), bool):
        return make().to(getattr(torch, dtype))
    if entry is None:
        with folder_lock(folder) if ranks.is_first else nullcontext():
            # Another run may have made it before the first rank got the lock, which the others wait for here.
            entry = ranks.on_rank_zero(lambda: _known(folder, name), ArrayEntry | None)
            entry = entry or _made(folder, name, make, dtype)
    return _visible(folder / f"{name}.bin", entry)


def _entries(folder: Path) -> dict[str, ArrayEntry]:
    path = folder / _LIST
    return read_json(path, dict[str, ArrayEntry]) if path.exists() else {}


def _known(folder: Path, name: str) -> ArrayEntry | None:
    try:
        entry = _entries(folder).get(name)
        if entry is not None:
            map_array(folder / f"{name}.bin", entry)
            check_once(folder / f"{name}.bin", entry)
        return entry
    except FolderError as error:
        _log.warning("%s; it is computed again", error)
        return None


def _made(folder: Path, name: str, make: Callable[[], Tensor], dtype: str) -> ArrayEntry:
    ranks = active_ranks()
    if ranks.is_first:
        for left in folder.glob("*.part"):  # left by a killed process: writers hold the lock
            left.unlink()
    values = make()
    return ranks.on_rank_zero(lambda: _written(folder, name, values.numpy().astype(dtype, copy=False)), ArrayEntry)


def _written(folder: Path, name: str, values: np.ndarray) -> ArrayEntry:
    part, path = folder / f"{name}.part", folder / f"{name}.bin"
    with full_disk_explained(folder):
        try:
            entry = write_array(part, values)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        part.replace(path)
        mark_checked(path)
        write_json(folder / _LIST, _entries(folder) | {name: entry})
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
