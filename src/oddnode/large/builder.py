"""A graph folder is built in stages with limited memory; a build that was killed goes on after its last stage."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

import numpy as np
from filelock import Timeout
from msgspec import Struct

from oddnode.large.arrays import ArrayEntry, ArrayWriter, FolderError, array_of, full_disk_explained, map_array
from oddnode.large.buckets import EdgeBuckets
from oddnode.large.chunks import EdgeChunk, NodeChunk, check_lengths, checked_features, edges_of
from oddnode.large.folder import GraphFolder
from oddnode.large.manifest import (
    BUILDING,
    FORMAT,
    LOCK,
    MANIFEST,
    Manifest,
    folder_lock,
    read_json,
    read_manifest,
    write_json,
)
from oddnode.large.node_ids import ID_ARRAYS, IdWriter

__all__ = ["FolderBuilder", "Progress"]

_log = logging.getLogger("oddnode")

_LARGEST_INT32 = 2**31 - 1
_PROGRESS = "progress.json"

#: Called with what is done, how much there is (``None`` if unknown), and a description.
Progress = Callable[[int, int | None, str], None]


class Stage(Struct):
    """A finished stage of a build.

    Parameters
    ----------
    arrays : dict
        The arrays that it has written.
    facts : dict
        Fields of the manifest.
    notes : list of str
        Notes for the user.
    weighted : bool
        Whether edges have weights.
    num_repeated : int
        How many edges were left out because others join the same nodes.
    """

    arrays: dict[str, ArrayEntry] = {}
    facts: dict[str, Any] = {}
    notes: list[str] = []
    weighted: bool = False
    num_repeated: int = 0


class _Progress(Struct):
    made_from: str
    stages: dict[str, Stage] = {}


class FolderBuilder(AbstractContextManager):
    """Builds a folder stage by stage, while it keeps other processes from writing to it.

    Each stage is finished or begun anew: what a killed process left of one is removed.

    Parameters
    ----------
    out : path
        The folder: a new or empty one, or one whose build was not finished.
    made_from : str
        A fingerprint of what the graph is made from. A build that was stopped goes on if it is the same.
    on_progress : callable, optional
        Called with what is done, how much there is, and a description.
    """

    def __init__(self, out: str | os.PathLike, made_from: str, on_progress: Progress | None = None):
        self.out = Path(out)
        self.made_from = made_from
        self._show = on_progress or (lambda done, total, what: None)
        self._stack, self._files = ExitStack(), ExitStack()
        self._progress = _Progress(made_from)

    def __enter__(self) -> Self:
        _check_target(self.out)
        self.out.mkdir(exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(folder_lock(self.out, timeout=0))
            except Timeout:
                raise FolderError(
                    f"{self.out} is being written by another process; wait for it to finish, or give another folder"
                ) from None
            stack.enter_context(full_disk_explained(self.out))
            if not self.is_complete:
                self._resume()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> bool | None:
        return self._stack.__exit__(*exception)

    @property
    def _building(self) -> Path:
        return self.out / BUILDING

    @property
    def is_complete(self) -> bool:
        """Whether the folder has this graph already."""
        if not (self.out / MANIFEST).exists():
            return False
        if read_manifest(self.out).made_from == self.made_from:
            return True
        raise FolderError(
            f"{self.out} has a graph that was made from other files or with other settings; delete it, or give "
            "another folder"
        )

    def _resume(self) -> None:
        """Keep the finished stages of a build of the same graph, and remove everything else."""
        path = self._building / _PROGRESS
        if path.exists():
            found = read_json(path, _Progress)
            if found.made_from == self.made_from:
                self._progress = found
                _log.info("%s: going on after %s", self.out, ", ".join(found.stages) or "the start")
            else:
                shutil.rmtree(self._building)
        self._building.mkdir(exist_ok=True)
        self._remove_unfinished()
        write_json(path, self._progress)

    def _remove_unfinished(self) -> None:
        kept = {f"{name}.bin" for stage in self._progress.stages.values() for name in stage.arrays}
        kept |= {_PROGRESS} | ({"buckets"} if "buckets" in self._progress.stages else set())
        for path in self._building.iterdir():
            if path.is_dir() and path.name not in kept:
                shutil.rmtree(path)
            elif path.name not in kept:
                path.unlink()

    def _stage(self, name: str, make: Callable[[], Stage]) -> Stage:
        stages = self._progress.stages
        if name not in stages:
            with self._files:  # also after an error
                stages[name] = make()
            write_json(self._building / _PROGRESS, self._progress)
        return stages[name]

    def _new_array(self, name: str, dtype: str) -> ArrayWriter:
        return self._files.enter_context(ArrayWriter(self._building / f"{name}.bin", dtype))

    def add_nodes(
        self,
        chunks: Callable[[], Iterable[NodeChunk]],
        facts: dict[str, Any] | None = None,
        notes: list[str] | None = None,
    ) -> None:
        """Write the nodes.

        Parameters
        ----------
        chunks : callable
            Returns the nodes, chunk by chunk; it is not called if they have been written already.
        facts : dict, optional
            Further fields of the manifest, such as ``classes``; read after the last chunk.
        notes : list of str, optional
            Notes for the user; read after the last chunk.
        """
        self._stage("nodes", lambda: self._write_nodes(chunks(), facts, notes))

    def _write_nodes(self, chunks: Iterable[NodeChunk], facts: dict[str, Any] | None, notes: list[str] | None) -> Stage:
        writers: dict[str, ArrayWriter] = {}
        num_nodes, largest = 0, 0.0
        ids = IdWriter(self._new_array)
        for chunk in chunks:
            x = checked_features(chunk.x, num_nodes)
            columns = {"x": x} | ({} if chunk.y is None else {"y": chunk.y.astype(np.int64)}) | chunk.masks
            if num_nodes and set(columns) != set(writers):
                raise FolderError(f"chunks of nodes have different parts: {sorted(columns)} and {sorted(writers)}")
            check_lengths(columns | ({} if chunk.ids is None else {"ids": chunk.ids}), len(x))
            for name, values in columns.items():
                if name not in writers:
                    writers[name] = self._new_array(name, values.dtype.name)
                writers[name].append(values)
            ids.append(chunk.ids, num_nodes)
            num_nodes += len(x)
            largest = max(largest, float(np.abs(x).max(initial=0.0)))
            self._show(num_nodes, None, "reading nodes")
        if not num_nodes:
            raise FolderError("the graph has no nodes")
        arrays = {name: writer.close() for name, writer in writers.items()}
        own = {"num_nodes": num_nodes, "max_abs_feature": largest}
        return Stage(arrays | ids.close(), own | (facts or {}), notes or [])

    @property
    def num_nodes(self) -> int:
        """Number of nodes that were added."""
        return self._progress.stages["nodes"].facts["num_nodes"]

    def id_arrays(self) -> dict[str, np.ndarray]:
        """The ids of the nodes that were added, as `oddnode.large.GraphFolder.id_arrays`."""
        entries = self._progress.stages["nodes"].arrays
        names = [name for name in ID_ARRAYS if name in entries]
        return {name: map_array(self._building / f"{name}.bin", entries[name]).numpy() for name in names}

    def add_edges(
        self,
        chunks: Callable[[], Iterable[EdgeChunk]],
        both_directions: bool = False,
        simple: bool = False,
        total: int | None = None,
        notes: list[str] | None = None,
    ) -> None:
        """Write the edges, sorted by target.

        Parameters
        ----------
        chunks : callable
            Returns edges ``[2, n]`` from source to target as positions of nodes, chunk by chunk, or pairs of these and
            their weights ``[n]``; it is not called if they have been read already. Edges of weight 0 are left out.
        both_directions : bool
            Whether to add the reverse of every edge.
        simple : bool
            Whether a repeated edge counts once, with the sum of its weights, and edges of nodes to themselves are left
            out; if not, edges are used as given.
        total : int, optional
            Number of edges, for the progress bar.
        notes : list of str, optional
            Notes for the user; read after the last chunk.
        """
        stages = self._progress.stages
        if "edges" not in stages:
            read = self._stage("buckets", lambda: self._read_edges(chunks(), both_directions, simple, total, notes))
            self._stage("edges", lambda: self._sort(self._buckets(read.weighted), simple))
        shutil.rmtree(self._building / "buckets", ignore_errors=True)

    def _buckets(self, weighted: bool) -> EdgeBuckets:
        return EdgeBuckets(self._building / "buckets", self.num_nodes, 0, self.num_nodes, weighted)

    def _read_edges(
        self, chunks: Iterable[EdgeChunk], both: bool, simple: bool, total: int | None, notes: list[str] | None
    ) -> Stage:
        edges = edges_of(chunks, self.num_nodes, both, simple, lambda done: self._show(done, total, "reading edges"))
        first = list(islice(edges, 1))
        weighted = any(part.weight is not None for part in first)
        self._buckets(weighted).fill(chain(first, edges))
        return Stage(notes=notes or [], weighted=weighted)

    def _sort(self, buckets: EdgeBuckets, unique: bool) -> Stage:
        offsets = self._new_array("offsets", "int64")
        sources = self._new_array("sources", "int64" if buckets.num_nodes > _LARGEST_INT32 else "int32")
        weights = self._new_array("weights", self._precision) if buckets.weighted else None
        offsets.append(np.zeros(1, np.int64))
        loops: list[dict[str, np.ndarray]] = []
        nodes, edges, repeated = 0, 0, 0
        for part in buckets.sorted(unique):
            own = None if part.weights is None else part.weights.astype(self._precision)
            if weights is not None and own is not None:
                weights.append(own)
            loops.append(part._replace(weights=own).loops(nodes))
            offsets.append(edges + np.cumsum(part.counts))
            sources.append(part.sources)
            nodes, edges, repeated = nodes + len(part.counts), edges + len(part.sources), repeated + part.num_repeated
            self._show(nodes, buckets.num_nodes, "sorting edges")
        arrays = {"offsets": offsets.close(), "sources": sources.close()}
        if weights is not None:
            arrays["weights"] = weights.close()
        for name in loops[0]:
            arrays[name] = array_of(self._building / f"{name}.bin", np.concatenate([each[name] for each in loops]))
        return Stage(arrays, {"num_edges": edges}, num_repeated=repeated)

    @property
    def _precision(self) -> str:
        """That of the features, which is that of the weights too."""
        return self._progress.stages["nodes"].arrays["x"].dtype

    @property
    def num_repeated(self) -> int:
        """How many edges were left out because others join the same nodes, once edges were added as ``simple``."""
        return self._progress.stages["edges"].num_repeated

    def finish(self, notes: Sequence[str] = ()) -> GraphFolder:
        """Complete the folder.

        Parameters
        ----------
        notes : sequence of str
            Further notes for the user, known when all is added.

        Returns
        -------
        GraphFolder
            The folder; from now on it does not change.
        """
        if not self.is_complete:
            stages = [self._progress.stages[name] for name in ("nodes", "edges")]
            arrays = {name: entry for stage in stages for name, entry in stage.arrays.items()}
            for name in arrays:
                part = self._building / f"{name}.bin"
                if part.exists():  # unless a process was killed right here
                    part.replace(self.out / part.name)
            facts = {name: fact for stage in stages for name, fact in stage.facts.items()}
            noted = [*(note for stage in self._progress.stages.values() for note in stage.notes), *notes]
            Manifest(format=FORMAT, arrays=arrays, made_from=self.made_from, notes=noted, **facts).write(self.out)
        shutil.rmtree(self._building, ignore_errors=True)
        return GraphFolder(self.out)


def _check_target(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise FolderError(f"{out} is a file; give a folder for the graph")
    if not out.exists() and not out.parent.is_dir():
        raise FolderError(f"cannot write {out}: the folder {out.parent} does not exist")
    building = out / BUILDING
    if not out.exists() or (out / MANIFEST).exists() or (building / _PROGRESS).exists():
        return
    begun = list(building.iterdir()) if building.is_dir() else []
    if begun or {path.name for path in out.iterdir()} - {LOCK, BUILDING}:
        raise FolderError(f"{out} has other files in it; give a new or an empty folder")
