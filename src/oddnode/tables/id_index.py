"""The positions of nodes by their ids, for millions of look-ups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from oddnode.tables.values import pyarrow

__all__ = ["IdIndex", "arrow_ids"]

# A table of all numbers between the lowest and the highest id takes up to so many entries per node.
_SPREAD = 8


def arrow_ids(arrays: Mapping[str, np.ndarray], start: int, stop: int) -> Any:
    """Read the ids of nodes in a graph folder, without an object for each.

    Parameters
    ----------
    arrays : mapping
        As from `oddnode.large.GraphFolder.id_arrays`.
    start, stop : int
        The first node, and the one after the last.

    Returns
    -------
    pyarrow.Array
        Whole numbers or texts ``[n]``.
    """
    pa = pyarrow()
    if "ids" in arrays:
        return pa.array(arrays["ids"][start:stop])
    if "id_offsets" not in arrays:
        return pa.array(np.arange(start, stop))
    buffers = [None, pa.py_buffer(arrays["id_offsets"]), pa.py_buffer(arrays["id_bytes"])]
    whole = pa.Array.from_buffers(pa.large_string(), len(arrays["id_offsets"]) - 1, buffers)
    return whole.slice(start, stop - start)


class IdIndex:
    """Finds the positions of ids.

    Parameters
    ----------
    ids : pyarrow.Array
        Different whole numbers or texts ``[N]``, in the order of the nodes.
    """

    def __init__(self, ids: Any):
        self._ids = ids
        self._numbers = ids.to_numpy() if pyarrow().types.is_integer(ids.type) else None
        self._texts: Any = None
        if self._numbers is not None and len(self._numbers):
            self._prepare(self._numbers)

    def _prepare(self, numbers: np.ndarray) -> None:
        self._low, span = int(numbers.min()), int(numbers.max()) - int(numbers.min()) + 1
        self._is_range = span == len(numbers) and bool((numbers == np.arange(self._low, self._low + span)).all())
        self._table: np.ndarray | None = None
        if not self._is_range and span <= _SPREAD * len(numbers):
            self._table = np.full(span, -1, np.int64)
            self._table[numbers - self._low] = np.arange(len(numbers))
        elif not self._is_range:
            self._order = np.argsort(numbers, kind="stable")
            self._sorted = numbers[self._order]

    def positions(self, array: Any) -> np.ndarray:
        """Find the positions of ids.

        Parameters
        ----------
        array : pyarrow.Array
            Whole numbers or texts ``[n]``; 7 and "7" are the same id.

        Returns
        -------
        numpy.ndarray
            Positions ``[n]``; -1 = unknown.
        """
        if self._numbers is not None and pyarrow().types.is_integer(array.type):
            return self._of_numbers(array.to_numpy(zero_copy_only=False))
        return self._of_texts(array)

    def _of_numbers(self, wanted: np.ndarray) -> np.ndarray:
        assert self._numbers is not None
        count = len(self._numbers)
        if not count:
            return np.full(len(wanted), -1)
        if self._is_range or self._table is not None:
            place = wanted - self._low
            inside = (place >= 0) & (place < (count if self._table is None else len(self._table)))
            if self._table is None:
                return np.where(inside, place, -1)
            return np.where(inside, self._table[np.where(inside, place, 0)], -1)
        place = np.minimum(np.searchsorted(self._sorted, wanted), count - 1)
        return np.where(self._sorted[place] == wanted, self._order[place], -1)

    def _of_texts(self, array: Any) -> np.ndarray:
        pa = pyarrow()
        import pyarrow.compute as pc

        if self._texts is None:
            self._texts = self._ids.cast(pa.large_string())
        index = pc.index_in(array.cast(pa.large_string()), value_set=self._texts)
        return index.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
