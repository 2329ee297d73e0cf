"""Sorting more edges than memory holds: they are divided among files by their targets, and each file is sorted."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from oddnode.large.chunks import CheckedEdges

# Number of files, each with the edges to equally many nodes.
_BUCKETS = 256
# More numbers than this are not sorted at once (256 MiB); a larger file is divided again.
_SORTED_AT_ONCE = 2**25

_KEY = np.dtype(np.uint64)
_KEY_AND_WEIGHT = np.dtype([("key", np.uint64), ("weight", np.float64)])


class SortedEdges(NamedTuple):
    """The edges to some nodes."""

    counts: np.ndarray  # How many edges lead to each of the nodes `[n]`
    sources: np.ndarray  # Their sources, sorted by target and then by source `[e]`
    weights: np.ndarray | None  # Their weights `[e]`, in double precision
    num_repeated: int  # Number of duplicate edges that were left out

    def loops(self, first: int) -> dict[str, np.ndarray]:
        targets = np.repeat(np.arange(first, first + len(self.counts)), self.counts)
        is_loop = self.sources == targets.astype(np.uint64)
        nodes, owner, counts = np.unique(targets[is_loop], return_inverse=True, return_counts=True)
        loops = {"loop_nodes": nodes, "loop_counts": counts}
        if self.weights is not None:
            sums = np.bincount(owner, self.weights[is_loop], len(nodes))
            loops["loop_weights"] = sums.astype(np.float64)  # integers if there are no loops
        return loops


class EdgeBuckets:
    """Files of edges to the nodes ``start..stop - 1``; an edge is one number, so that sorting it sorts by both ends."""

    def __init__(self, folder: Path, num_nodes: int, start: int, stop: int, weighted: bool):
        self.folder = folder
        self.num_nodes = num_nodes
        self.start = start
        self.stop = stop
        self.weighted = weighted
        self.width = max(-(-(stop - start) // _BUCKETS), 1)
        self.count = -(-(stop - start) // self.width)

    def fill(self, chunks: Iterable[CheckedEdges]) -> list[int]:
        """Write the files, and return their checksums."""
        self.folder.mkdir(parents=True, exist_ok=True)
        checksums = [0] * self.count
        with ExitStack() as stack:
            files = [stack.enter_context(self._file(number).open("wb")) for number in range(self.count)]
            for source, target, weight in chunks:
                bucket, local = np.divmod(target.astype(np.uint64) - np.uint64(self.start), np.uint64(self.width))
                records = _records(local * np.uint64(self.num_nodes) + source.astype(np.uint64), weight)
                bucket = bucket.astype(np.uint8)  # numpy sorts 8-bit integers in linear time
                records = records[np.argsort(bucket, kind="stable")]
                ends = np.cumsum(np.bincount(bucket, minlength=self.count))
                for number in np.flatnonzero(np.diff(ends, prepend=0)):
                    own = records[ends[number - 1] if number else 0 : ends[number]].data
                    files[number].write(own)
                    checksums[number] = zlib.crc32(own, checksums[number])
        return checksums

    def sorted(self, unique: bool) -> Iterator[SortedEdges]:
        for number in range(self.count):
            first = self.start + number * self.width
            last = min(first + self.width, self.stop)
            file = self._file(number)
            if file.stat().st_size > 8 * _SORTED_AT_ONCE and last - first > 1:
                parts = EdgeBuckets(self.folder / str(number), self.num_nodes, first, last, self.weighted)
                parts.fill(self._edges(file, first))
                yield from parts.sorted(unique)
            else:
                yield self._sorted(file, last - first, unique)

    def _edges(self, file: Path, first: int) -> Iterator[CheckedEdges]:
        records = np.memmap(file, self._record, "r")
        for start in range(0, len(records), _SORTED_AT_ONCE // 8):
            keys, weight = self._parts(records[start : start + _SORTED_AT_ONCE // 8])
            local, source = np.divmod(keys, np.uint64(self.num_nodes))
            yield CheckedEdges(source, local + np.uint64(first), weight)

    def _sorted(self, file: Path, num_rows: int, unique: bool) -> SortedEdges:
        keys, weights = _in_order(*self._parts(np.fromfile(file, self._record)))
        num_repeated = 0
        if unique and len(keys):
            is_first = _is_new(keys)
            num_repeated = int((~is_first).sum())
            weights = None if weights is None else np.add.reduceat(weights, np.flatnonzero(is_first))
            keys = keys[is_first]
        if weights is not None:
            counts = weights.astype(np.float32) > 0  # single precision decides what is 0, as for graphs in memory
            keys, weights = keys[counts], weights[counts]
        local, source = np.divmod(keys, np.uint64(self.num_nodes))
        degrees = np.bincount(local.astype(np.int64), minlength=num_rows)
        return SortedEdges(degrees, source, weights, num_repeated)

    @property
    def _record(self) -> np.dtype:
        return _KEY_AND_WEIGHT if self.weighted else _KEY

    def _parts(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return (records["key"], records["weight"]) if self.weighted else (records, None)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number}.edges"


def _records(keys: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    if weights is None:
        return keys
    records = np.empty(len(keys), _KEY_AND_WEIGHT)
    records["key"], records["weight"] = keys, weights
    return records


def _in_order(keys: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Sort edges, repeated ones by their weights, so that a sum of these does not depend on the order of chunks."""
    if weights is None:
        keys.sort()
        return keys, None
    order = np.argsort(keys)
    keys, weights = keys[order], weights[order]
    is_new = _is_new(keys)
    repeated = ~is_new
    repeated[:-1] |= ~is_new[1:]
    weights[repeated] = weights[repeated][np.lexsort((weights[repeated], keys[repeated]))]
    return keys, weights


def _is_new(keys: np.ndarray) -> np.ndarray:
    """Which sorted keys differ from their predecessors."""
    is_new = np.ones(len(keys), dtype=bool)
    is_new[1:] = keys[1:] != keys[:-1]
    return is_new
