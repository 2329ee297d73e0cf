"""The records of a store as plain data, and how their arrays become bytes."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from oddnode.runner.work import Training


class StoreError(RuntimeError):
    """The store cannot be used."""


class DamagedRecord(StoreError):
    """A record's checksum is wrong, or it cannot be read."""


@dataclass
class Record:
    """A finished training. Its facts are in memory; its arrays are read on first use."""

    training: Training  #: The training.
    code: str  #: The version of the source that it ran with.
    #: ``methods`` (metrics of each in percent, and ``score_seconds``), ``best_epoch``, ``epochs``, ``history``
    #: (``loss`` and ``val_loss`` of every epoch), ``seconds`` (``load``, ``fit``, ``forward``, ``score``, ``pack``),
    #: ``graphs`` (name -> the name its arrays have), ``data`` (a fingerprint), ``reasons`` (why nodes are flagged) and
    #: ``made_on``. A training that failed has an ``error``, and ``retry`` says whether another attempt may succeed.
    facts: dict[str, Any] = field(repr=False)
    read_arrays: Callable[[], bytes] = field(repr=False)  #: Returns the arrays as the bytes of an ``.npz`` file.

    @property
    def error(self) -> str | None:
        """Why the training failed; ``None`` if it did not."""
        return self.facts.get("error")

    def metrics(self, method: str) -> dict[str, Any]:
        """The metrics of a method from `oddnode.evaluate`: percentages, and those of each test graph under ``tests``.

        Parameters
        ----------
        method : str
            One of the methods that scored the training.
        """
        return self.facts["methods"][method]

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name."""
        return unpacked(self.read_arrays())

    def scores(self, method: str) -> dict[str, np.ndarray]:
        """Scores of every node of every graph under a method, float32 ``[N]``, higher = more in-distribution.

        Parameters
        ----------
        method : str
            One of the methods that scored the training.
        """
        return self._by_graph(f"scores/{method}")

    def reasons(self, method: str) -> dict[str, dict[int, str]]:
        """Why nodes are flagged under a method, by graph and node; empty if no reasons were kept.

        Parameters
        ----------
        method : str
            One of the methods that scored the training.
        """
        kept = self.facts.get("reasons", {}).get(method, {})
        by_graph = {name: kept.get(stored, {}) for name, stored in self.facts["graphs"].items()}
        return {name: {int(node): text for node, text in own.items()} for name, own in by_graph.items()}

    def predicted(self) -> dict[str, np.ndarray]:
        """The most likely ID class of every node of every graph."""
        return self._by_graph("predicted")

    def plane(self) -> dict[str, np.ndarray]:
        """Coordinates ``[N, 2]`` of every node, from a network with a two-dimensional last layer."""
        return self._by_graph("plane")

    def _by_graph(self, prefix: str) -> dict[str, np.ndarray]:
        names = {name: f"{prefix}/{stored}" for name, stored in self.facts["graphs"].items()}
        if not set(names.values()) <= self.arrays.keys():
            raise StoreError(f"{prefix} of every node was not kept for {self.training.label}")
        return {name: self.arrays[stored] for name, stored in names.items()}


@dataclass
class Graphs:
    """The graphs that all trainings on a task under one protocol and seed have in common."""

    facts: dict[str, Any]  #: Statistics of the graphs, and the name under which the arrays of each are stored.
    id_mask: np.ndarray  #: The ID test nodes of the ID graph, ``[N]``.
    ood_mask: dict[str, np.ndarray]  #: The OOD nodes of each test graph, ``[N]``.
    y: dict[str, np.ndarray]  #: The classes of each graph's nodes, ``[N]``; the ID graph is called ``"id"``.
    degree: dict[str, np.ndarray]  #: The degrees of each graph's nodes, ``[N]``.

    @property
    def tests(self) -> list[str]:
        """Names of the graphs with OOD nodes."""
        return list(self.ood_mask)


def packed(arrays: dict[str, np.ndarray]) -> bytes:
    """Arrays as the bytes of an ``.npz`` file."""
    buffer = io.BytesIO()
    # `numpy.savez_compressed` would take more than twice as long for scores, and make them smaller by two percent.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)
    return buffer.getvalue()


def unpacked(blob: bytes) -> dict[str, np.ndarray]:
    """Read the arrays that `packed` wrote; object arrays, which would be pickles, are refused."""
    with np.load(io.BytesIO(blob), allow_pickle=False) as arrays:
        return dict(arrays)


def checksum_of(*parts: str | bytes) -> str:
    """Hash strings and bytes; lengths are hashed too, so that ("ab", "c") differs from ("a", "bc")."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
