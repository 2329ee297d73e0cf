"""A record of the rows that a model was fitted on, so that later commands know them again.

The model keeps keyed hashes of their ids, not the ids: a folder that is passed on names no node.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from oddnode.detector import ModelFileError, checked
from oddnode.tables.splits import Split
from oddnode.tables.values import pyarrow

__all__ = ["UsedRows"]

_PARTS = ("train", "validation", "calibration")
_DIGEST = np.dtype("<u8")
# More would make the config too large to be loaded again.
_MOST = 2**22


class UsedRows(Struct, frozen=True, forbid_unknown_fields=True):
    """Hashes of the ids of the labelled rows, by use. Saved with the model.

    Parameters
    ----------
    key : str
        The random key of the hashes, hexadecimal.
    train, validation, calibration : str
        The sorted hashes, eight bytes each, in base64.
    """

    key: str
    train: str
    validation: str
    calibration: str

    @classmethod
    def of(cls, ids: Any, split: Split) -> UsedRows | None:
        """Make the record of a split.

        Parameters
        ----------
        ids : pyarrow.Array
            The ids of all nodes.
        split : Split
            Positions of the labelled ones by use.

        Returns
        -------
        UsedRows or None
            ``None`` if there are too many rows.
        """
        positions = [getattr(split, part) for part in _PARTS]
        if sum(map(len, positions)) > _MOST:
            return None
        key = secrets.token_bytes(16)
        digests = (np.sort(_digests(ids.take(pyarrow().array(nodes)), key)) for nodes in positions)
        return cls(key.hex(), *(base64.b64encode(each.tobytes()).decode() for each in digests))

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

    def _part(self, name: str) -> np.ndarray:
        return np.frombuffer(base64.b64decode(getattr(self, name), validate=True), dtype=_DIGEST)


def _digests(ids: Any, key: bytes) -> np.ndarray:
    """Hashes ``[n]``; the ids 7 and "7" have the same one."""
    texts = (str(each).encode() for each in ids.to_pylist())
    joined = b"".join(hashlib.blake2b(text, digest_size=_DIGEST.itemsize, key=key).digest() for text in texts)
    return np.frombuffer(joined, dtype=_DIGEST)
