"""Graph folders are built in stages with bounded memory; a build that was killed resumes after its last stage."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

import numpy as np
from filelock import Timeout
from msgspec import Struct
from torch import Tensor

from oddnode.graph import Graph, GraphSource, as_labels
from oddnode.large.arrays import (
    ArrayEntry,
    ArrayWriter,
    FolderError,
    check_sum,
    file_checksum,
    full_disk_explained,
    map_array,
    regular_size,
    row_chunks,
    write_array,
)
from oddnode.large.buckets import EdgeBuckets
from oddnode.large.chunks import EdgeChunk, NodeChunk, check_columns, checked_array, checked_features, edges_of
from oddnode.large.folder import ID_ARRAYS, MASKS, GraphFolder
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

_log = logging.getLogger("oddnode")

_LARGEST_INT32 = 2**31 - 1
_EDGES_AT_ONCE = 2**21
_PROGRESS = "progress.json"

#: Called with the work done, the total (``None`` if unknown), and a description.
Progress = Callable[[int, int | None, str], None]


class Stage(Struct):
    """A finished stage of a build."""

    arrays: dict[str, ArrayEntry] = {}  # The arrays that it has written
    facts: dict[str, Any] = {}  # Fields of the manifest
    notes: list[str] = []  # Notes for the user
    weighted: bool = False  # Whether edges have weights
    buckets: list[int] = []  # The checksums of the files that edges were divided among
    num_repeated: int = 0  # Number of duplicate edges that were left out


class _Progress(Struct):
    made_from: str
    stages: dict[str, Stage] = {}


class FolderBuilder(AbstractContextManager):
    """Builds a folder stage by stage, while it keeps other processes from writing to it.

    An unfinished stage is restarted: what a killed process left of it is removed.
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
            self._progress = self._finished(path)
        self._building.mkdir(exist_ok=True)
        if path.is_dir():  # which a file cannot replace
            shutil.rmtree(path)
        write_json(path, self._progress)
        self._remove_unfinished()

    def _finished(self, path: Path) -> _Progress:
        """The finished stages of a build of the same graph, if all their files are still as they were written."""
        try:
            known = read_json(path, _Progress)
            if known.made_from != self.made_from:
                return self._progress
            for stage in known.stages.values():
                for name, entry in stage.arrays.items():
                    part = self._building / f"{name}.bin"
                    # `finish` may have moved it.
                    check_sum(part if part.exists() else self.out / part.name, entry)
            if "buckets" in known.stages and "edges" not in known.stages:
                self._check_buckets(known.stages["buckets"].buckets)
        except FolderError as error:
            _log.warning("%s, so the build starts anew", str(error).partition(";")[0])
            return self._progress
        _log.info("%s: resuming after %s", self.out, ", ".join(known.stages) or "the start")
        return known

    def _check_buckets(self, checksums: list[int]) -> None:
        for number, crc32 in enumerate(checksums):
            path = self._building / "buckets" / f"{number}.edges"
            regular_size(path)
            if file_checksum(path) != crc32:
                raise FolderError(f"{path} has another checksum than when it was written")

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
        self._stage("nodes", lambda: self._write_nodes(chunks(), facts, notes))

    def _write_nodes(self, chunks: Iterable[NodeChunk], facts: dict[str, Any] | None, notes: list[str] | None) -> Stage:
        writers: dict[str, ArrayWriter] = {}
        num_nodes, largest, first = 0, 0.0, set[str]()
        ids = _IdWriter(self._new_array)
        for chunk in chunks:
            x, columns, own_ids = _parts_of(chunk, num_nodes)
            parts = set(columns) | ({"ids"} if own_ids is not None else set())
            first = parts if not num_nodes else first
            if parts != first:
                raise FolderError(f"chunks of nodes have different parts: {sorted(parts)} and {sorted(first)}")
            if "x" in writers and x.dtype == np.float64 and writers["x"].dtype != x.dtype:
                raise FolderError(
                    "a chunk has features in double precision after others in single precision; give all in the same"
                )
            for name, values in columns.items():
                if name not in writers:
                    writers[name] = self._new_array(name, "int64" if name == "y" else values.dtype.name)
                writers[name].append(values)
            classes = (facts or {}).get("classes")
            if classes is not None and "y" in columns and columns["y"].max(initial=-1) >= len(classes):
                raise FolderError(f"y has the class {columns['y'].max()}, but there are only {len(classes)} classes")
            ids.append(own_ids, num_nodes)
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
        checksums = self._buckets(weighted).fill(chain(first, edges))
        return Stage(notes=notes or [], weighted=weighted, buckets=checksums)

    def _sort(self, buckets: EdgeBuckets, unique: bool) -> Stage:
        offsets = self._new_array("offsets", "int64")
        sources = self._new_array("sources", "int64" if buckets.num_nodes > _LARGEST_INT32 else "int32")
        weights = self._new_array("weights", self._dtype) if buckets.weighted else None
        offsets.append(np.zeros(1, np.int64))
        loops: list[dict[str, np.ndarray]] = []
        nodes, edges, repeated = 0, 0, 0
        for part in buckets.sorted(unique):
            own = None if part.weights is None else part.weights.astype(self._dtype)
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
            arrays[name] = write_array(self._building / f"{name}.bin", np.concatenate([part[name] for part in loops]))
        return Stage(arrays, {"num_edges": edges}, num_repeated=repeated)

    @property
    def _dtype(self) -> str:
        return self._progress.stages["nodes"].arrays["x"].dtype

    @property
    def num_repeated(self) -> int:
        """Number of duplicate edges that were left out, once edges were added as ``simple``."""
        return self._progress.stages["edges"].num_repeated

    @property
    def num_edges(self) -> int:
        """Number of edges, once they were added; each direction counts."""
        return self._progress.stages["edges"].facts["num_edges"]

    def finish(self, notes: Sequence[str] = ()) -> GraphFolder:
        if not self.is_complete:
            stages = [self._progress.stages[name] for name in ("nodes", "edges")]
            arrays = {name: entry for stage in stages for name, entry in stage.arrays.items()}
            for name in arrays:
                part = self._building / f"{name}.bin"
                if part.exists():  # unless a process was killed right here
                    part.replace(self.out / part.name)
            facts = {name: fact for stage in stages for name, fact in stage.facts.items()}
            noted = [*(note for stage in self._progress.stages.values() for note in stage.notes), *notes]
            manifest = Manifest(format=FORMAT, arrays=arrays, made_from=self.made_from, notes=noted, **facts)
            write_json(self.out / MANIFEST, manifest)
        shutil.rmtree(self._building, ignore_errors=True)
        return GraphFolder(self.out)


def _parts_of(chunk: NodeChunk, first: int) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray | None]:
    """Check a chunk, and return its features, all that is written as it is, and its ids."""
    if not isinstance(chunk, NodeChunk):
        raise FolderError(f"a chunk of nodes is {type(chunk).__name__}, expected a NodeChunk")
    unknown = next((name for name in chunk.masks if name not in MASKS), None)
    if unknown is not None:  # names become file names
        raise FolderError(f"{unknown!r} is not a mask, expected one of {', '.join(MASKS)}")
    x = checked_features(chunk.x, first)
    given = {"y": chunk.y, "ids": chunk.ids} | chunk.masks
    columns = {name: checked_array(each, f"{name!r} of a chunk") for name, each in given.items() if each is not None}
    check_columns(columns, len(x))
    ids = columns.pop("ids", None)
    return x, {"x": x} | columns, ids


class _IdWriter:
    """Writes ids as integers or as strings, and nothing if they are the indices of the nodes."""

    def __init__(self, new_array: Callable[[str, str], ArrayWriter]):
        self._new_array = new_array
        self._writers: dict[str, ArrayWriter] = {}
        self._are_indices = True
        self._num_bytes = 0

    def append(self, ids: np.ndarray | None, start: int) -> None:
        count = 0 if ids is None else len(ids)
        if ids is None or count == 0:
            return
        if ids.dtype.kind in "iu":
            self._are_indices &= bool((ids == np.arange(start, start + count)).all())
            self._writer("ids", "int64").append(ids)
            return
        self._are_indices = False
        try:
            strings = [name.encode() for name in ids]
        except UnicodeEncodeError as error:
            raise FolderError(f"the id {error.object!r} has half of a character, which is no text") from None
        ends = self._num_bytes + np.cumsum([len(string) for string in strings])
        if "id_offsets" not in self._writers:
            self._writer("id_offsets", "int64").append(np.zeros(1, np.int64))
        self._writer("id_offsets", "int64").append(ends)
        self._writer("id_bytes", "uint8").append(np.frombuffer(b"".join(strings), np.uint8))
        self._num_bytes = int(ends[-1])

    def _writer(self, name: str, dtype: str) -> ArrayWriter:
        if name not in self._writers:
            self._writers[name] = self._new_array(name, dtype)
        return self._writers[name]

    def close(self) -> dict[str, ArrayEntry]:
        if len(self._writers) == 3:
            raise FolderError("some ids are integers and some are strings; give all of them as one or the other")
        entries = {name: writer.close() for name, writer in self._writers.items()}
        if not self._are_indices:
            return entries
        for writer in self._writers.values():
            writer.path.unlink()
        return {}


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


def build_folder(
    out: str | os.PathLike,
    nodes: Iterable[NodeChunk],
    edges: Iterable[EdgeChunk],
    *,
    classes: list[bool | int | str] | None = None,
    made_from: str | None = None,
    on_progress: Progress | None = None,
) -> GraphFolder:
    """Build a folder from chunks, so that no more than one of them is in memory at a time.

    Edges are used as given: a repeated edge counts twice, a self-loop makes a node its own neighbour. Those of weight 0
    are left out.

    Parameters
    ----------
    out : path
        The folder: a new or empty one, or one whose build was not finished.
    nodes : iterable of NodeChunk
        The nodes; the first node of the first chunk has the index 0.
    edges : iterable of numpy.ndarray, or of (numpy.ndarray, numpy.ndarray)
        Edges ``[2, n]`` from source to target, as indices of nodes; or pairs of these and their weights ``[n]``,
        which are kept in the precision of the features.
    classes : list, optional
        The label that each class stands for.
    made_from : str, optional
        A string that is the same whenever the chunks are the same. With it, a build that was killed resumes after its
        last finished stage; without it, it restarts.
    on_progress : callable, optional
        Called with the work done, the total (``None`` if unknown), and a description.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> nodes = (NodeChunk(np.eye(3)[[i]]) for i in range(3))
    >>> edges = [np.array([[0, 1], [1, 2]]), np.array([[0], [2]])]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     build_folder(folder, nodes, edges).edge_index
    tensor([[0, 0, 1],
            [1, 2, 2]])
    """
    if classes is not None and not isinstance(classes, (list, tuple)):
        raise FolderError(f"classes is {type(classes).__name__}, expected a list of strings, integers or booleans")
    odd = next((label for label in classes or () if not isinstance(label, (bool, int, str))), None)
    if odd is not None:
        raise FolderError(f"classes has {odd!r}, expected strings, integers or booleans")
    if len({(type(label), label) for label in classes or ()}) < len(classes or ()):
        raise FolderError(f"classes has a label twice: {classes}; give each class a label of its own")
    if made_from is not None and not isinstance(made_from, str):
        raise FolderError(f"made_from is {made_from!r}, expected a string")
    for name, given in (("nodes", nodes), ("edges", edges)):
        if not isinstance(given, Iterable):
            raise FolderError(f"{name} is {type(given).__name__}, expected a list or another iterable of chunks")
    with FolderBuilder(out, made_from or secrets.token_hex(16), on_progress) as builder:
        if not builder.is_complete:
            builder.add_nodes(lambda: nodes, {} if classes is None else {"classes": classes})
            builder.add_edges(lambda: edges)
        return builder.finish()


def folder_from_data(data: GraphSource, out: str | os.PathLike, on_progress: Progress | None = None) -> GraphFolder:
    """Write a graph in memory to a folder; its labels and masks as well.

    Parameters
    ----------
    data : GraphSource
        A PyG ``Data``, or another graph with its attributes.
    out : path
        The folder: a new or empty one.
    on_progress : callable, optional
        As for `build_folder`.
    """
    graph = Graph.from_data(data)
    columns = {name: getattr(data, name, None) for name in ("y", *MASKS)}
    given = {name: as_labels(value).cpu() for name, value in columns.items() if isinstance(value, Tensor)}

    def nodes() -> Iterator[NodeChunk]:
        for start, stop in row_chunks(graph.num_nodes, graph.x.shape[1] * graph.x.dtype.itemsize):
            own = {name: value[start:stop].numpy() for name, value in given.items()}
            yield NodeChunk(graph.x[start:stop].numpy(), own.pop("y", None), masks=own)

    def edges() -> Iterator[EdgeChunk]:
        for start in range(0, graph.edge_index.shape[1], _EDGES_AT_ONCE):
            own = slice(start, start + _EDGES_AT_ONCE)
            part = graph.edge_index[:, own].numpy()
            yield part if graph.edge_weight is None else (part, graph.edge_weight[own].numpy())

    return build_folder(out, nodes(), edges(), on_progress=on_progress)
