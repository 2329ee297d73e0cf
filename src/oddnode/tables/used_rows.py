"""A record of the rows that a model was fitted on, so that later commands know them again.

The model keeps keyed hashes of their ids, not the ids: a folder that is passed on names no node.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import weakref
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from oddnode.detector import ModelFileError, checked
from oddnode.tables.splits import Split
from oddnode.tables.values import pyarrow

__all__ = ["UsedRows"]

_PARTS = ("train", "validation", "calibration")
_DIGEST = np.dtype("<u8")
# More would make the config too large to be loaded again.
_MOST = 2**22
# If the reference rows have fewer of their edges than this share, the graph is another one, or edges are missing.
_SAME_EDGES = 0.9
# Several questions are asked about the same ids, whose hashes take microseconds each.
_last: tuple[weakref.ref[Any], bytes, np.ndarray] | None = None


class UsedRows(Struct, frozen=True, forbid_unknown_fields=True):
    """Hashes of the ids of the rows, by use. Saved with the model.

    Parameters
    ----------
    key : str
        The random key of the hashes, hexadecimal.
    train, validation, calibration : str
        The sorted hashes, eight bytes each, in base64.
    references : str
        Sorted hashes of the calibration rows with their features, in the same form: an id alone may come to name
        another node.
    others : str or None
        Hashes of the rows that were in the graph without being any of these; ``None`` if there are too many rows.
    num_reference_edges : int
        Number of edges that lead to the calibration rows.
    folder : str
        The fingerprint of the graph folder that the model was fitted on; empty for tables.
    """

    key: str
    train: str
    validation: str
    calibration: str
    references: str
    others: str | None
    num_reference_edges: Annotated[int, Meta(ge=0, le=2**53)]
    folder: str = ""

    @classmethod
    def of(
        cls, ids: Any, split: Split, x: np.ndarray, edge_index: np.ndarray, with_others: bool = True
    ) -> UsedRows | None:
        """Make the record of a split.

        Parameters
        ----------
        ids : pyarrow.Array
            The ids of all N nodes.
        split : Split
            Positions of the labelled ones by use.
        x : numpy.ndarray
            Features ``[N, F]``.
        edge_index : numpy.ndarray
            Edges ``[2, E]``.
        with_others : bool
            Whether to record rows without a label, too, if there are not too many.

        Returns
        -------
        UsedRows or None
            ``None`` if there are too many rows.
        """
        positions = [getattr(split, part) for part in _PARTS]
        if sum(map(len, positions)) + len(split.calibration) > _MOST:
            return None
        key = secrets.token_bytes(16)
        digests = [_digests(ids.take(pyarrow().array(nodes)), key) for nodes in positions]
        digests.append(_with_features(digests[-1], x[split.calibration], key))
        is_other = np.ones(len(ids), dtype=bool)
        is_other[np.concatenate(positions)] = False
        others = None
        if with_others and len(ids) + len(split.calibration) <= _MOST:
            others = _packed(_digests(ids.take(pyarrow().array(np.flatnonzero(is_other))), key))
        num_edges = _edges_to(split.calibration, edge_index, len(x))
        train, validation, calibration, references = map(_packed, digests)
        return cls(key.hex(), train, validation, calibration, references, others, num_edges)

    def to_json(self) -> dict[str, str]:
        """The record as a section of the model's config."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_json(cls, config: Any) -> UsedRows | None:
        """Read a record from the section of a model's config.

        Parameters
        ----------
        config : object
            Parsed JSON, as `to_json` returns it, or ``None`` if the model has no record; everything is checked.
        """
        if config is None:
            return None
        rows = checked(config, cls, "table_rows")
        try:
            rows.use_of(pyarrow().array(["any"]))
            rows._part("references")
            rows.seen_rows(pyarrow().array(["any"]))
        except ValueError as error:
            raise ModelFileError(f"table_rows: {error}") from None
        return rows

    def use_of(self, ids: Any) -> Any:
        """Tell what rows were used for.

        Parameters
        ----------
        ids : pyarrow.Array
            The ids of N nodes, of any table.

        Returns
        -------
        pyarrow.Array
            ``"train"``, ``"validation"``, ``"calibration"`` or null ``[N]``.
        """
        digests = _digests(ids, bytes.fromhex(self.key))
        found = np.full(len(digests), -1)
        for number, part in enumerate(_PARTS):
            found[np.isin(digests, self._part(part))] = number
        pa = pyarrow()
        return pa.array(_PARTS).take(pa.array(found, mask=found < 0))

    def trained_on(self, ids: Any) -> np.ndarray:
        """Tell which rows were used for training or for choosing the epoch.

        Parameters
        ----------
        ids : pyarrow.Array
            The ids of N nodes, of any table.

        Returns
        -------
        numpy.ndarray
            One boolean per node ``[N]``.
        """
        return np.array([use in ("train", "validation") for use in self.use_of(ids).to_pylist()])

    def reference_rows(self, ids: Any, x: np.ndarray, edge_index: np.ndarray) -> tuple[np.ndarray | None, str]:
        """Find the calibration rows in tables that may have grown since, to compare other nodes with them.

        Parameters
        ----------
        ids : pyarrow.Array
            The ids of N nodes.
        x : numpy.ndarray
            Their features ``[N, F]``.
        edge_index : numpy.ndarray
            Their edges ``[2, E]``.

        Returns
        -------
        numpy.ndarray or None
            One boolean per node ``[N]``, True for calibration rows with the features that they had; ``None`` if there
            are none, or if too few of their edges are left.
        str
            What was found, for a message.
        """
        key = bytes.fromhex(self.key)
        digests = _digests(ids, key)
        here = np.flatnonzero(np.isin(digests, self._part("calibration")))
        same = here[np.isin(_with_features(digests[here], x[here], key), self._part("references"))]
        total = len(self._part("references"))
        found = f"{len(here)} of the {total} reference rows are in these tables"
        if len(same) < len(here):
            found += f", {len(here) - len(same)} of them with other features than at fit"
        if not len(same):
            return None, found
        edges, before = _edges_to(same, edge_index, len(x)), self.num_reference_edges * len(same) / total
        if edges < _SAME_EDGES * before:
            return None, f"{found}, with {edges} edges instead of {round(before)}"
        mask = np.zeros(len(x), dtype=bool)
        mask[same] = True
        return mask, found

    def seen_rows(self, ids: Any) -> np.ndarray | None:
        """Tell which rows were in the graph that the model was fitted on.

        Parameters
        ----------
        ids : pyarrow.Array
            The ids of N nodes, of any table.

        Returns
        -------
        numpy.ndarray or None
            One boolean per node ``[N]``; ``None`` if the record does not have all rows.
        """
        if self.others is None:
            return None
        known = np.concatenate([self._part(part) for part in (*_PARTS, "others")])
        return np.isin(_digests(ids, bytes.fromhex(self.key)), known)

    def _part(self, name: str) -> np.ndarray:
        return np.frombuffer(base64.b64decode(getattr(self, name), validate=True), dtype=_DIGEST)


def _packed(digests: np.ndarray) -> str:
    return base64.b64encode(np.sort(digests).tobytes()).decode()


def _digests(ids: Any, key: bytes) -> np.ndarray:
    """Hashes ``[n]``; the ids 7 and "7" have the same one. Those of the last ids are kept."""
    global _last
    last = _last
    if last is None or last[0]() is not ids or last[1] != key:
        last = _last = weakref.ref(ids), key, _new_digests(ids, key)
    return last[2]


def _new_digests(ids: Any, key: bytes) -> np.ndarray:
    texts = (str(each).encode() for each in ids.to_pylist())
    joined = b"".join(hashlib.blake2b(text, digest_size=_DIGEST.itemsize, key=key).digest() for text in texts)
    return np.frombuffer(joined, dtype=_DIGEST)


def _with_features(digests: np.ndarray, x: np.ndarray, key: bytes) -> np.ndarray:
    """Hashes of rows ``[n]``, from the hashes of their ids and from their features ``[n, F]``."""
    pairs = zip(digests, np.ascontiguousarray(x), strict=True)
    joined = b"".join(
        hashlib.blake2b(one.tobytes() + features.tobytes(), digest_size=_DIGEST.itemsize, key=key).digest()
        for one, features in pairs
    )
    return np.frombuffer(joined, dtype=_DIGEST)


def _edges_to(nodes: np.ndarray, edge_index: np.ndarray, num_nodes: int) -> int:
    chosen = np.zeros(num_nodes, dtype=bool)
    chosen[nodes] = True
    return int(chosen[edge_index[1]].sum())
