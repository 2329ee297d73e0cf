"""Sorting more edges than memory holds: they are divided among files by their targets, and each file is sorted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

__all__ = ["EdgeBuckets", "SortedEdges"]

# How many files; each holds the edges to equally many nodes.
_BUCKETS = 256
# More edges than this are not sorted at once (256 MiB); a larger file is divided again.
_SORTED_AT_ONCE = 2**25


class SortedEdges:
    """The edges to some nodes.

    Parameters
    ----------
    counts : numpy.ndarray
        How many edges lead to each of the nodes ``[n]``.
    sources : numpy.ndarray
        Their sources, sorted by target and then by source ``[e]``.
    """

    def __init__(self, counts: np.ndarray, sources: np.ndarray):
        self.counts = counts
        self.sources = sources


class EdgeBuckets:
    """Files of edges to the nodes ``start..stop - 1``; an edge is one number, so that sorting it sorts by both ends.

    Parameters
    ----------
    folder : Path
        Where the files are.
    num_nodes : int
        Number of nodes of the graph.
    start, stop : int
        The targets of the edges.
    """

    def __init__(self, folder: Path, num_nodes: int, start: int, stop: int):
        self.folder = folder
        self.num_nodes = num_nodes
        self.start = start
        self.stop = stop
        self.width = max(-(-(stop - start) // _BUCKETS), 1)
        self.count = -(-(stop - start) // self.width)

    def fill(self, chunks: Iterable[tuple[np.ndarray, np.ndarray]]) -> int:
        """Divide edges among the files.

        Parameters
        ----------
        chunks : iterable of (numpy.ndarray, numpy.ndarray)
            Sources and targets of the edges ``[n]`` each.

        Returns
        -------
        int
            Number of edges.
        """
        total = 0
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            files = [stack.enter_context(self._file(number).open("wb")) for number in range(self.count)]
            for source, target in chunks:
                bucket, local = np.divmod(target.astype(np.uint64) - np.uint64(self.start), np.uint64(self.width))
                keys = local * np.uint64(self.num_nodes) + source.astype(np.uint64)
                bucket = bucket.astype(np.uint8)  # numpy sorts so small numbers in linear time
                keys = keys[np.argsort(bucket, kind="stable")]
                ends = np.cumsum(np.bincount(bucket, minlength=self.count))
                for number in np.flatnonzero(np.diff(ends, prepend=0)):
                    files[number].write(keys[ends[number - 1] if number else 0 : ends[number]].data)
                total += len(keys)
        return total

    def sorted(self, unique: bool) -> Iterator[SortedEdges]:
        """Read the edges in the order of their targets.

        Parameters
        ----------
        unique : bool
            Whether a repeated edge counts once.

        Yields
        ------
        SortedEdges
            The edges to the next nodes; the nodes are consecutive, and all of them are covered.
        """
        for number in range(self.count):
            first = self.start + number * self.width
            last = min(first + self.width, self.stop)
            file = self._file(number)
            if file.stat().st_size > 8 * _SORTED_AT_ONCE and last - first > 1:
                parts = EdgeBuckets(self.folder / str(number), self.num_nodes, first, last)
                parts.fill(self._edges(file, first))
                yield from parts.sorted(unique)
            else:
                yield self._sorted(file, last - first, unique)

    def _edges(self, file: Path, first: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        keys = np.memmap(file, np.uint64, "r")
        for start in range(0, len(keys), _SORTED_AT_ONCE // 8):
            local, source = np.divmod(keys[start : start + _SORTED_AT_ONCE // 8], np.uint64(self.num_nodes))
            yield source, local + np.uint64(first)

    def _sorted(self, file: Path, num_rows: int, unique: bool) -> SortedEdges:
        keys = np.fromfile(file, np.uint64)
        keys.sort()
        if unique and len(keys):
            keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
        local, source = np.divmod(keys, np.uint64(self.num_nodes))
        return SortedEdges(np.bincount(local.astype(np.int64), minlength=num_rows), source)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number}.edges"
