"""The ids of nodes on disk: whole numbers, or texts as bytes and the places where they end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from oddnode.large.arrays import ArrayEntry, ArrayWriter, FolderError

__all__ = ["ID_ARRAYS", "IdWriter", "read_ids"]

#: The arrays that may hold ids.
ID_ARRAYS: tuple[str, ...] = ("ids", "id_offsets", "id_bytes")


def read_ids(arrays: Mapping[str, np.ndarray], start: int, stop: int) -> np.ndarray:
    """Read the ids of nodes.

    Parameters
    ----------
    arrays : mapping
        The arrays that `IdWriter` wrote, by name.
    start, stop : int
        The first node, and the one after the last.

    Returns
    -------
    numpy.ndarray
        Whole numbers or texts ``[n]``.
    """
    if "ids" in arrays:
        return arrays["ids"][start:stop]
    if "id_offsets" not in arrays:
        return np.arange(start, stop)
    ends = arrays["id_offsets"][start : stop + 1].tolist()
    text = arrays["id_bytes"][ends[0] : ends[-1]].tobytes()
    pairs = pairwise(ends)
    return np.array([text[a - ends[0] : b - ends[0]].decode() for a, b in pairs], dtype=object)


class IdWriter:
    """Writes ids as whole numbers or as texts, and nothing if they are the positions of the nodes.

    Parameters
    ----------
    new_array : callable
        Called with the name of an array and the type of its numbers; returns its writer.
    """

    def __init__(self, new_array: Callable[[str, str], ArrayWriter]):
        self._new_array = new_array
        self._writers: dict[str, ArrayWriter] = {}
        self._are_positions = True
        self._num_bytes = 0

    def append(self, ids: np.ndarray | None, start: int) -> None:
        """Write more ids.

        Parameters
        ----------
        ids : numpy.ndarray or None
            Whole numbers or texts ``[n]``; ``None`` stands for the positions.
        start : int
            The position of the first.
        """
        count = 0 if ids is None else len(ids)
        if ids is None or count == 0:
            return
        if ids.dtype.kind in "iu":
            self._are_positions &= bool((ids == np.arange(start, start + count)).all())
            self._writer("ids", "int64").append(ids)
            return
        self._are_positions = False
        texts = [str(each).encode() for each in ids]
        ends = self._num_bytes + np.cumsum([len(text) for text in texts])
        if "id_offsets" not in self._writers:
            self._writer("id_offsets", "int64").append(np.zeros(1, np.int64))
        self._writer("id_offsets", "int64").append(ends)
        self._writer("id_bytes", "uint8").append(np.frombuffer(b"".join(texts), np.uint8))
        self._num_bytes = int(ends[-1])

    def _writer(self, name: str, dtype: str) -> ArrayWriter:
        if name not in self._writers:
            self._writers[name] = self._new_array(name, dtype)
        return self._writers[name]

    def close(self) -> dict[str, ArrayEntry]:
        """Flush the files to disk.

        Returns
        -------
        dict
            The entries of the manifest, by the names of the arrays.
        """
        if len(self._writers) == 3:
            raise FolderError("some ids are whole numbers and some are texts; give all of them as one or the other")
        entries = {name: writer.close() for name, writer in self._writers.items()}
        if not self._are_positions:
            return entries
        for writer in self._writers.values():
            writer.path.unlink()
        return {}
