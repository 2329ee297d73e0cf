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
from typing import NamedTuple

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor

from oddnode._utils.atomic_files import remove
from oddnode.large.arrays import (
    ANEW,
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


class _List(Struct):
    """The file ``sidecars.json``."""

    graph: str  # The `Manifest.graph_key` of the graph that they are of
    arrays: dict[str, ArrayEntry] = {}


class SidecarSpec(NamedTuple):
    """What a sidecar is, and of which graph."""

    folder: Path
    graph: str  # The `Manifest.graph_key` of the graph
    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}.bin"


def sidecar(spec: SidecarSpec, make: Callable[[], Tensor]) -> Tensor:
    """Return a sidecar; compute it if it is missing, damaged or of another graph. A read-only folder keeps none."""
    ranks, folder = active_ranks(), spec.folder
    entry = ranks.on_rank_zero(lambda: _known(spec), ArrayEntry | None)
    if entry is None and ranks.on_rank_zero(lambda: not os.access(folder, os.W_OK), bool):
        return make().to(getattr(torch, spec.dtype))
    if entry is None:
        with folder_lock(folder) if ranks.is_first else nullcontext():
            # Another run may have made it before the first rank got the lock, which the others wait for here.
            entry = ranks.on_rank_zero(lambda: _known(spec), ArrayEntry | None)
            entry = entry or _made(spec, make)
    return _visible(spec.path, entry)


def _entries(spec: SidecarSpec) -> dict[str, ArrayEntry]:
    """The sidecars of a graph; none if the list is damaged, or if it came here with another graph."""
    path = spec.folder / _LIST
    try:
        known = read_json(path, _List) if path.is_symlink() or path.exists() else _List(spec.graph)
    except FolderError as error:
        _log.warning("%s: sidecars are computed again", str(error).partition(";")[0])
        return {}
    return known.arrays if known.graph == spec.graph else {}


def _known(spec: SidecarSpec) -> ArrayEntry | None:
    entry = _entries(spec).get(spec.name)
    if entry is None or (entry.dtype, entry.shape) != (spec.dtype, spec.shape):
        return None
    try:
        map_array(spec.path, entry)
        check_once(spec.path, entry)
    except FolderError as error:
        _log.warning("%s: it is computed again", str(error).partition(";")[0])
        return None
    return entry


def _made(spec: SidecarSpec, make: Callable[[], Tensor]) -> ArrayEntry:
    ranks = active_ranks()
    if ranks.is_first:
        for left in spec.folder.glob("*.part"):  # left by a killed process: writers hold the lock
            remove(left)
    values = make()
    return ranks.on_rank_zero(lambda: _written(spec, values.numpy().astype(spec.dtype, copy=False)), ArrayEntry)


def _written(spec: SidecarSpec, values: np.ndarray) -> ArrayEntry:
    part = spec.folder / f"{spec.name}.part"
    with full_disk_explained(spec.folder):
        try:
            entry = write_array(part, values)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        for path in (spec.path, spec.folder / _LIST):
            if path.is_dir() and not path.is_symlink():
                raise FolderError(f"{path} is a folder, expected a regular file; {ANEW}")
        part.replace(spec.path)
        mark_checked(spec.path)
        write_json(spec.folder / _LIST, _List(spec.graph, _entries(spec) | {spec.name: entry}))
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
