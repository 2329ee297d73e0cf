"""A graph on disk: a folder of memory-mapped arrays with a manifest."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor

from oddnode.large.arrays import FolderError, map_array
from oddnode.large.file_checks import check_once, check_sum, file_stamp
from oddnode.large.manifest import Manifest, read_manifest
from oddnode.large.node_ids import ID_ARRAYS, read_ids
from oddnode.large.ranks import active_ranks
from oddnode.large.resident import ResidentFolder
from oddnode.large.rooms import scratch
from oddnode.large.sidecars import Sidecars, Write
from oddnode.large.stores import MASKS, ReadOnlyStores

__all__ = ["GraphFolder"]

# Folders whose edges this process has checked, with the size and the time of their file.
_checked_edges: set[tuple[str, int, int]] = set()


_OFFSETS_AT_ONCE = 2**20
# What is read without further checks; the largest come first, so that several ranks share the work.
_CHECKED = ("x", "sources", "weights", "offsets", "loop_nodes", "loop_counts", "loop_weights")


class GraphFolder(ReadOnlyStores):
    """A graph on disk, for graphs that do not fit into memory.

    Its arrays are mapped into memory: they are read when they are used, and several processes share one copy. They
    never change. Sidecars (results that depend on the graph alone, such as :math:`A X`) are added when they are first
    needed. Make a folder with `oddnode.large.build_folder` or ``oddnode prepare``.

    It has the attributes of a PyG ``Data``, and it is a PyG ``FeatureStore`` and ``GraphStore``: loaders take
    ``(folder, folder)`` as their data.

    Parameters
    ----------
    path : path
        The folder.

    Attributes
    ----------
    num_nodes, num_edges, num_features : int
        Number of nodes, of edges (columns of an ``edge_index``), and of features of a node.
    x : Tensor
        Features ``[N, F]``.
    offsets, sources : Tensor
        Edges sorted by target: the sources of the edges to node ``v`` are ``sources[offsets[v]:offsets[v + 1]]``.
    edge_weight : Tensor or None
        The weights of the edges, in the order of ``sources``; ``None`` if every edge counts as one.
    y, train_mask, val_mask, calibration_mask, reference_mask, ood_mask : Tensor or None
        As for `oddnode.graph.GraphSource`.
    directed : bool
        As for `oddnode.graph.GraphSource`; True if it was made from tables whose edges lead one way.
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__()
        self.path = Path(path)
        self.manifest: Manifest = read_manifest(self.path)
        self._arrays = {name: map_array(self._file(name), entry) for name, entry in self.manifest.arrays.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        # Workers of a loader map the files again; pickling a mapped array would copy it.
        return _reopened, (type(self), self.path, self._given_masks())

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.manifest.num_nodes

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.manifest.num_edges

    @property
    def num_features(self) -> int:
        """Number of features of a node."""
        return self.x.shape[1]

    @property
    def x(self) -> Tensor:
        """Features ``[N, F]``."""
        return self._arrays["x"]

    @property
    def offsets(self) -> Tensor:
        """Where the edges to every node begin, ``[N + 1]``."""
        return self._arrays["offsets"]

    @property
    def sources(self) -> Tensor:
        """The sources of the edges, sorted by target, ``[E]``."""
        return self._arrays["sources"]

    @property
    def edge_weight(self) -> Tensor | None:
        """The weights of the edges ``[E]``, above 0, in the precision of the features."""
        return self._arrays.get("weights")

    @property
    def loops(self) -> tuple[Tensor, Tensor, Tensor]:
        """The nodes with edges to themselves, how many each has, and what these weigh together."""
        counts = self._arrays["loop_counts"]
        return self._arrays["loop_nodes"], counts, self._arrays.get("loop_weights", counts)

    @property
    def edge_index(self) -> Tensor:
        """Edges ``[2, E]``, all of them in memory: 16 bytes an edge."""
        target = torch.repeat_interleave(torch.arange(self.num_nodes), self.offsets.diff())
        return torch.stack([self.sources.long(), target])

    @property
    def y(self) -> Tensor | None:
        """Classes ``[N]``, below 0 = unlabelled."""
        return self._arrays.get("y")

    @property
    def train_mask(self) -> Tensor | None:
        """The labelled nodes to train on."""
        return self._arrays.get("train_mask")

    @property
    def val_mask(self) -> Tensor | None:
        """The labelled nodes to choose the epoch by."""
        return self._arrays.get("val_mask")

    @property
    def calibration_mask(self) -> Tensor | None:
        """Held-out known nodes."""
        return self._arrays.get("calibration_mask")

    @property
    def reference_mask(self) -> Tensor | None:
        """Labelled nodes that nothing is learnt from."""
        return self._arrays.get("reference_mask")

    @property
    def ood_mask(self) -> Tensor | None:
        """Known OOD nodes."""
        return self._arrays.get("ood_mask")

    @property
    def directed(self) -> bool:
        """Whether edges are meant to lead one way only, as the tables were read that it was made from."""
        return bool((self.manifest.table or {}).get("directed", False))

    def with_masks(self, **masks: Tensor) -> GraphFolder:
        """Choose other nodes to learn from or to calibrate on.

        Parameters
        ----------
        **masks
            By name (``train_mask``, ``val_mask``, ...), one boolean per node ``[N]``.

        Returns
        -------
        GraphFolder
            The same folder with these masks; nothing is written.
        """
        unknown = set(masks) - set(MASKS)
        if unknown:
            raise FolderError(f"{sorted(unknown)[0]!r} is no mask, expected one of {', '.join(MASKS)}")
        chosen = self._given_masks() | masks
        other = type(self)(self.path)
        other.manifest = _without(other.manifest, set(chosen))
        other._arrays |= chosen
        return other

    def _given_masks(self) -> dict[str, Tensor]:
        """The masks that are not those of the folder."""
        return {name: self._arrays[name] for name in MASKS if name in self._arrays.keys() - self.manifest.arrays.keys()}

    def ids(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Read the ids of nodes.

        Parameters
        ----------
        start, stop : int
            The first node, and the one after the last; all by default.

        Returns
        -------
        numpy.ndarray
            Whole numbers or texts ``[n]``.
        """
        return read_ids(self.id_arrays(), start, self.num_nodes if stop is None else stop)

    def id_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that hold the ids.

        Returns
        -------
        dict
            ``ids`` for whole numbers; ``id_offsets`` and ``id_bytes`` for texts, as in Arrow; empty if the ids are the
            positions.
        """
        return {name: self._arrays[name].numpy() for name in ID_ARRAYS if name in self._arrays}

    def verify(self) -> Self:
        """Compare the checksums of all files; those of the edges and features are compared when they are first used.

        Returns
        -------
        GraphFolder
            The folder itself, if nothing is damaged.
        """
        for name, entry in self.manifest.arrays.items():
            check_sum(self._file(name), entry)
        return self

    def as_graph(self, device: torch.device | str = "cpu") -> Any:
        """Make the graph that detectors work on.

        Parameters
        ----------
        device : torch.device or str
            The device. A GPU must have room for the whole graph.

        Returns
        -------
        FolderGraph
            On the CPU its products stream the edges from disk.
        """
        from oddnode.large.graph import FolderGraph

        ranks = active_ranks()
        arrays = [name for name in _CHECKED if name in self.manifest.arrays]
        for name in arrays[ranks.rank :: ranks.world_size]:
            weights = self._arrays[name] if name in ("weights", "loop_weights") else None
            check_once(self._file(name), self.manifest.arrays[name], weights)
        self._check_edges()
        ranks.barrier()  # nobody uses what another has yet to check
        device = torch.device(device)
        return FolderGraph(self if device.type == "cpu" else ResidentFolder.of(self, device))

    def _check_edges(self) -> None:
        """Raise an error for edges that name other nodes than there are: a product would read any memory."""
        key = file_stamp(self._file("sources"))
        if key in _checked_edges:
            return
        ranks = active_ranks()
        parts = self.sources.split(2**24)[ranks.rank :: ranks.world_size]
        bounds = [part.aminmax() for part in parts if len(part)]
        ends = int(self.offsets[0]), int(self.offsets[-1])
        starts = range(0, self.num_nodes, _OFFSETS_AT_ONCE)
        ordered = all(bool((self.offsets[start:][: _OFFSETS_AT_ONCE + 1].diff() >= 0).all()) for start in starts)
        sound = ends == (0, self.num_edges) and ordered
        if not sound or any(int(low) < 0 or int(high) >= self.num_nodes for low, high in bounds):
            raise FolderError(f"the edges of {self.path} do not fit its {self.num_nodes} nodes; prepare it again")
        _checked_edges.add(key)

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.bin"

    @property
    def scratch_folder(self) -> Path:
        """Where temporary files go: into the folder, or into the system's folder for them if that is read-only."""
        return self.path if os.access(self.path, os.W_OK) else Path(tempfile.gettempdir())

    @property
    def max_abs_feature(self) -> float:
        """The largest magnitude of a feature, from the manifest."""
        return self.manifest.max_abs_feature

    @property
    def has_weights(self) -> bool:
        """Whether its edges have weights."""
        return self.edge_weight is not None

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Make room for a result: in memory, or in a temporary file if it is large.

        Parameters
        ----------
        shape : tuple of int
            The shape.
        dtype : torch.dtype
            The type of the numbers.

        Returns
        -------
        Tensor
            Not initialised.
        """
        return scratch(self.scratch_folder, shape, dtype)

    def sidecar(self, name: str, make: Write, dtype: str) -> Tensor:
        """Return a result that depends on the graph alone; it is computed once and kept in the folder.

        If another process is computing it, this one waits for it; ranks that work together (`oddnode.large.joined`)
        compute it together. A damaged sidecar is computed again. In a folder that is read-only nothing is kept.

        Parameters
        ----------
        name : str
            Its name, which is part of that of its file.
        make : callable
            Computes it, and appends its rows to the writer that it is called with.
        dtype : str
            The type of its numbers.
        """
        return Sidecars(self.path).get(name, make, dtype)

    def __repr__(self) -> str:
        return f"GraphFolder({self.path}, {self.num_nodes} nodes, {self.num_edges} edges, {self.num_features} features)"


def _reopened(kind: type[GraphFolder], path: Path, masks: dict[str, Tensor]) -> GraphFolder:
    return kind(path).with_masks(**masks) if masks else kind(path)


def _without(manifest: Manifest, names: set[str]) -> Manifest:
    arrays = {name: entry for name, entry in manifest.arrays.items() if name not in names}
    return replace(manifest, arrays=arrays)
