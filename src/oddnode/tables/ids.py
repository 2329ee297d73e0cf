"""Ids of nodes: reading them, and looking up millions of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from oddnode.tables.reader import Batch, TableSource
from oddnode.tables.values import TableError, pa, pc, quoted, trimmed

_PADDED_NUMBER = re.compile(r"0*(\d+)(\.0+)?")
# A table of all numbers between the lowest and the highest id takes at most this many entries per node.
_SPREAD = 8


def read_ids(array: Any, batch: Batch, column: str) -> Any:
    """Read ids as integers or trimmed strings, none of them missing."""
    if pa.types.is_uint64(array.type):  # may be too large for int64
        array = array.cast(pa.string())
    elif pa.types.is_integer(array.type):
        array = array.cast(pa.int64())
    elif pa.types.is_string(array.type):
        array = trimmed(array)
        array = pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)
    elif not pa.types.is_null(array.type):
        raise TableError(f"{batch.table}: column {column!r} holds {array.type}, expected ids as text or integers")
    if array.null_count:
        row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise TableError(f"{batch.table}: column {column!r} has no id in {batch.row_name(row)}")
    return array


def check_unique(ids: Any, table: TableSource, column: str) -> None:
    """Raise an error if two nodes have the same id."""
    if _is_ascending(ids) or len(ids.unique()) == len(ids):
        return
    counts = ids.value_counts()
    repeated = counts.field(0).to_pylist()[int(np.argmax(counts.field(1).to_numpy() > 1))]
    raise TableError(
        f"{table.name}: column {column!r} has the id {quoted(repeated)} more than once; ids must be unique"
    )


def _is_ascending(ids: Any) -> bool:
    """Whether ids are numbers that grow from row to row, which is quickly seen and takes little memory."""
    if not pa.types.is_integer(ids.type):
        return False
    numbers = ids.to_numpy(zero_copy_only=False)
    return bool((numbers[1:] > numbers[:-1]).all())


def similar_id(unknown: Any, ids: Any) -> Any | None:
    """Find an id that differs from another one in its zeros or capitals only, as ``7`` from ``007`` or ``7.0``."""
    wanted = _simplified(unknown)
    return next((known for known in ids.slice(0, 2**20).to_pylist() if _simplified(known) == wanted), None)


def _simplified(value: Any) -> str:
    text = str(value).strip().casefold()
    number = _PADDED_NUMBER.fullmatch(text)
    return number.group(1) if number else text


def arrow_ids(arrays: Mapping[str, np.ndarray], start: int, stop: int) -> Any:
    """Read the ids of nodes in a graph folder, without a Python object for each."""
    if "ids" in arrays:
        return pa.array(arrays["ids"][start:stop])
    if "id_offsets" not in arrays:
        return pa.array(np.arange(start, stop))
    buffers = [None, pa.py_buffer(arrays["id_offsets"]), pa.py_buffer(arrays["id_bytes"])]
    whole = pa.Array.from_buffers(pa.large_string(), len(arrays["id_offsets"]) - 1, buffers)
    return whole.slice(start, stop - start)


class IdIndex:
    """Finds the indices of nodes by their ids."""

    def __init__(self, ids: Any):
        self._ids = ids
        self._numbers = ids.to_numpy() if pa.types.is_integer(ids.type) else None
        self._strings: Any = None
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

    def indices(self, array: Any) -> np.ndarray:
        """Find the indices of ids; -1 = unknown."""
        if self._numbers is not None and pa.types.is_integer(array.type):
            return self._of_numbers(array.to_numpy(zero_copy_only=False))
        return self._of_strings(array)

    def _of_numbers(self, wanted: np.ndarray) -> np.ndarray:
        assert self._numbers is not None
        count = len(self._numbers)
        if not count:
            return np.full(len(wanted), -1)
        if self._is_range or self._table is not None:
            offset = wanted - self._low
            inside = (offset >= 0) & (offset < (count if self._table is None else len(self._table)))
            if self._table is None:
                return np.where(inside, offset, -1)
            return np.where(inside, self._table[np.where(inside, offset, 0)], -1)
        offset = np.minimum(np.searchsorted(self._sorted, wanted), count - 1)
        return np.where(self._sorted[offset] == wanted, self._order[offset], -1)

    def _of_strings(self, array: Any) -> np.ndarray:
        if self._strings is None:
            self._strings = self._ids.cast(pa.large_string())
        index = pc.index_in(array.cast(pa.large_string()), value_set=self._strings)
        return index.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
