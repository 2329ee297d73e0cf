"""A record of the rows that a model was fitted on, so that later commands recognise them.

The model keeps keyed hashes of their ids, not the ids: sharing the folder reveals no ids.
"""

from __future__ import annotations

import hashlib
import secrets
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from oddnode.detector import ModelFileError, checked
from oddnode.tables.labels import SPLIT_PARTS, Split
from oddnode.tables.values import pa

if TYPE_CHECKING:
    from torch import Tensor

#: The uses of rows: the parts of the split, and arrivals, which are later than the training rows.
USES = (*SPLIT_PARTS, "arrival")

_DIGEST = np.dtype("<u8")
#: More rows are not remembered, nor looked up in a graph on disk: hashing takes a microsecond per row.
MOST_ROWS = 2**22
# If the reference rows have less than this share of their edges, the graph is a different one, or edges are missing.
_SAME_EDGES = 0.9
# The same ids are looked up several times, and hashing takes microseconds each.
_last: tuple[weakref.ref[Any], bytes, np.ndarray] | None = None

_Count = Annotated[int, Meta(ge=0, le=2**53)]


class _Section(Struct, frozen=True, forbid_unknown_fields=True):
    """The section of a model's config; the hashes are a tensor of the model."""

    key: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    sizes: tuple[_Count, _Count, _Count, _Count, _Count | None]
    num_reference_edges: _Count
    folder: str


class UsedRows(Struct, frozen=True, eq=False):
    """Hashes of the ids of the rows, by use: sorted 64-bit integers. Saved with the model."""

    key: bytes  #: The random key of the hashes.
    train: np.ndarray
    validation: np.ndarray
    calibration: np.ndarray
    references: np.ndarray  #: Calibration rows with their features: an id may be reused for another node.
    others: np.ndarray | None  #: Rows that were in the graph without a use; ``None`` if there are too many rows.
    num_reference_edges: int  #: Number of edges that lead to the calibration rows.
    folder: str = ""  #: The fingerprint of the graph folder that the model was fitted on; empty for tables.

    @classmethod
    def of(cls, ids: Any, split: Split, x: np.ndarray, edge_index: np.ndarray) -> UsedRows | None:
        """Make the record of a split; ``None`` if there are too many rows.

        Parameters
        ----------
        ids : pyarrow.Array
            The ids of all N nodes.
        split : Split
            Indices of the labelled ones by use.
        x : numpy.ndarray
            Features ``[N, F]``.
        edge_index : numpy.ndarray
            Edges ``[2, E]``.
        """
        parts = [getattr(split, part) for part in SPLIT_PARTS]
        if sum(map(len, parts)) + len(split.calibration) > MOST_ROWS:
            return None
        key = secrets.token_bytes(16)
        digests = [_digests(ids.take(pa.array(nodes)), key) for nodes in parts]
        digests.append(_with_features(digests[-1], x[split.calibration], key))
        others = None
        if len(ids) + len(split.calibration) <= MOST_ROWS:
            is_other = np.ones(len(ids), dtype=bool)
            is_other[np.concatenate(parts)] = False
            others = np.sort(_digests(ids.filter(pa.array(is_other)), key))
        train, validation, calibration, references = map(np.sort, digests)
        num_edges = np.bincount(edge_index[1], minlength=len(x))[split.calibration].sum()
        return cls(key, train, validation, calibration, references, others, int(num_edges))

    def to_json(self) -> dict[str, Any]:
        """The record as a section of the model's config, without the hashes."""
        parts = self.train, self.validation, self.calibration, self.references
        sizes = (*map(len, parts), None if self.others is None else len(self.others))
        section = _Section(self.key.hex(), sizes, self.num_reference_edges, self.folder)  # type: ignore[arg-type]
        return msgspec.to_builtins(section)

    def to_tensor(self) -> Tensor:
        """All hashes one after another, as a tensor of 64-bit integers that is saved with the model."""
        import torch

        parts = [self.train, self.validation, self.calibration, self.references]
        joined = np.concatenate([*parts, *([] if self.others is None else [self.others])])
        return torch.from_numpy(joined.view(np.int64))

    @classmethod
    def from_saved(cls, config: Any, hashes: Tensor | None) -> UsedRows | None:
        """Read a record from a saved model.

        Parameters
        ----------
        config : object
            Parsed JSON, as `to_json` returns it, or ``None`` if the model has no record; everything is checked.
        hashes : Tensor or None
            As `to_tensor` returns it.
        """
        if config is None:
            return None
        section = checked(config, _Section, "table_rows")
        sizes = [size or 0 for size in section.sizes]
        if hashes is None or str(hashes.dtype) != "torch.int64" or tuple(hashes.shape) != (sum(sizes),):
            raise ModelFileError(f"table_rows: the model does not have {sum(sizes)} hashes of rows")
        train, validation, calibration, references, others, _ = np.split(hashes.numpy().view(_DIGEST), np.cumsum(sizes))
        return cls(
            bytes.fromhex(section.key),
            *(train, validation, calibration, references),
            others=None if section.sizes[4] is None else others,
            num_reference_edges=section.num_reference_edges,
            folder=section.folder,
        )

    def trained_on(self, ids: Any) -> np.ndarray:
        """Return which rows were used for training or for choosing the epoch: one boolean per node ``[N]``.

        Parameters
        ----------
        ids : pyarrow.Array
            The ids of N nodes, of any table.
        """
        return np.isin(uses_of(self, ids), (0, 1))

    def reference_rows(self, ids: Any, x: np.ndarray, num_edges: np.ndarray) -> tuple[np.ndarray | None, str]:
        """Find the calibration rows in tables that may have grown since, to compare other nodes with them.

        The mask ``[N]`` marks calibration rows with the features that they had; it is ``None`` if there are none, or
        if too few of their edges are left. The string says what was found.

        Parameters
        ----------
        ids : pyarrow.Array
            The ids of N nodes.
        x : numpy.ndarray
            Their features ``[N, F]``.
        num_edges : numpy.ndarray
            The number of edges that lead to each ``[N]``.
        """
        digests = _digests(ids, self.key)
        here = np.flatnonzero(np.isin(digests, self.calibration))
        same = here[np.isin(_with_features(digests[here], x[here], self.key), self.references)]
        total = len(self.references)
        message = f"{len(here)} of the {total} reference rows are in these tables"
        if len(same) < len(here):
            message += f", {len(here) - len(same)} of them with changed features"
        if not len(same):
            return None, message
        edges, before = int(num_edges[same].sum()), self.num_reference_edges * len(same) / total
        if edges < _SAME_EDGES * before:
            return None, f"{message}, with {edges} edges instead of {round(before)}"
        mask = np.zeros(len(x), dtype=bool)
        mask[same] = True
        return mask, message

    def seen_rows(self, ids: Any) -> np.ndarray | None:
        """Return which rows were in the graph of the fit ``[N]``; ``None`` if the record does not have all rows.

        Parameters
        ----------
        ids : pyarrow.Array
            The ids of N nodes, of any table.
        """
        if self.others is None:
            return None
        known = np.concatenate([self.train, self.validation, self.calibration, self.others])
        return np.isin(_digests(ids, self.key), known)


def arrow_ids(arrays: Mapping[str, np.ndarray], start: int, stop: int) -> Any:
    """Read the ids of nodes in a graph folder, without a Python object for each."""
    if "ids" in arrays:
        return pa.array(arrays["ids"][start:stop])
    if "id_offsets" not in arrays:
        return pa.array(np.arange(start, stop))
    buffers = [None, pa.py_buffer(arrays["id_offsets"]), pa.py_buffer(arrays["id_bytes"])]
    whole = pa.Array.from_buffers(pa.large_string(), len(arrays["id_offsets"]) - 1, buffers)
    return whole.slice(start, stop - start)


def uses_of(rows: UsedRows | None, ids: Any) -> np.ndarray:
    """What rows were used for: an index into `USES` per id, or -1."""
    use = np.full(len(ids), -1, dtype=np.int8)
    if rows is not None:
        for number, part in enumerate(SPLIT_PARTS):
            use[np.isin(_digests(ids, rows.key), getattr(rows, part))] = number
    return use


def words_of(use: np.ndarray) -> Any:
    """Name the uses of rows; null for -1."""
    return pa.array(USES).take(pa.array(use, mask=use < 0))


def _digests(ids: Any, key: bytes) -> np.ndarray:
    """Hashes ``[n]``; the ids 7 and "7" have the same one. Those of the last ids are cached."""
    global _last
    last = _last
    if last is None or last[0]() is not ids or last[1] != key:
        last = _last = weakref.ref(ids), key, _hashed((str(value).encode() for value in ids.to_pylist()), key)
    return last[2]


def _with_features(digests: np.ndarray, x: np.ndarray, key: bytes) -> np.ndarray:
    """Hashes of rows ``[n]``, from the hashes of their ids and from their features ``[n, F]``."""
    pairs = zip(digests, np.ascontiguousarray(x), strict=True)
    return _hashed((digest.tobytes() + features.tobytes() for digest, features in pairs), key)


def _hashed(values: Any, key: bytes) -> np.ndarray:
    digests = (hashlib.blake2b(value, digest_size=_DIGEST.itemsize, key=key).digest() for value in values)
    return np.frombuffer(b"".join(digests), dtype=_DIGEST)
